//! Whether a webhook is genuine and fresh.
//!
//! Two schemes are known: Standard Webhooks and Stripe's. Both sign the raw body with a time by
//! HMAC-SHA-256, compared here in constant time. A signed webhook that is older than the tolerance
//! is refused, so that a recorded one is of no use later; within the tolerance a repetition is
//! harmless, because a key is settled once.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;
use thiserror::Error;

/// How many signatures of one webhook are looked at. Senders send one for each of their secrets.
const SIGNATURES_MAX: usize = 16;

/// The shortest secret, in bytes. Standard Webhooks asks for 24; less can be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// How webhooks are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    Standard,
    /// Stripe: `Stripe-Signature`.
    Stripe,
}

/// Checks the webhooks of one sender.
#[derive(Clone)]
pub struct Verifier {
    scheme: Scheme,
    /// Prepared with each secret.
    secrets: Vec<Hmac<Sha256>>,
    tolerance: Duration,
}

/// A webhook that is genuine and fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// When it was sent, in seconds since the epoch, by the sender's clock.
    pub at_seconds: u64,
}

/// Why there is no secret in a text. Never shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretError {
    /// There is none.
    #[error("there is no secret: write one on each line, the current one and those before it")]
    None,
    /// `whsec_` and base64 are expected.
    #[error("a secret of Standard Webhooks is \"whsec_\" and base64 behind it")]
    NotBase64,
    /// Too short to be safe.
    #[error("a secret has at least {SECRET_BYTES_MIN} bytes")]
    TooShort,
}

/// Why a webhook is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// A header is missing or there twice.
    #[error("the header `{0}` must be there once")]
    Header(&'static str),
    /// A header cannot be read.
    #[error("the header `{0}` is malformed")]
    Malformed(&'static str),
    /// No signature is that of a known secret.
    #[error("no signature is valid")]
    Forged,
    /// Genuine, and too old, or from the future.
    #[error("it was signed too long ago, or a clock is wrong")]
    Stale,
}

impl Verifier {
    /// A verifier with the secrets in a text, one on each line.
    ///
    /// # Errors
    /// When there is no usable secret.
    pub fn new(scheme: Scheme, secrets: &str, tolerance: Duration) -> Result<Self, SecretError> {
        let lines = secrets
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let secrets: Result<Vec<_>, _> = lines.map(|line| prepared(scheme, line)).collect();
        let secrets = secrets?;
        if secrets.is_empty() {
            return Err(SecretError::None);
        }
        Ok(Self {
            scheme,
            secrets,
            tolerance,
        })
    }

    /// Checks a webhook at a time, in seconds since the epoch.
    ///
    /// # Errors
    /// When it is not genuine, or not fresh.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now_seconds: u64,
    ) -> Result<Signed, SignatureError> {
        let at_seconds = match self.scheme {
            Scheme::Standard => self.standard(headers, body)?,
            Scheme::Stripe => self.stripe(headers, body)?,
        };
        // A late one is told from a forged one only once it is known to be genuine.
        if now_seconds.abs_diff(at_seconds) > self.tolerance.as_secs() {
            return Err(SignatureError::Stale);
        }
        Ok(Signed { at_seconds })
    }

    fn standard(&self, headers: &HeaderMap, body: &[u8]) -> Result<u64, SignatureError> {
        const TIMESTAMP: &str = "webhook-timestamp";
        let id = one(headers, "webhook-id")?;
        let at = one(headers, TIMESTAMP)?;
        let signatures = one(headers, "webhook-signature")?;
        let seconds = seconds(at).ok_or(SignatureError::Malformed(TIMESTAMP))?;
        let given = signatures.split(' ').filter_map(|signature| {
            let signature = signature.strip_prefix("v1,")?;
            STANDARD.decode(signature).ok()
        });
        let signed = [id.as_bytes(), b".", at.as_bytes(), b".", body];
        self.check(&signed, given).map(|()| seconds)
    }

    fn stripe(&self, headers: &HeaderMap, body: &[u8]) -> Result<u64, SignatureError> {
        const SIGNATURE: &str = "stripe-signature";
        let line = one(headers, SIGNATURE)?;
        let pairs = || {
            line.split(',')
                .filter_map(|pair| pair.trim().split_once('='))
        };
        let mut times = pairs().filter(|(name, _)| *name == "t");
        let (Some((_, at)), None) = (times.next(), times.next()) else {
            return Err(SignatureError::Malformed(SIGNATURE));
        };
        let seconds = seconds(at).ok_or(SignatureError::Malformed(SIGNATURE))?;
        let given = pairs()
            .filter(|(name, _)| *name == "v1")
            .filter_map(|(_, signature)| unhex(signature));
        let signed = [at.as_bytes(), b".", body];
        self.check(&signed, given).map(|()| seconds)
    }

    fn check(
        &self,
        signed: &[&[u8]],
        given: impl Iterator<Item = Vec<u8>>,
    ) -> Result<(), SignatureError> {
        let macs: Vec<_> = self
            .secrets
            .iter()
            .map(|secret| {
                let mut mac = secret.clone();
                for part in signed {
                    mac.update(part);
                }
                mac
            })
            .collect();
        let genuine = given.take(SIGNATURES_MAX).any(|signature| {
            let is_of = |mac: &Hmac<Sha256>| mac.clone().verify_slice(&signature).is_ok();
            macs.iter().any(is_of)
        });
        genuine.then_some(()).ok_or(SignatureError::Forged)
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secrets = self.secrets.len();
        write!(f, "Verifier({:?}, {secrets} secrets)", self.scheme)
    }
}

fn prepared(scheme: Scheme, secret: &str) -> Result<Hmac<Sha256>, SecretError> {
    let bytes = match scheme {
        Scheme::Standard => {
            let base64 = secret.strip_prefix("whsec_").unwrap_or(secret);
            let decoded = STANDARD.decode(base64);
            decoded.map_err(|_| SecretError::NotBase64)?
        }
        // Stripe signs with the secret as it is shown, `whsec_` and all.
        Scheme::Stripe => secret.as_bytes().to_vec(),
    };
    if bytes.len() < SECRET_BYTES_MIN {
        return Err(SecretError::TooShort);
    }
    <Hmac<Sha256> as KeyInit>::new_from_slice(&bytes).map_err(|_| SecretError::TooShort)
}

fn one<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(SignatureError::Header(name));
    };
    value.to_str().map_err(|_| SignatureError::Malformed(name))
}

/// Digits alone: what else parses as a number is signed as another text.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes
        .collect::<Option<Vec<_>>>()
        .filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests;
