//! Read, decide, swap; and again when somebody else wrote first.
//!
//! This is the only place that writes clients' keys to the store. A swap that may or may not have
//! happened is followed by a read, never by a blind second write: the rules recognise a command's
//! own earlier success by its fence.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use onlyonce_core::{
    Command, Decision, Next, Record, RecordId, State, Timestamp, UnknownReason, step,
};
use onlyonce_store::{Row, Store, StoreError, Swap, Version};

use crate::engine::Inner;
use crate::{EngineError, Event, Runtime, StoreOperation};

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Applied {
    /// What its sender is told.
    pub(crate) decision: Decision,
    /// The row afterwards.
    pub(crate) row: Option<Row>,
}

impl Applied {
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
    /// This row was there a moment ago, and without a row there is nothing to decide.
    Existing(Row),
}

impl<S: Store, R: Runtime> Inner<S, R> {
    pub(crate) async fn apply(
        &self,
        id: &RecordId,
        command: &Command,
        start: Start,
    ) -> Result<Applied, EngineError> {
        let needs_row = matches!(start, Start::Existing(_));
        let mut decided = None;
        let mut seen = match start {
            Start::Read => self.load(id).await?,
            Start::Seen(row) => row,
            Start::Decided(row, decision, next) => {
                decided = Some((decision, next));
                row
            }
            Start::Existing(row) => Some(row),
        };
        let started = self.runtime.elapsed();
        let mut unsure = None;
        for _ in 0..self.config.rounds_max {
            if let Some(error) = unsure.take_if(|_| self.is_too_old(command, started)) {
                return Err(StoreError::into(error));
            }
            if needs_row && seen.is_none() {
                break;
            }
            let (decision, next) = decided
                .take()
                .unwrap_or_else(|| self.decide(command, seen.as_ref()));
            let next = match next {
                Next::Keep => {
                    return Ok(Applied {
                        decision,
                        row: seen,
                    });
                }
                Next::Put(record) => Some(record),
                Next::Remove => None,
            };
            if let Some(record) = &next
                && let Err(error) = self.keep_secret_for(record).await
            {
                return Err(unsure.unwrap_or(error).into());
            }
            let expected = seen.as_ref().map(|row| row.version);
            seen = match self.swap(id, expected, next.as_deref()).await {
                Ok(Swap::Won(version)) => {
                    let row = next.map(|record| Row { record, version });
                    return Ok(Applied { decision, row });
                }
                Ok(Swap::Lost(row)) => row,
                Err(error) if error.may_have_written() => {
                    unsure = Some(error.clone());
                    // When the read fails too, the caller must hear that it may be written.
                    self.load(id).await.map_err(|_| error)?
                }
                Err(error) => return Err(unsure.unwrap_or(error).into()),
            };
        }
        let rounds = self.config.rounds_max;
        Err(unsure.map_or(EngineError::Contended { rounds }, EngineError::Store))
    }

    /// Whether a claim that may have been written has been at it for longer than its lease.
    ///
    /// Its row may then have been swept, resolved and used anew by others. Going on would bring a
    /// fence back that others have already dealt with, and a verdict about its first life could
    /// settle its second.
    fn is_too_old(&self, command: &Command, started: Duration) -> bool {
        let Command::Claim(claim) = command else {
            return false;
        };
        self.runtime.elapsed().saturating_sub(started) >= self.policies.of(&claim.route).lease()
    }

    /// What the rules say about a row, now.
    pub(crate) fn decide(&self, command: &Command, row: Option<&Row>) -> (Decision, Next) {
        let record = row.map(|row| &*row.record);
        step(
            self.policy_for(command, record),
            record,
            command,
            self.now(),
        )
    }

    pub(crate) async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let answer = self
            .within(self.config.store_timeout, self.store.load(id))
            .await;
        self.checked(StoreOperation::Load, answer, StoreError::unavailable)
    }

    pub(crate) async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let swap = self.store.swap(id, expected, next);
        let answer = self.within(self.config.store_timeout, swap).await;
        self.checked(StoreOperation::Swap, answer, StoreError::ambiguous)
    }

    pub(crate) async fn due(&self, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        let due = self.store.due(self.now(), limit);
        let answer = self.within(self.config.store_timeout, due).await;
        self.checked(StoreOperation::Due, answer, StoreError::unavailable)
    }

    pub(crate) async fn store_now(&self) -> Result<Timestamp, StoreError> {
        let answer = self
            .within(self.config.store_timeout, self.store.now())
            .await;
        self.checked(StoreOperation::Now, answer, StoreError::unavailable)
    }

    /// Turns silence into an error, and tells of every error.
    pub(crate) fn checked<T>(
        &self,
        operation: StoreOperation,
        answer: Option<Result<T, StoreError>>,
        silence: impl FnOnce(String) -> StoreError,
    ) -> Result<T, StoreError> {
        let timeout = self.config.store_timeout;
        let answer =
            answer.unwrap_or_else(|| Err(silence(format!("no answer within {timeout:?}"))));
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
