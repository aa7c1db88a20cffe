//! Numbers: which ones a double holds exactly, and how RFC 8785 spells them.
//!
//! "Exactly" is about decimal text. `0.1` has no exact binary value, but it is what every reader
//! prints for that double, so nothing is lost. `0.10000000000000000001` would print as `0.1` too,
//! and is refused. Both directions take time linear in the text, whatever its exponent says.

use alloc::string::String;

/// Decimals of so many digits and the doubles nearest to them correspond one to one.
const DIGITS_SAFE: usize = 15;

/// A number whose canonical text says all that its source said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number<'a> {
    /// The source is its own canonical text, as it is for almost every number that is sent.
    Source(&'a str),
    /// A double that was spelled in another way.
    Double(f64),
}

impl Number<'_> {
    /// Hands over the canonical text.
    pub(crate) fn with_text<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Source(text) => take(text.as_bytes()),
            Self::Double(value) => take(ryu_js::Buffer::new().format_finite(value).as_bytes()),
        }
    }
}

/// The canonical text of a finite double.
#[must_use]
pub fn format_number(value: f64) -> String {
    String::from(ryu_js::Buffer::new().format_finite(value))
}

/// Reads a number whose syntax has been checked, if its canonical text denotes the same decimal.
///
/// `-0` is refused with the rest: its canonical text is `0`, and the sign would vanish.
pub(super) fn exact(source: &str) -> Option<Number<'_>> {
    if is_canonical(source) {
        return Some(Number::Source(source));
    }
    let value: f64 = source.parse().ok()?;
    if !value.is_finite() || (value == 0.0 && value.is_sign_negative()) {
        return None;
    }
    let mut buffer = ryu_js::Buffer::new();
    let canonical = buffer.format_finite(value);
    Decimal::of(source)
        .equals(&Decimal::of(canonical))
        .then_some(Number::Double(value))
}

/// Reads a number as RFC 8785 does: as the nearest double, whatever that loses.
pub(super) fn rounded(source: &str) -> Option<Number<'_>> {
    let value: f64 = source.parse().ok()?;
    // RFC 8785 prints both zeros as `0`.
    let value = if value == 0.0 { 0.0 } else { value };
    value.is_finite().then_some(Number::Double(value))
}

/// Is this a short number, spelled as RFC 8785 would? `false` only means that it takes longer.
///
/// The shortest text that reads back as the same double is what RFC 8785 prints. A decimal of at
/// most 15 digits is that text itself, but for trailing zeros and exponents.
fn is_canonical(source: &str) -> bool {
    let digits = source.strip_prefix('-').unwrap_or(source).as_bytes();
    // One more for the point. An exponent is neither a digit nor a point.
    if digits.len() > DIGITS_SAFE + 1 {
        return false;
    }
    let mut point = None;
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {}
            b'.' => point = Some(at),
            _ => return false,
        }
    }
    match point {
        None => digits.len() <= DIGITS_SAFE && source != "-0",
        // Below 0.000001 an exponent is due.
        Some(_) => digits.last() != Some(&b'0') && !digits.starts_with(b"0.00000"),
    }
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
