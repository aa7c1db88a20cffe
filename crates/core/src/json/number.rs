//! Numbers: which ones a double holds exactly, and how RFC 8785 spells them.
//!
//! "Exactly" is about decimal text. `0.1` has no exact binary value, but it is what every reader
//! prints for that double, so nothing is lost. `0.10000000000000000001` would print as `0.1` too,
//! and is refused. Both directions take time linear in the text, whatever its exponent says.

use alloc::string::String;

/// Below this many digits every integer is a double, and canonical as it stands.
const INTEGER_DIGITS_SAFE: usize = 15;

/// The canonical text of a finite double.
#[must_use]
pub fn format_number(value: f64) -> String {
    String::from(ryu_js::Buffer::new().format_finite(value))
}

/// The double that a JSON number denotes, if its canonical text denotes the same decimal.
///
/// `-0` is refused with the rest: its canonical text is `0`, and the sign would vanish.
pub(super) fn exact(source: &str) -> Option<f64> {
    if let Some(value) = small_integer(source) {
        return Some(value);
    }
    let value: f64 = source.parse().ok()?;
    if !value.is_finite() || (value == 0.0 && value.is_sign_negative()) {
        return None;
    }
    let mut buffer = ryu_js::Buffer::new();
    let canonical = buffer.format_finite(value);
    Decimal::of(source)
        .equals(&Decimal::of(canonical))
        .then_some(value)
}

fn small_integer(source: &str) -> Option<f64> {
    let bytes = source.as_bytes();
    if bytes.len() > INTEGER_DIGITS_SAFE || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = bytes
        .iter()
        .fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    #[expect(clippy::cast_precision_loss, reason = "15 digits stay below 2^53")]
    Some(value as f64)
}

/// `0.<head><tail>` times ten to the `exponent`, with no zero at either end of the digits.
struct Decimal<'a> {
    negative: bool,
    head: &'a str,
    tail: &'a str,
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Reads a number whose syntax has been checked.
    fn of(source: &'a str) -> Self {
        let (negative, source) = match source.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, source),
        };
        let (mantissa, exponent) = source.split_once(['e', 'E']).unwrap_or((source, ""));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let head = whole.trim_start_matches('0');
        let tail = fraction.trim_end_matches('0');
        let (head, tail, point) = if head.is_empty() {
            let digits = tail.trim_start_matches('0');
            (head, digits, -length(tail).saturating_sub(length(digits)))
        } else if tail.is_empty() {
            (head.trim_end_matches('0'), tail, length(head))
        } else {
            (head, tail, length(head))
        };
        if head.is_empty() && tail.is_empty() {
            return Self {
                negative,
                head,
                tail,
                exponent: 0,
            };
        }
        Self {
            negative,
            head,
            tail,
            exponent: point.saturating_add(parse_exponent(exponent)),
        }
    }

    fn equals(&self, other: &Self) -> bool {
        self.negative == other.negative
            && self.exponent == other.exponent
            && self
                .head
                .bytes()
                .chain(self.tail.bytes())
                .eq(other.head.bytes().chain(other.tail.bytes()))
    }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// Saturates: no text is long enough to bring such an exponent back into the range of a double.
fn parse_exponent(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = digits.bytes().fold(0_i64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(i64::from(digit.saturating_sub(b'0')))
    });
    if negative { -size } else { size }
}
