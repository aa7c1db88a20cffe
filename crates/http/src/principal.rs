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

/// Who the caller of a route is, where the layer's own way of telling would not do. Without what
/// it looks for, the layer's own way decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Caller {
    /// As the layer says ([`Principals`]).
    #[default]
    Configured,
    /// By the bytes of these credentials, all that are there.
    Credentials(Vec<HeaderName>),
    /// By the access key id of an AWS Signature Version 4. The signature itself is another on
    /// every retry. It is not verified here: whoever writes the same id is the same caller.
    AwsAccessKey,
}

impl Caller {
    /// Whom a value means that is the only one of these credentials, in whichever place it was.
    #[must_use]
    pub fn alone(&self, value: &str) -> Vec<Principal> {
        match self {
            Self::Configured | Self::AwsAccessKey => Vec::new(),
            Self::Credentials(names) => names
                .iter()
                .filter_map(|name| by_credentials([(name, value.as_bytes())]))
                .collect(),
        }
    }

    /// The caller of a request, if this can tell.
    pub(crate) fn principal(&self, request: &Parts) -> Result<Option<Principal>, PrincipalError> {
        match self {
            Self::Configured => Ok(None),
            Self::Credentials(names) => {
                let mut given = Vec::new();
                for name in names {
                    given.extend(one_value(request, name)?.map(|value| (name, value)));
                }
                Ok(by_credentials(given))
            }
            Self::AwsAccessKey => {
                let signed = one_value(request, &header::AUTHORIZATION)?;
                let Some(signed) = signed.filter(|value| value.starts_with(b"AWS4-")) else {
                    return Ok(None);
                };
                // By its bytes, a signature would make another caller of every retry.
                let id = access_key(signed).ok_or_else(|| PrincipalError {
                    detail: "the signature in `authorization` names no access key".into(),
                })?;
                Ok(Some(Principal::new("aws-access-key", id)))
            }
        }
    }
}

fn by_credentials<'a>(
    given: impl IntoIterator<Item = (&'a HeaderName, &'a [u8])>,
) -> Option<Principal> {
    let mut bytes = Vec::new();
    for (name, value) in given {
        // Lengths keep a value from imitating the next name.
        for part in [name.as_str().as_bytes(), value] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    (!bytes.is_empty()).then(|| Principal::new("credentials", &bytes))
}

/// The id in `AWS4-HMAC-SHA256 Credential=ID/20250101/region/service/aws4_request, …`, whatever the
/// algorithm is.
fn access_key(authorization: &[u8]) -> Option<&[u8]> {
    let space = authorization.iter().position(|byte| *byte == b' ')?;
    let rest = authorization.get(space + 1..)?;
    let mut fields = rest.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let credential = fields.find_map(|field| field.strip_prefix(b"Credential="))?;
    let id = credential.split(|byte| *byte == b'/').next()?;
    (!id.is_empty()).then_some(id)
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
    // HTTP/2 leaves the space around a value that HTTP/1 takes away.
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(caller: &Caller, lines: &[(&'static str, &str)]) -> Option<Principal> {
        asked(caller, lines).unwrap()
    }

    fn asked(
        caller: &Caller,
        lines: &[(&'static str, &str)],
    ) -> Result<Option<Principal>, PrincipalError> {
        let mut request = http::Request::new(());
        for (name, value) in lines {
            let headers = request.headers_mut();
            headers.append(*name, value.parse().unwrap());
        }
        caller.principal(&request.into_parts().0)
    }

    /// A retry is signed anew; it must still be the same caller's.
    #[test]
    fn a_new_signature_is_the_same_caller() {
        for algorithm in ["AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"] {
            let signed = |id: &str, signature: &str| {
                let line = format!(
                    "{algorithm} Credential={id}/20250101/eu-west-1/dynamodb/aws4_request, \
                     SignedHeaders=host;x-amz-date, Signature={signature}"
                );
                asked(&Caller::AwsAccessKey, &[("authorization", &line)])
            };
            assert!(signed("AKID", "1").unwrap().is_some());
            assert_eq!(signed("AKID", "1").unwrap(), signed("AKID", "2").unwrap());
            assert_ne!(signed("AKID", "1").unwrap(), signed("OTHER", "1").unwrap());
            assert!(
                signed("", "1").is_err(),
                "by its bytes it would be another each time"
            );
        }
        assert_eq!(
            principal(&Caller::AwsAccessKey, &[("authorization", "Bearer x")]),
            None
        );
    }

    #[test]
    fn callers_differ_by_every_credential() {
        let caller = Caller::Credentials(vec![
            HeaderName::from_static("x-api-key"),
            header::AUTHORIZATION,
        ]);
        let of = |lines: &[(&'static str, &str)]| principal(&caller, lines);
        let a = of(&[("x-api-key", "a")]);
        assert_eq!(a, of(&[("x-api-key", "a")]));
        assert_eq!(a, of(&[("x-api-key", " a\t")]), "as HTTP/2 may bring it");
        assert_ne!(a, of(&[("x-api-key", "b")]));
        assert_ne!(a, of(&[("x-api-key", "a"), ("authorization", "b")]));
        assert_ne!(a, of(&[("authorization", "a")]));
        assert_eq!(of(&[]), None);
    }
}
