//! Gives disk space back, in a thread of its own.
//!
//! Only the oldest segment is ever deleted. Then a removal can be forgotten together with its
//! segment: whatever it removed was in an older one, or the same. Rows expire about in the order
//! in which they were written, so the oldest segment is usually all dead when its turn comes, and
//! is deleted as it is. When too much of the log is dead and something keeps the oldest segment
//! alive, its live rows are written again, through the writer's queue like everything else.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use onlyonce_store::StoreError;
use tokio::sync::{mpsc, oneshot};

use crate::ends;
use crate::folder::sync_folder;
use crate::hint;
use crate::record::{RecordHeader, unreadable};
use crate::recovery::Sealed;
use crate::segment::{Segment, log_path};
use crate::shared::Shared;
use crate::writer::{Command, MoveCommand};

/// How many rows must have died in old segments before somebody looks whether cleaning pays.
const DIED_MIN: u64 = 256;

/// How many moves are under way at once: enough to share syncs, few enough that callers hardly
/// wait behind them.
const MOVES_MAX: usize = 128;

pub(crate) enum Task {
    Sealed(Sealed),
    Clean,
}

/// The writer's end.
pub(crate) struct CleanerHandle {
    tasks: Sender<Task>,
    is_wanted: Arc<AtomicBool>,
    died: u64,
}

impl CleanerHandle {
    pub(crate) fn new(tasks: Sender<Task>, is_wanted: Arc<AtomicBool>) -> Self {
        Self {
            tasks,
            is_wanted,
            died: 0,
        }
    }

    /// A segment is full.
    pub(crate) fn sealed(&self, sealed: Sealed) {
        let _ = self.tasks.send(Task::Sealed(sealed));
    }

    /// So many rows have died in old segments.
    pub(crate) fn died(&mut self, rows: u64) {
        self.died += rows;
        if self.died >= DIED_MIN && !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.died = 0;
            let _ = self.tasks.send(Task::Clean);
        }
    }
}

pub(crate) struct Cleaner {
    pub(crate) shared: Arc<Shared>,
    /// Weak, so that the writer ends when the last handle is dropped.
    pub(crate) queue: mpsc::WeakSender<Command>,
    pub(crate) tasks: Receiver<Task>,
    pub(crate) is_wanted: Arc<AtomicBool>,
    pub(crate) dead_bytes_max: u64,
}

impl Cleaner {
    /// Runs until the writer is gone.
    pub(crate) fn run(self) {
        while let Ok(task) = self.tasks.recv() {
            if let Task::Sealed(sealed) = task {
                self.write_hint(&sealed);
            }
            self.is_wanted.store(false, Ordering::Release);
            if let Err(reason) = self.clean() {
                tracing::warn!(reason, "could not give disk space back; will try again");
            }
        }
    }

    fn write_hint(&self, sealed: &Sealed) {
        let number = sealed.segment.number;
        let folder = &self.shared.log_folder;
        if let Err(error) = hint::write(folder, number, sealed.end_frame, &sealed.entries.last()) {
            tracing::warn!(%error, "could not write a hint; the next start reads the log instead");
        }
    }

    /// Deletes old segments as long as that is free, or pays.
    fn clean(&self) -> Result<(), String> {
        loop {
            let segments = self.shared.log.segments();
            let Some((active, sealed)) = segments.split_last() else {
                return Ok(());
            };
            let Some(oldest) = sealed.first() else {
                return Ok(());
            };
            debug_assert!(oldest.number < active.number, "the newest is written to");
            if oldest.live_rows() > 0 {
                if !self.pays(sealed) {
                    return Ok(());
                }
                self.move_rows(oldest).map_err(|error| error.to_string())?;
            }
            if oldest.live_rows() > 0 || self.shared.is_stopped() {
                return Ok(());
            }
            self.delete(oldest).map_err(|error| error.to_string())?;
        }
    }

    fn pays(&self, sealed: &[Arc<Segment>]) -> bool {
        let dead: u64 = sealed.iter().map(|segment| segment.dead_bytes()).sum();
        let live: u64 = sealed.iter().map(|segment| segment.live_bytes()).sum();
        dead >= self.dead_bytes_max && dead >= live
    }

    fn move_rows(&self, segment: &Segment) -> Result<(), StoreError> {
        let mut under_way = VecDeque::new();
        for (id, place) in self.shared.log.index.in_segment(segment.number) {
            let read = segment.read(place).map_err(StoreError::unavailable)?;
            let (header, record) = match RecordHeader::decode(&read.0) {
                Some(header) if header.id == id => (header, read.0),
                Some(_) | None => {
                    let (number, byte) = (segment.number, place.offset);
                    tracing::error!(number, byte, "a damaged row of the log is moved as it is");
                    unreadable(&id)
                }
            };
            let Some(queue) = self.queue.upgrade() else {
                return Ok(());
            };
            let (reply, moved) = oneshot::channel();
            let command = MoveCommand {
                from: place,
                header,
                record,
                reply,
            };
            if queue.blocking_send(Command::Move(command)).is_err() {
                return Ok(());
            }
            drop(queue);
            under_way.push_back(moved);
            if under_way.len() >= MOVES_MAX {
                self.wait(under_way.pop_front())?;
            }
        }
        under_way
            .into_iter()
            .try_for_each(|moved| self.wait(Some(moved)))
    }

    fn wait(
        &self,
        moved: Option<oneshot::Receiver<Result<(), StoreError>>>,
    ) -> Result<(), StoreError> {
        let Some(Ok(moved)) = moved.map(oneshot::Receiver::blocking_recv) else {
            return Ok(());
        };
        self.shared
            .counters
            .rows_moved
            .fetch_add(1, Ordering::Relaxed);
        moved
    }

    /// Deletes the oldest segment, of which every row is dead. The deletion is durable before the
    /// next: if it came undone after one whose removals it needs, rows would rise again.
    fn delete(&self, segment: &Segment) -> io::Result<()> {
        let folder = &self.shared.log_folder;
        ends::note_oldest(folder, segment.number + 1)?;
        let _ = std::fs::remove_file(hint::path(folder, segment.number));
        match std::fs::remove_file(log_path(folder, segment.number)) {
            // An earlier attempt got this far and could not make it durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            deleted => deleted?,
        }
        sync_folder(folder)?;
        // Only now: as long as it counts as the oldest, the next one is not deleted, and no gap
        // is left behind that the next start would take for damage.
        self.shared.log.remove_segment(segment.number);
        let counters = &self.shared.counters;
        counters.segments_deleted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
