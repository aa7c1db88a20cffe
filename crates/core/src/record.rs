//! What is remembered about a key.

use bytes::Bytes;

use crate::fence::Fence;
use crate::fingerprint::{FieldDigests, Fingerprint};
use crate::headers::HeaderBlock;
use crate::route::RouteName;
use crate::scope::PrincipalDigest;
use crate::seal::SealedResponse;
use crate::time::Timestamp;

/// One key's row: whose execution it is, of what payload, and how far it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The payload that the key belongs to.
    pub fingerprint: Fingerprint,
    /// Per-field digests of that payload, so that a mismatch can be explained.
    pub fields: FieldDigests,
    /// The execution that may settle the key.
    pub fence: Fence,
    /// How many executions were granted, this one included.
    pub attempt: u16,
    /// How far it got.
    pub state: State,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When the row last changed.
    pub updated_at: Timestamp,
    /// The route's name, for operators and for finding the policy when no request is at hand.
    pub route: RouteName,
    /// Who claimed it, as operators see it.
    pub principal: PrincipalDigest,
    /// The version of the response's shape, as the route declared it.
    pub response_schema: u32,
    /// What the route noted about the request, so that its outcome can be asked about when nobody
    /// who knew it is left. Empty where nothing is ever asked, and once the key is settled.
    pub memo: Bytes,
}

/// How far a key got.
///
/// Only settled states expire: a key whose effect may have happened is never forgotten by
/// the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Granted, and the lease is renewed while the work runs.
    Executing {
        /// When the executor is presumed gone unless it renews.
        lease_until: Timestamp,
        /// That an earlier attempt may have been executed, where a key runs again though nobody
        /// knows ([`Upstream::Dedupes`](crate::Upstream::Dedupes)). If this one does nothing, the
        /// doubt is back: time must not turn it into "never executed".
        doubt: Option<Doubt>,
    },
    /// The effect may have happened, and nobody knows yet.
    Unknown {
        /// Why nobody knows.
        reason: UnknownReason,
        /// Since when.
        since: Timestamp,
        /// When to ask (again) whether it happened.
        reconcile_at: Timestamp,
        /// How often it was asked.
        attempts: u16,
    },
    /// Asking gave up, or may not decide. Waits for a person.
    DeadLetter {
        /// Why nobody knew.
        reason: UnknownReason,
        /// Since when.
        since: Timestamp,
        /// How often it was asked.
        attempts: u16,
    },
    /// Proven not executed: the same payload may run again.
    Released {
        /// When the row is forgotten.
        expires_at: Timestamp,
    },
    /// Executed, and this is its answer.
    Completed {
        /// What a retry gets.
        response: Response,
        /// When the row is forgotten.
        expires_at: Timestamp,
    },
    /// Past its retention, kept for audit only; a claim treats it as absent.
    Expired {
        /// When the row is removed for good.
        purge_at: Timestamp,
    },
}

/// What nobody knows of an earlier attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// Why.
    pub reason: UnknownReason,
    /// Since when.
    pub since: Timestamp,
}

impl State {
    /// How many bytes its stored response has, about; 0 without one.
    #[must_use]
    pub fn response_bytes(&self) -> usize {
        match self {
            Self::Completed { response, .. } => match response {
                Response::Plain(plain) => {
                    plain.headers.encoded().len()
                        + plain.body.len()
                        + plain.trailers.encoded().len()
                }
                Response::Sealed(sealed) => sealed.ciphertext.len(),
                Response::Tombstone(_) => 0,
            },
            Self::Executing { .. }
            | Self::Unknown { .. }
            | Self::DeadLetter { .. }
            | Self::Released { .. }
            | Self::Expired { .. } => 0,
        }
    }

    /// When this state's own deadline passes, if it has one: the lease, the next probe, or
    /// the end of the row.
    #[must_use]
    pub const fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Executing { lease_until, .. } => Some(*lease_until),
            Self::Unknown { reconcile_at, .. } => Some(*reconcile_at),
            Self::DeadLetter { .. } => None,
            Self::Released { expires_at } | Self::Completed { expires_at, .. } => Some(*expires_at),
            Self::Expired { purge_at } => Some(*purge_at),
        }
    }

    /// The state's name and nothing more.
    #[must_use]
    pub const fn kind(&self) -> StateKind {
        match self {
            Self::Executing { .. } => StateKind::Executing,
            Self::Unknown { .. } => StateKind::Unknown,
            Self::DeadLetter { .. } => StateKind::DeadLetter,
            Self::Released { .. } => StateKind::Released,
            Self::Completed { .. } => StateKind::Completed,
            Self::Expired { .. } => StateKind::Expired,
        }
    }
}

/// The name of a [`State`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// [`State::Executing`]
    Executing,
    /// [`State::Unknown`]
    Unknown,
    /// [`State::DeadLetter`]
    DeadLetter,
    /// [`State::Released`]
    Released,
    /// [`State::Completed`]
    Completed,
    /// [`State::Expired`]
    Expired,
}

impl StateKind {
    /// All of them, in the order of a key's life.
    pub const ALL: [Self; 6] = [
        Self::Executing,
        Self::Unknown,
        Self::DeadLetter,
        Self::Released,
        Self::Completed,
        Self::Expired,
    ];

    /// As operators read and type it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executing => "executing",
            Self::Unknown => "unknown",
            Self::DeadLetter => "dead_letter",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Expired => "expired",
        }
    }

    /// Settled states have a known outcome, and only they may be forgotten.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Released | Self::Completed | Self::Expired => true,
            Self::Executing | Self::Unknown | Self::DeadLetter => false,
        }
    }
}

/// Why nobody knows whether the effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnknownReason {
    /// The executor stopped renewing: it crashed, stalled, or lost the store.
    LeaseExpired,
    /// The handler panicked.
    Panicked,
    /// Bytes were sent and no complete answer came back.
    NoCompleteAnswer,
    /// The handler itself said that it cannot tell.
    HandlerSaidSo,
    /// The process shut down before the work was done.
    ShutDown,
}

impl UnknownReason {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::LeaseExpired,
        Self::Panicked,
        Self::NoCompleteAnswer,
        Self::HandlerSaidSo,
        Self::ShutDown,
    ];

    /// As operators read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeaseExpired => "lease_expired",
            Self::Panicked => "panicked",
            Self::NoCompleteAnswer => "no_complete_answer",
            Self::HandlerSaidSo => "handler_said_so",
            Self::ShutDown => "shut_down",
        }
    }
}

/// What a retry of a completed key gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The first answer, byte for byte.
    Plain(StoredResponse),
    /// The first answer, encrypted.
    Sealed(SealedResponse),
    /// There is nothing to replay, and a retry is refused: it was executed, or, if the request was
    /// only observed, may have been.
    Tombstone(TombstoneReason),
}

/// The first answer. Cloning it copies no bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredResponse {
    /// HTTP status; 200 for work that is not HTTP.
    pub status: u16,
    /// Header lines in order, repeated names kept apart.
    pub headers: HeaderBlock,
    /// The body.
    pub body: Bytes,
    /// Trailer lines in order.
    pub trailers: HeaderBlock,
}

impl StoredResponse {
    /// The result of work that is not HTTP: bytes alone.
    #[must_use]
    pub fn from_bytes(body: impl Into<Bytes>) -> Self {
        Self {
            status: 200,
            body: body.into(),
            ..Self::default()
        }
    }
}

/// Why a completed key has nothing to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TombstoneReason {
    /// The response was a stream.
    Stream,
    /// The response was larger than the limit.
    TooLarge,
    /// The response was of a kind that must not be stored.
    NotStorable,
    /// An operator confirmed the effect but had no response to give.
    ResolvedWithoutResponse,
    /// The request was only observed, and nobody knows whether it had an effect. Not
    /// [`State::Unknown`]: nobody guards the key, so nobody is asked about it.
    ObservedUnknown,
}

impl TombstoneReason {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Stream,
        Self::TooLarge,
        Self::NotStorable,
        Self::ResolvedWithoutResponse,
        Self::ObservedUnknown,
    ];

    /// As operators read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::TooLarge => "too_large",
            Self::NotStorable => "not_storable",
            Self::ResolvedWithoutResponse => "resolved_without_response",
            Self::ObservedUnknown => "observed_unknown",
        }
    }
}
