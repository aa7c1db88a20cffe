//! The life of one request: claim, then reply, wait or execute.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use onlyonce_core::{
    Claim, Command, Decision, Fence, FieldDigests, Fingerprint, Next, PrincipalDigest, RecordId,
    Response, RouteName, State,
};
use onlyonce_store::{Row, Store, StoreError};

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::locate::{Located, is_forgotten};
use crate::tasks::Slot;
use crate::{Engine, EngineError, Event, Execution, Finished, Replay, Reply, Runtime};

/// Which record a request means, and which payload it brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The record.
    pub id: RecordId,
    /// The payload.
    pub fingerprint: Fingerprint,
    /// The payload's field digests.
    pub fields: FieldDigests,
}

/// One request for work to be done once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its record and payload.
    pub identity: Identity,
    /// The same under the previous secret, while one is configured.
    pub previous: Option<Identity>,
    /// Its route; the route's policy decides.
    pub route: RouteName,
    /// Who asks, as operators see it.
    pub principal: PrincipalDigest,
    /// How long to wait for somebody else's execution of the same key. `None`: not at all.
    pub wait: Option<Duration>,
    /// What to note about the request, for the [`Resolver`](crate::Resolver) that asks about its
    /// outcome. Kept only while the outcome is open.
    pub memo: Bytes,
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// Runs `work` if this request is the one to execute; otherwise says what became of the one
    /// that was. Dropping the returned future never cancels work that has begun.
    ///
    /// # Errors
    /// When no decision could be made. Nothing was executed then.
    pub fn run<T, F, Fut>(
        &self,
        request: Request,
        work: F,
    ) -> impl Future<Output = Result<Reply<T>, EngineError>> + Send
    where
        T: Send + 'static,
        F: FnOnce(Execution) -> Fut + Send + 'static,
        Fut: Future<Output = Finished<T>> + Send + 'static,
    {
        // Boxed before there is a future: it would carry the request twice, to its end.
        let mut located = Box::new(Located::new(request));
        async move {
            let answer = match self.inner.locate(&mut located).await {
                Ok(()) => self.inner.ask_and_wait(&located).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(Answer::Execute(granted, slot)) => self.inner.execute(granted, slot, work).await,
                Ok(Answer::Told(told)) => self.inner.reply(&located.request.identity.id, told),
                // A row that cannot be read may be a completed charge: unknown, never absent.
                Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(Reply::Unknown(None)),
                Err(error) => Err(error),
            }
        }
    }
}

/// A key that is ours to execute.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) id: RecordId,
    /// The row as the claim wrote it.
    pub(crate) row: Row,
    /// The id was made with the previous secret.
    pub(crate) is_previous: bool,
    /// An earlier write of the claim may still arrive, if it finds no row.
    pub(crate) may_come_late: bool,
}

/// How a claim begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// By a read, where a row is expected.
    Read,
    /// By whatever costs the store less.
    Cheapest,
}

/// What asking for the key came to.
enum Answer {
    /// The key is this request's, and so is a slot to execute in.
    Execute(Granted, Slot),
    /// Anything else.
    Told(Applied),
}

impl Answer {
    fn decision(&self) -> Decision {
        match self {
            Self::Execute(..) => Decision::Execute,
            Self::Told(applied) => applied.decision,
        }
    }

    fn attempt(&self) -> u16 {
        match self {
            Self::Execute(granted, _) => granted.row.record.attempt,
            Self::Told(told) => told.row.as_ref().map_or(0, |row| row.record.attempt),
        }
    }

    fn is_in_flight(&self) -> bool {
        self.decision() == Decision::InFlight
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Claims the key for a request, waiting for another's execution where that is wanted.
    async fn ask_and_wait(self: &Arc<Self>, located: &Located) -> Result<Answer, EngineError> {
        let started = self.runtime.elapsed();
        let answer = self.claim(located, First::Cheapest).await?;
        self.report(&located.request, &answer, started);
        let Answer::Told(in_flight) = answer else {
            return Ok(answer);
        };
        if in_flight.decision != Decision::InFlight {
            return Ok(Answer::Told(in_flight));
        }
        let answer = self.wait(located, in_flight).await?;
        if !answer.is_in_flight() {
            self.report(&located.request, &answer, started);
        }
        Ok(answer)
    }

    fn report(&self, request: &Request, answer: &Answer, started: Duration) {
        self.observer.observe(&Event::Claimed {
            id: &request.identity.id,
            route: &request.route,
            decision: answer.decision(),
            attempt: answer.attempt(),
            took: self.runtime.elapsed().saturating_sub(started),
        });
    }

    async fn claim(
        self: &Arc<Self>,
        located: &Located,
        first: First,
    ) -> Result<Answer, EngineError> {
        let Located {
            request,
            is_previous,
        } = located;
        let id = request.identity.id;
        let fence = Fence::from_bytes(self.runtime.entropy());
        let command = Command::Claim(Claim {
            fingerprint: request.identity.fingerprint,
            fields: request.identity.fields.clone(),
            fence,
            route: request.route.clone(),
            principal: request.principal,
            memo: request.memo.clone(),
        });
        let slot = self.reserve();
        let mut start = Start::Seen(None);
        let reads_first = first == First::Read || self.store.profile().cheap_reads;
        if reads_first || slot.is_err() || *is_previous {
            let row = self.load(&id).await?;
            let (decision, next) = self.decide(&command, row.as_ref());
            if next == Next::Keep {
                return Ok(Answer::Told(Applied::new(decision, row)));
            }
            start = match row {
                // A new life would begin under the old secret here and under the new one
                // elsewhere.
                Some(row) if *is_previous && !is_forgotten(&row, self.now()) => {
                    Start::Existing(row)
                }
                _ if *is_previous => return Err(EngineError::Contended),
                row => Start::Decided(row, decision, next),
            };
        }
        // Only now, so that replays are answered also at the limit and during shutdown.
        let slot = slot?;
        let (applied, slot) = self.claim_in_full(id, command, fence, start, slot).await?;
        match (applied, slot) {
            (
                Applied {
                    decision: Decision::Execute,
                    row: Some(row),
                    may_come_late,
                },
                Some(slot),
            ) => {
                let is_previous = *is_previous;
                let granted = Granted {
                    id,
                    row,
                    is_previous,
                    may_come_late,
                };
                Ok(Answer::Execute(granted, slot))
            }
            (told, _) => Ok(Answer::Told(told)),
        }
    }

    /// Waits for somebody else's execution, as long as the request allows.
    async fn wait(
        self: &Arc<Self>,
        located: &Located,
        in_flight: Applied,
    ) -> Result<Answer, EngineError> {
        let Located { request, .. } = located;
        let id = &request.identity.id;
        let ticket = request
            .wait
            .and_then(|wait| Some((wait, self.waiting.join(id)?)));
        let Some((wait, mut ticket)) = ticket else {
            return Ok(Answer::Told(in_flight));
        };
        let deadline = self.runtime.elapsed().saturating_add(wait);
        let mut pause = self.config.wait_poll_min;
        let signal = Arc::clone(&ticket.settled);
        loop {
            // Listening begins before looking, or a settlement in between would go unheard.
            let mut settled = pin!(signal.notified());
            settled.as_mut().enable();
            let answer = self.claim(located, First::Read).await?;
            if !answer.is_in_flight() {
                // Another process may have settled it, and nobody else here knows yet.
                self.waiting.wake(id);
                return Ok(answer);
            }
            let left = deadline.saturating_sub(self.runtime.elapsed());
            if left.is_zero() {
                return Ok(answer);
            }
            let pause_now = if ticket.looks() {
                pause.min(left)
            } else {
                left
            };
            select(settled, pin!(self.runtime.sleep(pause_now))).await;
            pause = (pause * 2).min(self.config.wait_poll_max);
        }
    }

    /// What a request is told that does not execute.
    fn reply<T>(&self, id: &RecordId, applied: Applied) -> Result<Reply<T>, EngineError> {
        match applied.decision {
            Decision::Replay | Decision::NotReplayable => self.stored(id, applied),
            Decision::AlreadyUsed => Ok(Reply::AlreadyUsed),
            Decision::Mismatch => {
                let fields = applied.row.map(|row| row.record.fields).unwrap_or_default();
                Ok(Reply::Mismatch(fields))
            }
            Decision::InFlight => match applied.into_record() {
                Some(record) => Ok(Reply::InFlight(record)),
                None => Ok(Reply::Unknown(None)),
            },
            Decision::Unknown
            // A claim is told nothing else; if it were, not knowing is the safe answer.
            | Decision::Execute
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
            | Decision::NotAllowed => Ok(Reply::Unknown(applied.into_record())),
        }
    }

    /// The stored answer of a completed row; unknown when the row is anything else.
    pub(crate) fn stored<T>(
        &self,
        id: &RecordId,
        applied: Applied,
    ) -> Result<Reply<T>, EngineError> {
        let Some(Row { record, .. }) = applied.row else {
            return Ok(Reply::Unknown(None));
        };
        let State::Completed {
            response,
            expires_at,
        } = record.state
        else {
            return Ok(Reply::Unknown(Some(record)));
        };
        let response = match response {
            Response::Plain(response) => response,
            Response::Sealed(sealed) => {
                let ring = self.keyring.as_ref();
                ring.ok_or(onlyonce_core::SealError::UnknownKey(sealed.key_id))?
                    .open(id, record.fence, &sealed)?
            }
            Response::Tombstone(reason) => return Ok(Reply::NotReplayable(reason)),
        };
        Ok(Reply::Replayed(Replay {
            response,
            created_at: record.created_at,
            expires_at,
            response_schema: record.response_schema,
        }))
    }
}
