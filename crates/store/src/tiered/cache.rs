//! What a cache is: three operations, and nothing is lost if it does none of them.

use std::future::Future;

use onlyonce_core::{RecordId, Timestamp};

use crate::Row;

/// A row, and when the durable store was asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The row.
    pub row: Row,
    /// By the durable store's clock, at the latest.
    pub seen_at: Timestamp,
}

/// A place for rows that may be forgotten at any time.
///
/// Failures are the cache's own affair: it gives nothing, and keeps nothing. Whoever keeps rows
/// outside this process must keep them under their id in a form that shows when they were altered
/// or stand under another id; [`onlyonce_core::codec`] is one.
pub trait Cache: Send + Sync + 'static {
    /// The row under `id`, if it is still there.
    fn get(&self, id: &RecordId) -> impl Future<Output = Option<Cached>> + Send;

    /// Keeps a row for as long as there is room. Returns at once.
    fn put(&self, id: &RecordId, cached: Cached);

    /// Takes a row out. Returns at once: a [`get`](Self::get) through this handle that begins
    /// later must not give what was put before, also if the removal is still on its way.
    fn remove(&self, id: &RecordId);
}
