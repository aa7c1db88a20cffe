//! Callers that wait for a key which somebody else executes.
//!
//! Within this process they are woken the moment the key is settled. For a key that another
//! process executes one of them looks at the store again with growing pauses, and wakes the
//! others. Both the number per key and the number in all are limited, so a storm of retries can
//! fill neither the memory nor the store's time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use tokio::sync::Notify;

use crate::EngineConfig;

/// Who waits for what.
#[derive(Debug)]
pub(crate) struct Waiting {
    room: Mutex<Room>,
    per_key_max: usize,
    all_max: usize,
}

#[derive(Debug, Default)]
struct Room {
    keys: HashMap<RecordId, Key>,
    all: usize,
}

#[derive(Debug, Default)]
struct Key {
    settled: Arc<Notify>,
    waiters: usize,
    /// Whether one of them looks at the store.
    looked_for: bool,
}

/// One caller's place; left when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    waiting: Arc<Waiting>,
    id: RecordId,
    /// Signalled when the key is settled in this process, or when somebody has to look.
    pub(crate) settled: Arc<Notify>,
    /// Whether this caller looks at the store for all.
    looks: bool,
}

impl Waiting {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            room: Mutex::default(),
            per_key_max: config.waiters_per_key_max,
            all_max: config.waiters_max,
        }
    }

    /// A place to wait for `id`, or `None` when a limit is reached.
    pub(crate) fn join(self: &Arc<Self>, id: &RecordId) -> Option<Ticket> {
        let mut room = self.room();
        if room.all >= self.all_max || self.per_key_max == 0 {
            return None;
        }
        let key = room.keys.entry(*id).or_default();
        if key.waiters >= self.per_key_max {
            return None;
        }
        key.waiters += 1;
        let settled = Arc::clone(&key.settled);
        room.all += 1;
        Some(Ticket {
            waiting: Arc::clone(self),
            id: *id,
            settled,
            looks: false,
        })
    }

    /// Wakes everybody who waits for `id`.
    pub(crate) fn wake(&self, id: &RecordId) {
        if let Some(key) = self.room().keys.get(id) {
            key.settled.notify_waiters();
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // Nothing that can panic runs under the lock, so a poisoned room is still whole.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Whether this caller is the one that looks at the store: the first to ask is.
    pub(crate) fn looks(&mut self) -> bool {
        if let Some(key) = self.waiting.room().keys.get_mut(&self.id)
            && !key.looked_for
        {
            key.looked_for = true;
            self.looks = true;
        }
        self.looks
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut room = self.waiting.room();
        room.all = room.all.saturating_sub(1);
        if let Some(key) = room.keys.get_mut(&self.id) {
            key.waiters = key.waiters.saturating_sub(1);
            if self.looks {
                key.looked_for = false;
            }
            if key.waiters == 0 {
                room.keys.remove(&self.id);
            } else if !key.looked_for {
                // Another one takes over. Also if this one never looked: it may be the one that was
                // woken to take over, and others would sleep on.
                key.settled.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    const ID: RecordId = RecordId::from_bytes([1; 32]);
    const OTHER: RecordId = RecordId::from_bytes([2; 32]);

    fn waiting(waiters_per_key_max: usize, waiters_max: usize) -> Arc<Waiting> {
        let config = EngineConfig {
            waiters_per_key_max,
            waiters_max,
            ..EngineConfig::default()
        };
        Arc::new(Waiting::new(&config))
    }

    /// Ten thousand retries of one key must not take every place.
    #[test]
    fn places_are_limited_per_key_and_in_all_and_are_given_back() {
        let waiting = waiting(2, 3);
        let first = waiting.join(&ID).unwrap();
        let _second = waiting.join(&ID).unwrap();
        assert!(waiting.join(&ID).is_none(), "per key");
        let _third = waiting.join(&OTHER).unwrap();
        assert!(waiting.join(&OTHER).is_none(), "in all");
        drop(first);
        assert!(waiting.join(&ID).is_some());
    }

    #[test]
    fn one_looks_for_all_and_another_takes_over_when_it_leaves() {
        let waiting = waiting(3, 3);
        let mut first = waiting.join(&ID).unwrap();
        let mut second = waiting.join(&ID).unwrap();
        assert!(first.looks() && first.looks());
        assert!(!second.looks());
        drop(first);
        assert!(second.looks());
    }

    /// Whoever is woken to look may leave before it does: its time is up, or its claim fails. If the
    /// duty ended with it, the others would sleep through the answer until their own time is up.
    #[test]
    fn one_that_leaves_before_it_looks_hands_the_duty_on() {
        let waiting = waiting(3, 3);
        let mut looker = waiting.join(&ID).unwrap();
        let second = waiting.join(&ID).unwrap();
        let mut third = waiting.join(&ID).unwrap();
        assert!(looker.looks());
        let signal = Arc::clone(&looker.settled);
        let mut sleeping = pin!(signal.notified());
        let mut sleeping_on = pin!(signal.notified());
        assert!(!sleeping.as_mut().enable() && !sleeping_on.as_mut().enable());
        drop(looker);
        assert!(sleeping.as_mut().enable(), "the second is woken");
        assert!(!sleeping_on.as_mut().enable(), "and nobody else");
        drop(second);
        assert!(sleeping_on.as_mut().enable(), "the third is woken");
        assert!(third.looks());
    }

    #[test]
    fn nothing_is_kept_for_keys_that_nobody_waits_for() {
        let waiting = waiting(2, 3);
        drop(waiting.join(&ID));
        waiting.wake(&ID);
        assert!(waiting.room().keys.is_empty());
    }
}
