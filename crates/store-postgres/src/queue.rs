//! The swaps that wait to be sent.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::RecordId;
use onlyonce_store::{StoreError, Swap, Version};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::columns::NewRow;

/// One swap, and who waits for it.
pub(crate) struct Entry {
    pub(crate) id: RecordId,
    pub(crate) expected: Option<Version>,
    pub(crate) next: Option<NewRow>,
    pub(crate) reply: oneshot::Sender<Result<Swap, StoreError>>,
    /// It was in a batch that failed, so it goes by itself.
    pub(crate) alone: bool,
    /// Its row was locked when it was tried by itself.
    pub(crate) was_locked: bool,
    /// How long to wait if its row is locked, before it is tried again.
    pub(crate) locked_pause: Duration,
    /// When it is no longer tried.
    pub(crate) give_up_at: Instant,
    /// Its room in the queue, given back with it.
    pub(crate) _room: Room,
}

/// Room in the queue.
pub(crate) type Room = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Entry {
    /// Answers; if nobody waits any more, nobody needs to know.
    pub(crate) fn answer(self, result: Result<Swap, StoreError>) {
        let _ = self.reply.send(result);
    }

    fn bytes(&self) -> u64 {
        self.next.as_ref().map_or(0, NewRow::bytes)
    }
}

/// What is waiting. Shared by the store and its lanes.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Entry>>,
    changed: Notify,
    closed: AtomicBool,
    /// Whether a swap whose row was locked is under way. Changed under the lock of `waiting`.
    locked_is_tried: AtomicBool,
    /// How many lanes have a connection, as far as they know.
    pub(crate) lanes_up: AtomicUsize,
}

impl Queue {
    pub(crate) fn push(&self, entry: Entry) {
        self.waiting().push_back(entry);
        self.changed.notify_one();
    }

    /// Puts entries back to the front.
    pub(crate) fn give_back(&self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        for entry in entries.into_iter().rev() {
            waiting.push_front(entry);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// No more entries will come.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Waits until a lane can take something. `false` when the queue is closed and empty.
    pub(crate) async fn ready(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            let (has_some, is_empty) = {
                let waiting = self.waiting();
                (self.has_some(&waiting), waiting.is_empty())
            };
            if has_some {
                return true;
            }
            if is_empty && self.closed.load(Ordering::Acquire) {
                self.changed.notify_one();
                return false;
            }
            changed.await;
        }
    }

    /// Wakes another lane for what is waiting.
    pub(crate) fn pass_on(&self) {
        self.changed.notify_one();
    }

    /// What goes into one statement, sorted by id and none twice; nothing if others were faster.
    pub(crate) fn take(&self, swaps_max: usize, bytes_max: u64) -> Vec<Entry> {
        let mut waiting = self.waiting();
        let mut batch: Vec<Entry> = Vec::new();
        let mut ids = HashSet::new();
        let mut kept = VecDeque::new();
        let mut bytes = 0;
        while let Some(entry) = waiting.pop_front() {
            if entry.reply.is_closed() {
                // Its caller went away before it was sent, so it need not happen.
                continue;
            }
            let fits = batch.is_empty()
                || (bytes + entry.bytes() <= bytes_max && !entry.alone && !ids.contains(&entry.id));
            if !fits || !self.may_go(&entry) {
                kept.push_back(entry);
                continue;
            }
            bytes += entry.bytes();
            ids.insert(entry.id);
            let is_alone = entry.alone;
            batch.push(entry);
            if is_alone || batch.len() >= swaps_max {
                break;
            }
        }
        // What was passed over is older than what was not reached.
        while let Some(entry) = kept.pop_back() {
            waiting.push_front(entry);
        }
        if batch.iter().any(|entry| entry.was_locked) {
            self.locked_is_tried.store(true, Ordering::Relaxed);
        }
        let has_more = self.has_some(&waiting);
        drop(waiting);
        if has_more {
            // A lane that has nothing to do takes what is left.
            self.changed.notify_one();
        }
        batch.sort_unstable_by_key(|entry| entry.id);
        batch
    }

    /// The one swap whose row was locked has been tried again.
    pub(crate) fn locked_was_tried(&self) {
        let waiting = self.waiting();
        self.locked_is_tried.store(false, Ordering::Relaxed);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Rows that were locked are tried by one lane at a time: each keeps it busy for
    /// `lock_timeout`, and the others are for the rows that are free.
    fn may_go(&self, entry: &Entry) -> bool {
        !(entry.was_locked && self.locked_is_tried.load(Ordering::Relaxed))
    }

    fn has_some(&self, waiting: &VecDeque<Entry>) -> bool {
        waiting.iter().any(|entry| self.may_go(entry))
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // No code that can panic runs under the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
