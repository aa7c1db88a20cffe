//! The per-deployment secret, and the one way anything is hashed with it.
//!
//! Every hash takes length-prefixed parts, so no choice of bytes in one part can imitate the
//! border to the next, and starts from a [`Purpose`], so an id can never equal a fingerprint.
//! The secret itself is drawn outside this crate and kept by the store.

use core::fmt;

use crate::mac::{Keyed, Mac};

/// What a keyed hash is for. Two purposes never give the same digest for the same parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A [`RecordId`](crate::RecordId): scope and key.
    RecordId,
    /// A [`Fingerprint`](crate::Fingerprint): the payload.
    Fingerprint,
    /// One field's digest, for naming what differs.
    Field,
    /// A principal, shown to operators without naming it.
    Principal,
    /// A key for a call that the execution makes further down.
    ChildKey,
    /// A key's short digest for logs.
    Log,
    /// The encryption key of one stored response.
    Seal,
    /// The id of a row that names an operation by what somebody else calls it.
    Reference,
    /// The id of a row that no client's key means, such as an entry of the audit trail.
    Note,
    /// What tells a secret from another one without showing it.
    Mark,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::RecordId => b"onlyonce.record-id.v1",
            Self::Fingerprint => b"onlyonce.fingerprint.v1",
            Self::Field => b"onlyonce.field.v1",
            Self::Principal => b"onlyonce.principal.v1",
            Self::ChildKey => b"onlyonce.child-key.v1",
            Self::Log => b"onlyonce.log.v1",
            Self::Seal => b"onlyonce.seal.v1",
            Self::Reference => b"onlyonce.reference.v1",
            Self::Note => b"onlyonce.note.v1",
            Self::Mark => b"onlyonce.mark.v1",
        }
    }
}

/// 32 secret bytes that every instance of a deployment shares.
///
/// Holds the prepared HMAC state, so that hashing a request does not start from the raw key.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; 32],
    mac: Keyed,
    /// The keys of fields' digests, which every request needs.
    fields: [u8; 32],
}

impl Secret {
    /// Wraps 32 bytes of entropy.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        let mut secret = Self {
            bytes,
            mac: Keyed::new(&bytes),
            fields: [0; 32],
        };
        secret.fields = secret.hash(Purpose::Field).finish();
        secret
    }

    /// The keys of the digests of single fields.
    pub(crate) const fn fields(&self) -> &[u8; 32] {
        &self.fields
    }

    /// The raw bytes, for the store that keeps them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Starts a hash for one purpose.
    #[must_use]
    pub fn hash(&self, purpose: Purpose) -> KeyedHash {
        let mut hash = KeyedHash {
            mac: self.mac.begin(),
        };
        hash.part(purpose.label());
        hash
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        // Compares digests, so that the time it takes tells nothing about the bytes.
        self.hash(Purpose::Log).finish() == other.hash(Purpose::Log).finish()
    }
}

impl Eq for Secret {}

/// HMAC-SHA-256 over length-prefixed parts.
#[derive(Clone)]
pub struct KeyedHash {
    mac: Mac,
}

impl KeyedHash {
    /// Adds one part, behind its length.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Self {
        self.mac.update(&(bytes.len() as u64).to_be_bytes());
        self.mac.update(bytes);
        self
    }

    /// Adds bytes with no length of their own.
    ///
    /// Only for the *last* part, or one whose end its own syntax gives (canonical JSON).
    pub fn stream(&mut self, bytes: &[u8]) -> &mut Self {
        self.mac.update(bytes);
        self
    }

    /// The digest.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        self.mac.finish()
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Secret::new([7; 32]).hash(Purpose::RecordId);
        for part in parts {
            hash.part(part);
        }
        hash.finish()
    }

    /// A delimiter inside a part must not be able to move the border between two parts.
    #[test]
    fn parts_cannot_slide_into_each_other() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b"a", b""]), digest(&[b"", b"a"]));
        assert_ne!(digest(&[b"a"]), digest(&[b"a", b""]));
    }

    #[test]
    fn purposes_and_secrets_separate_equal_parts() {
        let secret = Secret::new([7; 32]);
        assert_ne!(
            secret.hash(Purpose::RecordId).finish(),
            secret.hash(Purpose::Fingerprint).finish()
        );
        assert_ne!(
            secret.hash(Purpose::RecordId).finish(),
            Secret::new([8; 32]).hash(Purpose::RecordId).finish()
        );
    }

    #[test]
    fn a_secret_never_prints_itself() {
        assert_eq!(alloc::format!("{:?}", Secret::new([7; 32])), "Secret(..)");
    }
}
