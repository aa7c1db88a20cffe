//! The store's clock, without asking it every time.
//!
//! Instances with skewed clocks agree because all of them use the store's. Asking costs a round
//! trip, so the engine asks now and then and counts on from there with its own monotonic clock,
//! which nobody can set.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::Timestamp;

/// What the engine believes the store's clock shows.
#[derive(Debug)]
pub(crate) struct ClockEstimate {
    /// Store time minus local monotonic time, in milliseconds.
    offset: AtomicI64,
    /// The latest time given out; an estimate that is corrected downwards stands still instead
    /// of going back.
    latest: AtomicU64,
}

impl ClockEstimate {
    /// From a first sample: the store's answer and the local time at which it arrived.
    pub(crate) fn new(store: Timestamp, arrived: Duration) -> Self {
        let clock = Self {
            offset: AtomicI64::new(0),
            latest: AtomicU64::new(0),
        };
        clock.sample(store, arrived);
        clock
    }

    /// Takes a sample. Counting from the arrival of the answer keeps the estimate at or behind
    /// the store's clock, so nothing is taken for expired before it is.
    pub(crate) fn sample(&self, store: Timestamp, arrived: Duration) {
        let arrived = millis(arrived);
        let offset = store
            .as_millis()
            .cast_signed()
            .wrapping_sub(arrived.cast_signed());
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// The store's time at local time `elapsed`.
    pub(crate) fn at(&self, elapsed: Duration) -> Timestamp {
        let now = millis(elapsed).saturating_add_signed(self.offset.load(Ordering::Relaxed));
        // Written once in a millisecond: all threads read it, and a write would take it from them.
        let mut latest = self.latest.load(Ordering::Relaxed);
        if latest < now {
            latest = self.latest.fetch_max(now, Ordering::Relaxed);
        }
        Timestamp::from_millis(latest.max(now))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn store_at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn it_counts_on_from_the_last_sample() {
        let clock = ClockEstimate::new(store_at(1_000_000), seconds(5));
        assert_eq!(clock.at(seconds(15)), store_at(1_000_010));
        clock.sample(store_at(1_000_020), seconds(20));
        assert_eq!(clock.at(seconds(21)), store_at(1_000_021));
    }

    /// A lease that was over must not be live again because a later sample says so.
    #[test]
    fn a_correction_downwards_never_turns_time_back() {
        let clock = ClockEstimate::new(store_at(100), seconds(0));
        assert_eq!(clock.at(seconds(50)), store_at(150));
        clock.sample(store_at(140), seconds(50));
        assert_eq!(clock.at(seconds(51)), store_at(150));
        assert_eq!(clock.at(seconds(70)), store_at(160));
    }

    /// The local monotonic clock may be ahead of a store that counts from its own start.
    #[test]
    fn a_store_time_behind_local_time_is_no_trouble() {
        let clock = ClockEstimate::new(store_at(1), seconds(100));
        assert_eq!(clock.at(seconds(101)), store_at(2));
    }
}
