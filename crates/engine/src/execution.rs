//! One granted execution, as the work sees it.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onlyonce_core::{
    Fence, Purpose, RecordId, RouteName, Secret, StoredResponse, Timestamp, TombstoneReason,
    UnknownReason,
};

/// What the work did, as far as its key is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, and this is the answer for every retry. A business failure counts too.
    Completed(StoredResponse),
    /// Executed, and the answer cannot be replayed; retries are refused.
    NotReplayable(TombstoneReason),
    /// Proven not executed; the same payload may run again.
    Released,
    /// Rejected before execution; the key is as if never used.
    Rejected,
    /// It may have been executed.
    Unknown(UnknownReason),
}

impl Outcome {
    /// The outcome's name, for metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotReplayable(_) => "not_replayable",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Finished work: the outcome for the key, and a value for the caller that is still there.
#[derive(Debug)]
pub struct Finished<T> {
    /// What becomes of the key.
    pub outcome: Outcome,
    /// What the caller gets.
    pub value: T,
}

impl<T> Finished<T> {
    /// Executed: `response` is stored, `value` goes to the caller.
    pub fn completed(response: StoredResponse, value: T) -> Self {
        Self {
            outcome: Outcome::Completed(response),
            value,
        }
    }

    /// Proven not executed.
    pub fn released(value: T) -> Self {
        Self {
            outcome: Outcome::Released,
            value,
        }
    }

    /// It may have been executed.
    pub fn unknown(value: T) -> Self {
        Self {
            outcome: Outcome::Unknown(UnknownReason::HandlerSaidSo),
            value,
        }
    }
}

/// The right to execute once. Handed to the work; cheap to clone.
#[derive(Clone)]
pub struct Execution {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) id: RecordId,
    pub(crate) fence: Fence,
    pub(crate) attempt: u16,
    pub(crate) created_at: Timestamp,
    pub(crate) route: RouteName,
    /// The id was made with the previous secret.
    pub(crate) is_previous: bool,
    pub(crate) lease_until: AtomicU64,
    pub(crate) lost: AtomicBool,
    pub(crate) engine: Arc<dyn Home>,
}

/// What an execution asks its engine for, whatever store and runtime that has.
pub(crate) trait Home: Send + Sync {
    /// The store's time.
    fn now(&self) -> Timestamp;

    /// The secret that ids are made with, or the one before it.
    fn secret(&self, previous: bool) -> &Secret;
}

impl Execution {
    /// The record's id.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        &self.shared.id
    }

    /// The fence: who settles this key must show it.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.shared.fence
    }

    /// How many executions were granted for this key, this one included. More than 1 means that
    /// an earlier one was released, or that the upstream is trusted to recognise a repetition.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.shared.attempt
    }

    /// When the key was first claimed: a key that is forgotten and used anew is another operation
    /// under the same id.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.shared.created_at
    }

    /// The route's name.
    #[must_use]
    pub fn route(&self) -> &RouteName {
        &self.shared.route
    }

    /// Whether the key is still held. Ask right before the effect: work that stalled past its
    /// lease must not begin it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let lease_until = Timestamp::from_millis(self.shared.lease_until.load(Ordering::Acquire));
        !self.shared.lost.load(Ordering::Acquire)
            && !lease_until.has_passed(self.shared.engine.now())
    }

    /// A key for one downstream call of this operation: the same for every attempt, another for
    /// every `name`, and telling nothing about the original key. 32 hexadecimal digits.
    #[must_use]
    pub fn child_key(&self, name: &str) -> String {
        let shared = &self.shared;
        let secret = shared.engine.secret(shared.is_previous);
        child_key(secret, &shared.id, shared.created_at, name)
    }

    pub(crate) fn renewed_until(&self, lease_until: Timestamp) {
        self.shared
            .lease_until
            .store(lease_until.as_millis(), Ordering::Release);
    }

    /// Marks the key as no longer held; true the first time.
    pub(crate) fn lose(&self) -> bool {
        !self.shared.lost.swap(true, Ordering::AcqRel)
    }
}

/// Finds the keys that executions gave their downstream calls, when only their records are left.
/// Cheap to clone, and keeps no engine alive.
#[derive(Clone)]
pub struct ChildKeys {
    /// None while there is a previous secret: which of the two an execution used cannot be told,
    /// and a wrong key would find nothing.
    pub(crate) secret: Option<Secret>,
}

impl ChildKeys {
    /// As [`Execution::child_key`] gave it. `None` while a previous secret is configured.
    #[must_use]
    pub fn of(&self, id: &RecordId, created_at: Timestamp, name: &str) -> Option<String> {
        let secret = self.secret.as_ref()?;
        Some(child_key(secret, id, created_at, name))
    }
}

impl fmt::Debug for ChildKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChildKeys(..)")
    }
}

fn child_key(secret: &Secret, id: &RecordId, created_at: Timestamp, name: &str) -> String {
    let mut hash = secret.hash(Purpose::ChildKey);
    hash.part(id.as_bytes());
    // A key that is used anew after its retention is another operation.
    hash.part(&created_at.as_millis().to_be_bytes());
    hash.part(name.as_bytes());
    let mut key = String::with_capacity(32);
    for byte in hash.finish().iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    key
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("id", &self.shared.id)
            .field("fence", &self.shared.fence)
            .field("attempt", &self.shared.attempt)
            .finish_non_exhaustive()
    }
}
