//! What the handle, the writer and the maintenance thread share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::Timestamp;
use onlyonce_store::{StoreClock, StoreError};

use crate::index::{ExpiryFloor, OpenIndex};
use crate::layout::Tables;

/// How far the persisted time may lag behind the clock. See [`Shared::not_before`].
const TIME_STEP_MS: u64 = 1000;

pub(crate) struct Shared {
    pub(crate) tables: Tables,
    pub(crate) index: OpenIndex,
    pub(crate) floor: ExpiryFloor,
    pub(crate) clock: StoreClock,
    pub(crate) counters: Counters,
    stopped: OnceLock<Box<str>>,
}

/// What the writer has done since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmbeddedStats {
    /// Groups of swaps that were decided together.
    pub batches: u64,
    /// Swaps that were decided, won or lost.
    pub swaps: u64,
    /// Syncs of the journal: batches in which anything was written.
    pub syncs: u64,
    /// How often space was given back.
    pub compactions: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) swaps: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) compactions: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> EmbeddedStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EmbeddedStats {
            batches: read(&self.batches),
            swaps: read(&self.swaps),
            syncs: read(&self.syncs),
            compactions: read(&self.compactions),
        }
    }
}

impl Shared {
    pub(crate) fn new(tables: Tables, index: OpenIndex, clock: StoreClock) -> Self {
        Self {
            tables,
            index,
            floor: ExpiryFloor::default(),
            clock,
            counters: Counters::default(),
            stopped: OnceLock::new(),
        }
    }

    /// The earliest time at which the clock may start: later than that of every acknowledged
    /// write, since a write that comes a step or more after the persisted time renews it in the
    /// same batch. After a restart within a step of the last write the clock is up to one step
    /// ahead. A time that [`now`](onlyonce_store::Store::now) gave and no write carried may be
    /// given again if the machine's clock was set back between the runs.
    pub(crate) fn not_before(latest_time: Timestamp, latest_open: Timestamp) -> Timestamp {
        match latest_time.as_millis() {
            0 => latest_open,
            latest => latest_open.max(Timestamp::from_millis(latest.saturating_add(TIME_STEP_MS))),
        }
    }

    /// Whether a write at `now` must renew the persisted time.
    pub(crate) fn is_time_stale(persisted: Timestamp, now: Timestamp) -> bool {
        persisted.as_millis().saturating_add(TIME_STEP_MS) <= now.as_millis()
    }

    /// Stops all further writes, for this reason. The first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        if self.stopped.set(reason.into()).is_ok() {
            tracing::error!(
                reason,
                "the embedded store has stopped writing; reads go on, and a restart recovers"
            );
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// The error of every swap after the store has stopped.
    pub(crate) fn stopped_error(&self) -> StoreError {
        StoreError::Stopped {
            reason: self.stopped.get().cloned().unwrap_or_default(),
        }
    }

    /// Reads outside of the index: an engine that cannot read a block says so.
    pub(crate) fn unreadable(error: &fjall::Error) -> StoreError {
        StoreError::unavailable(format!(
            "a file of the store cannot be read ({error}); check the disk, and restore the folder from a backup if it is damaged"
        ))
    }
}
