//! JSON Pointer (RFC 6901): the name of one place in a document.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::Token;

/// A parsed pointer. The empty one names the whole document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer {
    text: Box<str>,
    tokens: Vec<Box<str>>,
}

/// Why a text is no pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// Only the empty pointer has no slash.
    #[error("a JSON pointer begins with `/`: write `/name`, or nothing for the whole document")]
    NoSlash,
    /// `~` begins an escape.
    #[error("`~` in a JSON pointer must be written `~0`, and `/` inside a name `~1`")]
    BadEscape,
}

impl Pointer {
    /// Reads a pointer such as `/items/0/price`.
    ///
    /// # Errors
    /// When the text has no leading slash or an escape other than `~0` and `~1`.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let tokens = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(unescape).collect::<Result<_, _>>()?,
            None if text.is_empty() => Vec::new(),
            None => return Err(PointerError::NoSlash),
        };
        Ok(Self {
            text: text.into(),
            tokens,
        })
    }

    /// The pointer as it was written. Every pointer has only one spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Does this pointer name `other`, or something that holds it?
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.tokens.starts_with(&self.tokens)
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(AsRef::as_ref)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(token: &str) -> Result<Box<str>, PointerError> {
    let mut name = String::with_capacity(token.len());
    let mut rest = token;
    while let Some((plain, escape)) = rest.split_once('~') {
        name.push_str(plain);
        rest = if let Some(rest) = escape.strip_prefix('0') {
            name.push('~');
            rest
        } else if let Some(rest) = escape.strip_prefix('1') {
            name.push('/');
            rest
        } else {
            return Err(PointerError::BadEscape);
        };
    }
    name.push_str(rest);
    Ok(name.into())
}

/// The pointer that leads along `path`.
pub(crate) fn render(path: &[Token<'_>]) -> Box<str> {
    let mut text = String::new();
    for token in path {
        text.push('/');
        match token {
            Token::Name(name) => {
                for character in name.chars() {
                    match character {
                        '~' => text.push_str("~0"),
                        '/' => text.push_str("~1"),
                        other => text.push(other),
                    }
                }
            }
            Token::Index(index) => {
                // Writing to a `String` cannot fail.
                let _ = fmt::Write::write_fmt(&mut text, format_args!("{index}"));
            }
        }
    }
    text.into()
}
