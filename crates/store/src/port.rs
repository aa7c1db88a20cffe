//! The port.

use std::fmt;
use std::future::Future;

use onlyonce_core::{Record, RecordId, Timestamp};

use crate::StoreError;

/// The identity of one state of one row. Opaque to everybody but the store that made it.
///
/// A version never returns: not after the row was removed and written again, and not after the
/// store was opened anew. Whoever expects a version therefore expects one exact write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A record as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The record. Boxed: a row is moved about more often than it is made.
    pub record: Box<Record>,
    /// What the next write must expect.
    pub version: Version,
}

/// What became of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// It is written, durably, under this version. A removal has one too, which nobody meets.
    Won(Version),
    /// It is not written: this row, or none, was there instead of the expected one.
    Lost(Option<Row>),
}

/// What a store is, for the engine's choices and for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreProfile {
    /// As in its URL: `memory`, `embedded`, ….
    pub name: &'static str,
    /// Whether an acknowledged write survives a crash of the process and of the machine.
    pub durable: bool,
    /// Whether several processes may use it at once.
    pub shared: bool,
    /// Whether a read costs next to nothing compared with a write. If so a claim reads first;
    /// if not it writes first, because a losing write tells it the row in the same round trip.
    pub cheap_reads: bool,
}

/// A map with a conditional write, an index of deadlines, and a clock.
///
/// Every future may be dropped at any point. A dropped [`swap`](Self::swap) may or may not have
/// been written, exactly like one that failed with an error that
/// [may have written](StoreError::may_have_written).
pub trait Store: Send + Sync + 'static {
    /// What this store is.
    fn profile(&self) -> StoreProfile;

    /// The row under `id`, if there is one. Sees every write acknowledged before the call.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when there is a row that cannot be read: that is not "none".
    fn load(&self, id: &RecordId) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// Writes `next` (`None` removes the row) if the row is at the version `expected` (`None`
    /// expects no row). Atomic, and durable once acknowledged.
    ///
    /// # Errors
    /// When the store cannot be reached, or cannot tell whether it has written.
    fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// Ids of rows whose state's own deadline ([`State::deadline`]) is at or before `now`,
    /// earliest first, at most `limit`.
    ///
    /// [`State::deadline`]: onlyonce_core::State::deadline
    ///
    /// # Errors
    /// When the store cannot be reached.
    fn due(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<RecordId>, StoreError>> + Send;

    /// The store's time. Never runs backwards, also not across a restart.
    ///
    /// # Errors
    /// When the store cannot be reached.
    fn now(&self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// The deployment's hashing secret: the one kept here, or else `candidate`, which is kept
    /// from now on. Of several first callers all get the same one.
    ///
    /// # Errors
    /// When the store cannot be reached.
    fn secret(
        &self,
        candidate: [u8; 32],
    ) -> impl Future<Output = Result<[u8; 32], StoreError>> + Send;
}
