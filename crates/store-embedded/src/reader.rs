//! Reads, which never wait for the writer.
//!
//! # Why a load is right while a row moves
//!
//! A row is *open* while the index has it, and otherwise what `settled` has. A load asks the
//! index, then `settled`, then the index again. If the index has the row either time, that is the
//! answer, and it was true at that moment. What if it has it neither time, and `settled` answers
//! `w` (a row or none)?
//!
//! The writer changes `settled` for an id only when the row is not open, or in the batch that ends
//! its being open; and the index lets go of the row after that batch is visible. A claim changes
//! the index alone. So, between the two looks at the index, either
//!
//! - the row was not open when `settled` was read: then `w` was true at that moment; or
//! - it was open then, and both looks missed it. It became open after the first look, and until
//!   the batch that ended it `settled` had what was true just before it became open: if `w` is
//!   that, it was true then. Otherwise `w` is what that batch wrote, and was true from the moment
//!   the index let go, which is before the second look.
//!
//! In each case `w` was the truth at some moment during the load. The second look is what rules
//! out one more: seeing what a batch wrote while others still see the row as open.

use std::ops::Bound;

use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::StoreError;

use crate::layout::{StoredRow, expiry_key, split_expiry_key};
use crate::shared::Shared;

pub(crate) fn load(shared: &Shared, id: &RecordId) -> Result<Option<StoredRow>, StoreError> {
    if let Some(row) = shared.index.get(id) {
        return Ok(Some(row));
    }
    let settled = shared.tables.settled.get(id.as_bytes());
    if let Some(row) = shared.index.get(id) {
        return Ok(Some(row));
    }
    match settled {
        Ok(value) => Ok(value.map(|value| StoredRow(value.into()))),
        Err(error) => Err(Shared::unreadable(&error)),
    }
}

pub(crate) fn due(
    shared: &Shared,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<RecordId>, StoreError> {
    let mut due = shared.index.due(now, limit);
    due.extend(due_settled(shared, now, limit)?);
    due.sort_unstable();
    due.truncate(limit);
    Ok(due.into_iter().map(|(_, id)| id).collect())
}

fn due_settled(
    shared: &Shared,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(Timestamp, RecordId)>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let floor = shared.floor.seen(now);
    let after_now = Timestamp::from_millis(now.as_millis().saturating_add(1));
    if floor.at() > now {
        return Ok(Vec::new());
    }
    let first = expiry_key(floor.at(), &RecordId::from_bytes([0; 32]));
    let last = expiry_key(now, &RecordId::from_bytes([u8::MAX; 32]));
    let range = (Bound::Included(first), Bound::Included(last));
    let mut due = Vec::new();
    for entry in shared.tables.expiry.range::<[u8; 40], _>(range).take(limit) {
        let key = entry.key().map_err(|error| Shared::unreadable(&error))?;
        due.extend(split_expiry_key(&key));
    }
    let lowest = due.first().map_or(after_now, |(deadline, _)| *deadline);
    shared.floor.raise(floor, lowest);
    Ok(due)
}
