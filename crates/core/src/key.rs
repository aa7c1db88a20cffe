//! The idempotency key: how it is read from a request, and what is refused.
//!
//! A header carries the key bare (`abc`) or as a Structured Fields string (`"abc"`, RFC 9651).
//! Both spell the same key. RFC 9651 would let a recipient ignore a field that it cannot parse;
//! here that would run a write unprotected, so anything unclear is a [`KeyError`] that says what
//! to send instead. Neither an error nor `Debug` ever shows the key.

use alloc::boxed::Box;
use core::fmt;

mod hygiene;
mod structured;

pub use hygiene::PersonalData;
#[doc(hidden)]
pub use structured::parse_string_item;

/// No key is longer, whatever the limits say: a key is part of every record.
const CHARS_MAX: usize = 255;

/// What a key may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLimits {
    /// The fewest characters. Default: 1; 0 counts as 1.
    pub chars_min: usize,
    /// The most characters. Default: 255, which is also the most that is ever allowed.
    pub chars_max: usize,
    /// Which characters. Default: every visible one.
    pub class: CharClass,
    /// Refuse keys that look like personal data. Default: no.
    pub hygiene: bool,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            chars_min: 1,
            chars_max: CHARS_MAX,
            class: CharClass::Visible,
            hygiene: false,
        }
    }
}

/// The characters that a key may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharClass {
    /// Every visible ASCII character, 0x21 to 0x7E.
    Visible,
    /// Letters, digits, `-`, `.`, `_` and `~`: what needs no escaping in a URL or a log.
    Unreserved,
}

impl CharClass {
    const fn allows(self, byte: u8) -> bool {
        match self {
            Self::Visible => matches!(byte, 0x21..=0x7E),
            Self::Unreserved => {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
            }
        }
    }
}

/// Why a key was refused, and what to send instead. Positions count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no key.
    #[error("the request has no idempotency key: send one, such as a UUID")]
    Missing,
    /// There is more than one header line.
    #[error("the idempotency key was sent more than once: send exactly one header line")]
    Repeated,
    /// The key has no characters.
    #[error("the idempotency key is empty: send one, such as a UUID")]
    Empty,
    /// The key is too short.
    #[error(
        "the key has {chars} characters; at least {chars_min} are required: send a longer one, such as a UUID"
    )]
    TooShort {
        /// The characters of the key.
        chars: usize,
        /// The fewest allowed.
        chars_min: usize,
    },
    /// The key is too long.
    #[error(
        "the key has {chars} characters; at most {chars_max} are allowed: send a shorter one, such as a UUID"
    )]
    TooLong {
        /// The characters of the key.
        chars: usize,
        /// The most allowed.
        chars_max: usize,
    },
    /// A space, a control character, or something beyond ASCII.
    #[error(
        "character {position} of the key is not a visible ASCII character (0x21 to 0x7E): remove spaces, controls and accents"
    )]
    NotVisible {
        /// Which character of the key.
        position: usize,
    },
    /// Visible, but outside the [`CharClass`] of this API.
    #[error(
        "character {position} of the key is not allowed here: use only letters, digits, `-`, `.`, `_` and `~`"
    )]
    NotAllowed {
        /// Which character of the key.
        position: usize,
    },
    /// A bare key with a quote, a comma or a semicolon.
    #[error(
        "character {position} of the key is a quote, comma or semicolon, which may end a key: send the key in double quotes, with `\\` before each quote inside"
    )]
    NeedsQuotes {
        /// Which character of the field value.
        position: usize,
    },
    /// It begins with a quote but is no Structured Fields string.
    #[error(
        "the quoted key is malformed at character {position}: end it with a quote, write only `\\\"` and `\\\\` as escapes, and send nothing but parameters after it"
    )]
    Malformed {
        /// Which character of the field value.
        position: usize,
    },
    /// It looks like data about a person.
    #[error(
        "the key looks like {0}: keys travel through logs and proxies, so send a random one, such as a UUID"
    )]
    PersonalData(PersonalData),
}

/// The key of one write, as the client chose it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Reads the key from all lines of its header.
    ///
    /// # Errors
    /// When there is not exactly one line, and as [`Key::from_header`].
    pub fn from_header_lines<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        limits: &KeyLimits,
    ) -> Result<Self, KeyError> {
        let mut lines = lines.into_iter();
        let line = lines.next().ok_or(KeyError::Missing)?;
        if lines.next().is_some() {
            return Err(KeyError::Repeated);
        }
        Self::from_header(line, limits)
    }

    /// Reads the key from one field value, bare or quoted.
    ///
    /// # Errors
    /// When the value is no key, may be more than one, or breaks the limits.
    pub fn from_header(value: &[u8], limits: &KeyLimits) -> Result<Self, KeyError> {
        let (skipped, text) = trim(value);
        if text.first() == Some(&b'"') {
            let key = structured::string_item(text).map_err(|error| error.in_field(skipped))?;
            return Self::checked(key.as_bytes(), limits);
        }
        // A comma may join two lines, a semicolon may begin parameters, a quote may begin a
        // string: whatever is meant, a guess could give two writes one key.
        match text
            .iter()
            .position(|byte| matches!(byte, b'"' | b',' | b';'))
        {
            Some(at) => Err(KeyError::NeedsQuotes {
                position: skipped + at + 1,
            }),
            None => Self::checked(text, limits),
        }
    }

    /// Takes a key that has no syntax of its own, such as a field of a body.
    ///
    /// # Errors
    /// When the text has a character that is not visible, or breaks the limits.
    pub fn opaque(text: &str, limits: &KeyLimits) -> Result<Self, KeyError> {
        Self::checked(text.as_bytes(), limits)
    }

    /// The key itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn checked(bytes: &[u8], limits: &KeyLimits) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if let Some(at) = bytes
            .iter()
            .position(|byte| !CharClass::Visible.allows(*byte))
        {
            return Err(KeyError::NotVisible { position: at + 1 });
        }
        if let Some(at) = bytes.iter().position(|byte| !limits.class.allows(*byte)) {
            return Err(KeyError::NotAllowed { position: at + 1 });
        }
        let (chars, chars_min) = (bytes.len(), limits.chars_min);
        let chars_max = limits.chars_max.min(CHARS_MAX);
        if chars > chars_max {
            return Err(KeyError::TooLong { chars, chars_max });
        }
        if chars < chars_min {
            return Err(KeyError::TooShort { chars, chars_min });
        }
        let text = core::str::from_utf8(bytes).map_err(|_| KeyError::NotVisible { position: 1 })?;
        if limits.hygiene
            && let Some(kind) = hygiene::personal_data(text)
        {
            return Err(KeyError::PersonalData(kind));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Strips SP and HTAB, and counts what it stripped in front.
fn trim(value: &[u8]) -> (usize, &[u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let skipped = value.iter().take_while(|byte| is_space(byte)).count();
    let end = value
        .iter()
        .rposition(|byte| !is_space(byte))
        .map_or(skipped, |last| last + 1);
    (skipped, value.get(skipped..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
