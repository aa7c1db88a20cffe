//! The keys that may sign a token, and the algorithms that each allows.
//!
//! A public key never becomes an HMAC secret: a file is a secret only if `jwt_algorithms` names
//! an HMAC, and then PEM is refused.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::SetupError;
use crate::config::Principal;

const HMAC: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
const EC: [Algorithm; 2] = [Algorithm::ES256, Algorithm::ES384];
const ED: [Algorithm; 1] = [Algorithm::EdDSA];

const KEY_FILE: &str = "principal.jwt_key_file";
const JWKS_FILE: &str = "principal.jwks_file";
const ALGORITHMS: &str = "principal.jwt_algorithms";

/// One key with everything that a token under it must satisfy.
pub(super) struct TrustedKey {
    id: Option<String>,
    pub(super) decoding: DecodingKey,
    pub(super) validation: Validation,
}

/// All of them.
pub(super) struct Keys {
    keys: Vec<TrustedKey>,
    /// One key from a file of its own signs everything, whatever the token calls it.
    any_id: bool,
}

impl Keys {
    pub(super) fn load(principal: &Principal) -> Result<Self, SetupError> {
        match (&principal.jwt_key_file, &principal.jwks_file) {
            (Some(file), None) => {
                let bytes = read(KEY_FILE, file)?;
                let (decoding, family) = if bytes.starts_with(b"-----BEGIN") {
                    public_key(&bytes)?
                } else {
                    secret(&bytes, &principal.jwt_algorithms)?
                };
                let allowed = allowed(family, &principal.jwt_algorithms);
                if allowed.len() < principal.jwt_algorithms.len() || allowed.is_empty() {
                    return setup(
                        ALGORITHMS,
                        "the key cannot verify all of them: remove the others",
                    );
                }
                let key = TrustedKey {
                    id: None,
                    decoding,
                    validation: validation(&allowed, principal),
                };
                Ok(Self {
                    keys: vec![key],
                    any_id: true,
                })
            }
            (None, Some(file)) => Self::from_set(&read(JWKS_FILE, file)?, principal),
            (None, None) | (Some(_), Some(_)) => {
                setup(KEY_FILE, "write either `jwt_key_file` or `jwks_file`")
            }
        }
    }

    /// Keys for encryption, and of kinds that cannot verify, are left out: a token that names one
    /// is refused.
    fn from_set(bytes: &[u8], principal: &Principal) -> Result<Self, SetupError> {
        let set: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let Some(Value::Array(items)) = set.get("keys") else {
            return setup(
                JWKS_FILE,
                "this is no JSON Web Key Set: it has no list `keys`",
            );
        };
        let mut keys = Vec::new();
        for item in items {
            let Ok(jwk) = serde_json::from_value::<Jwk>(item.clone()) else {
                continue;
            };
            let allowed = allowed_by(&jwk, &principal.jwt_algorithms);
            let Ok(decoding) = DecodingKey::from_jwk(&jwk) else {
                continue;
            };
            if !allowed.is_empty() {
                keys.push(TrustedKey {
                    id: jwk.common.key_id,
                    decoding,
                    validation: validation(&allowed, principal),
                });
            }
        }
        let ids: BTreeSet<_> = keys.iter().map(|key| &key.id).collect();
        if keys.is_empty() {
            return setup(
                JWKS_FILE,
                "none of its keys can verify a token here: check `jwt_algorithms`",
            );
        }
        if ids.len() < keys.len() {
            return setup(
                JWKS_FILE,
                "two of its keys have the same `kid`, or none: give each its own",
            );
        }
        Ok(Self {
            keys,
            any_id: false,
        })
    }

    /// The key that a token must be signed with. Without a key id that is clear only if there is
    /// one key.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&TrustedKey> {
        match (kid, self.keys.as_slice()) {
            (_, [only]) if self.any_id => Some(only),
            (None, [only]) => Some(only),
            (Some(kid), keys) => keys.iter().find(|key| key.id.as_deref() == Some(kid)),
            (None, _) => None,
        }
    }
}

fn setup<T>(key: &'static str, text: impl Into<String>) -> Result<T, SetupError> {
    let text = text.into();
    Err(SetupError { key, text })
}

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, SetupError> {
    std::fs::read(file).or_else(|reason| {
        let text = format!("{} cannot be read: {reason}", file.display());
        setup(key, text)
    })
}

fn public_key(pem: &[u8]) -> Result<(DecodingKey, &'static [Algorithm]), SetupError> {
    let text = String::from_utf8_lossy(pem);
    if text.contains("PRIVATE KEY") {
        return setup(
            KEY_FILE,
            "this is a private key, and whoever holds it can sign: give the gateway the public \
             key only",
        );
    }
    if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
        return Ok((key, &RSA));
    }
    if let Ok(key) = DecodingKey::from_ec_pem(pem) {
        return Ok((key, &EC));
    }
    if let Ok(key) = DecodingKey::from_ed_pem(pem) {
        return Ok((key, &ED));
    }
    setup(
        KEY_FILE,
        "this is no public key in PEM of RSA, P-256, P-384 or Ed25519",
    )
}

fn secret(
    bytes: &[u8],
    named: &[Algorithm],
) -> Result<(DecodingKey, &'static [Algorithm]), SetupError> {
    if named.is_empty() || !named.iter().all(|name| HMAC.contains(name)) {
        return setup(
            KEY_FILE,
            "this is no PEM public key; if it is the secret of an HMAC, say so with \
             `jwt_algorithms = [\"HS256\"]`",
        );
    }
    match without_line_end(bytes) {
        [] => setup(KEY_FILE, "the file is empty: anybody could sign"),
        secret => Ok((DecodingKey::from_secret(secret), &HMAC)),
    }
}

/// An editor or `echo` ends the file with a line end that is no part of the secret.
fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// The family's algorithms, or those of them that the configuration names.
fn allowed(family: &[Algorithm], named: &[Algorithm]) -> Vec<Algorithm> {
    let allowed = family.iter().copied();
    if named.is_empty() {
        allowed.collect()
    } else {
        allowed
            .filter(|algorithm| named.contains(algorithm))
            .collect()
    }
}

/// The same for a key of a set, which may itself say what it is for.
fn allowed_by(jwk: &Jwk, named: &[Algorithm]) -> Vec<Algorithm> {
    if matches!(
        jwk.common.public_key_use,
        Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_))
    ) {
        return Vec::new();
    }
    let family: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 => &[],
        },
        AlgorithmParameters::OctetKeyPair(_) => &ED,
        // A secret in a file of public keys must be meant.
        AlgorithmParameters::OctetKey(_) if named.is_empty() => &[],
        AlgorithmParameters::OctetKey(_) => &HMAC,
    };
    let mut allowed = allowed(family, named);
    if let Some(own) = jwk.common.key_algorithm {
        let own = own.to_string();
        allowed.retain(|algorithm| format!("{algorithm:?}") == own);
    }
    allowed
}

fn validation(allowed: &[Algorithm], principal: &Principal) -> Validation {
    let mut validation = Validation::default();
    validation.algorithms = allowed.to_vec();
    // Times are checked by `jwt.rs`, with a clock of its own.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.required_spec_claims = HashSet::new();
    if let Some(issuer) = &principal.jwt_issuer {
        validation.set_issuer(&[issuer]);
        validation.required_spec_claims.insert("iss".to_owned());
    }
    validation.validate_aud = !principal.jwt_audience.is_empty();
    if validation.validate_aud {
        validation.set_audience(&principal.jwt_audience);
        validation.required_spec_claims.insert("aud".to_owned());
    }
    validation
}

/// Whether the key file is one that must stay secret.
pub(crate) fn has_secret(principal: &Principal) -> bool {
    principal
        .jwt_algorithms
        .iter()
        .any(|named| HMAC.contains(named))
}

/// How many bytes an HMAC secret has and should have, if it has too few: a short one is guessed
/// from any token, offline.
pub(crate) fn short_secret(principal: &Principal) -> Option<(usize, usize)> {
    let wanted = principal
        .jwt_algorithms
        .iter()
        .map(|algorithm| match algorithm {
            Algorithm::HS256 => 32,
            Algorithm::HS384 => 48,
            Algorithm::HS512 => 64,
            Algorithm::ES256
            | Algorithm::ES384
            | Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512
            | Algorithm::EdDSA => 0,
        });
    let wanted = wanted.max()?;
    let bytes = std::fs::read(principal.jwt_key_file.as_ref()?).ok()?;
    let length = without_line_end(&bytes).len();
    (length < wanted).then_some((length, wanted))
}
