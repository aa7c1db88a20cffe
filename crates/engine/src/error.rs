//! Why the engine could not decide. Refusals that the rules foresee are replies, not errors.

use std::time::Duration;

use onlyonce_core::SealError;
use onlyonce_store::StoreError;
use thiserror::Error;

/// No decision, and so no execution.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The store failed. Nothing was executed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other writers kept winning, or its time ended just then. Nothing was executed; try again.
    #[error("the key kept changing while it was being decided; try again")]
    Contended,
    /// The limit of concurrent executions is reached. Nothing was executed; try again.
    #[error("{limit} executions are running, which is the limit; try again later")]
    Overloaded {
        /// The limit (`executions_max`).
        limit: usize,
    },
    /// The engine is shutting down. Nothing was executed; try another instance.
    #[error("this instance is shutting down; try again")]
    ShuttingDown,
    /// The work could not begin before its lease ended. Nothing was executed; try again.
    #[error("this instance was too slow to begin the work in time; try again")]
    TooLate,
    /// The stored response is encrypted and cannot be read. It is not executed again.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store was not opened: under these secrets its keys would not be found.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// Why a store is not opened with the secrets that were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The newest keys were made with one that is not given.
    #[error("the store's keys were made with another hashing secret: give it as the previous one")]
    Other,
    /// The one before is no longer given, and keys that were made with it may still be stored.
    #[error(
        "keys that were made with the hashing secret before this one may be stored for another \
         {} s: give it as the previous one until then",
        left.as_secs() + 1
    )]
    Dropped {
        /// For how much longer.
        left: Duration,
    },
    /// The store keeps its secret itself, and has lost it, but not its keys.
    #[error(
        "the store has keys, and no longer the hashing secret that they were made with, so that none \
         of them can be found: restore it, or begin with an empty one"
    )]
    Lost,
    /// The store has said so when it was opened, and no longer does.
    #[error(
        "the store no longer says that its keys were made with the hashing secret of this instance: \
         it was emptied, restored, failed over, or opened with another secret; nothing is executed \
         until it says so again, or this instance is started anew"
    )]
    Changed,
    /// There are keys, and nothing tells what they were made with.
    #[error(
        "the store has keys, and does not tell which hashing secret they were made with: give it \
         as the previous one, also if it is the present one"
    )]
    Unmarked,
}
