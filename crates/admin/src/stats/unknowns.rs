//! Which outcomes are unknown, as far as this process has seen, so that each counts once as
//! scheduled, and once as resolved however it ends: by a word about it, by an execution that ended
//! late, or by one that was repeated.
//!
//! The oldest are forgotten beyond [`REMEMBERED`]. What another process has seen is not known
//! here.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;

/// How many are remembered: 64 bytes each.
const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Unknowns {
    /// Every execution that ends asks, and mostly there are none.
    count: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    ids: HashSet<RecordId>,
    /// In the order in which they came; some are gone by now.
    order: VecDeque<RecordId>,
}

impl Unknowns {
    /// Remembers one. False if it is remembered already.
    pub(super) fn add(&self, id: &RecordId) -> bool {
        let mut seen = self.seen();
        if !seen.ids.insert(*id) {
            return false;
        }
        if seen.order.len() >= REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.ids.remove(&oldest);
        }
        seen.order.push_back(*id);
        self.count.store(seen.ids.len(), Ordering::Relaxed);
        true
    }

    /// Forgets one. False if it is not remembered.
    pub(super) fn remove(&self, id: &RecordId) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut seen = self.seen();
        let was_there = seen.ids.remove(id);
        self.count.store(seen.ids.len(), Ordering::Relaxed);
        was_there
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
