//! The secret before the present one is needed for as long as any of its keys may be stored.
//!
//! The store's marks say until when that is. When the secret changes it is one retention from then
//! on, but a key may be settled, claimed again or asked about later, and live longer. So before such
//! a row is written, the marks are: a gateway that gave the previous secret up in between would not
//! find the key, and execute its retry. What nobody ever touches again, a dead letter, is left to
//! people: it does not expire, and no time would be right.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{Record, Secret, State, Timestamp};
use onlyonce_store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::engine::Inner;
use crate::marks::{Mark, Marks, mark};
use crate::{Runtime, StoreOperation};

/// How much longer than needed the marks are made to say, so that keys which are settled one after
/// the other share a write.
const AHEAD: Duration = Duration::from_secs(60);

/// The previous secret of an engine that was given it.
#[derive(Debug)]
pub(crate) struct Retired {
    mark: Mark,
    /// No key was made with it later.
    changed_at: Timestamp,
    /// Until when the store says that it is needed, or longer: milliseconds.
    until: AtomicU64,
    /// Held while the marks are written: one writes for all who find them too short.
    writing: Mutex<()>,
}

impl Retired {
    /// `None` where the marks know nothing of this secret: then no engine asks for it.
    pub(crate) fn new(marks: &Marks, previous: &Secret) -> Option<Self> {
        let (retired, until) = marks.retired?;
        (retired == mark(previous)).then(|| Self {
            mark: retired,
            changed_at: marks.changed_at,
            until: AtomicU64::new(until.as_millis()),
            writing: Mutex::default(),
        })
    }

    /// Until when the secret is needed for a row, if that is later than the marks say.
    fn needs_longer(&self, record: &Record, retention: Duration) -> Option<Timestamp> {
        // Keys of the new secret were made later. One of the same moment is taken for an old one,
        // which only keeps the old secret for longer.
        let needed = (record.created_at <= self.changed_at)
            .then(|| needed_until(record, retention))
            .flatten();
        needed.filter(|needed| needed.as_millis() > self.until.load(Ordering::Acquire))
    }

    async fn extend<S: Store>(
        &self,
        store: &S,
        needed: Timestamp,
        now: Timestamp,
        rounds_max: u32,
    ) -> Result<(), StoreError> {
        let _one = self.writing.lock().await;
        if needed.as_millis() <= self.until.load(Ordering::Acquire) {
            return Ok(());
        }
        for _ in 0..rounds_max {
            let seen = Marks::load(store).await?;
            let Some((marks, until)) = seen.and_then(|(marks, _)| marks.until_of(self.mark)) else {
                // The secret was changed again under a running engine, and this one is no longer
                // asked for. An outcome that is known is still better stored than not.
                return Ok(());
            };
            let until = if needed > until {
                needed.after(AHEAD)
            } else {
                until
            };
            if marks.needing(until).write(store, seen, now).await? {
                self.until.fetch_max(until.as_millis(), Ordering::AcqRel);
                return Ok(());
            }
        }
        Err(StoreError::unavailable("others kept writing the marks"))
    }
}

/// Until when a row may be asked for and has to be found. One whose outcome is open will be written
/// again before, which is seen to then.
fn needed_until(record: &Record, retention: Duration) -> Option<Timestamp> {
    match &record.state {
        State::Executing { lease_until, .. } => Some(lease_until.after(retention)),
        State::Unknown { reconcile_at, .. } => Some(reconcile_at.after(retention)),
        State::DeadLetter { .. } => Some(record.updated_at.after(retention)),
        State::Released { expires_at } | State::Completed { expires_at, .. } => Some(*expires_at),
        State::Expired { .. } => None,
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// Sees to it that nobody gives the previous secret up while this row needs it. To be called
    /// before the row is written.
    pub(crate) async fn keep_secret_for(&self, record: Option<&Record>) -> Result<(), StoreError> {
        let (Some(retired), Some(record)) = (&self.retired, record) else {
            return Ok(());
        };
        let Some(needed) = retired.needs_longer(record, self.policies.retention_max()) else {
            return Ok(());
        };
        let rounds_max = self.config.rounds_max;
        // Boxed: hardly any write needs it, and each would carry its future about.
        let extending = Box::pin(retired.extend(&self.store, needed, self.now(), rounds_max));
        // Whatever became of the marks, the row itself was not written.
        self.asked(StoreOperation::Swap, extending, StoreError::unavailable)
            .await
    }
}
