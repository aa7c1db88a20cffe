//! Gives disk space back after rows were removed.
//!
//! A removal only adds a mark; the space comes back when the files that hold the row and the mark
//! are merged. The engine does that by itself while it keeps writing, but after a large purge and
//! then silence nothing would. So once enough was removed, this thread merges everything. It
//! holds no lock that the writer or a reader waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use fjall::Keyspace;

use crate::shared::Shared;

/// How often the flush before a merge is looked at.
const FLUSH_POLL: Duration = Duration::from_millis(5);

/// Counts what was removed, for the writer.
pub(crate) struct Removed {
    compact: SyncSender<()>,
    bytes_min: u64,
    bytes: u64,
}

impl Removed {
    pub(crate) fn new(compact: SyncSender<()>, bytes_min: u64) -> Self {
        Self {
            compact,
            bytes_min,
            bytes: 0,
        }
    }

    pub(crate) fn add(&mut self, shared: &Shared, bytes: u64) {
        self.bytes += bytes;
        if bytes == 0 || self.bytes < self.bytes_min {
            return;
        }
        if self.bytes >= shared.tables.settled.disk_space() / 2 {
            self.bytes = 0;
            // When one is running already, the next threshold asks again.
            let _ = self.compact.try_send(());
        }
    }
}

/// Runs until the writer is gone.
pub(crate) fn run(shared: &Arc<Shared>, wanted: &Receiver<()>) {
    while wanted.recv().is_ok() {
        match compact(shared) {
            Ok(()) => {
                shared.counters.compactions.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "could not give disk space back; will try again"),
        }
    }
}

fn compact(shared: &Shared) -> fjall::Result<()> {
    let tables = &shared.tables;
    for table in [&tables.settled, &tables.expiry] {
        flush(shared, table)?;
        table.major_compact()?;
    }
    // Files that a merge has replaced are deleted when some table is flushed next.
    flush(shared, &tables.meta)?;
    Ok(())
}

/// Writes what is in memory to a file, and waits for that.
fn flush(shared: &Shared, table: &Keyspace) -> fjall::Result<()> {
    if table.rotate_memtable()? {
        while table.sealed_memtable_count() > 0 {
            if shared.tables.has_failed() {
                return Err(fjall::Error::Poisoned);
            }
            thread::sleep(FLUSH_POLL);
        }
    }
    Ok(())
}
