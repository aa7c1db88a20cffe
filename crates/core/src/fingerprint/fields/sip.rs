//! SipHash-2-4 (Aumasson and Bernstein) over a slice, for digests of a few bytes.

/// A 128-bit key.
#[derive(Clone, Copy)]
pub(in super::super) struct Key(u64, u64);

/// Two independent keys, from the two halves of a digest.
pub(super) fn keys(digest: &[u8; 32]) -> (Key, Key) {
    let mut words = digest
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let mut word = || words.next().unwrap_or_default();
    (Key(word(), word()), Key(word(), word()))
}

impl Key {
    /// The low half of the hash of `kind`, spelled in eight bytes, and then `bytes`.
    pub(in super::super) fn short(self, kind: u8, bytes: &[u8]) -> [u8; 4] {
        let mut state = State::new(self);
        state.absorb(u64::from(kind));
        let [a, b, c, d, ..] = state.finish(bytes, 8).to_le_bytes();
        [a, b, c, d]
    }
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    const fn new(Key(first, second): Key) -> Self {
        Self {
            v0: first ^ 0x736f_6d65_7073_6575,
            v1: second ^ 0x646f_7261_6e64_6f6d,
            v2: first ^ 0x6c79_6765_6e65_7261,
            v3: second ^ 0x7465_6462_7974_6573,
        }
    }

    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    /// Absorbs `bytes` and the length of all that was absorbed, `before` bytes included.
    fn finish(mut self, bytes: &[u8], before: usize) -> u64 {
        let (words, tail) = bytes.as_chunks();
        for word in words {
            self.absorb(u64::from_le_bytes(*word));
        }
        // The length counts modulo 256: the shift drops the rest.
        let length = ((before + bytes.len()) as u64) << 56;
        let mut last = [0; 8];
        if let Some(start) = last.get_mut(..tail.len()) {
            start.copy_from_slice(tail);
        }
        self.absorb(length | u64::from_le_bytes(last));
        self.v2 ^= 0xFF;
        for _ in 0..4 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored digests must mean the same to every release. These are outputs of the reference
    /// implementation for the key 00..0f and the inputs 00, 0001, and so on.
    #[test]
    fn the_hash_is_siphash_2_4() {
        let bytes: [u8; 32] = core::array::from_fn(|at| u8::try_from(at).unwrap());
        let (key, _) = keys(&bytes);
        for (length, expected) in [
            (0, 0x726f_db47_dd0e_0e31_u64),
            (1, 0x74f8_39c5_93dc_67fd),
            (2, 0x0d6c_8009_d9a9_4f5a),
            (3, 0x8567_6696_d7fb_7e2d),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(State::new(key).finish(&bytes[..length], 0), expected);
        }
    }

    /// The same algorithm as the one in `core`, at every length around its words.
    #[test]
    #[expect(
        deprecated,
        reason = "deprecated for tables, but its algorithm is SipHash-2-4"
    )]
    fn the_hash_agrees_with_another_implementation() {
        use core::hash::{Hasher, SipHasher};
        let bytes: [u8; 100] = core::array::from_fn(|at| u8::try_from(at * 2).unwrap());
        let (key, _) = keys(&[7; 32]);
        for length in 0..bytes.len() {
            let mut other = SipHasher::new_with_keys(key.0, key.1);
            other.write(&u64::from(b's').to_le_bytes());
            other.write(&bytes[..length]);
            let [a, b, c, d, ..] = other.finish().to_le_bytes();
            assert_eq!(key.short(b's', &bytes[..length]), [a, b, c, d]);
        }
    }
}
