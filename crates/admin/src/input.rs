//! What comes in: query parameters and JSON bodies, read strictly. A typo must not list
//! everything, or change something else.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Query, Request};
use axum::http::{HeaderMap, Uri, header};
use http_body_util::LengthLimitError;
use onlyonce_core::RecordId;
use onlyonce_store::Cursor;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// The largest body of a request: a response of a megabyte, in base64.
pub(crate) const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How many entries a page has, unless asked for otherwise.
pub(crate) const LIMIT_DEFAULT: usize = 50;

/// How many it has at most.
pub(crate) const LIMIT_MAX: usize = 500;

fn invalid<T>(detail: impl Into<String>) -> Result<T, Problem> {
    Err(Code::InvalidRequest.because(detail))
}

/// The parameters of a request. An empty one is as good as none.
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads them; only those of `known` may be there, each once.
    pub(crate) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let Ok(Query(pairs)) = pairs else {
            return invalid("the query cannot be read: escape it as in `a=b%20c&d=e`");
        };
        let mut read = BTreeMap::new();
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                };
                return invalid(format!("there is no parameter \"{name}\" here: {known}"));
            }
            if read.insert(name.clone(), value).is_some() {
                return invalid(format!("the parameter \"{name}\" is there twice"));
            }
        }
        read.retain(|_, value| !value.is_empty());
        Ok(Self(read))
    }

    /// One of them, as text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// One of them, as something else.
    pub(crate) fn parsed<T>(
        &self,
        name: &str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => match parse(text) {
                Some(parsed) => Ok(Some(parsed)),
                None => invalid(format!("the parameter \"{name}\" must be {what}")),
            },
        }
    }

    /// A whole number within a range.
    pub(crate) fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Problem> {
        let what = format!("a whole number from {} to {}", range.start(), range.end());
        self.parsed(name, &what, |text| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            number.filter(|number| range.contains(number))
        })
    }

    /// The size of a page.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let most = u64::try_from(LIMIT_MAX).unwrap_or(u64::MAX);
        let limit = self.number("limit", 1..=most)?;
        Ok(limit
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(LIMIT_DEFAULT))
    }

    /// Where the page begins.
    pub(crate) fn after(&self) -> Result<Option<Cursor>, Problem> {
        self.parsed("after", "what `next` of a page said", |text| {
            RecordId::from_hex(text).map(Cursor)
        })
    }
}

/// Reads a JSON body.
pub(crate) async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return invalid("send `Content-Type: application/json`");
    }
    let bytes = read(body).await?;
    match serde_json::from_slice(&bytes) {
        Ok(read) => Ok(read),
        Err(error) => invalid(format!("the body is not as described: {error}")),
    }
}

async fn read(body: Body) -> Result<bytes::Bytes, Problem> {
    match axum::body::to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => Ok(bytes),
        Err(error) => {
            if error.into_inner().is::<LengthLimitError>() {
                let detail = format!("a request has {BODY_BYTES_MAX} bytes at most");
                return Err(Code::TooLarge.because(detail));
            }
            invalid("the body ended early")
        }
    }
}

/// A page of another site can send a form or plain text here, and no JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
