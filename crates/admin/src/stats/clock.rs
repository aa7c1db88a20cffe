//! When things happened, in milliseconds: since the start, and as a date.
//!
//! Counting needs no store and must not wait for one, so this clock is the machine's. Whoever
//! knows the store's time [aligns](Clock::align) it.
#![expect(
    clippy::disallowed_methods,
    reason = "this file owns the time of what was counted"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Smaller differences are delays on the way, not another time.
const SKEW_MAX_MS: u64 = 1000;

#[derive(Debug)]
pub(super) struct Clock {
    started: Instant,
    /// The date of the start.
    origin_ms: AtomicU64,
    /// The same by the machine's own clock, which does not change.
    started_ms: u64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let date = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = date.unwrap_or_default().as_millis();
        let date = u64::try_from(date).unwrap_or(u64::MAX);
        Self {
            started: Instant::now(),
            origin_ms: AtomicU64::new(date),
            started_ms: date,
        }
    }

    /// The time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The same in milliseconds.
    pub(super) fn elapsed_ms(&self) -> u64 {
        millis(self.elapsed())
    }

    /// The date of a moment after the start.
    pub(super) fn date_ms(&self, elapsed_ms: u64) -> u64 {
        let origin = self.origin_ms.load(Ordering::Relaxed);
        origin.saturating_add(elapsed_ms)
    }

    /// When the process began to count.
    pub(super) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// Takes over the store's date, unless it is the same but for a short delay: dates that were
    /// given out must not move about.
    pub(super) fn align(&self, now_ms: u64, elapsed_ms: u64) {
        if self.date_ms(elapsed_ms).abs_diff(now_ms) > SKEW_MAX_MS {
            let origin = now_ms.saturating_sub(elapsed_ms);
            self.origin_ms.store(origin, Ordering::Relaxed);
        }
    }
}

pub(super) fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
