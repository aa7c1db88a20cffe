//! What can go wrong with a store, sorted by the one question that matters.

use thiserror::Error;

use crate::Version;

/// A store's refusal or failure.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operation did not happen: the store could not be reached, or turned it away.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What happened, and what to do about it.
        reason: Box<str>,
    },
    /// The operation was sent, and no answer came back.
    #[error("the store did not answer, so the write may have happened: {reason}")]
    Ambiguous {
        /// What happened.
        reason: Box<str>,
    },
    /// There is a row, and it cannot be read. Its outcome is unknown, not absent.
    #[error("the row at version {version} cannot be read: {reason}")]
    Corrupt {
        /// The row's version, so that an operator can still remove it.
        version: Version,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The store stopped itself after a write failed, because it can no longer tell what is on
    /// disk. Nothing was written.
    #[error("the store has stopped: {reason}; mend the cause and restart to recover")]
    Stopped {
        /// The failure that made it stop.
        reason: Box<str>,
    },
    /// The record is larger than the store takes. Nothing was written.
    #[error("the record has {bytes} bytes; this store takes at most {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

impl StoreError {
    /// The operation did not happen, for this reason.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an error is given away here, not lent"
    )]
    pub fn unavailable(reason: impl ToString) -> Self {
        Self::Unavailable {
            reason: reason.to_string().into(),
        }
    }

    /// The operation may have happened; no answer came, for this reason.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an error is given away here, not lent"
    )]
    pub fn ambiguous(reason: impl ToString) -> Self {
        Self::Ambiguous {
            reason: reason.to_string().into(),
        }
    }

    /// May the write have happened? If so, read before writing again.
    #[must_use]
    pub const fn may_have_written(&self) -> bool {
        match self {
            Self::Ambiguous { .. } => true,
            Self::Unavailable { .. }
            | Self::Corrupt { .. }
            | Self::Stopped { .. }
            | Self::TooLarge { .. } => false,
        }
    }

    /// Could the same call succeed a moment later?
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Ambiguous { .. } => true,
            Self::Corrupt { .. } | Self::Stopped { .. } | Self::TooLarge { .. } => false,
        }
    }
}
