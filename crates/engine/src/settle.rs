//! Recording an outcome, and what the caller is told when that does not go as planned.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Command, Decision, Fence, Record, RecordId, Response, SealError, StoredResponse,
    TombstoneReason, UnknownReason,
};
use onlyonce_store::{Row, Store, StoreError};

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::{EngineError, Event, Finished, Outcome, Reply, Runtime};

/// The first pause between two attempts to record an outcome.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Records what finished work says, then tells its caller.
    ///
    /// A final answer is shown only once it is durable: a client that saw it must get the same
    /// one on every retry.
    pub(crate) async fn finish<T>(
        self: &Arc<Self>,
        id: &RecordId,
        row: Row,
        finished: Finished<T>,
        started: Duration,
    ) -> Result<Reply<T>, EngineError> {
        let Finished { outcome, value } = finished;
        let record = row.record.clone();
        let applied = self.settle(id, row, &outcome, started).await;
        let final_answer = match &outcome {
            Outcome::Completed(_) | Outcome::NotReplayable(_) => true,
            Outcome::Released | Outcome::Rejected | Outcome::Unknown(_) => false,
        };
        match applied {
            Err(_) if final_answer => Ok(Reply::Unknown(Some(record))),
            Ok(applied) if final_answer && applied.decision != Decision::Settled => {
                Ok(self.settled_before(id, record, applied, outcome, value))
            }
            Ok(applied) => Ok(not_final(value, outcome, applied)),
            Err(_) => Ok(Reply::Executed { value, outcome }),
        }
    }

    /// The key had its outcome already: from an earlier attempt to record this one, whose
    /// acknowledgement was lost, or from somebody else. What the row says is the answer.
    fn settled_before<T>(
        &self,
        id: &RecordId,
        own: Box<Record>,
        applied: Applied,
        outcome: Outcome,
        value: T,
    ) -> Reply<T> {
        // The key may have been forgotten and used anew while this work took its time. Another
        // payload's answer is not this caller's to see.
        let row = applied.row.as_ref();
        if row.is_some_and(|row| row.record.fingerprint != own.fingerprint) {
            return Reply::Unknown(Some(own));
        }
        // The work ran, so "nothing was executed" is no longer a thing to say.
        let stored = self.stored(id, applied).unwrap_or(Reply::Unknown(None));
        match (stored, &outcome) {
            (Reply::Replayed(replay), Outcome::Completed(response))
                if replay.response == *response =>
            {
                Reply::Executed { value, outcome }
            }
            (Reply::NotReplayable(stored), Outcome::NotReplayable(reason)) if stored == *reason => {
                Reply::Executed { value, outcome }
            }
            (reply, _) => reply,
        }
    }

    /// Records that nobody knows how the work ended.
    pub(crate) async fn give_up<T>(
        self: &Arc<Self>,
        id: &RecordId,
        row: Row,
        reason: UnknownReason,
        started: Duration,
    ) -> Result<Reply<T>, EngineError> {
        let record = row.record.clone();
        // If this fails too, the lease runs out and the outcome becomes unknown then.
        let applied = self
            .settle(id, row, &Outcome::Unknown(reason), started)
            .await;
        let record = applied
            .ok()
            .and_then(Applied::into_record)
            .unwrap_or(record);
        Ok(Reply::Unknown(Some(record)))
    }

    /// Writes an outcome, patiently, and wakes whoever waits for it.
    pub(crate) async fn settle(
        &self,
        id: &RecordId,
        row: Row,
        outcome: &Outcome,
        started: Duration,
    ) -> Result<Applied, EngineError> {
        let route = row.record.route.clone();
        let (worked, name) = (self.runtime.elapsed(), outcome.name());
        let result = self.write(id, row, outcome, worked).await;
        self.waiting.wake(id);
        match &result {
            Ok(Applied { decision, .. }) => self.observer.observe(&Event::Settled {
                id,
                route: &route,
                outcome: name,
                decision: *decision,
                worked: worked.saturating_sub(started),
                took: self.runtime.elapsed().saturating_sub(worked),
            }),
            Err(_) => {
                self.observer.observe(&Event::NotSettled {
                    id,
                    route: &route,
                    outcome: name,
                });
            }
        }
        if let Some(reason) = became_unknown(&result, outcome) {
            self.observer.observe(&Event::BecameUnknown {
                id,
                route: &route,
                reason,
            });
        }
        result
    }

    async fn write(
        &self,
        id: &RecordId,
        row: Row,
        outcome: &Outcome,
        began: Duration,
    ) -> Result<Applied, EngineError> {
        let fence = row.record.fence;
        let mut command = self.command(id, fence, outcome)?;
        let deadline = began.saturating_add(self.config.settle_patience);
        let mut pause = RETRY_PAUSE_MIN;
        let mut start = Start::Seen(Some(row));
        loop {
            let error = match self.apply_until(deadline, id, &command, start).await {
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            if let EngineError::Store(refused) = &error {
                if matches!(refused, StoreError::TooLarge { .. }) && carries_answer(&command) {
                    // It was executed, so the key must say so, if without the answer.
                    let response = Response::Tombstone(TombstoneReason::TooLarge);
                    command = Command::Complete { fence, response };
                    start = Start::Read;
                    continue;
                }
                if !refused.is_transient() {
                    return Err(error);
                }
            }
            if self.runtime.elapsed() >= deadline {
                return Err(error);
            }
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
            start = Start::Read;
        }
    }

    fn command(
        &self,
        id: &RecordId,
        fence: Fence,
        outcome: &Outcome,
    ) -> Result<Command, EngineError> {
        Ok(match outcome {
            Outcome::Completed(response) => Command::Complete {
                fence,
                response: self.seal(id, fence, response)?,
            },
            Outcome::NotReplayable(reason) => Command::Complete {
                fence,
                response: Response::Tombstone(*reason),
            },
            Outcome::Released => Command::Release { fence },
            Outcome::Rejected => Command::Evict { fence },
            Outcome::Unknown(reason) => Command::MarkUnknown {
                fence,
                reason: *reason,
            },
        })
    }

    /// The response as it is stored: encrypted where a key ring is configured.
    pub(crate) fn seal(
        &self,
        id: &RecordId,
        fence: Fence,
        response: &StoredResponse,
    ) -> Result<Response, EngineError> {
        let Some(ring) = &self.keyring else {
            return Ok(Response::Plain(response.clone()));
        };
        match ring.seal(id, fence, self.runtime.entropy(), response) {
            Ok(sealed) => Ok(Response::Sealed(sealed)),
            // Too large to encrypt: executed, and never stored in the clear.
            Err(SealError::CannotSeal) => Ok(Response::Tombstone(TombstoneReason::TooLarge)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What the caller of work hears that did nothing, or does not know.
fn not_final<T>(value: T, outcome: Outcome, applied: Applied) -> Reply<T> {
    match (applied.undecided(), outcome) {
        (None, outcome) | (Some(_), outcome @ Outcome::Unknown(_)) => {
            Reply::Executed { value, outcome }
        }
        // The work has said so itself, in its own transaction: its answer says more than it knows.
        (Some(UnknownReason::HandlerSaidSo), _) => Reply::Unknown(applied.into_record()),
        // This attempt did nothing, and an earlier one is in doubt. The answer is still true.
        (Some(reason), _) => Reply::Executed {
            value,
            outcome: Outcome::Unknown(reason),
        },
    }
}

/// Why nobody knows now, if that is what came of it: as the work said, in its answer or its own
/// transaction, or because an earlier attempt is in doubt and this one did nothing.
fn became_unknown(
    result: &Result<Applied, EngineError>,
    outcome: &Outcome,
) -> Option<UnknownReason> {
    let applied = result.as_ref().ok()?;
    match outcome {
        Outcome::Unknown(reason) => Some(*reason),
        Outcome::Completed(_)
        | Outcome::NotReplayable(_)
        | Outcome::Released
        | Outcome::Rejected => applied.undecided(),
    }
}

fn carries_answer(command: &Command) -> bool {
    matches!(
        command,
        Command::Complete {
            response: Response::Plain(_) | Response::Sealed(_),
            ..
        }
    )
}
