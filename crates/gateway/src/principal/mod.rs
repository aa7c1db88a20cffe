//! Who the caller is, as the operator chose: two principals never share a key.
//!
//! A verified claim or certificate survives a refreshed token or a renewed certificate; the bytes
//! of `Authorization` do not, so there a retry with a new token is another caller.
//!
//! | `source` | here |
//! |---|---|
//! | `authorization`, `header:NAME`, `none` | `onlyonce_http` |
//! | `jwt:CLAIM` | `jwt` verifies, `jwt_keys` reads the keys |
//! | `mtls` | `mtls` reads the certificate that the listener verified |
//!
//! SIGHUP reads the keys of tokens again (`reload`).

mod jwt;
mod jwt_keys;
mod mtls;
mod reload;
#[cfg(test)]
mod tests;

use onlyonce_http::{Anonymous, Authorization, PrincipalError, Principals, TrustedHeader};
use thiserror::Error;

use crate::config;

pub(crate) use jwt::claimed;
pub(crate) use jwt_keys::{has_secret, short_secret};
pub(crate) use mtls::ClientCertificate;
pub(crate) use reload::Callers;

/// Why callers cannot be told apart as configured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {text}")]
pub(crate) struct SetupError {
    /// The key of the configuration that is to blame.
    pub(crate) key: &'static str,
    /// Why, and what to do.
    pub(crate) text: String,
}

/// Whether callers are told apart by keys in files.
pub(crate) fn has_files(principal: &config::Principal) -> bool {
    matches!(principal.source, config::Source::Jwt(_))
}

/// What tells callers apart, with its keys read from their files.
///
/// # Errors
/// When a key file cannot be read, or holds nothing that may verify a token.
pub(crate) fn build(principal: &config::Principal) -> Result<Box<dyn Principals>, SetupError> {
    Ok(match &principal.source {
        config::Source::Authorization => Box::new(Authorization),
        config::Source::Header(name) => Box::new(TrustedHeader(name.clone())),
        config::Source::Jwt(claim) => Box::new(jwt::Jwt::new(claim, principal)?),
        config::Source::Mtls => Box::new(mtls::Mtls),
        config::Source::None => Box::new(Anonymous),
    })
}

/// A refusal that the caller sees.
fn refuse<T>(detail: impl Into<Box<str>>) -> Result<T, PrincipalError> {
    Err(PrincipalError {
        detail: detail.into(),
    })
}

/// Parts one after another, each with its length, so that none can run into the next.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}
