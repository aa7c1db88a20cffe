//! The work: run it, keep its lease, record its outcome, then tell the caller.
//!
//! It goes on whoever goes away, so it has a task of its own: from the beginning, or, where
//! [`callers_work`](crate::EngineConfig::callers_work), from the moment that its caller drops it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use onlyonce_core::{Command, Decision, Fence, RecordId, Secret, State, Timestamp, UnknownReason};
use onlyonce_store::{Row, Store};
use tokio::sync::oneshot;

use crate::apply::Start;
use crate::claim::Left;
use crate::engine::Inner;
use crate::execution::{Home, Shared};
use crate::run::Granted;
use crate::tasks::Slot;
use crate::{EngineError, Event, Execution, Finished, Outcome, Reply, Runtime};

impl<S: Store, R: Runtime> Home for Inner<S, R> {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn secret(&self, previous: bool) -> &Secret {
        let previous = self.previous_secret.as_ref().filter(|_| previous);
        previous.unwrap_or(&self.secret)
    }
}

/// How the work ended.
enum End<T> {
    Finished(Finished<T>),
    Panicked,
    ShutDown,
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Runs the work and waits for its end. Dropping this future leaves the work alone.
    pub(crate) async fn execute<T, F, Fut>(
        self: &Arc<Self>,
        granted: Granted,
        slot: Slot,
        work: F,
    ) -> Result<Reply<T>, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(Execution) -> Fut + Send + 'static,
        Fut: Future<Output = Finished<T>> + Send + 'static,
    {
        let inner = Arc::clone(self);
        let (id, fence, may_come_late) =
            (granted.id, granted.row.record.fence, granted.may_come_late);
        // Boxed: it is moved about before it runs and when its caller goes away, and has kilobytes.
        let work: Working<T> = Box::pin(async move {
            let reply = Arc::clone(&inner).work(granted, work).await;
            let left = if may_come_late {
                left_by(&reply)
            } else {
                Left::NOTHING
            };
            inner.take_back(id, fence, slot, left);
            reply
        });
        if self.config.callers_work {
            let (inner, work) = (Arc::clone(self), Some(work));
            return Begun { inner, work }.await;
        }
        let (tell, told) = oneshot::channel();
        self.runtime.spawn(async move {
            // The caller may be gone; the outcome is recorded all the same.
            let _ = tell.send(work.await);
        });
        // The task can only vanish with the process.
        told.await.unwrap_or(Ok(Reply::Unknown(None)))
    }

    async fn work<T, F, Fut>(
        self: Arc<Self>,
        granted: Granted,
        work: F,
    ) -> Result<Reply<T>, EngineError>
    where
        F: FnOnce(Execution) -> Fut + Send + 'static,
        Fut: Future<Output = Finished<T>> + Send + 'static,
    {
        let execution = self.execution(&granted);
        let Granted { id, mut row, .. } = granted;
        let started = self.runtime.elapsed();
        // The task may have been kept waiting for longer than the lease, or until shutdown.
        if !execution.is_held() || self.tasks.is_aborted() {
            // If that fails, the lease is what ends; the caller is told what is certain.
            let _ = self.settle(&id, row, &Outcome::Released, started).await;
            return Err(EngineError::TooLate);
        }
        let end = {
            let running = async { work(execution.clone()).await };
            let running = pin!(AssertUnwindSafe(running).catch_unwind());
            let renewing = pin!(self.keep_lease(&execution, &mut row));
            let aborted = pin!(self.tasks.aborted());
            match select(running, select(renewing, aborted)).await {
                Either::Left((Ok(finished), _)) => End::Finished(finished),
                Either::Left((Err(_), _)) => End::Panicked,
                Either::Right(_) => End::ShutDown,
            }
        };
        match end {
            End::Finished(finished) => self.finish(&id, row, finished, started).await,
            End::Panicked => {
                Box::pin(self.give_up(&id, row, UnknownReason::Panicked, started)).await
            }
            End::ShutDown => {
                Box::pin(self.give_up(&id, row, UnknownReason::ShutDown, started)).await
            }
        }
    }

    fn execution(self: &Arc<Self>, granted: &Granted) -> Execution {
        let (id, record) = (granted.id, &granted.row.record);
        let lease_until = match record.state {
            State::Executing { lease_until, .. } => lease_until.as_millis(),
            // Never granted in another state; a lease of zero refuses to begin.
            State::Unknown { .. }
            | State::DeadLetter { .. }
            | State::Released { .. }
            | State::Completed { .. }
            | State::Expired { .. } => 0,
        };
        let engine = Arc::clone(self);
        Execution {
            shared: Arc::new(Shared {
                id,
                fence: record.fence,
                attempt: record.attempt,
                created_at: record.created_at,
                route: record.route.clone(),
                is_previous: granted.is_previous,
                lease_until: AtomicU64::new(lease_until),
                lost: AtomicBool::new(false),
                engine,
            }),
        }
    }

    /// Renews the lease for as long as it is polled. `row` follows what was written, so that the
    /// completion needs no read.
    async fn keep_lease(&self, execution: &Execution, row: &mut Row) {
        let (id, fence) = (*execution.id(), execution.fence());
        // At a third: two renewals may fail before the lease is over.
        let every = self.policies.of(execution.route()).lease() / 3;
        let mut pause = every;
        loop {
            self.runtime.sleep(pause).await;
            pause = every;
            // Boxed: most work ends before it, and would carry its future about.
            match Box::pin(self.renew(&id, fence, row.clone())).await {
                Ok(Some(renewed)) => {
                    if let State::Executing { lease_until, .. } = renewed.record.state {
                        execution.renewed_until(lease_until);
                    }
                    *row = renewed;
                }
                Ok(None) => {
                    if execution.lose() {
                        let route = execution.route();
                        self.observer.observe(&Event::LeaseLost { id: &id, route });
                    }
                    // The work goes on: it may still be able to say how it ended.
                    return std::future::pending().await;
                }
                Err(_) => pause = every / 4,
            }
        }
    }

    /// The renewed row, or `None` when the key is no longer held.
    async fn renew(
        &self,
        id: &RecordId,
        fence: Fence,
        row: Row,
    ) -> Result<Option<Row>, EngineError> {
        let command = Command::Renew { fence };
        let applied = self.apply(id, &command, Start::Seen(Some(row))).await?;
        Ok(applied
            .row
            .filter(|_| applied.decision == Decision::Renewed))
    }
}

/// What a claim whose write may still arrive leaves behind, now that its work has ended.
fn left_by<T>(reply: &Result<Reply<T>, EngineError>) -> Left {
    match reply {
        Ok(Reply::Executed { outcome, .. }) => match outcome {
            Outcome::Rejected => Left::LATE,
            // The row may go with the next attempt.
            Outcome::Released => Left::UNSURE,
            // An effect's row stays, and keeps late writes away.
            Outcome::Completed(_) | Outcome::NotReplayable(_) | Outcome::Unknown(_) => {
                Left::NOTHING
            }
        },
        Err(EngineError::TooLate) => Left::UNSURE,
        Ok(
            Reply::Replayed(_)
            | Reply::NotReplayable(_)
            | Reply::AlreadyUsed
            | Reply::InFlight(_)
            | Reply::Mismatch(_)
            | Reply::Unknown(_),
        )
        | Err(_) => Left::NOTHING,
    }
}

type Working<T> = Pin<Box<dyn Future<Output = Result<Reply<T>, EngineError>> + Send>>;

/// Work that its caller polls; a task goes on with it if the caller drops it.
struct Begun<S: Store, R: Runtime, T: Send + 'static> {
    inner: Arc<Inner<S, R>>,
    /// There until it has ended.
    work: Option<Working<T>>,
}

impl<S: Store, R: Runtime, T: Send + 'static> Future for Begun<S, R, T> {
    type Output = Result<Reply<T>, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out: what panics must not be gone on with.
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<S: Store, R: Runtime, T: Send + 'static> Drop for Begun<S, R, T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.inner.runtime.spawn(async move { drop(work.await) });
        }
    }
}
