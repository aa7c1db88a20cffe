//! Whose turn it is to be asked about, of the outcomes that nobody knows.
//!
//! Only so many are asked about at once. One more stays due in the store, so that no attempt is
//! counted that was not made. Its id waits here: then no pass of the sweep reads its row in vain,
//! and it need not wait for a pass when a turn comes free. What waits here may be out of date, so
//! whoever takes an id looks at its row; what is forgotten here is found by the next pass.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns, and who waits for one.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    queue: Mutex<Queue>,
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<RecordId>,
    ids: HashSet<RecordId>,
}

/// The right to ask about one outcome after the other; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new(turns: usize, waiting_max: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(turns)),
            queue: Mutex::default(),
            waiting_max,
        }
    }

    /// A turn, if one is free.
    pub(crate) fn take(&self) -> Option<Turn> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(Turn { _permit: permit })
    }

    /// Whether no other outcome can wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting() >= self.waiting_max
    }

    /// Lets an outcome wait for its turn. Without room for it, only the sweep will find it.
    pub(crate) fn wait(&self, id: &RecordId) {
        let mut queue = self.queue();
        if queue.order.len() < self.waiting_max && queue.ids.insert(*id) {
            queue.order.push_back(*id);
        }
    }

    /// Whether it is known to wait, and no turn is free.
    pub(crate) fn must_wait(&self, id: &RecordId) -> bool {
        self.free.available_permits() == 0 && self.queue().ids.contains(id)
    }

    /// Who has waited longest, and no longer does.
    pub(crate) fn next(&self) -> Option<RecordId> {
        let mut queue = self.queue();
        let id = queue.order.pop_front()?;
        queue.ids.remove(&id);
        Some(id)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().order.len()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under the lock, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> RecordId {
        RecordId::from_bytes([byte; 32])
    }

    /// An id that waited twice would be read twice, and one without room would be memory without
    /// a limit.
    #[test]
    fn each_waits_once_in_order_and_no_more_than_there_is_room_for() {
        let turns = Turns::new(1, 2);
        for byte in [1, 2, 1, 3] {
            turns.wait(&id(byte));
        }
        assert_eq!(turns.waiting(), 2);
        assert_eq!(turns.next(), Some(id(1)));
        turns.wait(&id(1));
        assert_eq!([turns.next(), turns.next()], [Some(id(2)), Some(id(1))]);
        assert_eq!(turns.next(), None);
    }

    /// Rows would stay unasked with a turn free, or be read in vain without.
    #[test]
    fn only_those_that_wait_must_and_only_while_no_turn_is_free() {
        let turns = Turns::new(1, 2);
        turns.wait(&id(1));
        assert!(!turns.must_wait(&id(1)));
        let turn = turns.take().unwrap();
        assert!(turns.take().is_none());
        assert!(turns.must_wait(&id(1)) && !turns.must_wait(&id(2)));
        drop(turn);
        assert!(!turns.must_wait(&id(1)));
    }
}
