//! The date in nanoseconds, which OTLP wants, from a clock that never goes back.
#![expect(
    clippy::disallowed_methods,
    reason = "this file owns the dates of spans; nothing is decided by them"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began: Instant,
    date: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        let date = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            began: Instant::now(),
            date: date.unwrap_or_default(),
        }
    }

    /// When it was made.
    pub(super) fn began_ns(&self) -> u64 {
        nanos(self.date)
    }

    pub(super) fn now_ns(&self) -> u64 {
        nanos(self.date + self.began.elapsed())
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
