//! A URL or header value with places for what a question is about.
//!
//! | place | what comes there | known |
//! |---|---|---|
//! | `{key}` | the client's key | by the request |
//! | `{body:/order/id}` | text, number or boolean at a JSON pointer of the request's body | by the request |
//! | `{path:id}` | a parameter of the route's path | by the request |
//! | `{principal}` | the caller's name, from a trusted header or a verified claim | by the request |
//! | `{child:NAME}` | the key that the execution gave a downstream call | later, too |
//! | `{operation}` | the operation: its record's id and when its key was first claimed | later, too |
//!
//! `{{` and `}}` are braces. A place that nothing is known for renders nothing at all: half a
//! question would be a question about something else.

use std::fmt;

use onlyonce_core::json::Pointer;
use onlyonce_core::{RecordId, Timestamp};
use thiserror::Error;

use super::memo::{Memo, Noted};

/// The longest rendered URL or header value, in bytes.
const RENDERED_BYTES_MAX: usize = 8 * 1024;

/// The longest name of a variable, in bytes: `body:` with its pointer, for example.
const NAME_BYTES_MAX: usize = 200;

/// Something that a template has a place for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// `{key}`
    Key,
    /// `{principal}`
    Principal,
    /// `{body:/pointer}`
    Body(Pointer),
    /// `{path:name}`
    Path(Box<str>),
    /// `{child:name}`
    Child(Box<str>),
    /// `{operation}`
    Operation,
}

impl Variable {
    fn parse(text: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(text.into());
        if text.len() > NAME_BYTES_MAX {
            return Err(TemplateError::TooLong(text.chars().take(20).collect()));
        }
        Ok(match text.split_once(':') {
            None if text == "key" => Self::Key,
            None if text == "principal" => Self::Principal,
            None if text == "operation" => Self::Operation,
            Some(("body", pointer)) => {
                let read = Pointer::parse(pointer);
                Self::Body(read.map_err(|error| TemplateError::Pointer(error.to_string()))?)
            }
            Some(("path", name)) if !name.is_empty() => Self::Path(name.into()),
            Some(("child", name)) if !name.is_empty() => Self::Child(name.into()),
            Some(_) | None => return Err(unknown()),
        })
    }

    /// Whether only the request knows it, so that it must be noted at the claim.
    #[must_use]
    pub const fn is_noted(&self) -> bool {
        match self {
            Self::Key | Self::Principal | Self::Body(_) | Self::Path(_) => true,
            Self::Child(_) | Self::Operation => false,
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("key"),
            Self::Principal => f.write_str("principal"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::Path(name) => write!(f, "path:{name}"),
            Self::Child(name) => write!(f, "child:{name}"),
            Self::Operation => f.write_str("operation"),
        }
    }
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A brace without its partner.
    #[error("a brace has no partner: write {{key}} for a place, and {{{{ for a brace itself")]
    Brace,
    /// No such place.
    #[error(
        "there is no {{{0}}}: write {{key}}, {{principal}}, {{operation}}, {{child:NAME}}, \
         {{path:NAME}} or {{body:/POINTER}}"
    )]
    Unknown(Box<str>),
    /// A place with too long a name.
    #[error("{{{0}…}} is too long a name: 200 bytes at most")]
    TooLong(Box<str>),
    /// The pointer of `{body:…}`.
    #[error("{{body:…}}: {0}")]
    Pointer(String),
    /// Not http or https, or no host.
    #[error(
        "a question goes to http or https: write a URL such as \"https://api.example/x/{{key}}\""
    )]
    NoUrl,
    /// A place where the host should be. What a client sends must not choose whom the gateway
    /// talks to.
    #[error("the host must be written out: places may stand only after the first \"/\"")]
    Host,
    /// A user or password in the URL.
    #[error("a URL carries no user or password: remove everything up to the \"@\"")]
    User,
    /// What cannot be in a request's target.
    #[error("a URL has no spaces, controls, or \"#\": escape them with %")]
    Character,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Place(Variable),
}

/// A text with places. Made by [`Template::parse`] or, for URLs, [`Template::url`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
    escapes: bool,
}

/// What is known when a template is rendered.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The operation.
    pub id: &'a RecordId,
    /// When its key was first claimed.
    pub created_at: Timestamp,
    /// What was noted at its claim.
    pub memo: &'a Memo,
    /// The keys of its downstream calls, by name.
    pub child: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Known({})", self.id)
    }
}

/// Why nothing could be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotRendered {
    /// Nothing was noted: the request had none, or came before it was asked for.
    #[error("{{{0}}} is not known of this request")]
    Missing(String),
    /// It was too long to be noted.
    #[error("{{{0}}} was too long to be noted")]
    TooLong(String),
    /// It is empty, or climbs out of its place by dots, and would ask for something else.
    #[error("{{{0}}} cannot be part of a question: it is empty, or a step up a path")]
    Unusable(String),
    /// The whole is too long.
    #[error("the question would be longer than {RENDERED_BYTES_MAX} bytes")]
    Long,
}

impl Template {
    /// Reads a text with places; for header values.
    ///
    /// # Errors
    /// When the text is no template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else {
                let place = brace
                    .strip_prefix('{')
                    .and_then(|after| after.split_once('}'));
                let (name, after) = place.ok_or(TemplateError::Brace)?;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(Part::Place(Variable::parse(name)?));
                rest = after;
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Self {
            text: text.into(),
            parts: parts.into(),
            escapes: false,
        })
    }

    /// Reads a URL with places after its host. What comes there is percent-encoded.
    ///
    /// # Errors
    /// When the text is no template, or no URL of a host that is written out.
    pub fn url(text: &str) -> Result<Self, TemplateError> {
        let mut template = Self::parse(text)?;
        template.escapes = true;
        let (_, host, alone) = template.address()?;
        if alone && template.parts.len() > 1 {
            return Err(TemplateError::Host);
        }
        if host.contains('@') {
            return Err(TemplateError::User);
        }
        if host.is_empty() || host.starts_with(':') {
            return Err(TemplateError::NoUrl);
        }
        let odd = |byte: u8| !byte.is_ascii_graphic() || b"#\"<>\\^`{|}".contains(&byte);
        if template.texts().flat_map(str::bytes).any(odd) {
            return Err(TemplateError::Character);
        }
        Ok(template)
    }

    /// What stands before, between and behind the places.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Place(_) => None,
        })
    }

    /// Of a URL: whether it is encrypted, the host with its port, and whether nothing follows it.
    fn address(&self) -> Result<(bool, &str, bool), TemplateError> {
        let first = match self.parts.first() {
            Some(Part::Text(text)) => text,
            Some(Part::Place(_)) | None => return Err(TemplateError::NoUrl),
        };
        let (https, rest) = if let Some(rest) = first.strip_prefix("https://") {
            (true, rest)
        } else if let Some(rest) = first.strip_prefix("http://") {
            (false, rest)
        } else {
            return Err(TemplateError::NoUrl);
        };
        let end = rest.find(['/', '?', '#']);
        let host = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        Ok((https, host, end.is_none()))
    }

    /// Of a URL: whether it is encrypted, and the host with its port.
    #[must_use]
    pub fn authority(&self) -> Option<(bool, &str)> {
        let (https, host, _) = self.address().ok().filter(|_| self.escapes)?;
        Some((https, host))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it has places for.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Place(variable) => Some(variable),
            Part::Text(_) => None,
        })
    }

    /// The text with every place filled.
    ///
    /// # Errors
    /// When something is not known, or cannot stand where its place is.
    pub fn render(&self, known: &Known<'_>) -> Result<String, NotRendered> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Place(variable) => {
                    let value = value(variable, known)?;
                    // `/charges/` would ask for all of them, and `/charges/..` for something else.
                    let climbs = |segment: &str| segment == "." || segment == "..";
                    if value.is_empty() || value.split(['/', '\\']).any(climbs) {
                        return Err(NotRendered::Unusable(variable.to_string()));
                    }
                    if self.escapes {
                        escape(&value, &mut text);
                    } else {
                        text.push_str(&value);
                    }
                }
            }
            if text.len() > RENDERED_BYTES_MAX {
                return Err(NotRendered::Long);
            }
        }
        Ok(text)
    }
}

/// An operation as the other side is told about it: the id of its record, and when its key was
/// first claimed. A key that is forgotten and used anew is another operation under the same id.
#[must_use]
pub fn operation(id: &RecordId, created_at: Timestamp) -> String {
    format!("{id}.{}", created_at.as_millis())
}

fn value(variable: &Variable, known: &Known<'_>) -> Result<String, NotRendered> {
    let missing = || NotRendered::Missing(variable.to_string());
    match variable {
        Variable::Operation => Ok(operation(known.id, known.created_at)),
        Variable::Child(name) => (known.child)(name).ok_or_else(missing),
        Variable::Key | Variable::Principal | Variable::Body(_) | Variable::Path(_) => {
            match known.memo.get(&variable.to_string()) {
                Some(Noted::Value(value)) => Ok(value.to_owned()),
                Some(Noted::TooLong) => Err(NotRendered::TooLong(variable.to_string())),
                None => Err(missing()),
            }
        }
    }
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn escape(value: &str, text: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(HEX.get(usize::from(digit)).copied().map_or('0', char::from));
            }
        }
    }
}

#[cfg(test)]
mod tests;
