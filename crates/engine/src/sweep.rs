//! What happens when nobody asks: leases run out, unknown outcomes are looked into, settled rows
//! are forgotten.
//!
//! Any number of processes may sweep one store. Every row is dealt with by a swap, so of several
//! sweepers one wins and the others find nothing due.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::{FutureExt, StreamExt, stream};
use onlyonce_core::{
    Command, Decision, Fence, RecordId, Response, Timestamp, UnknownReason, Verdict,
};
use onlyonce_store::{Row, Store};

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::{Engine, EngineError, Event, Runtime, Source};

/// How many batches one pass takes at most, so that a pass over a huge backlog ends.
const BATCHES_MAX: usize = 64;

/// What one pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Executions whose lease had run out; their outcome is unknown now.
    pub leases_expired: usize,
    /// Unknown outcomes that are being looked into.
    pub probes: usize,
    /// Unknown outcomes that wait for a person now.
    pub dead_lettered: usize,
    /// Rows past their retention that are kept for audit.
    pub expired: usize,
    /// Rows that were removed.
    pub purged: usize,
    /// Rows that could not be read or written; they stay as they are.
    pub failed: usize,
}

impl SweepReport {
    fn count(&mut self, decision: Option<Decision>) {
        match decision {
            Some(Decision::LeaseExpired) => self.leases_expired += 1,
            Some(Decision::Probe) => self.probes += 1,
            Some(Decision::DeadLettered) => self.dead_lettered += 1,
            Some(Decision::Expired) => self.expired += 1,
            Some(Decision::Purged) => self.purged += 1,
            None => self.failed += 1,
            // Another sweeper was there first, or the row was renewed.
            Some(
                Decision::NotDue
                | Decision::Execute
                | Decision::Replay
                | Decision::NotReplayable
                | Decision::AlreadyUsed
                | Decision::InFlight
                | Decision::Mismatch
                | Decision::Unknown
                | Decision::Renewed
                | Decision::Settled
                | Decision::AlreadySettled
                | Decision::Fenced
                | Decision::StillUnknown
                | Decision::Rescheduled
                | Decision::NotAllowed,
            ) => {}
        }
    }
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// One pass over everything that is due. Runs by itself in the background unless the engine
    /// was built without.
    ///
    /// # Errors
    /// When the store cannot say what is due.
    pub async fn sweep(&self) -> Result<SweepReport, EngineError> {
        self.inner.sweep().await
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Sweeps and keeps the clock fresh until the engine is dropped or drained.
    pub(crate) fn start_background(self: &Arc<Self>) {
        let (engine, runtime) = (Arc::downgrade(self), self.runtime.clone());
        let every = self.config.sweep_every;
        self.runtime.spawn(async move {
            while let Some(inner) =
                Weak::upgrade(&engine).filter(|inner| !inner.tasks.is_draining())
            {
                inner.refresh_clock().await;
                // A store that fails was reported by whoever called it, and an observer that panics
                // must not end sweeping; the next pass tries again.
                let _ = AssertUnwindSafe(inner.sweep()).catch_unwind().await;
                drop(inner);
                runtime.sleep(every).await;
            }
        });
    }

    async fn refresh_clock(&self) {
        if self.clock.age(self.runtime.elapsed()) >= self.config.clock_refresh
            && let Ok(now) = self.store_now().await
        {
            self.clock.sample(now, self.runtime.elapsed());
        }
    }

    async fn sweep(self: &Arc<Self>) -> Result<SweepReport, EngineError> {
        let mut report = SweepReport::default();
        // Rows that fail stay due; they must not hide those behind them.
        let mut failed = HashSet::new();
        for _ in 0..BATCHES_MAX {
            let mut due = self.due(self.config.sweep_batch + failed.len()).await?;
            let found = due.len();
            due.retain(|id| !failed.contains(id));
            let mut swept = stream::iter(due)
                .map(|id| async move { (id, self.sweep_one(id).await) })
                .buffer_unordered(self.config.sweep_concurrency);
            while let Some((id, decision)) = swept.next().await {
                report.count(decision);
                if decision.is_none() {
                    failed.insert(id);
                }
            }
            if found < self.config.sweep_batch {
                break;
            }
        }
        Ok(report)
    }

    /// Deals with one row. `None` when it could not be read or written.
    async fn sweep_one(self: &Arc<Self>, id: RecordId) -> Option<Decision> {
        let Some(row) = self.load(&id).await.ok()? else {
            return Some(Decision::NotDue);
        };
        let route = row.record.route.clone();
        let start = Start::Seen(Some(row));
        let Applied { decision, row } = self.apply(&id, &Command::Sweep, start).await.ok()?;
        if decision == Decision::NotDue {
            return Some(decision);
        }
        self.observer.observe(&Event::Swept {
            id: &id,
            route: &route,
            decision,
        });
        match (decision, row) {
            (Decision::LeaseExpired, _) => {
                let reason = UnknownReason::LeaseExpired;
                self.observer.observe(&Event::BecameUnknown {
                    id: &id,
                    route: &route,
                    reason,
                });
                self.waiting.wake(&id);
            }
            (Decision::Probe, Some(row)) => {
                let inner = Arc::clone(self);
                self.runtime
                    .spawn(async move { inner.probe(id, row).await });
            }
            _ => {}
        }
        Some(decision)
    }

    /// Asks about one unknown outcome. The sweep that led here has already set the time of the
    /// next attempt, so nobody else asks meanwhile, and a crash here only means asking again.
    async fn probe(self: Arc<Self>, id: RecordId, row: Row) {
        let fence = row.record.fence;
        // By the time of the next attempt somebody else asks; a late answer would be the second.
        let next = row.record.state.deadline().unwrap_or(self.now());
        let turn = self.within(next.since(self.now()), self.probes.acquire());
        let Some(Ok(_turn)) = turn.await else {
            return;
        };
        let asked_at = self.now();
        let asked = AssertUnwindSafe(async { self.resolver.resolve(&id, &row.record).await });
        let verdict = self
            .within(next.since(asked_at), asked.catch_unwind())
            .await;
        let verdict = verdict.and_then(Result::ok).unwrap_or(Verdict::Pending);
        let said = Said {
            source: Source::Asked,
            at: asked_at,
            verdict,
        };
        // A store that fails was reported; the next attempt asks again.
        let _ = self.take_word(&id, fence, said, Some(row)).await;
    }

    /// Writes down what the upstream said about an execution.
    pub(crate) async fn take_word(
        self: &Arc<Self>,
        id: &RecordId,
        fence: Fence,
        said: Said,
        row: Option<Row>,
    ) -> Result<Decision, EngineError> {
        let route = row.as_ref().map(|row| row.record.route.clone());
        let verdict = match said.verdict {
            Verdict::Completed(Response::Plain(response)) => {
                Verdict::Completed(self.seal(id, fence, &response)?)
            }
            other @ (Verdict::Completed(_) | Verdict::NotFound | Verdict::Pending) => other,
        };
        let name = verdict.as_str();
        let command = Command::Reconcile {
            fence,
            asked_at: said.at,
            verdict,
        };
        let applied = self.apply(id, &command, Start::Seen(row)).await;
        self.waiting.wake(id);
        let Applied { decision, .. } = applied?;
        self.observer.observe(&Event::Reconciled {
            id,
            route: &route.unwrap_or_default(),
            source: said.source,
            verdict: name,
            decision,
        });
        Ok(decision)
    }
}

/// The upstream's word about an execution.
pub(crate) struct Said {
    pub(crate) source: Source,
    pub(crate) at: Timestamp,
    pub(crate) verdict: Verdict,
}
