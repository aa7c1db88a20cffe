//! The one source of chance: a seed gives the same choices again.
//!
//! What the machine's scheduler and the network make of them is not repeated; a history that was
//! rejected is therefore printed whole.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// `SplitMix64`: fast, and every seed is a good one.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The choices of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed: the one in the variable `ONLYONCE_LINEAR_SEED`, or a new one each time.
    #[must_use]
    pub fn seed() -> u64 {
        let given = std::env::var("ONLYONCE_LINEAR_SEED");
        given.map_or_else(
            |_| RandomState::new().build_hasher().finish(),
            |seed| seed.parse().expect("ONLYONCE_LINEAR_SEED is a number"),
        )
    }

    /// Another source, whose choices do not depend on how many are made here later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `limit` - 1.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).expect("64 bits");
        usize::try_from(self.next() % limit).expect("below a usize")
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Less than this, to the microsecond.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        let micros = usize::try_from(limit.as_micros()).expect("a short time");
        Duration::from_micros(u64::try_from(self.below(micros)).expect("64 bits"))
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
