//! A Structured Fields item whose value is a string (RFC 9651), and nothing else.
//!
//! Parameters must follow the whole grammar, so that `"a";x="` is refused and not read as `a`;
//! what they say is ignored.

use alloc::string::String;
use alloc::vec::Vec;

use super::KeyError;

/// Digits of an integer, RFC 9651 section 3.3.1.
const INTEGER_DIGITS_MAX: usize = 15;
/// Digits before and after the point of a decimal, section 3.3.2.
const DECIMAL_WHOLE_DIGITS_MAX: usize = 12;
const DECIMAL_FRACTION_DIGITS_MAX: usize = 3;

/// Where an item stopped being one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemError {
    at: usize,
    is_visible: bool,
}

impl ItemError {
    fn malformed(self) -> Self {
        Self {
            is_visible: true,
            ..self
        }
    }

    /// Tells it as seen in a field whose first `skipped` bytes were white space.
    pub(super) fn in_field(self, skipped: usize) -> KeyError {
        if self.is_visible {
            KeyError::Malformed {
                position: skipped + self.at + 1,
            }
        } else {
            // `at` counts the opening quote, which is no character of the key.
            KeyError::NotVisible {
                position: self.at.max(1),
            }
        }
    }
}

/// The value of a string item, for tests against other parsers.
#[doc(hidden)]
#[must_use]
pub fn parse_string_item(value: &[u8]) -> Option<String> {
    string_item(value).ok()
}

/// Reads a field value as an item, and its value as a string.
pub(super) fn string_item(value: &[u8]) -> Result<String, ItemError> {
    let mut cursor = Cursor {
        bytes: value,
        at: 0,
    };
    cursor.spaces();
    let text = cursor.string()?;
    // Behind the string no character belongs to the key, visible or not.
    cursor.parameters().map_err(ItemError::malformed)?;
    cursor.spaces();
    if cursor.peek().is_some() {
        return Err(cursor.error().malformed());
    }
    Ok(text)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn parameters(&mut self) -> Result<(), ItemError> {
        while self.take(b';') {
            self.spaces();
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Ok(())
    }

    fn key(&mut self) -> Result<(), ItemError> {
        if !self.take_if(|byte| byte.is_ascii_lowercase() || byte == b'*') {
            return Err(self.error());
        }
        self.take_while(|byte| {
            byte.is_ascii_lowercase()
                || byte.is_ascii_digit()
                || matches!(byte, b'_' | b'-' | b'.' | b'*')
        });
        Ok(())
    }

    fn bare_item(&mut self) -> Result<(), ItemError> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number(true),
            Some(b'"') => self.string().map(drop),
            Some(b'*' | b'A'..=b'Z' | b'a'..=b'z') => {
                self.take_while(is_token);
                Ok(())
            }
            Some(b':') => self.byte_sequence(),
            Some(b'?') => self.boolean(),
            Some(b'@') => {
                self.at += 1;
                self.number(false)
            }
            Some(b'%') => self.display_string(),
            _ => Err(self.error()),
        }
    }

    fn number(&mut self, may_be_decimal: bool) -> Result<(), ItemError> {
        self.take(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if whole == 0 || whole > INTEGER_DIGITS_MAX {
            return Err(self.error());
        }
        if !may_be_decimal || !self.take(b'.') {
            return Ok(());
        }
        let fraction = self.take_while(|byte| byte.is_ascii_digit());
        if whole > DECIMAL_WHOLE_DIGITS_MAX
            || fraction == 0
            || fraction > DECIMAL_FRACTION_DIGITS_MAX
        {
            return Err(self.error());
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, ItemError> {
        if !self.take(b'"') {
            return Err(self.error());
        }
        // No text is longer than what is left of the field, which is short.
        let mut text = String::with_capacity(self.bytes.len() - self.at);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(byte @ (b'"' | b'\\')) => text.push(char::from(byte)),
                        _ => return Err(self.error()),
                    }
                }
                Some(byte @ 0x20..=0x7E) => text.push(char::from(byte)),
                _ => return Err(self.error()),
            }
            self.at += 1;
        }
    }

    /// Missing padding and padding bits that are not zero are allowed, as section 4.2.7 advises.
    fn byte_sequence(&mut self) -> Result<(), ItemError> {
        self.at += 1;
        let digits =
            self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        let padding = self.take_while(|byte| byte == b'=');
        let is_whole = match digits % 4 {
            0 => padding == 0,
            2 => matches!(padding, 0 | 2),
            3 => matches!(padding, 0 | 1),
            _ => false,
        };
        if is_whole && self.take(b':') {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    fn boolean(&mut self) -> Result<(), ItemError> {
        self.at += 1;
        if self.take_if(|byte| matches!(byte, b'0' | b'1')) {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    fn display_string(&mut self) -> Result<(), ItemError> {
        self.at += 1;
        if !self.take(b'"') {
            return Err(self.error());
        }
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'%') => {
                    self.at += 1;
                    let high = self.lower_hex()?;
                    let low = self.lower_hex()?;
                    bytes.push(high << 4 | low);
                }
                Some(byte @ 0x20..=0x7E) => {
                    bytes.push(byte);
                    self.at += 1;
                }
                _ => return Err(self.error()),
            }
        }
        if core::str::from_utf8(&bytes).is_err() {
            return Err(self.error());
        }
        self.at += 1;
        Ok(())
    }

    fn lower_hex(&mut self) -> Result<u8, ItemError> {
        let nibble = match self.peek() {
            Some(byte @ b'0'..=b'9') => byte - b'0',
            Some(byte @ b'a'..=b'f') => byte - b'a' + 10,
            _ => return Err(self.error()),
        };
        self.at += 1;
        Ok(nibble)
    }

    fn spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    fn take(&mut self, wanted: u8) -> bool {
        self.take_if(|byte| byte == wanted)
    }

    fn take_if(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        let is_wanted = self.peek().is_some_and(wanted);
        self.at += usize::from(is_wanted);
        is_wanted
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| wanted(**byte)).count();
        self.at += count;
        count
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn error(&self) -> ItemError {
        let is_visible = self.peek().is_none_or(|byte| matches!(byte, 0x20..=0x7E));
        ItemError {
            at: self.at,
            is_visible,
        }
    }
}

/// `tchar`, `:` and `/`.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
                | b':'
                | b'/'
        )
}
