//! What happened since this process started, as numbers: for `/metrics`, the overview and charts.
//!
//! [`Stats`] is told of every event of the engine, in the middle of requests. Every thread counts
//! by itself: none waits for another but for one that looks, and none allocates for a route that it
//! knows. Nothing here is stored: a restart begins at 0.
//!
//! | to see | read |
//! |---|---|
//! | what is counted as what | this file |
//! | the names of the metrics | `families` |
//! | their text form | `render` |
//! | the last hour | `series` |
//! | what happened to one key | `recent` |

mod clock;
mod families;
mod histogram;
mod process;
mod recent;
mod render;
mod routes;
mod series;
#[cfg(test)]
mod tests;
mod totals;
mod unknowns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Decision, RecordId, Resolution, RouteName};
use onlyonce_engine::{Event, Observer, StoreOperation};

use crate::QueueCounts;
use clock::{Clock, millis};
use recent::Recent;
use routes::{Count, RouteStats, RouteTable};
use series::Line;
use unknowns::Unknowns;

pub use families::{Family, Kind, Sample, Value};
pub use histogram::{BOUNDS, HistogramValue};
pub use recent::{RecentEvent, name as decision_name};
pub use routes::{OTHER, ROUTES_MAX};
pub use series::{Point, ReplayRate, STEP_MS, STEPS_MAX, Series};
pub use totals::{RouteTotals, Totals};

/// How many keys are remembered whose executor was given up, so that each counts once.
const ZOMBIES_REMEMBERED: usize = 256;

/// The name of an outcome that is still not known.
const UNKNOWN: &str = "unknown";

/// The store's operations, in the order of their counts.
const OPERATIONS: [(StoreOperation, &str); 4] = [
    (StoreOperation::Load, "load"),
    (StoreOperation::Swap, "swap"),
    (StoreOperation::Due, "due"),
    (StoreOperation::Now, "now"),
];

/// Counts since this process started.
#[derive(Debug)]
pub struct Stats {
    store: &'static str,
    clock: Clock,
    routes: RouteTable,
    store_errors: [AtomicU64; OPERATIONS.len()],
    journal_dropped: AtomicU64,
    spans_dropped: AtomicU64,
    zombies: Mutex<Vec<RecordId>>,
    unknowns: Unknowns,
    recent: Recent,
    queues_seen: Mutex<QueuesSeen>,
}

/// When the queues were last seen to have been counted anew, by this process's own clock.
#[derive(Debug, Default)]
struct QueuesSeen {
    counted_at_ms: u64,
    elapsed_ms: u64,
}

/// What enforcing would have done with a request that was only observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Would {
    /// Execute it, as happened.
    Execute,
    /// Answer it from the store.
    Replay,
    /// Refuse it.
    Refuse,
    /// Execute it, as happened, and not know how it ended.
    Unknown,
}

impl Stats {
    /// Counts that begin at 0. `store_name` is what [`StoreProfile::name`] says.
    ///
    /// [`StoreProfile::name`]: onlyonce_store::StoreProfile
    #[must_use]
    pub fn new(store_name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            store: store_name,
            clock: Clock::new(),
            routes: RouteTable::new(),
            store_errors: Default::default(),
            journal_dropped: AtomicU64::new(0),
            spans_dropped: AtomicU64::new(0),
            zombies: Mutex::default(),
            unknowns: Unknowns::default(),
            recent: Recent::default(),
            queues_seen: Mutex::default(),
        })
    }

    /// Shows a route with 0 everywhere, before anything happens on it.
    pub fn expect_route(&self, route: &RouteName) {
        self.routes.of(route);
    }

    /// A write without a key passed.
    pub fn unprotected(&self, route: &RouteName) {
        self.routes.of(route).count(Count::Unprotected);
    }

    /// A request was only observed; this is what enforcing would have done.
    pub fn would(&self, route: &RouteName, would: Would) {
        self.routes.of(route).count(match would {
            Would::Execute => Count::WouldExecute,
            Would::Replay => Count::WouldReplay,
            Would::Refuse => Count::WouldRefuse,
            Would::Unknown => Count::WouldBeUnknown,
        });
    }

    /// An entry of the journal could not be kept.
    pub fn journal_dropped(&self) {
        self.journal_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Spans did not reach the collector.
    pub fn spans_dropped(&self, count: u64) {
        self.spans_dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// All routes together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let routes = self.routes.all();
        let sum = |count| routes.iter().map(|route| route.get(count)).sum();
        let failed = self.store_errors.iter();
        Totals {
            executed: sum(Count::Created) + sum(Count::FailedRetry),
            replayed: sum(Count::Replay),
            in_progress: sum(Count::InProgress),
            mismatch: sum(Count::KeyMisuse),
            unknown: sum(Count::Unknown),
            released_retry: sum(Count::FailedRetry),
            not_replayable: sum(Count::NotReplayable),
            unprotected: sum(Count::Unprotected),
            store_errors: failed.map(|count| count.load(Ordering::Relaxed)).sum(),
            zombies: sum(Count::Zombie),
            pruned: sum(Count::Pruned),
            reconcile_scheduled: sum(Count::Scheduled),
            reconcile_resolved: sum(Count::Resolved),
            reconcile_failed: sum(Count::Failed),
        }
    }

    /// Each route by itself, by name.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteTotals> {
        let routes = self.routes.all().into_iter();
        routes
            .map(|route| RouteTotals {
                route: route.name.to_string(),
                executed: route.get(Count::Created) + route.get(Count::FailedRetry),
                replayed: route.get(Count::Replay),
                refused: route.get(Count::InProgress)
                    + route.get(Count::KeyMisuse)
                    + route.get(Count::NotReplayable)
                    + route.get(Count::Unknown),
                unknown: route.get(Count::Scheduled),
            })
            .collect()
    }

    /// The last `seconds`, an hour at most, in steps. `now_ms` is the store's time.
    #[must_use]
    pub fn series(&self, seconds: u64, now_ms: u64) -> Series {
        let elapsed_ms = self.clock.elapsed_ms();
        self.clock.align(now_ms, elapsed_ms);
        self.series_at(seconds, elapsed_ms)
    }

    fn series_at(&self, seconds: u64, elapsed_ms: u64) -> Series {
        let routes = self.routes.all();
        let counted = routes
            .iter()
            .map(|route| (route.name.as_str(), &route.steps));
        series::series(counted, seconds, elapsed_ms, |ms| self.clock.date_ms(ms))
    }

    /// How many answers are replays, now and usually.
    #[must_use]
    pub fn replay_rate(&self) -> ReplayRate {
        self.replay_rate_at(self.clock.elapsed_ms())
    }

    fn replay_rate_at(&self, elapsed_ms: u64) -> ReplayRate {
        let seconds = STEP_MS * STEPS_MAX / 1000;
        series::replay_rate(&self.series_at(seconds, elapsed_ms).points)
    }

    /// What happened to one key of late, oldest first.
    #[must_use]
    pub fn recent(&self, id: &RecordId) -> Vec<RecentEvent> {
        self.recent.of(id, |ms| self.clock.date_ms(ms))
    }

    /// Prometheus' text format, version 0.0.4.
    #[must_use]
    pub fn render(&self, queues: &QueueCounts) -> String {
        render::text(&self.families(queues))
    }

    fn observe_at(&self, event: &Event<'_>, elapsed: Duration) {
        self.recent.note(event, elapsed);
        let elapsed_ms = millis(elapsed);
        match event {
            Event::Claimed {
                route,
                decision,
                attempt,
                took,
                ..
            } => {
                let route = self.routes.of(route);
                route.latencies().claim.observe(*took);
                claimed(route, *decision, *attempt, elapsed_ms);
            }
            Event::Settled {
                id,
                route,
                outcome,
                decision,
                worked,
                took,
            } => {
                let route = self.routes.of(route);
                let latencies = route.latencies();
                latencies.upstream.observe(*worked);
                latencies.complete.observe(*took);
                let is_known = *decision == Decision::Settled && *outcome != UNKNOWN;
                if is_known && self.unknowns.remove(id) {
                    route.count(Count::Resolved);
                }
            }
            Event::NotSettled { route, .. } => self.routes.of(route).count(Count::NotRecorded),
            Event::LeaseLost { id, route } => self.zombie(id, route),
            Event::BecameUnknown { id, route, .. } => {
                let counts = self.routes.of(route);
                if self.unknowns.add(id) {
                    counts.count(Count::Scheduled);
                }
                counts.steps.count(Line::Unknown, elapsed_ms);
            }
            Event::Swept {
                id,
                route,
                decision,
            } => self.swept(id, route, *decision),
            Event::Reconciled {
                id,
                route,
                decision,
                ..
            } => {
                if *decision == Decision::Settled {
                    self.unknowns.remove(id);
                    self.routes.of(route).count(Count::Resolved);
                } else if *decision == Decision::DeadLettered {
                    self.routes.of(route).count(Count::Failed);
                }
            }
            Event::Resolved {
                id,
                route,
                resolution,
                decision,
            } if *decision == Decision::Settled => self.resolved(id, route, resolution),
            Event::Resolved { .. } => {}
            Event::StoreFailed { operation, .. } => self.store_failed(*operation),
        }
    }

    fn swept(&self, id: &RecordId, route: &RouteName, decision: Decision) {
        if decision == Decision::LeaseExpired {
            self.zombie(id, route);
        } else if decision == Decision::DeadLettered {
            self.routes.of(route).count(Count::Failed);
        } else if matches!(decision, Decision::Expired | Decision::Purged) {
            self.routes.of(route).count(Count::Pruned);
        }
    }

    /// Every key can be forgotten, and most that are were never unknown.
    fn resolved(&self, id: &RecordId, route: &RouteName, resolution: &str) {
        let was_unknown = self.unknowns.remove(id);
        if was_unknown || resolution != Resolution::Forget.as_str() {
            self.routes.of(route).count(Count::Resolved);
        }
    }

    fn store_failed(&self, operation: StoreOperation) {
        let at = OPERATIONS.iter().position(|(known, _)| *known == operation);
        if let Some(count) = at.and_then(|at| self.store_errors.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A key whose executor outlived its lease or is gone. Its sweeper and its executor may both
    /// say so, in any order; this process counts the key once while it is remembered.
    fn zombie(&self, id: &RecordId, route: &RouteName) {
        let mut seen = self.zombies.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(id) {
            return;
        }
        if seen.len() >= ZOMBIES_REMEMBERED {
            seen.remove(0);
        }
        seen.push(*id);
        drop(seen);
        self.routes.of(route).count(Count::Zombie);
    }
}

/// Counts a claim by what it was told.
fn claimed(route: &RouteStats, decision: Decision, attempt: u16, elapsed_ms: u64) {
    let (count, line) = match decision {
        Decision::Execute if attempt > 1 => (Count::FailedRetry, Line::Executed),
        Decision::Execute => (Count::Created, Line::Executed),
        Decision::Replay => (Count::Replay, Line::Replayed),
        Decision::InFlight => (Count::InProgress, Line::Refused),
        Decision::Mismatch | Decision::AlreadyUsed => (Count::KeyMisuse, Line::Refused),
        Decision::NotReplayable => (Count::NotReplayable, Line::Refused),
        Decision::Unknown
        // A claim is told nothing else; if it were, it is told that nobody knows.
        | Decision::Renewed
        | Decision::Settled
        | Decision::AlreadySettled
        | Decision::Fenced
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::DeadLettered
        | Decision::Expired
        | Decision::Purged
        | Decision::StillUnknown
        | Decision::Rescheduled
        | Decision::NotAllowed => (Count::Unknown, Line::Refused),
    };
    route.count(count);
    route.steps.count(line, elapsed_ms);
}

impl Observer for Stats {
    fn observe(&self, event: &Event<'_>) {
        self.observe_at(event, self.clock.elapsed());
    }
}
