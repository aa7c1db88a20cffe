//! How a key is read from each place.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};
use onlyonce_core::json::{At, JsonLimits, Pointer, at};
use onlyonce_core::key::KeyError;
use onlyonce_core::{Key, KeyLimits};

use super::{KeyFault, KeyPlace, KeySource, KeySyntax};

/// What one place had.
pub(super) enum Seen {
    Key(Key),
    Nothing,
    /// The key should be here, and the place cannot be read.
    Unreadable(KeyFault),
}

impl KeySource {
    pub(super) fn look(
        &self,
        limits: &KeyLimits,
        parts: &Parts,
        body: Option<&[u8]>,
    ) -> Result<Seen, KeyFault> {
        let limits = KeyLimits {
            chars_max: limits.chars_max.min(self.chars_max),
            ..*limits
        };
        let seen = match &self.place {
            KeyPlace::Header { name, syntax } => header(name, *syntax, parts, &limits)?,
            KeyPlace::Query { name } => {
                let pairs = parts.uri.query().unwrap_or_default();
                self.field(name, pairs.as_bytes(), &limits)?
            }
            KeyPlace::Json { pointer } => match body {
                Some(body) if !body.is_empty() => self.json(pointer, parts, body, &limits)?,
                Some(_) | None => Seen::Nothing,
            },
            KeyPlace::Form { field } => match body {
                Some(body) if !body.is_empty() && !is_form(parts) => {
                    Seen::Unreadable(KeyFault(format!(
                        "the key should be in {}, and the body is no form: send it as \
                         `application/x-www-form-urlencoded`",
                        self.place
                    )))
                }
                Some(body) => self.field(field, body, &limits)?,
                None => Seen::Nothing,
            },
        };
        match seen {
            Seen::Key(key) if !self.pattern.allows(key.as_str()) => Err(KeyFault(format!(
                "the key in {} must match `{}`",
                self.place, self.pattern
            ))),
            seen @ (Seen::Key(_) | Seen::Nothing | Seen::Unreadable(_)) => Ok(seen),
        }
    }

    /// Nothing is inflated: a compressed body is no JSON here.
    fn json(
        &self,
        pointer: &Pointer,
        parts: &Parts,
        body: &[u8],
        limits: &KeyLimits,
    ) -> Result<Seen, KeyFault> {
        let place = &self.place;
        match at(body, pointer, &JsonLimits::default()) {
            Ok(At::Nothing) => Ok(Seen::Nothing),
            Ok(At::Text(text)) => self.opaque(&text, limits).map(Seen::Key),
            Ok(At::Other(kind)) => Err(KeyFault(format!(
                "{place} is {kind}: send the key as a string"
            ))),
            Err(_) if parts.headers.contains_key(header::CONTENT_ENCODING) => {
                Ok(Seen::Unreadable(KeyFault(format!(
                    "the key should be in {place}, and the body is encoded: send it as it is"
                ))))
            }
            Err(reason) => Ok(Seen::Unreadable(KeyFault(format!(
                "the key should be in {place}, and the body cannot be read: {reason}"
            )))),
        }
    }

    /// A field of `a=1&b=2`, as forms and queries have them.
    fn field(&self, name: &str, pairs: &[u8], limits: &KeyLimits) -> Result<Seen, KeyFault> {
        let mut values = pairs
            .split(|byte| *byte == b'&')
            .map(|pair| {
                let at = pair.iter().position(|byte| *byte == b'=');
                let (key, value) = pair.split_at(at.unwrap_or(pair.len()));
                (key, value.get(1..).unwrap_or_default())
            })
            .filter(|(key, _)| *decoded(key) == *name.as_bytes())
            .map(|(_, value)| value);
        let Some(value) = values.next() else {
            return Ok(Seen::Nothing);
        };
        if values.next().is_some() {
            return Err(self.wrong(&KeyError::Repeated));
        }
        // What is not ASCII is refused by the limits of every key.
        let text = String::from_utf8_lossy(&decoded(value)).into_owned();
        self.opaque(&text, limits).map(Seen::Key)
    }

    fn opaque(&self, text: &str, limits: &KeyLimits) -> Result<Key, KeyFault> {
        Key::opaque(text, limits).map_err(|reason| self.wrong(&reason))
    }

    fn wrong(&self, reason: &KeyError) -> KeyFault {
        let place = &self.place;
        if *reason == KeyError::Repeated {
            return KeyFault(format!("{place} is there more than once"));
        }
        KeyFault(format!("{place}: {reason}"))
    }
}

fn header(
    name: &HeaderName,
    syntax: KeySyntax,
    parts: &Parts,
    limits: &KeyLimits,
) -> Result<Seen, KeyFault> {
    let lines = parts.headers.get_all(name).iter();
    let lines = lines.map(HeaderValue::as_bytes);
    let key = match syntax {
        KeySyntax::Either => Key::from_header_lines(lines, limits),
        KeySyntax::Bare | KeySyntax::Structured => one(lines).and_then(|line| match line {
            [b'"', ..] if syntax == KeySyntax::Structured => Key::from_header(line, limits),
            _ if syntax == KeySyntax::Structured => Err(KeyError::Malformed { position: 1 }),
            line => bare(line, limits),
        }),
    };
    match key {
        Ok(key) => Ok(Seen::Key(key)),
        Err(KeyError::Missing) => Ok(Seen::Nothing),
        Err(reason) => Err(KeyFault(reason.to_string())),
    }
}

fn one<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], KeyError> {
    let line = lines.next().ok_or(KeyError::Missing)?;
    match lines.next() {
        Some(_) => Err(KeyError::Repeated),
        None => Ok(line.trim_ascii()),
    }
}

fn bare(line: &[u8], limits: &KeyLimits) -> Result<Key, KeyError> {
    let position = line.iter().position(|byte| !byte.is_ascii());
    match (position, std::str::from_utf8(line)) {
        (None, Ok(text)) => Key::opaque(text, limits),
        (at, _) => Err(KeyError::NotVisible {
            position: at.unwrap_or_default() + 1,
        }),
    }
}

fn is_form(parts: &Parts) -> bool {
    let value = parts.headers.get(header::CONTENT_TYPE);
    let media = value.and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
    media.is_some_and(|media| {
        let media = media.trim_ascii();
        media.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    })
}

/// Undoes `%41` and `+`.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
    };
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((byte, after)) = rest.split_first() {
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            plain.push(high << 4 | low);
            rest = after.get(2..).unwrap_or_default();
        } else {
            plain.push(if *byte == b'+' { b' ' } else { *byte });
            rest = after;
        }
    }
    Cow::Owned(plain)
}

impl KeyPlace {
    pub(super) fn is_in_body(&self) -> bool {
        match self {
            Self::Json { .. } | Self::Form { .. } => true,
            Self::Header { .. } | Self::Query { .. } => false,
        }
    }

    /// As in a configuration: `header:NAME`, `json:/pointer`, `form:FIELD`, `query:NAME`.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::Header { name, .. } => format!("header:{name}"),
            Self::Json { pointer } => format!("json:{pointer}"),
            Self::Form { field } => format!("form:{field}"),
            Self::Query { name } => format!("query:{name}"),
        }
    }
}

impl FromStr for KeyPlace {
    type Err = String;

    /// Reads what [`written`](Self::written) writes; a header's key is bare or quoted.
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write \"header:NAME\", \"json:/pointer\", \"form:FIELD\" or \"query:NAME\"";
        match text.split_once(':') {
            Some(("header", name)) => match name.parse() {
                Ok(name) => Ok(Self::Header {
                    name,
                    syntax: KeySyntax::Either,
                }),
                Err(_) => Err(format!("\"{name}\" is no header name: {example}")),
            },
            Some(("json", pointer)) => match Pointer::parse(pointer) {
                Ok(pointer) if !pointer.as_str().is_empty() => Ok(Self::Json { pointer }),
                Ok(_) => Err(format!("which member? {example}")),
                Err(reason) => Err(format!("\"{pointer}\": {reason}")),
            },
            Some(("form", field)) if !field.is_empty() => Ok(Self::Form {
                field: field.to_owned(),
            }),
            Some(("query", name)) if !name.is_empty() => Ok(Self::Query {
                name: name.to_owned(),
            }),
            _ => Err(format!("\"{text}\" is no place of a key: {example}")),
        }
    }
}

/// As a sentence names it.
impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, .. } => write!(f, "the header `{name}`"),
            Self::Json { pointer } => write!(f, "the JSON member `{pointer}`"),
            Self::Form { field } => write!(f, "the form field `{field}`"),
            Self::Query { name } => write!(f, "the query parameter `{name}`"),
        }
    }
}
