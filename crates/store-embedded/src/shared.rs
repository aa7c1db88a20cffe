//! What the handle, the writer and the cleaner share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use onlyonce_store::{StoreClock, StoreError};

use crate::index::{Index, OpenRows};
use crate::record::{Kind, RecordHeader};
use crate::segment::{Place, Segment};

/// What is in memory about the log.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) index: Index,
    pub(crate) open: OpenRows,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
}

impl Log {
    pub(crate) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&number).cloned()
    }

    /// The segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().cloned().collect()
    }

    pub(crate) fn add_segment(&self, segment: Arc<Segment>) {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.insert(segment.number, segment);
    }

    pub(crate) fn remove_segment(&self, number: u32) {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.remove(&number);
    }

    /// Takes note of a record at `offset` of `segment`: from now on it is what its id has. Gives
    /// the place of the one before, which is dead now.
    pub(crate) fn apply(
        &self,
        segment: &Segment,
        header: &RecordHeader,
        offset: u32,
    ) -> Option<Place> {
        let bytes = header.record_bytes();
        let place = Place {
            segment: segment.number,
            offset,
            bytes,
        };
        let id = header.id;
        let before = match header.kind {
            Kind::Open => {
                self.open.put(id, header.version, header.deadline);
                segment.add_live(bytes);
                self.index.set(id, Some(place))
            }
            Kind::Settled => {
                self.open.remove(&id);
                segment.add_live(bytes);
                let before = self.index.set(id, Some(place));
                // After the index: whoever finds the deadline must find the row alive.
                if let Some(deadline) = header.deadline {
                    segment.add_deadline(deadline, offset);
                }
                before
            }
            Kind::Removed => {
                self.open.remove(&id);
                self.index.set(id, None)
            }
        };
        if let Some(before) = before {
            if before.segment == segment.number {
                segment.remove_live(before.bytes);
            } else if let Some(segment) = self.segment(before.segment) {
                segment.remove_live(before.bytes);
            }
        }
        before
    }
}

pub(crate) struct Shared {
    pub(crate) folder: PathBuf,
    pub(crate) log_folder: PathBuf,
    pub(crate) log: Log,
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
    /// Syncs of the log: batches in which anything was written.
    pub syncs: u64,
    /// Files of the log that were deleted to give space back.
    pub segments_deleted: u64,
    /// Rows that were moved so that a file could be deleted.
    pub rows_moved: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) swaps: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) segments_deleted: AtomicU64,
    pub(crate) rows_moved: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> EmbeddedStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EmbeddedStats {
            batches: read(&self.batches),
            swaps: read(&self.swaps),
            syncs: read(&self.syncs),
            segments_deleted: read(&self.segments_deleted),
            rows_moved: read(&self.rows_moved),
        }
    }
}

impl Shared {
    pub(crate) fn new(folder: PathBuf, log_folder: PathBuf, log: Log, clock: StoreClock) -> Self {
        Self {
            folder,
            log_folder,
            log,
            clock,
            counters: Counters::default(),
            stopped: OnceLock::new(),
        }
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
}
