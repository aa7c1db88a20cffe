//! A store that no longer knows the secret of an engine that runs on it.
//!
//! The marks are read when a store is opened (`marks.rs`). Later the store may lose them, with its
//! keys or without: it was emptied, it came back as an older copy, or failed over to a server that
//! had not got them. The next engine to open it writes its own. Ids under two secrets have nothing
//! to do with each other, so both engines would execute one key. Therefore the marks are looked at
//! again and again, and while they are gone, or tell of another secret than that of this engine,
//! nothing is granted here. What is stored is still answered, and what runs is still settled.

use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce_store::{Store, StoreError};

use crate::engine::Inner;
use crate::marks::Marks;
use crate::tasks::Slot;
use crate::{EngineError, Event, Runtime, SecretError, StoreOperation};

/// Whether an engine's keys and those of its store are strangers.
#[derive(Debug, Default)]
pub(crate) struct Estranged(AtomicBool);

impl<S: Store, R: Runtime> Inner<S, R> {
    /// The right to execute, or why nobody has it.
    pub(crate) fn reserve(&self) -> Result<Slot, EngineError> {
        self.must_know_the_secret()?;
        self.tasks.reserve()
    }

    /// Refuses while the store is known not to know the secret.
    pub(crate) fn must_know_the_secret(&self) -> Result<(), SecretError> {
        if self.estranged.0.load(Ordering::Acquire) {
            return Err(SecretError::Changed);
        }
        Ok(())
    }

    /// Looks whether the store still knows the secret. A store that does not answer says nothing
    /// about it, and neither does a row that cannot be read: nobody opens a store with one.
    pub(crate) async fn look_at_marks(&self) {
        let looking = Marks::load(&self.store);
        let answer = self.asked(StoreOperation::Load, looking, StoreError::unavailable);
        let Ok(marks) = answer.await else {
            return;
        };
        // Not the previous one either: whoever has only that does not look under this one.
        let is_known = marks.is_some_and(|(marks, _)| marks.is_current(&self.secret));
        self.estranged.0.store(!is_known, Ordering::Release);
        if !is_known {
            self.observer.observe(&Event::StoreFailed {
                operation: StoreOperation::Load,
                error: &StoreError::unavailable(SecretError::Changed.to_string()),
            });
        }
    }
}
