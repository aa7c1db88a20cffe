//! The engine's limits. Every one has a name, a default and a reason.

use std::time::Duration;

/// Limits and intervals of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// How long one store operation may take before it counts as failed. Default: 5 s, well
    /// inside a default lease, so a slow store costs a refusal and not the key.
    pub store_timeout: Duration,
    /// How long finished work keeps trying to record its outcome while the store fails.
    /// Default: 60 s; a completion is welcome also after the lease.
    pub settle_patience: Duration,
    /// How often one command is decided again because somebody else wrote first. Default: 32;
    /// each round means another writer succeeded, so more is a sign of trouble.
    pub rounds_max: u32,
    /// How many executions may run at once. Default: 10,000.
    pub executions_max: usize,
    /// How many callers may wait for one key. Default: 1,000.
    pub waiters_per_key_max: usize,
    /// How many callers may wait in all. Default: 10,000.
    pub waiters_max: usize,
    /// The first pause before the waiters of a key look at the store again, in case another
    /// process settles it; pauses double. Default: 10 ms.
    pub wait_poll_min: Duration,
    /// The longest such pause. Default: 50 ms, so that a wait across processes ends within 100.
    pub wait_poll_max: Duration,
    /// How often due rows are swept. Default: 1 s.
    pub sweep_every: Duration,
    /// How many due rows one look at the store brings. Default: 512.
    pub sweep_batch: usize,
    /// How many of them are worked on at once, so that they share a commit. Default: 64.
    pub sweep_concurrency: usize,
    /// How many unknown outcomes are asked about at once. Default: 64; one more waits for its
    /// turn, and no attempt is counted meanwhile.
    pub probes_max: usize,
    /// How often the store is asked for its time, and whether it still knows the secret. Default:
    /// 5 s; a monotonic clock drifts by microseconds in that time.
    pub clock_refresh: Duration,
    /// Whether work runs in the task of the caller who waits for it, and gets one of its own only
    /// once that caller has dropped its request: a task fewer for each execution. For servers that
    /// poll every request or drop it, in the runtime where it began, as hyper does. Default: no; a
    /// caller who does neither would stop its work, its lease, and a drain that waits for both.
    pub callers_work: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            store_timeout: Duration::from_secs(5),
            settle_patience: Duration::from_secs(60),
            rounds_max: 32,
            executions_max: 10_000,
            waiters_per_key_max: 1_000,
            waiters_max: 10_000,
            wait_poll_min: Duration::from_millis(10),
            wait_poll_max: Duration::from_millis(50),
            sweep_every: Duration::from_secs(1),
            sweep_batch: 512,
            sweep_concurrency: 64,
            probes_max: 64,
            clock_refresh: Duration::from_secs(5),
            callers_work: false,
        }
    }
}
