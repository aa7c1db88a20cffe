//! The limit of an engine: its own benchmark, doing the same as the store does.

use std::time::Duration;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amount {
    /// As much as is possible in about this time.
    For(Duration),
    /// About so many.
    Count(u64),
}

/// What an engine's own benchmark does, per second, from as many clients.
pub(crate) trait Limit {
    /// What it is called.
    fn name(&self) -> &'static str;
    /// Writes claims of new keys.
    fn claims(&self, amount: Amount) -> f64;
    /// Writes completions of claimed keys, at least so many.
    fn completions(&self, count: u64) -> f64;
    /// Reads completed rows.
    fn loads(&self, length: Duration) -> f64;
    /// Claims completed keys.
    fn reclaims(&self, length: Duration) -> f64;
}
