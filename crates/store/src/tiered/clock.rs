//! The durable store's time, as far as it was heard.

use std::sync::atomic::{AtomicI64, Ordering};

use onlyonce_core::Timestamp;

use crate::StoreClock;

/// No sample yet. An offset this large would be a time 292 million years away.
const NO_SAMPLE: i64 = i64::MIN;

/// Counts on from the last time that the store told.
#[derive(Debug)]
pub(super) struct StoreTime {
    local: StoreClock,
    /// Store time minus local time in milliseconds.
    offset: AtomicI64,
}

impl StoreTime {
    pub(super) fn new() -> Self {
        Self {
            local: StoreClock::start(Timestamp::ZERO),
            offset: AtomicI64::new(NO_SAMPLE),
        }
    }

    /// The store has just said that it is `now`.
    pub(super) fn sample(&self, now: Timestamp) {
        let offset = now.as_millis().cast_signed();
        let offset = offset.wrapping_sub(self.local_ms().cast_signed());
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// The store's time, or a little less; `None` if it was never told.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != NO_SAMPLE)
            .then(|| Timestamp::from_millis(self.local_ms().saturating_add_signed(offset)))
    }

    /// Local time that never runs backwards, in milliseconds.
    pub(super) fn local_ms(&self) -> u64 {
        self.local.now().as_millis()
    }
}
