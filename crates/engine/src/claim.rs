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

use crate::apply::{Applied, Start};
use crate::engine::Inner;
use crate::run::may_hold_the_key;
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
    /// Claims, carrying the claim through even if the returned future is dropped.
    pub(crate) async fn claim_in_full(
        self: &Arc<Self>,
        id: RecordId,
        command: Command,
        fence: Fence,
        start: Start,
        slot: Slot,
    ) -> Result<(Applied, Slot), EngineError> {
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
        if result.is_err() && may_hold_the_key(&result) {
            self.give_back(id, fence, slot.take());
        }
        if result.as_ref().is_ok_and(is_told_and_may_come_late) {
            self.remove_late(id, fence);
        }
        // The slot leaves with the first result, and there is only one.
        Ok((result?, slot.ok_or(EngineError::ShuttingDown)?))
    }

    /// Releases a key under `fence`, if it is held under it, in a task of its own, for which a
    /// drain waits.
    fn give_back(self: &Arc<Self>, id: RecordId, fence: Fence, slot: Option<Slot>) {
        let inner = Arc::clone(self);
        self.runtime
            .spawn(async move { inner.release(&id, fence, slot).await });
    }

    /// A write that was given up may still be on its way: a commit that waits for a standby or a
    /// disk appears when that is over. So while the key is not held under the fence it is looked at
    /// again; the slot is given back meanwhile, as nothing is known to run.
    async fn release(&self, id: &RecordId, fence: Fence, slot: Option<Slot>) {
        let is_back = |decision| decision != Decision::Fenced;
        self.undo(id, &Command::Release { fence }, slot, is_back)
            .await;
    }

    /// Removes what a late write leaves under a fence that nobody executes under (any more), in a task
    /// of its own. Removes and not releases: it found no row, and the next payload may be a mended one.
    pub(crate) fn remove_late(self: &Arc<Self>, id: RecordId, fence: Fence) {
        let inner = Arc::clone(self);
        self.runtime
            .spawn(async move { inner.evict_late(&id, fence).await });
    }

    /// No look is the last one before the patience ends: there may be several such writes, and the
    /// row that keeps them away may go.
    async fn evict_late(&self, id: &RecordId, fence: Fence) {
        self.undo(id, &Command::Evict { fence }, None, |_| false)
            .await;
    }

    /// Sends the command until `is_done`, for as long as the patience allows.
    async fn undo(
        &self,
        id: &RecordId,
        command: &Command,
        mut slot: Option<Slot>,
        is_done: impl Fn(Decision) -> bool,
    ) {
        let deadline = self
            .runtime
            .elapsed()
            .saturating_add(self.config.settle_patience);
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let pause_max = match self.apply_until(deadline, id, command, Start::Read).await {
                Ok(applied) => {
                    if applied.decision != Decision::Fenced {
                        self.waiting.wake(id);
                    }
                    if is_done(applied.decision) {
                        return;
                    }
                    drop(slot.take());
                    LOOK_PAUSE_MAX
                }
                Err(EngineError::Store(error)) if !error.is_transient() => return,
                Err(_) => RETRY_PAUSE_MAX,
            };
            if self.runtime.elapsed() >= deadline {
                return;
            }
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(pause_max);
        }
    }
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
        let (id, fence, slot) = (self.id, self.fence, Some(slot));
        let Some(claiming) = self.claiming.take() else {
            self.inner.give_back(id, fence, slot);
            return;
        };
        let inner = Arc::clone(&self.inner);
        self.inner.runtime.spawn(async move {
            let result = claiming.await;
            if may_hold_the_key(&result) {
                inner.release(&id, fence, slot).await;
            } else {
                // It executes nothing, and what is still looked for takes nobody's place.
                drop(slot);
            }
            if result.is_ok_and(|applied| applied.may_come_late) {
                inner.evict_late(&id, fence).await;
            }
        });
    }
}

/// Whether a claim that executes nothing left a write on the way. If it executes, its end counts.
fn is_told_and_may_come_late(applied: &Applied) -> bool {
    applied.may_come_late && applied.decision != Decision::Execute
}
