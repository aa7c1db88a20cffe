//! Every limit of the store, with its default and the reason for it.

use std::path::PathBuf;

use crate::OpenError;

const MIB: u64 = 1024 * 1024;

/// More would only hide that the disk cannot follow.
const QUEUE_SWAPS_MAX: usize = 1_000_000;

/// How an [`EmbeddedStore`](crate::EmbeddedStore) is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Where everything is kept. Made, for its owner only, if it is not there.
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
    /// How many bytes share one sync; one record may go over. Default: 8 MiB, which an ordinary
    /// disk takes in some tens of milliseconds.
    pub batch_bytes_max: u64,
    /// The largest record. Default: 16 MiB.
    pub record_bytes_max: u64,
    /// When the log goes on in a new file. Default: 128 MiB: a crash leaves at most this much to
    /// be read at the next start, and 100 GB stay under a thousand open files.
    pub segment_bytes_max: u64,
    /// How many bytes of the log may be dead before live rows are moved to free them. Default:
    /// 256 MiB, or as much as is alive if that is more, so that a byte is moved for a byte freed.
    /// Files that are wholly dead and the oldest are deleted at once.
    pub dead_bytes_max: u64,
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
            segment_bytes_max: 128 * MIB,
            dead_bytes_max: 256 * MIB,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = if self.queue_swaps_max > QUEUE_SWAPS_MAX {
            "queue_swaps_max must be at most 1,000,000"
        } else if self.queue_swaps_max == 0 || self.batch_swaps_max == 0 {
            "queue_swaps_max and batch_swaps_max must be at least 1"
        } else if self.record_bytes_max > self.queue_bytes_max {
            "record_bytes_max must not be above queue_bytes_max, or the largest record could never be queued"
        } else if self.segment_bytes_max == 0 {
            "segment_bytes_max must be at least 1"
        } else if [
            self.segment_bytes_max,
            self.batch_bytes_max,
            self.record_bytes_max,
        ]
        .into_iter()
        .any(|bytes| bytes > 1024 * MIB)
        {
            "segment_bytes_max, batch_bytes_max and record_bytes_max must be at most 1 GiB each"
        } else {
            return Ok(());
        };
        Err(OpenError::Options(wrong))
    }
}
