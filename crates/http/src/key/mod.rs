//! Where a request's key is, and what it may look like.
//!
//! A rule has one source or several. All of them are looked at: two that name different keys are
//! a contradiction, and guessing which one counts could run a write twice. What cannot be read is
//! refused, never ignored.

mod pattern;
mod source;

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::json::Pointer;
use onlyonce_core::key::KeyError;
use onlyonce_core::{Key, KeyLimits};

pub use pattern::{KeyPattern, KeyPatternError};

use crate::first_sent::FirstSent;
use source::Seen;

/// The request header that carries the key, unless configured otherwise.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Where the key is, and whether it must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// The places, in order. Default: the header `Idempotency-Key`, bare or quoted.
    pub sources: Vec<KeySource>,
    /// Whether a request without one is refused. Default: yes.
    pub required: bool,
    /// The header that says when a request was first sent, where one is required.
    pub first_sent: Option<FirstSent>,
}

/// One place where a key may be, and what it may look like there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// The place.
    pub place: KeyPlace,
    /// The most characters; the route's own limit holds too. Default: 255.
    pub chars_max: usize,
    /// What else it must look like. Default: nothing.
    pub pattern: KeyPattern,
}

/// A place where a key may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// A header.
    Header {
        /// Its name.
        name: HeaderName,
        /// How the key is written in it.
        syntax: KeySyntax,
    },
    /// A string in a JSON body.
    Json {
        /// Where in the body.
        pointer: Pointer,
    },
    /// A field of a form (`application/x-www-form-urlencoded`).
    Form {
        /// Its name.
        field: String,
    },
    /// A parameter of the query.
    Query {
        /// Its name.
        name: String,
    },
}

/// How a key is written in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeySyntax {
    /// Bare or quoted; both spell the same key.
    #[default]
    Either,
    /// As it is: quotes are part of the key.
    Bare,
    /// As a Structured Fields string (RFC 9651).
    Structured,
}

impl KeySyntax {
    /// A key as it is written where it may be written in several ways: bare, if it can be.
    fn write(self, key: &str) -> Cow<'_, str> {
        let is_bare = match self {
            Self::Either => !key.contains(['"', ',', ';']),
            Self::Bare => true,
            Self::Structured => false,
        };
        if is_bare {
            return Cow::Borrowed(key);
        }
        let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
        Cow::Owned(format!("\"{escaped}\""))
    }
}

/// Why a request has no key that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyFault(pub(crate) String);

impl Default for KeyRule {
    fn default() -> Self {
        Self::header(KEY_HEADER)
    }
}

impl KeyRule {
    /// A required key in a header, bare or quoted.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        let syntax = KeySyntax::Either;
        Self {
            sources: vec![KeySource::at(KeyPlace::Header { name, syntax })],
            required: true,
            first_sent: None,
        }
    }

    /// Whether the key is known only once the body was read.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        self.sources.iter().any(|source| source.place.is_in_body())
    }

    /// Spells the key in one way, in every header where it may be: as on any other attempt, however
    /// the client has written it this time.
    pub(crate) fn spell(&self, key: &Key, headers: &mut HeaderMap) {
        for source in &self.sources {
            if let KeyPlace::Header { name, syntax } = &source.place
                && let Ok(value) = HeaderValue::from_str(&syntax.write(key.as_str()))
            {
                remove_twins(headers, name);
                headers.insert(name.clone(), value);
            }
        }
    }

    /// The request's key, as far as head and body say. Without a body the head alone is asked.
    pub(crate) fn find(
        &self,
        limits: &KeyLimits,
        parts: &Parts,
        body: Option<&[u8]>,
    ) -> Result<Option<Key>, KeyFault> {
        let (mut found, mut unreadable): (Option<(Key, &KeyPlace)>, _) = (None, None);
        for source in &self.sources {
            match source.look(limits, parts, body)? {
                Seen::Nothing => {}
                Seen::Unreadable(why) => unreadable = unreadable.or(Some(why)),
                Seen::Key(key) => match &found {
                    Some((first, place)) if *first != key => {
                        let other = &source.place;
                        return Err(KeyFault(format!(
                            "{place} and {other} name different keys: send one, or the same twice"
                        )));
                    }
                    Some(_) => {}
                    None => found = Some((key, &source.place)),
                },
            }
        }
        match (found, unreadable) {
            (Some((key, _)), _) => Ok(Some(key)),
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    /// The key that a text means, as somebody writes it who saw it in a request.
    ///
    /// # Errors
    /// When it is no key here.
    pub fn read(&self, limits: &KeyLimits, text: &str) -> Result<Key, KeyError> {
        let quotes_count = self.sources.iter().all(|source| match &source.place {
            KeyPlace::Header { syntax, .. } => *syntax == KeySyntax::Bare,
            KeyPlace::Json { .. } | KeyPlace::Form { .. } | KeyPlace::Query { .. } => true,
        });
        if quotes_count || !text.starts_with('"') {
            return Key::opaque(text, limits);
        }
        Key::from_header(text.as_bytes(), limits)
    }

    /// What to send, for a caller who sent nothing.
    pub(crate) fn advice(&self) -> String {
        let places = self.sources.iter().map(|source| source.place.to_string());
        let places: Vec<_> = places.collect();
        format!(
            "Send {} with a new random value, such as a UUID, and the same value on every retry of \
             this request.",
            places.join(" or ")
        )
    }
}

impl KeySource {
    /// A place, without further limits.
    #[must_use]
    pub fn at(place: KeyPlace) -> Self {
        Self {
            place,
            chars_max: KeyLimits::default().chars_max,
            pattern: KeyPattern::Any,
        }
    }
}

/// Removes headers that some services take for this one: to CGI and its kin, `_` in a name is `-`.
pub(crate) fn remove_twins(headers: &mut HeaderMap, name: &HeaderName) {
    let meant = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let is_twin = |other: &&HeaderName| {
        let [own, other] = [name, *other].map(|name| name.as_str().bytes().map(meant));
        own.eq(other)
    };
    let twins: Vec<_> = headers.keys().filter(is_twin).cloned().collect();
    for twin in twins.iter().filter(|twin| *twin != name) {
        headers.remove(twin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An API that reads names as CGI does would get two keys, of which one is the client's to choose.
    #[test]
    fn names_that_some_services_take_for_the_same_are_removed() {
        for own in ["x-idem-key", "x_idem_key", "x-idem_key"] {
            let mut headers = HeaderMap::new();
            for name in [
                "x-idem-key",
                "x_idem_key",
                "x-idem_key",
                "x-idem",
                "x-idem-keys",
            ] {
                headers.insert(name, HeaderValue::from_static("1"));
            }
            let own = HeaderName::from_static(own);
            remove_twins(&mut headers, &own);
            let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            left.sort_unstable();
            let mut expected = vec!["x-idem", "x-idem-keys", own.as_str()];
            expected.sort_unstable();
            assert_eq!(left, expected);
        }
    }
}
