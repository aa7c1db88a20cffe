//! A claim that is carried through, whoever goes away.
//!
//! A caller may vanish while its claim is on its way to the store. The claim may still win, and
//! a key held by nobody would be unknown after its lease, though nothing was executed. So a
//! dropped claim moves to a task of its own, and gives the key back if it got it.
//!
//! A write that was given up may arrive although its claim went on and was decided: it expects no
//! row, and finds none once the key was rejected. So what it may leave is looked for, and removed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onlyonce_core::{Command, Decision, Fence, RecordId};
use onlyonce_store::Store;
use tokio::sync::SemaphorePermit;

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::tasks::Slot;
use crate::{EngineError, Runtime};

type Claiming = Pin<Box<dyn Future<Output = Result<Applied, EngineError>> + Send>>;

/// The first pause between two attempts to give a key back.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The longest between two looks for a write that may still appear: there may be many of them.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(8);

/// A claim under way. Polled by the caller; finished by a task if the caller drops it.
struct Carried<S: Store, R: Runtime> {
    inner: Arc<Inner<S, R>>,
    id: RecordId,
    fence: Fence,
    /// Kept until the claim is decided, so that vanished callers count against the limit too.
    slot: Option<Slot>,
    claiming: Option<Claiming>,
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Claims, carrying the claim through even if the returned future is dropped. The slot comes back
    /// to be executed in.
    pub(crate) async fn claim_in_full(
        self: &Arc<Self>,
        id: RecordId,
        command: Command,
        fence: Fence,
        start: Start,
        slot: Slot,
    ) -> Result<(Applied, Option<Slot>), EngineError> {
        let inner = Arc::clone(self);
        let claiming: Claiming = Box::pin(async move { inner.apply(&id, &command, start).await });
        let (result, mut slot) = Carried {
            inner: Arc::clone(self),
            id,
            fence,
            slot: Some(slot),
            claiming: Some(claiming),
        }
        .await;
        let executes = matches!(&result, Ok(applied) if applied.decision == Decision::Execute);
        if let Some(unused) = slot.take_if(|_| !executes) {
            self.take_back(id, fence, unused, Left::by(&result));
        }
        Ok((result?, slot))
    }

    /// Takes back what a claim left under a fence that nobody executes under, in a task of its own.
    pub(crate) fn take_back(self: &Arc<Self>, id: RecordId, fence: Fence, slot: Slot, left: Left) {
        if left != Left::NOTHING {
            let inner = Arc::clone(self);
            self.runtime
                .spawn(async move { inner.look_for(&id, fence, slot, left).await });
        }
    }

    /// A write that was given up may still be on its way: a commit that waits for a standby or a
    /// disk appears when that is over. So the key is looked at again and again.
    async fn look_for(&self, id: &RecordId, fence: Fence, slot: Slot, left: Left) {
        let patience = self.config.settle_patience;
        let deadline = self.runtime.elapsed().saturating_add(patience);
        let mut counted = Counted::Execution(slot);
        if left.may_hold {
            let release = Command::Release { fence };
            self.undo(deadline, id, &release, &mut counted, Until::Answered)
                .await;
        }
        if left.may_come_late {
            // Removes and does not release: such a write found no row, and the next payload may be a
            // mended one. Whatever was found, it is looked for until the patience ends: there may be
            // several such writes, and the row that keeps them away may go.
            let evict = Command::Evict { fence };
            self.undo(deadline, id, &evict, &mut counted, Until::Deadline)
                .await;
        }
    }

    /// Sends the command again and again.
    async fn undo<'a>(
        &'a self,
        deadline: Duration,
        id: &RecordId,
        command: &Command,
        counted: &mut Counted<'a>,
        until: Until,
    ) {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let pause_max = match self.apply_until(deadline, id, command, Start::Read).await {
                Ok(applied) => {
                    if applied.decision == Decision::Settled {
                        self.waiting.wake(id);
                    }
                    if until == Until::Answered || !self.may_look_on(counted) {
                        return;
                    }
                    LOOK_PAUSE_MAX
                }
                Err(EngineError::Store(error)) if !error.is_transient() => return,
                Err(_) => RETRY_PAUSE_MAX,
            };
            if self.runtime.elapsed() >= deadline {
                return;
            }
            // Spread: a store that was in trouble left many like this at one moment.
            let [chance] = self.runtime.entropy();
            self.runtime
                .sleep(pause / 2 + pause * u32::from(chance) / 255)
                .await;
            pause = (pause * 2).min(pause_max);
        }
    }

    /// Whether to look again at a key of which the store has just been asked: nothing runs there, so
    /// it no longer counts as an execution. A drain ends such looks, and where too many are under way
    /// what arrives waits for the end of its lease.
    fn may_look_on<'a>(&'a self, counted: &mut Counted<'a>) -> bool {
        if let Counted::Execution(_) = counted {
            let Ok(permit) = self.late_looks.try_acquire() else {
                return false;
            };
            *counted = Counted::Look(permit);
        }
        !self.tasks.is_draining()
    }
}

/// How long a command is sent again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Until the store has answered.
    Answered,
    Deadline,
}

/// What a key that may have been written late counts as.
enum Counted<'a> {
    /// The execution that it was claimed for: nobody has been able to tell whether it is held.
    Execution(#[expect(dead_code, reason = "held")] Slot),
    /// One of those that are looked at.
    Look(#[expect(dead_code, reason = "held")] SemaphorePermit<'a>),
}

impl<S: Store, R: Runtime> Future for Carried<S, R> {
    type Output = (Result<Applied, EngineError>, Option<Slot>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out: what panics must not be gone on with.
        let Some(mut claiming) = self.claiming.take() else {
            return Poll::Pending;
        };
        match claiming.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready((result, self.slot.take())),
            Poll::Pending => {
                self.claiming = Some(claiming);
                Poll::Pending
            }
        }
    }
}

impl<S: Store, R: Runtime> Drop for Carried<S, R> {
    fn drop(&mut self) {
        // It leaves with the result: without one, the claim was dropped or has panicked.
        let Some(slot) = self.slot.take() else {
            return;
        };
        let (inner, id, fence) = (Arc::clone(&self.inner), self.id, self.fence);
        let Some(claiming) = self.claiming.take() else {
            inner.take_back(id, fence, slot, Left::UNSURE);
            return;
        };
        self.inner.runtime.spawn(async move {
            let left = Left::by(&claiming.await);
            inner.take_back(id, fence, slot, left);
        });
    }
}

/// What a claim may have left in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// It may hold the key.
    may_hold: bool,
    /// A write of it that was given up may still arrive.
    may_come_late: bool,
}

impl Left {
    pub(crate) const NOTHING: Self = Self {
        may_hold: false,
        may_come_late: false,
    };
    pub(crate) const LATE: Self = Self {
        may_hold: false,
        may_come_late: true,
    };
    pub(crate) const UNSURE: Self = Self {
        may_hold: true,
        may_come_late: true,
    };

    /// By a claim under whose fence nobody executes.
    fn by(result: &Result<Applied, EngineError>) -> Self {
        match result {
            // It stays until it expires, and keeps late writes away.
            Ok(applied) if applied.is_completed() => Self::NOTHING,
            Ok(applied) => Self {
                may_hold: applied.decision == Decision::Execute,
                may_come_late: applied.may_come_late,
            },
            // Of several writes only the last one is known.
            Err(EngineError::Store(error)) if error.may_have_written() => Self::UNSURE,
            Err(_) => Self::NOTHING,
        }
    }
}
