//! What was asked for: the payload of a request as it counts, and what is kept of it to answer.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri, header};
use onlyonce_core::Key;
use onlyonce_core::fingerprint::Payload;

use crate::{Compare, Route};

/// Hands over the payload of a request as far as it counts.
pub(crate) fn with_payload<T>(
    route: &Route,
    parts: &Parts,
    body: &[u8],
    use_it: impl FnOnce(&Payload<'_>) -> T,
) -> T {
    let (content_type, method) = (content_type(parts), method(parts));
    let seen = Seen {
        compare: route.compare,
        method: method.as_deref().unwrap_or(parts.method.as_str()),
        uri: &parts.uri,
        headers: &parts.headers,
        content_type: content_type.as_deref(),
        body,
    };
    seen.with_payload(use_it)
}

/// Everything about a request that may count, wherever it is kept.
struct Seen<'a> {
    compare: Compare,
    /// See [`method`].
    method: &'a str,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    content_type: Option<&'a [u8]>,
    body: &'a [u8],
}

impl Seen<'_> {
    fn with_payload<T>(&self, use_it: impl FnOnce(&Payload<'_>) -> T) -> T {
        let lines = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes().trim_ascii()));
        let lines: Vec<_> = lines.collect();
        let whole = Payload {
            method: self.method,
            path: self.uri.path(),
            query: self.uri.query(),
            headers: &lines,
            content_type: self.content_type,
            body: self.body,
        };
        use_it(&match self.compare {
            Compare::Payload => whole,
            // The method and the path.
            Compare::KeyOnly => Payload {
                query: None,
                headers: &[],
                content_type: None,
                body: &[],
                ..whole
            },
        })
    }
}

/// The media type of a request. Several lines are joined, which is no media type, so the body
/// counts byte by byte and every line counts.
fn content_type(parts: &Parts) -> Option<Cow<'_, [u8]>> {
    let mut lines = parts.headers.get_all(header::CONTENT_TYPE).iter();
    let first = lines.next()?.as_bytes();
    let joined = lines.fold(Cow::Borrowed(first), |mut joined, line| {
        joined.to_mut().extend_from_slice(b", ");
        joined.to_mut().extend_from_slice(line.as_bytes());
        joined
    });
    Some(joined)
}

/// Headers by which some APIs take a POST for another method.
pub const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];

/// The method with what overrides it, if anything does: the answer to a PATCH is none to a DELETE.
fn method(parts: &Parts) -> Option<String> {
    // Most heads have none, and a look at each name is cheaper than three searches.
    if !parts
        .headers
        .keys()
        .any(|name| METHOD_OVERRIDES.contains(name))
    {
        return None;
    }
    let mut method = parts.method.to_string();
    for name in &METHOD_OVERRIDES {
        for value in parts.headers.get_all(name) {
            // Quoted and escaped, so that no two heads are written alike; writing to a string
            // cannot fail.
            let value = value.as_bytes().escape_ascii();
            let _ = write!(method, " {name}=\"{value}\"");
        }
    }
    Some(method)
}

/// What is needed of a request to answer it, and to explain why it does not match.
pub(crate) struct Asked {
    /// Only where answers name it.
    pub(crate) key: Option<Key>,
    compare: Compare,
    method: Method,
    /// See [`method`].
    overridden: Option<String>,
    uri: Uri,
    headers: HeaderMap,
    content_type: Option<Vec<u8>>,
    body: Bytes,
}

impl Asked {
    pub(crate) fn new(route: &Route, parts: &Parts, key: &Key, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        let counted = &route.policy.fingerprint().rules().headers;
        for name in counted.iter().filter_map(|name| name.parse().ok()) {
            let name: HeaderName = name;
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Self {
            key: route.dialect.names_key.then(|| key.clone()),
            compare: route.compare,
            method: parts.method.clone(),
            overridden: method(parts),
            uri: parts.uri.clone(),
            headers,
            content_type: content_type(parts).map(Cow::into_owned),
            body,
        }
    }

    /// Hands over the payload as far as it counts.
    pub(crate) fn with_payload<T>(&self, use_it: impl FnOnce(&Payload<'_>) -> T) -> T {
        let seen = Seen {
            compare: self.compare,
            method: self.overridden.as_deref().unwrap_or(self.method.as_str()),
            uri: &self.uri,
            headers: &self.headers,
            content_type: self.content_type.as_deref(),
            body: &self.body,
        };
        seen.with_payload(use_it)
    }
}
