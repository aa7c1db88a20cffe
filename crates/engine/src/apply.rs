//! Read, decide, swap; and again when somebody else wrote first.
//!
//! This is the only place that writes clients' keys to the store, but for an old id that is put out of
//! use (`locate.rs`). A swap that may or may not have
//! happened is followed by a read, never by a blind second write: the rules recognise an execution's
//! own earlier success by its fence. A person's decision has none: it is recognised by the row that it
//! would have left ([`Tried`]).

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use onlyonce_core::{
    Command, Decision, Next, Record, RecordId, State, Timestamp, UnknownReason, step,
};
use onlyonce_store::{Row, Store, StoreError, Swap, Version};

use crate::engine::Inner;
use crate::locate::is_forgotten;
use crate::{EngineError, Event, Runtime, StoreOperation};

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Applied {
    /// What its sender is told.
    pub(crate) decision: Decision,
    /// The row afterwards.
    pub(crate) row: Option<Row>,
    /// A write that expects no row was given up on the way, and wins if it arrives when there is none.
    pub(crate) may_come_late: bool,
}

impl Applied {
    /// What came of it, with nothing left on the way.
    pub(crate) const fn new(decision: Decision, row: Option<Row>) -> Self {
        Self {
            decision,
            row,
            may_come_late: false,
        }
    }

    fn with_late(self, may_come_late: bool) -> Self {
        Self {
            may_come_late,
            ..self
        }
    }

    /// Why nobody knows how it ended, if nobody does.
    pub(crate) fn undecided(&self) -> Option<UnknownReason> {
        match self.row.as_ref()?.record.state {
            State::Unknown { reason, .. } | State::DeadLetter { reason, .. } => Some(reason),
            State::Executing { .. }
            | State::Released { .. }
            | State::Completed { .. }
            | State::Expired { .. } => None,
        }
    }

    pub(crate) fn is_completed(&self) -> bool {
        let row = self.row.as_ref();
        row.is_some_and(|row| matches!(row.record.state, State::Completed { .. }))
    }

    pub(crate) fn into_record(self) -> Option<Box<Record>> {
        self.row.map(|row| row.record)
    }
}

/// Where to begin.
#[derive(Debug)]
pub(crate) enum Start {
    /// Read the row first.
    Read,
    /// This row, or none, was there a moment ago. If that is no longer true the swap is lost and
    /// brings the row that is there, so a wrong guess costs nothing but the round trip.
    Seen(Option<Row>),
    /// The same, and this was decided about it at that moment.
    Decided(Option<Row>, Decision, Next),
    /// This row was there a moment ago. Without a row, or with one on which a claim would begin a new
    /// life, there is nothing to decide.
    Existing(Row),
}

/// A row, and what was decided about it.
type Seen = (Option<Row>, Option<(Decision, Next)>);

impl Start {
    /// The row, and what was decided about it; `None` if it is to be read.
    fn into_seen(self) -> Option<Seen> {
        match self {
            Self::Read => None,
            Self::Seen(row) => Some((row, None)),
            Self::Decided(row, decision, next) => Some((row, Some((decision, next)))),
            Self::Existing(row) => Some((Some(row), None)),
        }
    }
}

/// A write that may have happened.
#[derive(Debug)]
struct Tried {
    error: StoreError,
    decision: Decision,
    next: Option<Box<Record>>,
}

impl Tried {
    /// Whether the row is as the write would have left it.
    fn is_there(&self, row: Option<&Row>) -> bool {
        self.next.as_deref() == row.map(|row| &*row.record)
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Carries a command out. Whoever sends a claim that may have been written does not go on for
    /// longer than its lease: its row may then have been swept, resolved and used anew by others.
    /// Going on would bring a fence back that others have already dealt with, and a verdict about its
    /// first life could settle its second.
    pub(crate) async fn apply(
        &self,
        id: &RecordId,
        command: &Command,
        start: Start,
    ) -> Result<Applied, EngineError> {
        let patience = if let Command::Claim(claim) = command {
            self.policies.of(&claim.route).lease()
        } else {
            self.config.settle_patience
        };
        let deadline = self.runtime.elapsed().saturating_add(patience);
        self.apply_until(deadline, id, command, start).await
    }

    /// The same, until a time of the caller's when writes may or may not have happened.
    pub(crate) async fn apply_until(
        &self,
        deadline: Duration,
        id: &RecordId,
        command: &Command,
        start: Start,
    ) -> Result<Applied, EngineError> {
        let needs_row = matches!(start, Start::Existing(_));
        let (mut seen, mut decided) = match start.into_seen() {
            Some(begun) => begun,
            None => (self.load(id).await?, None),
        };
        let is_persons = matches!(command, Command::Resolve { .. });
        let mut unsure: Option<Tried> = None;
        let mut may_come_late = false;
        for _ in 0..self.config.rounds_max {
            let done = unsure.as_ref().filter(|_| is_persons);
            if let Some(tried) = done.filter(|tried| tried.is_there(seen.as_ref())) {
                return Ok(Applied::new(tried.decision, seen));
            }
            let now = self.now();
            if needs_row && seen.as_ref().is_none_or(|row| is_forgotten(row, now)) {
                break;
            }
            let (decision, next) = decided
                .take()
                .unwrap_or_else(|| self.decide_at(command, seen.as_ref(), now));
            let next = match next {
                Next::Keep => {
                    // Refused as the key is now, which may be what this very decision made of it.
                    if let Some(tried) = unsure.filter(|_| is_persons) {
                        return Err(tried.error.into());
                    }
                    return Ok(Applied::new(decision, seen).with_late(may_come_late));
                }
                Next::Put(record) => Some(record),
                Next::Remove => None,
            };
            // Only now: what was written after all is recognised also when the time is over.
            if let Some(tried) = unsure.take_if(|_| self.runtime.elapsed() >= deadline) {
                return Err(tried.error.into());
            }
            if let Err(error) = self.keep_secret_for(next.as_deref()).await {
                return Err(unsure.map_or(error, |tried| tried.error).into());
            }
            let expected = seen.as_ref().map(|row| row.version);
            seen = match self.swap(id, expected, next.as_deref()).await {
                Ok(Swap::Won(version)) => {
                    let row = next.map(|record| Row { record, version });
                    let applied = Applied::new(decision, row).with_late(may_come_late);
                    self.tell_of_lease(id, command, &applied);
                    return Ok(applied);
                }
                Ok(Swap::Lost(row)) => row,
                Err(error) if error.may_have_written() => {
                    let tried = unsure.insert(Tried {
                        error,
                        decision,
                        next,
                    });
                    // When the read fails too, the caller must hear that it may be written.
                    let found = self.load(id).await.map_err(|_| tried.error.clone())?;
                    // A version never returns, but no row does. What has come comes no more.
                    may_come_late |= expected.is_none() && !tried.is_there(found.as_ref());
                    found
                }
                Err(error) => return Err(unsure.map_or(error, |tried| tried.error).into()),
            };
        }
        Err(unsure.map_or(EngineError::Contended, |tried| tried.error.into()))
    }

    /// A retry may notice before any sweep does that an execution has fallen silent, and write that
    /// down: the only write of a claim that is not told to execute.
    fn tell_of_lease(&self, id: &RecordId, command: &Command, applied: &Applied) {
        if let (Command::Claim(claim), Decision::Unknown) = (command, applied.decision) {
            self.lease_ended(id, &claim.route);
        }
    }

    /// Removes a row that cannot be read, if it is still the one of this version. The rules know
    /// nothing of such a row, so there is nothing to decide.
    pub(crate) async fn remove_unreadable(
        &self,
        id: &RecordId,
        version: Version,
    ) -> Result<Decision, EngineError> {
        Ok(match self.swap(id, Some(version), None).await? {
            Swap::Won(_) => Decision::Settled,
            Swap::Lost(_) => Decision::Fenced,
        })
    }

    /// What the rules say about a row, now.
    pub(crate) fn decide(&self, command: &Command, row: Option<&Row>) -> (Decision, Next) {
        self.decide_at(command, row, self.now())
    }

    /// The same, at a time of the caller's.
    pub(crate) fn decide_at(
        &self,
        command: &Command,
        row: Option<&Row>,
        now: Timestamp,
    ) -> (Decision, Next) {
        let record = row.map(|row| &*row.record);
        step(self.policy_for(command, record), record, command, now)
    }

    pub(crate) async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let load = async { self.store.load(id).await };
        self.asked(StoreOperation::Load, load, StoreError::unavailable)
            .await
    }

    pub(crate) async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let swap = async { self.store.swap(id, expected, next).await };
        self.asked(StoreOperation::Swap, swap, StoreError::ambiguous)
            .await
    }

    pub(crate) async fn due(&self, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        let due = async { self.store.due(self.now(), limit).await };
        self.asked(StoreOperation::Due, due, StoreError::unavailable)
            .await
    }

    pub(crate) async fn store_now(&self) -> Result<Timestamp, StoreError> {
        let now = async { self.store.now().await };
        self.asked(StoreOperation::Now, now, StoreError::unavailable)
            .await
    }

    /// What the store answers, and tells of every error. A driver that takes too long or panics has
    /// said nothing.
    pub(crate) async fn asked<T>(
        &self,
        operation: StoreOperation,
        asking: impl Future<Output = Result<T, StoreError>>,
        silence: impl FnOnce(String) -> StoreError,
    ) -> Result<T, StoreError> {
        let timeout = self.config.store_timeout;
        let asking = AssertUnwindSafe(asking).catch_unwind();
        let answer = match self.within(timeout, asking).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(silence("the store's driver panicked".into())),
            None => Err(silence(format!("no answer within {timeout:?}"))),
        };
        answer.inspect_err(|error| {
            self.observer
                .observe(&Event::StoreFailed { operation, error });
        })
    }

    /// The future's output, or `None` when it takes longer than `limit`.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        match select(pin!(future), pin!(self.runtime.sleep(limit))).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(((), _)) => None,
        }
    }
}
