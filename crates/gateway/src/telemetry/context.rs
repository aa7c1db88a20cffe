//! W3C trace context: `traceparent` and `tracestate`, read and written.
//!
//! What cannot be read is ignored, as the recommendation has it: a new trace begins, and the
//! `tracestate` that came with it is dropped.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of version 00: two, thirty-two, sixteen and two digits.
const LENGTH: usize = 55;

const SAMPLED: u8 = 1;

/// A trace; never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TraceId([u8; 16]);

/// A span; never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SpanId([u8; 8]);

/// Which span a request comes from, and whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) sampled: bool,
}

impl TraceId {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Whether a trace that begins here is one of this part of all. Its last seven bytes are
    /// random, and the same at every service that decides so.
    pub(super) fn is_sampled(self, ratio: f64) -> bool {
        // As many bits as a fraction has: with more, the largest would be rounded up to 1.
        let chance = (u128::from_be_bytes(self.0) & ((1 << 56) - 1)) >> 3;
        #[expect(clippy::cast_precision_loss, reason = "none is lost with 53 bits")]
        let chance = chance as f64 / (1_u64 << 53) as f64;
        chance < ratio
    }
}

impl SpanId {
    /// Spreads a number over all bits, one to one; nobody can tell one from the next.
    pub(super) fn mixed(number: u64) -> Self {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)).max(1).to_be_bytes())
    }
}

impl Context {
    /// The context of a request; `None` when it has none that can be read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let context = Self::read(lines.next()?)?;
        lines.next().is_none().then_some(context)
    }

    /// Reads one line.
    pub(super) fn read(line: &HeaderValue) -> Option<Self> {
        let line = line.as_bytes();
        let (known, rest) = line.split_at_checked(LENGTH)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let [version] = hex(parts.next()?)?;
        let (trace, span) = (hex(parts.next()?)?, hex(parts.next()?)?);
        let [flags] = hex(parts.next()?)?;
        let well_formed = match version {
            0 => rest.is_empty(),
            0xff => false,
            // A later version may say more, behind another dash.
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let ids = trace != [0; 16] && span != [0; 8];
        (well_formed && ids).then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            sampled: flags & SAMPLED != 0,
        })
    }

    /// As a header line.
    pub(super) fn write(self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.to_string()).ok()
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.sampled { SAMPLED } else { 0 };
        write!(f, "00-{}-{}-{flags:02x}", self.trace, self.span)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Exactly so many bytes in lower-case digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(lines: &[&str]) -> Option<Context> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACEPARENT, line.parse().unwrap());
        }
        Context::of(&headers)
    }

    #[test]
    fn a_good_line_is_written_as_it_was_read() {
        assert_eq!(of(&[GOOD]).unwrap().to_string(), GOOD);
        let unsampled = GOOD.replace("-01", "-00");
        let read = of(&[&unsampled]).unwrap();
        assert_eq!((read.sampled, read.to_string()), (false, unsampled));
        // Flags that are not known are not passed on; those that are, are.
        assert_eq!(
            of(&[&GOOD.replace("-01", "-ff")]).unwrap().to_string(),
            GOOD
        );
        // A later version is read as far as it is known.
        let later = format!("cc{}-what-is-this", &GOOD[2..]);
        assert_eq!(of(&[&later]).unwrap().to_string(), GOOD);
    }

    #[test]
    fn what_cannot_be_read_is_no_context() {
        let none = [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-more"),
            &format!("ff{}", &GOOD[2..]),
            &format!("cc{}.what", &GOOD[2..]),
            &GOOD.to_uppercase(),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace("4bf", "4bg"),
            &GOOD.replace("-00f0", "000f0"),
        ];
        for line in none {
            assert_eq!(of(&[line]), None, "{line}");
        }
        assert_eq!(of(&[GOOD, GOOD]), None, "two are none");
    }

    #[test]
    fn span_ids_differ_and_traces_are_sampled_in_proportion() {
        let ids: std::collections::HashSet<_> = (0..1000).map(SpanId::mixed).collect();
        assert_eq!(ids.len(), 1000);
        let sampled = (0..2000_u64).filter(|number| {
            let mut bytes = [0; 16];
            bytes[8..].copy_from_slice(&SpanId::mixed(*number).0);
            TraceId(bytes).is_sampled(0.25)
        });
        let sampled = sampled.count();
        assert!((350..650).contains(&sampled), "{sampled}");
        assert!(TraceId([255; 16]).is_sampled(1.0));
        assert!(!TraceId([0; 16]).is_sampled(0.0));
    }
}
