//! How many keys wait, and for how long, as counted in the store.

use serde::Serialize;

/// Keys in the states that somebody should look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct QueueCounts {
    /// Being executed.
    pub executing: u64,
    /// With an unknown outcome.
    pub unknown: u64,
    /// Waiting for a person.
    pub dead_letter: u64,
    /// Since when the oldest unknown outcome is unknown.
    pub oldest_unknown_ms: Option<u64>,
    /// When they were counted, by the store's clock; 0 before the first time.
    pub counted_at_ms: u64,
    /// Whether there are more than were counted.
    pub more: bool,
}
