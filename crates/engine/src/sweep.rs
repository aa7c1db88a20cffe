//! What happens when nobody asks: leases run out, unknown outcomes are looked into, settled rows
//! are forgotten.
//!
//! Any number of processes may sweep one store. Every row is dealt with by a swap, so of several
//! sweepers one wins and the others find nothing due. An unknown outcome is dealt with only when it
//! can be asked about at once (`turns.rs`); until then it stays due, and everything else goes on.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use onlyonce_core::{
    Command, Decision, Fence, RecordId, Response, RouteName, Timestamp, UnknownReason, Verdict,
};
use onlyonce_store::{Row, Store, StoreError};

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::turns::Turn;
use crate::{Engine, EngineConfig, EngineError, Event, Runtime, Source};

/// What is done again and again.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How many batches one pass takes at most, so that a pass over a huge backlog ends.
const BATCHES_MAX: usize = 64;

/// How many rows one pass works on, about; and how many outcomes wait for their turn in memory. With
/// more of those in the store, they hide what became due after them.
pub(crate) const fn rows_max(config: &EngineConfig) -> usize {
    config.sweep_batch.saturating_mul(BATCHES_MAX)
}

/// What one pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Executions whose lease had run out; their outcome is unknown now.
    pub leases_expired: usize,
    /// Unknown outcomes that are being looked into.
    pub probes: usize,
    /// Unknown outcomes that stay due, because enough others are being looked into.
    pub waiting: usize,
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
    fn count(&mut self, swept: &Swept) {
        match swept {
            Swept::Done(Decision::LeaseExpired) => self.leases_expired += 1,
            Swept::Ask(_) | Swept::Done(Decision::Probe) => self.probes += 1,
            Swept::Waits => self.waiting += 1,
            Swept::Done(Decision::DeadLettered) => self.dead_lettered += 1,
            Swept::Done(Decision::Expired) => self.expired += 1,
            Swept::Done(Decision::Purged) => self.purged += 1,
            Swept::Failed => self.failed += 1,
            // Another sweeper was there first, or the row was renewed.
            Swept::Done(
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
    /// Sweeps, and keeps what it learnt of the store fresh, until the engine is dropped or drained.
    /// In two tasks: a pass over a slow store may take its time.
    pub(crate) fn start_background(self: &Arc<Self>) {
        self.again_and_again(Duration::ZERO, self.config.sweep_every, |inner| {
            // A store that fails was reported by whoever called it; the next pass tries again.
            Box::pin(async move { drop(inner.sweep().await) })
        });
        let every = self.config.clock_refresh;
        self.again_and_again(every, every, |inner| {
            Box::pin(async move { inner.refresh().await })
        });
    }

    fn again_and_again(
        self: &Arc<Self>,
        first: Duration,
        every: Duration,
        task: fn(Arc<Self>) -> Task,
    ) {
        let (engine, runtime) = (Arc::downgrade(self), self.runtime.clone());
        self.runtime.spawn(async move {
            if !first.is_zero() {
                runtime.sleep(first).await;
            }
            while let Some(inner) =
                Weak::upgrade(&engine).filter(|inner| !inner.tasks.is_draining())
            {
                // What panics once must not be the end of it.
                let _ = AssertUnwindSafe(task(inner)).catch_unwind().await;
                runtime.sleep(every).await;
            }
        });
    }

    /// Asks for what was learnt when the store was opened, and may have changed.
    async fn refresh(&self) {
        if let Ok(now) = self.store_now().await {
            self.clock.sample(now, self.runtime.elapsed());
        }
        self.look_at_marks().await;
    }

    async fn sweep(self: &Arc<Self>) -> Result<SweepReport, EngineError> {
        let mut report = SweepReport::default();
        let (batch, rows_max) = (self.config.sweep_batch, rows_max(&self.config));
        // Rows that fail or wait stay due; they must not hide those behind them.
        let left_alone = self.unreadable.left_alone(self.runtime.elapsed());
        let mut stay = HashSet::<RecordId>::from_iter(left_alone);
        let mut limit = batch.saturating_add(self.turns.waiting() + stay.len());
        let mut rows = 0;
        while rows < rows_max {
            let mut due = self.due(limit).await?;
            let is_all = due.len() < limit;
            due.retain(|id| !stay.contains(id));
            let (waits, due): (Vec<_>, Vec<_>) =
                due.into_iter().partition(|id| self.turns.must_wait(id));
            report.waiting += waits.len();
            stay.extend(waits);
            rows += due.len().max(batch);
            let mut swept = stream::iter(due)
                .map(|id| async move { (id, self.sweep_one(id).await) })
                .buffer_unordered(self.config.sweep_concurrency);
            while let Some((id, swept)) = swept.next().await {
                report.count(&swept);
                if matches!(swept, Swept::Failed | Swept::Waits) {
                    stay.insert(id);
                }
            }
            // With more outcomes than can wait, what comes next is mostly more of them, each read in
            // vain.
            if is_all || self.turns.is_full() {
                break;
            }
            // As many new ones as stay, or a pass would read those again for every batch.
            limit = stay.len().saturating_add(batch.max(stay.len()));
        }
        Ok(report)
    }

    /// Deals with one row that a pass found.
    async fn sweep_one(self: &Arc<Self>, id: RecordId) -> Swept {
        let mut turn = None;
        match (self.take_up(&id, &mut turn).await, turn) {
            (Swept::Ask(row), Some(turn)) => {
                let inner = Arc::clone(self);
                self.runtime
                    .spawn(async move { inner.ask(id, row, turn).await });
                Swept::Done(Decision::Probe)
            }
            (swept, _) => swept,
        }
    }

    /// Does what is due with one row, up to asking about it, for which it takes a turn if there is
    /// none yet.
    async fn take_up(&self, id: &RecordId, turn: &mut Option<Turn>) -> Swept {
        let row = match self.load(id).await {
            Ok(Some(row)) => {
                self.unreadable.forget(id);
                row
            }
            Ok(None) => return Swept::Done(Decision::NotDue),
            Err(error) => {
                if matches!(error, StoreError::Corrupt { .. }) {
                    self.unreadable.remember(*id, self.runtime.elapsed());
                }
                return Swept::Failed;
            }
        };
        let route = row.record.route.clone();
        let (decision, next) = self.decide(&Command::Sweep, Some(&row));
        if decision == Decision::Probe && turn.is_none() {
            // Before the attempt is counted: attempts that nobody made would use up all that there
            // are, and leave to a person what could have been asked.
            *turn = self.turns.take();
            if turn.is_none() {
                self.turns.wait(id);
                return Swept::Waits;
            }
        }
        let start = Start::Decided(Some(row), decision, next);
        let Ok(Applied { decision, row, .. }) = self.apply(id, &Command::Sweep, start).await else {
            return Swept::Failed;
        };
        if decision == Decision::NotDue {
            return Swept::Done(decision);
        }
        if decision == Decision::LeaseExpired {
            self.lease_ended(id, &route);
            return Swept::Done(decision);
        }
        self.observer.observe(&Event::Swept {
            id,
            route: &route,
            decision,
        });
        match (decision, row) {
            // Without a turn if somebody else's write made it unknown and due between the two
            // decisions. Then this attempt passes.
            (Decision::Probe, Some(row)) if turn.is_some() => return Swept::Ask(row),
            _ => {}
        }
        Swept::Done(decision)
    }

    /// Tells that an execution's silence made its outcome unknown, whoever noticed it.
    pub(crate) fn lease_ended(&self, id: &RecordId, route: &RouteName) {
        self.observer.observe(&Event::Swept {
            id,
            route,
            decision: Decision::LeaseExpired,
        });
        self.observer.observe(&Event::BecameUnknown {
            id,
            route,
            reason: UnknownReason::LeaseExpired,
        });
        self.waiting.wake(id);
    }

    /// Asks about one unknown outcome, and then about those that wait for a turn.
    async fn ask(self: Arc<Self>, id: RecordId, row: Row, turn: Turn) {
        self.probe(id, row).await;
        let mut turn = Some(turn);
        while !self.tasks.is_draining()
            && let Some(id) = self.turns.next()
        {
            match self.take_up(&id, &mut turn).await {
                Swept::Ask(row) => self.probe(id, row).await,
                Swept::Done(_) => {}
                // The store fails: the next pass tries again.
                Swept::Failed | Swept::Waits => return,
            }
        }
    }

    /// Asks about one unknown outcome. The sweep that led here has already set the time of the
    /// next attempt, so nobody else asks meanwhile, and a crash here only means asking again.
    async fn probe(self: &Arc<Self>, id: RecordId, row: Row) {
        let fence = row.record.fence;
        let asked_at = self.now();
        // By the time of the next attempt somebody else asks; a late answer would be the second.
        let next = row.record.state.deadline().unwrap_or(asked_at);
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

/// What came of a row that was due.
enum Swept {
    /// Nothing is left to do.
    Done(Decision),
    /// It is to be asked about now.
    Ask(Row),
    /// It is to be asked about, and there is no turn: it stays due.
    Waits,
    /// It could not be read or written: it stays due.
    Failed,
}

/// The upstream's word about an execution.
pub(crate) struct Said {
    pub(crate) source: Source,
    pub(crate) at: Timestamp,
    pub(crate) verdict: Verdict,
}
