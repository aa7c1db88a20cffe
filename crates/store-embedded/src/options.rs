//! Every limit of the store, with its default and the reason for it.

use std::path::PathBuf;

use crate::OpenError;

const MIB: u64 = 1024 * 1024;

/// The engine starts a new journal file every 64 MB and cannot be told to do so earlier.
const JOURNAL_BYTES_MIN: u64 = 64 * MIB;

/// How an [`EmbeddedStore`](crate::EmbeddedStore) is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Where everything is kept. Made, readable by its owner only, if it is not there.
    pub folder: PathBuf,
    /// How many swaps may wait for the writer; further callers wait to get in. Default: 4096,
    /// four full batches, so that the writer never runs dry while one is synced.
    pub queue_swaps_max: usize,
    /// How many bytes of large records (over 64 KiB) may wait for the writer. Default: 64 MiB.
    /// Together with `queue_swaps_max` this bounds what a slow disk can pile up in memory.
    pub queue_bytes_max: u64,
    /// How many swaps share one sync. Default: 1024; more gains nothing once the sync itself is a
    /// small part of the batch, and lets the first caller wait longer.
    pub batch_swaps_max: usize,
    /// How many bytes share one sync, at least one record. Default: 8 MiB, which an ordinary disk
    /// takes in some tens of milliseconds.
    pub batch_bytes_max: u64,
    /// The largest record. Default: 16 MiB.
    pub record_bytes_max: u64,
    /// Memory for blocks read from disk. Default: 64 MiB.
    pub cache_bytes: u64,
    /// How many bytes of settled rows gather in memory before they become a file. Default:
    /// 32 MiB; at most four times as much is in memory at once. It counts when the folder is
    /// made, and is kept with it.
    pub memtable_bytes: u64,
    /// How large the journal may grow before old parts are forced out. Default and minimum:
    /// 64 MiB. Opening reads the journal, so this bounds the time to open.
    pub journal_bytes_max: u64,
    /// How many bytes of rows must have been removed before space is given back. Default:
    /// 64 MiB, or half of what is on disk if that is more, so that the work stays in proportion.
    pub compact_bytes_min: u64,
    /// Background threads that write and merge files. Default: 2, so that a long merge does not
    /// hold up the writing of new files.
    pub worker_threads: usize,
}

impl EmbeddedOptions {
    /// The defaults, for this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            queue_swaps_max: 4096,
            queue_bytes_max: 64 * MIB,
            batch_swaps_max: 1024,
            batch_bytes_max: 8 * MIB,
            record_bytes_max: 16 * MIB,
            cache_bytes: 64 * MIB,
            memtable_bytes: 32 * MIB,
            journal_bytes_max: JOURNAL_BYTES_MIN,
            compact_bytes_min: 64 * MIB,
            worker_threads: 2,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = if self.queue_swaps_max == 0 || self.batch_swaps_max == 0 {
            "queue_swaps_max and batch_swaps_max must be at least 1"
        } else if self.worker_threads == 0 {
            "worker_threads must be at least 1"
        } else if self.record_bytes_max > self.queue_bytes_max {
            "record_bytes_max must not be more than queue_bytes_max, or the largest record could never be queued"
        } else if self.record_bytes_max > u64::from(u32::MAX / 2) {
            "record_bytes_max must be less than 2 GiB"
        } else if self.journal_bytes_max < JOURNAL_BYTES_MIN {
            "journal_bytes_max must be at least 64 MiB"
        } else if self.memtable_bytes < MIB {
            "memtable_bytes must be at least 1 MiB"
        } else {
            return Ok(());
        };
        Err(OpenError::Options(wrong))
    }
}
