//! Tables of ids in memory.
//!
//! An id is a keyed hash already: nobody without the secret can choose ids that meet in one place
//! of a table. So a table does not hash them with a key of its own again, which took a quarter of
//! the instructions of the writer.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use onlyonce_core::RecordId;

/// A table by id.
pub(crate) type IdMap<T> = HashMap<RecordId, T, BuildHasherDefault<IdHasher>>;

/// Odd, with its bits spread: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds the bytes of an id. All of them count, so that ids of another origin spread, too.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl IdHasher {
    fn fold(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.fold(u64::from(*byte));
        }
    }

    /// Only the number of bytes of an id, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        // A table takes its place from the low bits, and those of a product are the weakest.
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(SPREAD);
        mixed ^ mixed >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    fn hash(id: [u8; 32]) -> u64 {
        BuildHasherDefault::<IdHasher>::default().hash_one(RecordId::from_bytes(id))
    }

    /// A table takes a place from the low bits, and tells its neighbours apart by the high ones.
    fn is_spread(ids: impl Iterator<Item = [u8; 32]>) {
        let hashes: Vec<_> = ids.map(hash).collect();
        let places: HashSet<_> = hashes.iter().map(|hash| hash % 4096).collect();
        let tags: HashSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        // Of as many random numbers as there are places, 63 in 100 are different.
        assert!(
            hashes.len() >= 4096 && places.len() > 2300,
            "{}",
            places.len()
        );
        assert_eq!(tags.len(), 128);
    }

    /// Also ids that are no hashes, wherever they differ.
    #[test]
    fn ids_spread_wherever_they_differ() {
        for at in 0..31 {
            is_spread((0..4096_u16).map(|number| {
                let mut id = [7; 32];
                id[at..at + 2].copy_from_slice(&number.to_be_bytes());
                id
            }));
        }
        is_spread(
            (0..4096).map(|number| *onlyonce_conformance::suite::samples::id(number).as_bytes()),
        );
    }
}
