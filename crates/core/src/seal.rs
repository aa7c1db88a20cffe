//! Encryption of stored responses at rest.
//!
//! AES-256-GCM under a key of its own for every row and execution, derived from one key of a
//! [`Keyring`]: no two responses share a key, so the nonce limit of GCM is never near, and a
//! sealed response moved to another row does not open. One key writes; several may read, so
//! that a key can be rotated while old rows live.

use alloc::vec::Vec;
use core::fmt;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Key};
use bytes::Bytes;
use thiserror::Error;

use crate::codec;
use crate::fence::Fence;
use crate::record::StoredResponse;
use crate::scope::RecordId;
use crate::secret::{Purpose, Secret};

/// An encrypted response.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedResponse {
    /// Which key of the ring it is under.
    pub key_id: u32,
    /// Random, drawn outside `core`.
    pub nonce: [u8; 12],
    /// The encrypted [`StoredResponse`], with its tag.
    pub ciphertext: Bytes,
}

impl fmt::Debug for SealedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SealedResponse(key {}, {} bytes)",
            self.key_id,
            self.ciphertext.len()
        )
    }
}

/// Why a response cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SealError {
    /// Its key was taken out of the ring too early.
    #[error(
        "the response is encrypted under key {0}, which is not in the key ring: add it for reading"
    )]
    UnknownKey(u32),
    /// The bytes, the key or the row are not the ones it was sealed with.
    #[error("the response does not decrypt: it was altered, moved, or key {0} has other bytes now")]
    DoesNotOpen(u32),
    /// The cipher refused (the response is too large for one message).
    #[error("the response cannot be encrypted: it is too large")]
    CannotSeal,
}

/// The encryption keys: one for writing, any number for reading.
#[derive(Clone)]
pub struct Keyring {
    write: (u32, Secret),
    read: Vec<(u32, Secret)>,
}

impl Keyring {
    /// A ring with one key, which writes and reads.
    #[must_use]
    pub fn new(key_id: u32, key: [u8; 32]) -> Self {
        Self {
            write: (key_id, Secret::new(key)),
            read: Vec::new(),
        }
    }

    /// Adds an earlier key that can still be read.
    #[must_use]
    pub fn readable(mut self, key_id: u32, key: [u8; 32]) -> Self {
        self.read.push((key_id, Secret::new(key)));
        self
    }

    /// Encrypts a response for one row and one execution.
    ///
    /// # Errors
    /// When the response is too large for the cipher.
    pub fn seal(
        &self,
        id: &RecordId,
        fence: Fence,
        nonce: [u8; 12],
        response: &StoredResponse,
    ) -> Result<SealedResponse, SealError> {
        let (key_id, key) = &self.write;
        let plaintext = codec::encode_response(response).ok_or(SealError::CannotSeal)?;
        let payload = Payload {
            msg: &plaintext,
            aad: id.as_bytes(),
        };
        let ciphertext = cipher(key, id, fence)
            .encrypt(&nonce.into(), payload)
            .map_err(|_| SealError::CannotSeal)?;
        Ok(SealedResponse {
            key_id: *key_id,
            nonce,
            ciphertext: ciphertext.into(),
        })
    }

    /// Decrypts a response of that row and execution.
    ///
    /// # Errors
    /// When the key is missing, or the bytes are not what was sealed.
    pub fn open(
        &self,
        id: &RecordId,
        fence: Fence,
        sealed: &SealedResponse,
    ) -> Result<StoredResponse, SealError> {
        let key_id = sealed.key_id;
        let key = self.find(key_id).ok_or(SealError::UnknownKey(key_id))?;
        let payload = Payload {
            msg: &sealed.ciphertext,
            aad: id.as_bytes(),
        };
        let plaintext = cipher(key, id, fence)
            .decrypt(&sealed.nonce.into(), payload)
            .map_err(|_| SealError::DoesNotOpen(key_id))?;
        codec::decode_response(&plaintext.into()).map_err(|_| SealError::DoesNotOpen(key_id))
    }

    fn find(&self, key_id: u32) -> Option<&Secret> {
        core::iter::once(&self.write)
            .chain(&self.read)
            .find_map(|(id, key)| (*id == key_id).then_some(key))
    }
}

fn cipher(key: &Secret, id: &RecordId, fence: Fence) -> Aes256Gcm {
    let mut hash = key.hash(Purpose::Seal);
    hash.part(id.as_bytes()).part(fence.as_bytes());
    Aes256Gcm::new(&Key::<Aes256Gcm>::from(hash.finish()))
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read: Vec<u32> = self.read.iter().map(|(id, _)| *id).collect();
        write!(f, "Keyring(writes {}, reads also {read:?})", self.write.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RecordId = RecordId::from_bytes([1; 32]);
    const FENCE: Fence = Fence::from_bytes([2; 16]);

    fn response() -> StoredResponse {
        StoredResponse::from_bytes(&b"{\"charge\":\"ch_1\"}"[..])
    }

    fn sealed(ring: &Keyring) -> SealedResponse {
        ring.seal(&ID, FENCE, [3; 12], &response()).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_and_does_not_show() {
        let ring = Keyring::new(1, [9; 32]);
        let sealed = sealed(&ring);
        assert!(!sealed.ciphertext.windows(4).any(|window| window == b"ch_1"));
        assert_eq!(ring.open(&ID, FENCE, &sealed), Ok(response()));
    }

    /// A row copied over another tenant's row must not show its response there.
    #[test]
    fn a_response_moved_to_another_row_does_not_open() {
        let ring = Keyring::new(1, [9; 32]);
        let elsewhere = RecordId::from_bytes([7; 32]);
        let moved = ring.open(&elsewhere, FENCE, &sealed(&ring));
        assert_eq!(moved, Err(SealError::DoesNotOpen(1)));
    }

    #[test]
    fn a_rotated_key_still_reads_and_no_longer_writes() {
        let old = Keyring::new(1, [9; 32]);
        let new = Keyring::new(2, [8; 32]).readable(1, [9; 32]);
        assert_eq!(new.open(&ID, FENCE, &sealed(&old)), Ok(response()));
        assert_eq!(sealed(&new).key_id, 2);
        assert_eq!(
            old.open(&ID, FENCE, &sealed(&new)),
            Err(SealError::UnknownKey(2))
        );
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let ring = Keyring::new(1, [9; 32]);
        let whole = sealed(&ring);
        for at in 0..whole.ciphertext.len() {
            let mut bytes = whole.ciphertext.to_vec();
            bytes[at] ^= 1;
            let flipped = SealedResponse {
                ciphertext: bytes.into(),
                ..whole.clone()
            };
            assert_eq!(
                ring.open(&ID, FENCE, &flipped),
                Err(SealError::DoesNotOpen(1))
            );
        }
    }
}
