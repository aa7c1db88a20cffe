//! Wall-clock time that never runs backwards.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onlyonce_core::Timestamp;

/// The clock of a store that has no server of its own to ask.
///
/// It reads the wall clock once and counts on from there with the monotonic clock, so setting
/// the machine's clock back neither revives a lease nor expires one early. A store that outlives
/// its process passes in the latest time it has seen as `not_before`.
#[derive(Debug, Clone)]
pub struct StoreClock {
    origin: Timestamp,
    started: Instant,
}

impl StoreClock {
    /// Starts at the wall clock's time, or at `not_before` if that is later.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this file owns the store's clock"
    )]
    pub fn start(not_before: Timestamp) -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Self {
            origin: Timestamp::ZERO.after(wall).max(not_before),
            started: Instant::now(),
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.origin.after(self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease written just before a restart must not come back to life after it because the
    /// machine's clock was set back meanwhile.
    #[test]
    fn a_restart_with_an_earlier_wall_clock_goes_on_from_the_latest_time_seen() {
        let seen = StoreClock::start(Timestamp::ZERO)
            .now()
            .after(Duration::from_secs(3600));
        assert!(StoreClock::start(seen).now() >= seen);
    }
}
