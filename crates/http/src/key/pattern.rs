//! What a key must look like beyond its length: a set of characters, or a GUID.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What a key must look like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeyPattern {
    /// Any visible characters.
    #[default]
    Any,
    /// 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    Guid,
    /// Only characters of a set, written as in a regular expression: `[A-Za-z0-9_:-]`.
    Chars(CharSet),
}

/// A set of visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharSet {
    text: Box<str>,
    bits: u128,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no pattern: write \"guid\", or a set of visible ASCII characters such as \
     \"[A-Za-z0-9_:-]\""
)]
pub struct KeyPatternError(Box<str>);

impl KeyPattern {
    /// Whether a key looks like this.
    pub(crate) fn allows(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Guid => is_guid(key),
            Self::Chars(set) => key.bytes().all(|byte| set.has(byte)),
        }
    }
}

impl CharSet {
    fn has(&self, byte: u8) -> bool {
        byte < 128 && self.bits & (1 << byte) != 0
    }

    /// The inside of the brackets: single characters and ranges. `-` at the end is itself.
    fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        let mut bits = 0_u128;
        let mut rest = inner.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            let (last, taken) = match after {
                [b'-', last, ..] => (*last, 2),
                _ => (*first, 0),
            };
            let is_plain =
                |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'[' | b']' | b'^');
            if !is_plain(*first) || !is_plain(last) || last < *first {
                return None;
            }
            for byte in *first..=last {
                bits |= 1 << byte;
            }
            rest = after.get(taken..)?;
        }
        (bits != 0).then(|| Self {
            text: text.into(),
            bits,
        })
    }
}

impl FromStr for KeyPattern {
    type Err = KeyPatternError;

    fn from_str(text: &str) -> Result<Self, KeyPatternError> {
        match text {
            "any" => Ok(Self::Any),
            "guid" => Ok(Self::Guid),
            set => CharSet::parse(set)
                .map(Self::Chars)
                .ok_or_else(|| KeyPatternError(text.into())),
        }
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Guid => "guid",
            Self::Chars(set) => &set.text,
        })
    }
}

fn is_guid(text: &str) -> bool {
    let groups = text.split('-').map(|group| {
        let hex = group.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hex { group.len() } else { 0 }
    });
    groups.eq([8, 4, 4, 4, 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_characters_and_no_others() {
        let telnyx: KeyPattern = "[A-Za-z0-9_:-]".parse().unwrap();
        assert!(telnyx.allows("order_42:A-z"));
        for refused in ["order 42", "order.42", "a/b", "é"] {
            assert!(!telnyx.allows(refused), "{refused}");
        }
        assert_eq!(telnyx.to_string(), "[A-Za-z0-9_:-]");
        let one: KeyPattern = "[a-a]".parse().unwrap();
        assert!(one.allows("aa") && !one.allows("-"));
    }

    #[test]
    fn a_guid_has_its_five_groups() {
        let guid: KeyPattern = "guid".parse().unwrap();
        assert!(guid.allows("8E03978e-40d5-43e8-bc93-6894a57f9324"));
        for refused in [
            "8e03978e40d543e8bc936894a57f9324",
            "x",
            "8e03978e-40d5-43e8-bc93-6894a57f932g",
        ] {
            assert!(!guid.allows(refused), "{refused}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "", "uuid", "[]", "[z-a]", "A-Z", "[a b]", "[^a]", "[é]", "[a-]]",
        ] {
            assert!(text.parse::<KeyPattern>().is_err(), "{text}");
        }
    }
}
