//! Many schedules, on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bugs::Bug;
use crate::checks::Kind;
use crate::report::Counts;
use crate::schedule;

/// How many seeds a thread takes at a time.
const BATCH: u64 = 256;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The first seed.
    pub seed: u64,
    /// How many seeds from there on.
    pub schedules: u64,
    /// How many threads.
    pub threads: usize,
    /// The planted bug, if any.
    pub bug: Option<Bug>,
    /// Whether the first broken promise ends the run.
    pub stops_at_first: bool,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed that breaks it again.
    pub seed: u64,
    /// Which promise.
    pub kind: Kind,
    /// How.
    pub words: String,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// What happened.
    pub counts: Counts,
    /// The broken promises of the lowest seeds.
    pub failures: Vec<Failure>,
}

/// How many broken promises are kept.
const FAILURES_MAX: usize = 16;

/// Runs the schedules of consecutive seeds.
#[must_use]
pub fn run_many(config: Config) -> Summary {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..config.threads.max(1) {
            scope.spawn(|| {
                let own = run_share(config, &next, &stop);
                let mut all = summary.lock().unwrap_or_else(PoisonError::into_inner);
                all.counts.add(&own.counts);
                all.failures.extend(own.failures);
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.failures.sort_by_key(|failure| failure.seed);
    summary.failures.truncate(FAILURES_MAX);
    summary
}

fn run_share(config: Config, next: &AtomicU64, stop: &AtomicBool) -> Summary {
    let mut own = Summary::default();
    while !stop.load(Ordering::Relaxed) {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= config.schedules {
            break;
        }
        for nth in first..config.schedules.min(first + BATCH) {
            let seed = config.seed.wrapping_add(nth);
            let outcome = schedule::run(seed, config.bug, false);
            own.counts.add(&outcome.counts);
            if outcome.violations.is_empty() {
                continue;
            }
            if own.failures.len() < FAILURES_MAX {
                own.failures
                    .extend(outcome.violations.into_iter().map(|(kind, words)| Failure {
                        seed,
                        kind,
                        words,
                    }));
            }
            if config.stops_at_first {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
    }
    own
}
