//! The bytes of a cached row, and the seal that shows who put them there.
//!
//! Whoever can write to the cache could otherwise have a gateway replay what never happened. The
//! seal is an HMAC under a key that is made from the durable store's secret, over the id and
//! everything else, so that a row under another id does not pass either.

use bytes::{Buf, BufMut, Bytes};
use hmac::{Hmac, KeyInit, Mac};
use onlyonce_core::{RecordId, Timestamp, codec};
use onlyonce_store::tiered::Cached;
use onlyonce_store::{Row, Version};
use sha2::Sha256;

/// What the key is for, and the form of the bytes that it seals.
const PURPOSE: &[u8] = b"onlyonce.cache.v1";

const SEAL_BYTES: usize = 32;

/// When it was seen, and its version.
const HEAD_BYTES: usize = 16;

pub(super) struct Seal {
    mac: Hmac<Sha256>,
}

impl Seal {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        let mut derived = keyed(secret);
        derived.update(PURPOSE);
        let key: [u8; 32] = derived.finalize().into_bytes().into();
        Self { mac: keyed(&key) }
    }

    fn over(&self, id: &RecordId, content: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(id.as_bytes());
        mac.update(content);
        mac
    }

    /// The bytes of a row; `None` when it is too large for its format.
    pub(super) fn close(&self, id: &RecordId, cached: &Cached) -> Option<Vec<u8>> {
        let record = codec::encode(id, &cached.row.record).ok()?;
        let mut content = Vec::with_capacity(HEAD_BYTES + record.len());
        content.put_u64(cached.seen_at.as_millis());
        content.put_u64(cached.row.version.0);
        content.put_slice(&record);
        let seal = self.over(id, &content).finalize().into_bytes();
        let mut sealed = Vec::with_capacity(SEAL_BYTES + content.len());
        sealed.put_slice(&seal);
        sealed.put_slice(&content);
        Some(sealed)
    }

    /// The row in these bytes, if they are one, and this id's.
    pub(super) fn open(&self, id: &RecordId, bytes: Vec<u8>) -> Option<Cached> {
        let mut content = Bytes::from(bytes);
        if content.len() < SEAL_BYTES + HEAD_BYTES {
            return None;
        }
        let seal = content.split_to(SEAL_BYTES);
        self.over(id, &content).verify_slice(&seal).ok()?;
        let seen_at = Timestamp::from_millis(content.get_u64());
        let version = Version(content.get_u64());
        let record = codec::decode(id, &content).ok()?;
        let record = Box::new(record);
        let row = Row { record, version };
        Some(Cached { row, seen_at })
    }
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    let (start, _) = block.split_at_mut(32);
    start.copy_from_slice(key);
    <Hmac<Sha256> as KeyInit>::new(&block.into())
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]
mod tests {
    use onlyonce_conformance::suite::samples::{at, completed, id};

    use super::*;

    fn cached() -> Cached {
        let row = Row {
            record: Box::new(completed(1, "done")),
            version: Version(7),
        };
        let seen_at = at(5_000);
        Cached { row, seen_at }
    }

    #[test]
    fn what_was_sealed_comes_back() {
        let seal = Seal::new(&[1; 32]);
        let bytes = seal.close(&id(1), &cached()).unwrap();
        assert_eq!(seal.open(&id(1), bytes), Some(cached()));
    }

    /// A flipped bit, a missing end, another key's row, another store's row: none is a row.
    #[test]
    fn anything_else_is_nothing() {
        let seal = Seal::new(&[1; 32]);
        let bytes = seal.close(&id(1), &cached()).unwrap();
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1;
            assert_eq!(seal.open(&id(1), flipped), None, "{place}");
            assert_eq!(seal.open(&id(1), bytes[..place].to_vec()), None, "{place}");
        }
        assert_eq!(seal.open(&id(2), bytes.clone()), None);
        assert_eq!(Seal::new(&[2; 32]).open(&id(1), bytes), None);
    }
}
