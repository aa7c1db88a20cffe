//! What can be done to a key, and what comes of it: the vocabulary of the rules.
//!
//! None of these enums has a wildcard arm anywhere: a new state, command or decision must break
//! every `match` that has not thought about it.

use alloc::boxed::Box;

use bytes::Bytes;

use crate::fence::Fence;
use crate::fingerprint::{FieldDigests, Fingerprint};
use crate::record::{Record, Response, UnknownReason};
use crate::route::RouteName;
use crate::scope::PrincipalDigest;
use crate::time::Timestamp;

/// Something that somebody wants done to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A request asks to execute.
    Claim(Claim),
    /// The executor is still at work.
    Renew {
        /// Its grant.
        fence: Fence,
    },
    /// The executor has the answer.
    Complete {
        /// Its grant.
        fence: Fence,
        /// What retries get.
        response: Response,
    },
    /// The executor proved that nothing was executed.
    Release {
        /// Its grant.
        fence: Fence,
    },
    /// The request was rejected before execution: the key is as if never used.
    Evict {
        /// Its grant.
        fence: Fence,
    },
    /// The executor cannot tell whether it was executed.
    MarkUnknown {
        /// Its grant.
        fence: Fence,
        /// Why not.
        reason: UnknownReason,
    },
    /// The row's own deadline may have passed.
    Sweep,
    /// Somebody asked the upstream whether it was executed.
    Reconcile {
        /// The execution that was asked about.
        fence: Fence,
        /// When the question was put. An answer says nothing about what came after it.
        asked_at: Timestamp,
        /// What it said.
        verdict: Verdict,
    },
    /// A person decides.
    Resolve {
        /// The execution that the person looked at.
        fence: Fence,
        /// What the person decided.
        resolution: Resolution,
    },
}

/// A request for execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The payload.
    pub fingerprint: Fingerprint,
    /// Its per-field digests.
    pub fields: FieldDigests,
    /// A fresh fence, the execution's own if it is granted.
    pub fence: Fence,
    /// The route's name.
    pub route: RouteName,
    /// Who asks.
    pub principal: PrincipalDigest,
    /// What to note about the request for as long as its outcome is open.
    pub memo: Bytes,
}

/// What the upstream says about an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened, and this is the answer to replay; a declined operation counts too.
    Completed(Response),
    /// There is no trace of it.
    NotFound,
    /// It cannot say yet.
    Pending,
}

impl Verdict {
    /// As operators read it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotFound => "not_found",
            Self::Pending => "pending",
        }
    }
}

/// What a person decides about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It happened.
    Completed(Response),
    /// It did not happen and cannot any more.
    Released,
    /// The key is to be as if never used.
    Forget,
    /// The upstream is to be asked again, from the first attempt on.
    AskAgain,
}

impl Resolution {
    /// As operators read it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Released => "released",
            Self::Forget => "forget",
            Self::AskAgain => "ask_again",
        }
    }
}

/// What the sender of a command is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    /// Claim: go ahead, under the fence you brought.
    Execute,
    /// Claim: here is the first answer.
    Replay,
    /// Claim: it was executed, and there is no answer to give.
    NotReplayable,
    /// Claim: the key was good for one use.
    AlreadyUsed,
    /// Claim or resolve: somebody is at work on it.
    InFlight,
    /// Claim: the key belongs to another payload.
    Mismatch,
    /// Claim or renew: nobody knows whether it was executed.
    Unknown,
    /// The lease was renewed.
    Renewed,
    /// The key has the outcome that you gave.
    Settled,
    /// The key had its outcome already; yours changed nothing.
    AlreadySettled,
    /// The key is not, or no longer, yours; nothing changed.
    Fenced,
    /// Sweep: nothing is due.
    NotDue,
    /// Sweep: the executor is gone, the outcome is unknown from now on.
    LeaseExpired,
    /// Sweep: you, and nobody else, are to ask the upstream now.
    Probe,
    /// Sweep or reconcile: it waits for a person from now on.
    DeadLettered,
    /// Sweep: past its retention, kept for audit.
    Expired,
    /// Sweep: past its retention, removed.
    Purged,
    /// Reconcile: still nobody knows.
    StillUnknown,
    /// Resolve: the upstream is asked again.
    Rescheduled,
    /// Resolve: not a thing to decide in this state.
    NotAllowed,
}

/// What becomes of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It stays as it is.
    Keep,
    /// It is written.
    Put(Box<Record>),
    /// It is removed.
    Remove,
}
