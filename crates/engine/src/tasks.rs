//! How many executions run, how many may, and how they end at shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::{EngineError, Lanes};

/// The executions of one engine.
#[derive(Debug)]
pub(crate) struct Tasks {
    running: AtomicUsize,
    limit: usize,
    is_draining: AtomicBool,
    is_aborted: AtomicBool,
    /// Told when nothing runs any more.
    idle: Notify,
    /// Told when every execution is to give up: each listens at the one of its thread.
    aborted: Lanes<Notify>,
}

/// The right to run one execution; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Tasks>);

impl Tasks {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            running: AtomicUsize::new(0),
            limit,
            is_draining: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            idle: Notify::new(),
            aborted: Lanes::default(),
        }
    }

    /// Takes a slot, or says why there is none.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Slot, EngineError> {
        // Counted before it is seen whether a drain has begun: one that begins in between waits for
        // this slot.
        let one_more = |running| (running < self.limit).then_some(running + 1);
        let (order, limit) = (Ordering::SeqCst, self.limit);
        let counted = self.running.fetch_update(order, order, one_more);
        counted.map_err(|_| EngineError::Overloaded { limit })?;
        let slot = Slot(Arc::clone(self));
        if self.is_draining() {
            return Err(EngineError::ShuttingDown);
        }
        Ok(slot)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    pub(crate) fn stop_granting(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        until(&self.idle, || self.running.load(Ordering::SeqCst) == 0).await;
    }

    /// Tells every execution to give up, and how many there were.
    pub(crate) fn abort(&self) -> usize {
        self.is_aborted.store(true, Ordering::SeqCst);
        self.aborted.iter().for_each(Notify::notify_waiters);
        self.running.load(Ordering::SeqCst)
    }

    /// Whether every execution is to give up.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    /// Waits until [`abort`](Self::abort) is called.
    pub(crate) async fn aborted(&self) {
        until(self.aborted.mine(), || self.is_aborted()).await;
    }
}

/// Waits until something is so. `told` is told after it has become so.
async fn until(told: &Notify, is_so: impl Fn() -> bool) {
    loop {
        // Listening begins before looking, or a change in between would go unheard.
        let mut notified = pin!(told.notified());
        notified.as_mut().enable();
        if is_so() {
            return;
        }
        notified.await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
