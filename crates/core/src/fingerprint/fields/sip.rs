//! SipHash-2-4, keyed from a digest.
//!
//! `core` calls its type deprecated to lead people to `DefaultHasher`, whose algorithm may change.
//! Stored digests need the one that may not, and a test pins it to the reference vectors.
#![expect(
    deprecated,
    reason = "the only SipHash in `core` whose algorithm is fixed"
)]

use core::hash::{Hasher, SipHasher};

/// A hash in progress.
#[derive(Debug, Clone)]
pub(super) struct Sip(SipHasher);

/// Two independent hashes, from the two halves of a digest.
pub(super) fn keys(digest: &[u8; 32]) -> (Sip, Sip) {
    let mut words = digest
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let mut word = || words.next().unwrap_or_default();
    (
        Sip(SipHasher::new_with_keys(word(), word())),
        Sip(SipHasher::new_with_keys(word(), word())),
    )
}

impl Sip {
    pub(super) fn write(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.write(bytes);
        self
    }

    /// The low half, in a byte order that does not depend on the machine.
    pub(super) fn short(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0.finish().to_le_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored digests outlive a compiler. These are outputs of the reference implementation for
    /// the key 00..0f and the inputs 00, 0001, and so on.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::try_from(at).unwrap();
        }
        let input: [u8; 15] = core::array::from_fn(|at| digest[at]);
        for (length, expected) in [
            (0, 0x726f_db47_dd0e_0e31_u64),
            (1, 0x74f8_39c5_93dc_67fd),
            (2, 0x0d6c_8009_d9a9_4f5a),
            (3, 0x8567_6696_d7fb_7e2d),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            let (mut whole, _) = keys(&digest);
            whole.write(&input[..length]);
            assert_eq!(whole.0.finish(), expected);
            let (mut split, _) = keys(&digest);
            split
                .write(&input[..length / 2])
                .write(&input[length / 2..length]);
            assert_eq!(split.0.finish(), expected);
        }
    }
}
