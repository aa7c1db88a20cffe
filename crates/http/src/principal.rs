//! Who the caller is: two principals never share a key.

use http::request::Parts;
use http::{HeaderName, header};
use thiserror::Error;

/// A caller, as told apart from others. Only ever stored as part of a keyed hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(Vec<u8>);

impl Principal {
    /// A caller known by `value` in the namespace `kind`, so that a header's value can never
    /// pass for a verified claim of the same text.
    #[must_use]
    pub fn new(kind: &str, value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(kind.len() + value.len() + 1);
        bytes.extend_from_slice(kind.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value);
        Self(bytes)
    }

    /// Everybody who did not say who they are.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new("anonymous", b"")
    }

    /// The caller's name where it is no secret: the text of a trusted header, or of a verified
    /// claim. Never a credential.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let kind_ends = self.0.iter().position(|byte| *byte == 0)?;
        let (kind, value) = self.0.split_at_checked(kind_ends)?;
        let value = value.get(1..)?;
        match kind {
            b"header" => std::str::from_utf8(value).ok(),
            b"jwt" => claim_text(value),
            _ => None,
        }
    }

    /// The bytes that the scope is made of.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The last of four length-prefixed parts (issuer, claim, kind, value), where the kind is text.
fn claim_text(mut parts: &[u8]) -> Option<&str> {
    let mut last = [&[][..]; 2];
    for _ in 0..4 {
        let (length, rest) = parts.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        let [_, before] = last;
        last = [before, part];
        parts = rest;
    }
    let [kind, value] = last;
    let whole = parts.is_empty() && kind == b"text";
    std::str::from_utf8(value).ok().filter(|_| whole)
}

/// Why nobody knows who the caller is. The request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct PrincipalError {
    /// What is missing or wrong; shown to the caller.
    pub detail: Box<str>,
}

/// Tells who the caller is.
pub trait Principals: Send + Sync + 'static {
    /// The caller of a request.
    ///
    /// # Errors
    /// When the caller must be known and is not.
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError>;
}

/// The default: callers differ by their `Authorization` header. A refreshed token is another
/// caller; use a verified claim where tokens change between retries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Authorization;

impl Principals for Authorization {
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError> {
        one_value(request, &header::AUTHORIZATION).map(|value| match value {
            Some(value) => Principal::new("authorization", value),
            None => Principal::anonymous(),
        })
    }
}

/// A header that a trusted proxy in front sets. Anybody who can reach the layer directly can
/// claim to be anybody.
#[derive(Debug, Clone)]
pub struct TrustedHeader(pub HeaderName);

impl Principals for TrustedHeader {
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError> {
        match one_value(request, &self.0)? {
            Some(value) if !value.is_empty() => Ok(Principal::new("header", value)),
            Some(_) | None => Err(PrincipalError {
                detail: format!(
                    "the header `{}`, which names the caller, is missing",
                    self.0
                )
                .into(),
            }),
        }
    }
}

/// Everybody is the same caller: for APIs with one client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anonymous;

impl Principals for Anonymous {
    fn principal(&self, _: &Parts) -> Result<Principal, PrincipalError> {
        Ok(Principal::anonymous())
    }
}

/// The header's only value. Two values could name two callers, and which one counts is anybody's
/// guess.
fn one_value<'a>(
    request: &'a Parts,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, PrincipalError> {
    let mut values = request.headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        let detail = format!("the header `{name}` must be sent once").into();
        return Err(PrincipalError { detail });
    }
    Ok(first.map(http::HeaderValue::as_bytes))
}
