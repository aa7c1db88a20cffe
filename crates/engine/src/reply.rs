//! What a caller gets.

use onlyonce_core::{FieldDigests, Record, StoredResponse, Timestamp, TombstoneReason};

use crate::Outcome;

/// The answer to one request.
#[derive(Debug)]
pub enum Reply<T> {
    /// This request was the one that executed. A final outcome is recorded; one that is not
    /// (released, rejected, unknown) may still be on its way to the store.
    Executed {
        /// What the work gave its caller.
        value: T,
        /// The outcome that the work gave its key; unknown where it did nothing and an earlier
        /// attempt is in doubt.
        outcome: Outcome,
    },
    /// It was executed before; this is the first answer.
    Replayed(Replay),
    /// It was executed before, and there is no answer to replay.
    NotReplayable(TombstoneReason),
    /// The key was good for one use.
    AlreadyUsed,
    /// Somebody is at work on it.
    InFlight(Box<Record>),
    /// The key belongs to another payload, of which these are the field digests.
    Mismatch(FieldDigests),
    /// Nobody knows whether it was executed. No record when the row cannot be read.
    Unknown(Option<Box<Record>>),
}

/// The first answer, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The answer.
    pub response: StoredResponse,
    /// When its key was first claimed.
    pub created_at: Timestamp,
    /// Until when it is replayed.
    pub expires_at: Timestamp,
    /// The version of its shape.
    pub response_schema: u32,
}
