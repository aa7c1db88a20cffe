//! What happens, as typed events: the one source of metrics, traces and timelines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use onlyonce_core::{Decision, RecordId, RouteName, UnknownReason};
use onlyonce_store::StoreError;

/// Something that happened to a key.
#[derive(Debug)]
pub enum Event<'a> {
    /// A claim was decided.
    Claimed {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// What it was told.
        decision: Decision,
        /// Which execution of its key it may run, or was told about: more than 1 after a release.
        attempt: u16,
        /// How long the decision took, store included.
        took: Duration,
    },
    /// An execution gave its outcome, or lost the right to.
    Settled {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// The outcome's name.
        outcome: &'static str,
        /// What the store's row made of it.
        decision: Decision,
        /// How long the work took.
        worked: Duration,
        /// How long recording the outcome took.
        took: Duration,
    },
    /// An execution gave its outcome and the store would not take it in time.
    NotSettled {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// The outcome's name.
        outcome: &'static str,
    },
    /// An execution's lease ran out, or was taken, while it was at work.
    LeaseLost {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
    },
    /// The outcome of an execution is unknown from now on.
    BecameUnknown {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// Why.
        reason: UnknownReason,
    },
    /// A row's deadline passed and it was dealt with.
    Swept {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// What was done.
        decision: Decision,
    },
    /// The upstream said something about an unknown outcome.
    Reconciled {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// How it came to say so.
        source: Source,
        /// What it said: `completed`, `not_found` or `pending`.
        verdict: &'static str,
        /// What came of it.
        decision: Decision,
    },
    /// A person decided about a key.
    Resolved {
        /// Its record.
        id: &'a RecordId,
        /// Its route.
        route: &'a RouteName,
        /// What the person decided: `completed`, `released`, `forget` or `ask_again`.
        resolution: &'static str,
        /// What came of it.
        decision: Decision,
    },
    /// A store operation failed.
    StoreFailed {
        /// Which.
        operation: StoreOperation,
        /// How.
        error: &'a StoreError,
    },
}

/// How the upstream came to say what became of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// It was asked, through the [`Resolver`](crate::Resolver).
    Asked,
    /// It said so by itself, through [`Engine::reconcile`](crate::Engine::reconcile).
    Told,
}

impl Source {
    /// As operators read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Told => "told",
        }
    }
}

/// An operation of the store port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreOperation {
    /// `load`
    Load,
    /// `swap`
    Swap,
    /// `due`
    Due,
    /// `now`
    Now,
}

/// Somebody who wants to know. Called in the middle of requests: must be quick and not block. What it
/// panics about ends there, and is told by the process's panic hook only.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);
}

/// An observer whose panics concern nobody else. One that unwound from the middle of a request would
/// take along a key that was granted and never executed.
pub(crate) struct Contained<O>(pub(crate) O);

impl<O: Observer> Observer for Contained<O> {
    fn observe(&self, event: &Event<'_>) {
        // Not reported from here: whoever would be told has just panicked.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.observe(event)));
    }
}

/// Nobody wants to know.
impl Observer for () {
    fn observe(&self, _: &Event<'_>) {}
}
