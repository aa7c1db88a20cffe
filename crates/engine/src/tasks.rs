//! How many executions run, how many may, and how they end at shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use crate::EngineError;

/// The executions of one engine.
#[derive(Debug)]
pub(crate) struct Tasks {
    running: watch::Sender<usize>,
    limit: usize,
    phase: AtomicUsize,
    aborted: watch::Sender<bool>,
}

const GRANTING: usize = 0;
const DRAINING: usize = 1;

/// The right to run one execution; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Tasks>);

impl Tasks {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            running: watch::Sender::new(0),
            limit,
            phase: AtomicUsize::new(GRANTING),
            aborted: watch::Sender::new(false),
        }
    }

    /// Takes a slot, or says why there is none.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Slot, EngineError> {
        // Counted before the phase is read: a drain that begins in between waits for this slot.
        let mut within_limit = true;
        self.running.send_if_modified(|running| {
            within_limit = *running < self.limit;
            *running += usize::from(within_limit);
            within_limit
        });
        if !within_limit {
            return Err(EngineError::Overloaded { limit: self.limit });
        }
        let slot = Slot(Arc::clone(self));
        if self.is_draining() {
            return Err(EngineError::ShuttingDown);
        }
        Ok(slot)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == DRAINING
    }

    pub(crate) fn stop_granting(&self) {
        self.phase.store(DRAINING, Ordering::SeqCst);
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        let mut running = self.running.subscribe();
        // Fails only without a sender, and the sender is here.
        let _ = running.wait_for(|running| *running == 0).await;
    }

    /// Tells every execution to give up, and how many there were.
    pub(crate) fn abort(&self) -> usize {
        self.aborted.send_replace(true);
        *self.running.borrow()
    }

    /// Whether every execution is to give up.
    pub(crate) fn is_aborted(&self) -> bool {
        *self.aborted.borrow()
    }

    /// Waits until [`abort`](Self::abort) is called.
    pub(crate) async fn aborted(&self) {
        let mut aborted = self.aborted.subscribe();
        // Fails only without a sender, and the sender is here.
        let _ = aborted.wait_for(|aborted| *aborted).await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0
            .running
            .send_modify(|running| *running = running.saturating_sub(1));
    }
}
