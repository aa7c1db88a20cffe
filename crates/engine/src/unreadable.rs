//! Rows that are due and cannot be read.
//!
//! Nothing can be done with one but to tell of it, and a person may remove it. Told of at every pass
//! it would look as if the store failed, second after second. So a pass leaves it alone for an hour
//! once it was told of. Requests for its key are not concerned: they are told that its outcome is
//! unknown, each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::RecordId;

/// How long a row is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(60 * 60);

/// How many are remembered. More would be told of at every pass, and there is reason to.
const ROWS_MAX: usize = 1024;

/// Rows that were told of, and when.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<HashMap<RecordId, Duration>>);

impl Unreadable {
    /// This row was told of.
    pub(crate) fn remember(&self, id: RecordId, now: Duration) {
        let mut rows = self.rows();
        if rows.len() < ROWS_MAX {
            rows.insert(id, now);
        }
    }

    /// Those that are left alone now.
    pub(crate) fn left_alone(&self, now: Duration) -> Vec<RecordId> {
        let mut rows = self.rows();
        rows.retain(|_, told| now.saturating_sub(*told) < LEFT_ALONE);
        rows.keys().copied().collect()
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<RecordId, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
