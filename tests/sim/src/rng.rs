//! The one source of chance: a seed gives a schedule, and the same seed gives it again.

/// `SplitMix64`: fast, and every seed is a good one.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring schedules.
        Self(seed.wrapping_mul(0xD605_BBB5_8C8A_BC3B) ^ 0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Chance of its own, which leaves what comes here as it was: old seeds stay what they are.
    pub(crate) fn aside(&self) -> Self {
        Self::new(self.0)
    }

    /// From 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The bias of a remainder is far below what a fault rate is worth.
        self.next() % limit.max(1)
    }

    /// An index into something of this length.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the result is below `length`"
    )]
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// From `low` to `high` - 1.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
