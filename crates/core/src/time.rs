//! Points in time, as the store's clock gives them.
//!
//! `core` never asks what time it is: every rule takes `now` as an argument.

use core::fmt;
use core::time::Duration;

/// Milliseconds since the Unix epoch, by the *store's* clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);

    /// From milliseconds since the epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This much later. Saturates: a deadline past the end of time never passes.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// How long from `earlier` until this; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Whether a deadline at this point has passed at `now`. The deadline itself counts; the end
    /// of time never passes.
    #[must_use]
    pub const fn has_passed(self, now: Self) -> bool {
        self.0 <= now.0 && self.0 != u64::MAX
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
