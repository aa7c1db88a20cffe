//! Observed keys whose answer has passed and whose outcome is being stored.
//!
//! Nobody waits for that to be done, so a retry may come before. Enforcing would have shown the
//! answer only afterwards; the retry's watcher therefore waits here before it claims the key, and
//! the retry itself does not. Another process knows nothing of these keys.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use tokio::sync::Notify;

/// The keys.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    keys: Mutex<HashSet<RecordId>>,
    changed: Notify,
}

/// A key is one of them until this is dropped.
pub(crate) struct Mark(Arc<Settling>, RecordId);

impl Settling {
    fn keys(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key is one of them from now on.
    pub(crate) fn begin(self: Arc<Self>, id: RecordId) -> Mark {
        self.keys().insert(id);
        Mark(self, id)
    }

    /// Waits until a key is none of them.
    pub(crate) async fn over(&self, id: &RecordId) {
        loop {
            // Listening begins before looking, or an end in between would go unheard.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.keys().contains(id) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.keys().remove(&self.1);
        self.0.changed.notify_waiters();
    }
}
