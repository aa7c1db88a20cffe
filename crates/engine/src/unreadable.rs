//! Rows that are due and cannot be read.
//!
//! Nothing can be done with one but to tell of it, and a person may remove it. Told of at every pass
//! it would look as if the store failed, second after second. So a pass leaves it alone for a while,
//! each time for twice as long: what was only misread is soon seen to. Requests for its key are not
//! concerned: they are told that its outcome is unknown, each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::RecordId;

/// How long a row is left alone at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// How many are remembered. More would be told of at every pass, and there is reason to.
const ROWS_MAX: usize = 1024;

/// Rows that were told of.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<HashMap<RecordId, LeftAlone>>);

#[derive(Debug, Clone, Copy)]
struct LeftAlone {
    until: Duration,
    pause: Duration,
}

impl Unreadable {
    /// This row cannot be read, and was told of.
    pub(crate) fn remember(&self, id: RecordId, now: Duration) {
        let mut rows = self.rows();
        let pause = rows.get(&id).map_or(PAUSE_MIN, |row| row.pause * 2);
        let pause = pause.min(PAUSE_MAX);
        if rows.len() < ROWS_MAX || rows.contains_key(&id) {
            let until = now.saturating_add(pause);
            rows.insert(id, LeftAlone { until, pause });
        }
    }

    /// This row can be read.
    pub(crate) fn forget(&self, id: &RecordId) {
        self.rows().remove(id);
    }

    /// Those that are left alone now. What nobody has seen again for long is forgotten.
    pub(crate) fn left_alone(&self, now: Duration) -> Vec<RecordId> {
        let mut rows = self.rows();
        rows.retain(|_, row| now < row.until.saturating_add(PAUSE_MAX));
        let left = rows.iter().filter(|(_, row)| now < row.until);
        left.map(|(id, _)| *id).collect()
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<RecordId, LeftAlone>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
