//! A claim of a verified bearer token.
//!
//! Which algorithms may sign is decided by the key and the configuration, never by the token: a
//! token that names another one, or `none`, is refused before its signature is looked at. A token
//! without an expiry is refused. The principal is the issuer and the claim, so that two issuers
//! can never name the same caller.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header;
use http::request::Parts;
use jsonwebtoken::errors::ErrorKind;
use onlyonce_http::{Principal, PrincipalError, Principals};
use serde_json::{Map, Value};

use super::jwt_keys::Keys;
use super::{SetupError, joined, refuse};
use crate::config;

/// Longer tokens are refused before they are decoded.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Verifies bearer tokens.
pub(super) struct Jwt {
    claim: String,
    keys: Keys,
    leeway: Duration,
    /// Seconds since 1970.
    now: fn() -> u64,
}

impl Jwt {
    pub(super) fn new(claim: &str, principal: &config::Principal) -> Result<Self, SetupError> {
        Ok(Self {
            claim: claim.to_owned(),
            keys: Keys::load(principal)?,
            leeway: principal.jwt_leeway,
            now: jsonwebtoken::get_current_timestamp,
        })
    }

    #[cfg(test)]
    pub(super) fn at(mut self, now: fn() -> u64) -> Self {
        self.now = now;
        self
    }

    /// The claims of a token whose signature, issuer and audience are good.
    fn verified(&self, token: &str) -> Result<Map<String, Value>, PrincipalError> {
        if token.len() > TOKEN_BYTES_MAX {
            return refuse(format!("the token is longer than {TOKEN_BYTES_MAX} bytes"));
        }
        let Some(kid) = header_of(token) else {
            return refuse("the token is no signed JWT");
        };
        let Some(key) = self.keys.find(kid.as_deref()) else {
            return refuse("the token is signed with a key that is not known here");
        };
        let decoded =
            jsonwebtoken::decode::<Map<String, Value>>(token, &key.decoding, &key.validation);
        decoded
            .map(|token| token.claims)
            .or_else(|error| refuse(reason(error.kind())))
    }

    fn check_times(&self, claims: &Map<String, Value>) -> Result<(), PrincipalError> {
        let (now, leeway) = ((self.now)(), self.leeway.as_secs());
        match seconds(claims.get("exp")) {
            Some(Some(expiry)) if expiry > now.saturating_sub(leeway) => {}
            Some(Some(_)) => return refuse("the token has expired: get a new one"),
            Some(None) => return refuse("the claim `exp` of the token is no time"),
            None => return refuse("the token has no expiry (`exp`)"),
        }
        match seconds(claims.get("nbf")) {
            Some(Some(begin)) if begin > now.saturating_add(leeway) => {
                refuse("the token is not valid yet")
            }
            Some(None) => refuse("the claim `nbf` of the token is no time"),
            Some(Some(_)) | None => Ok(()),
        }
    }
}

impl Principals for Jwt {
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError> {
        let claims = self.verified(bearer(request)?)?;
        self.check_times(&claims)?;
        let issuer = match claims.get("iss") {
            None => "",
            Some(Value::String(issuer)) => issuer,
            Some(_) => return refuse("the claim `iss` of the token is no text"),
        };
        // A number and a text that look alike are two callers.
        let (kind, value) = match claims.get(&self.claim) {
            Some(Value::String(text)) if !text.is_empty() => ("text", text.clone()),
            // Any other was rounded when it was read, and could be somebody else's by now.
            Some(Value::Number(number)) if number.is_u64() || number.is_i64() => {
                ("number", number.to_string())
            }
            Some(Value::Number(_)) => {
                return refuse(format!(
                    "the claim `{}` of the token is no whole number of 64 bits, which cannot name \
                     the caller",
                    self.claim
                ));
            }
            _ => {
                return refuse(format!(
                    "the token has no claim `{}` that names the caller",
                    self.claim
                ));
            }
        };
        Ok(named(issuer, &self.claim, kind, &value))
    }
}

fn named(issuer: &str, claim: &str, kind: &str, value: &str) -> Principal {
    let parts = [issuer, claim, kind, value].map(str::as_bytes);
    Principal::new("jwt", &joined(&parts))
}

/// The callers whom this claim may name: it may be a text or a number.
pub(crate) fn claimed(principal: &config::Principal, claim: &str, value: &str) -> Vec<Principal> {
    let issuer = principal.jwt_issuer.as_deref().unwrap_or_default();
    let kinds = ["text", "number"];
    kinds.map(|kind| named(issuer, claim, kind, value)).into()
}

/// The token of the one `Authorization: Bearer`.
fn bearer(request: &Parts) -> Result<&str, PrincipalError> {
    let mut values = request.headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return refuse("send one header `Authorization: Bearer TOKEN`");
    };
    let scheme_and_token = value.to_str().ok().and_then(|value| value.split_once(' '));
    match scheme_and_token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        Some(_) | None => refuse("send `Authorization: Bearer TOKEN`"),
    }
}

/// The key id that a token's header names, if any. `None` when there is no header to trust: not
/// JSON, or with extensions (`crit`) that must be understood and are not.
#[expect(
    clippy::option_option,
    reason = "no header, and a header without a key id, differ"
)]
fn header_of(token: &str) -> Option<Option<String>> {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next()?).ok()?;
    let header: Map<String, Value> = serde_json::from_slice(&header).ok()?;
    if header.contains_key("crit") {
        return None;
    }
    match header.get("kid") {
        None => Some(None),
        Some(Value::String(kid)) => Some(Some(kid.clone())),
        Some(_) => None,
    }
}

/// A time in a claim: absent, no time, or whole seconds.
#[expect(
    clippy::option_option,
    reason = "absent and unreadable are different refusals"
)]
fn seconds(claim: Option<&Value>) -> Option<Option<u64>> {
    let value = claim?;
    let fraction = || {
        value
            .as_f64()
            .filter(|seconds| (0.0..1e15).contains(seconds))
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be in range; a part of a second does not count"
    )]
    let whole = value
        .as_u64()
        .or_else(|| fraction().map(|seconds| seconds as u64));
    Some(whole)
}

/// What is neither issuer, audience nor algorithm is a way of not being genuine, and a forger
/// learns nothing from which.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest have one answer")]
fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidIssuer => "the token is from another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks its issuer or audience",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => {
            "the token is signed with an algorithm that is not allowed here"
        }
        _ => "the token's signature is not good",
    }
}
