//! Listing: the unsettled rows of the index and the settled rows of the engine, merged by id.
//!
//! The index is copied before the engine is looked at. A row that is settled in between is in
//! both, and one that is claimed in between is still in `settled`, below the open one; so a row
//! that is there is found, and once.
//!
//! A page is gathered in short steps, and other tasks get their turn between them. Every step
//! takes a new look, so that a slow reader holds nothing back.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Bound;
use std::task::Poll;

use fjall::Readable;
use onlyonce_core::{RecordId, StateKind};
use onlyonce_store::{Cursor, Filter, Listed, Page, StoreError};

use crate::layout::StoredRow;
use crate::shared::Shared;

/// How many rows a step reads: at 1 KiB each, well under a millisecond from memory.
const STEP_ROWS: usize = 256;

pub(crate) async fn list(
    shared: &Shared,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut page = Page::default();
    let mut after = after.map(|Cursor(id)| id);
    loop {
        let step = step(shared, filter.state, after)?;
        for (id, row) in step.rows {
            let row = row.decode(&id);
            let matches = match &row {
                Ok(row) => filter.matches(&row.record),
                Err(_) => filter.matches_unreadable(),
            };
            if !matches {
                continue;
            }
            if page.entries.len() == limit {
                page.next = page.entries.last().map(|last| Cursor(last.id));
                return Ok(page);
            }
            page.entries.push(Listed { id, row });
        }
        if step.last.is_none() {
            return Ok(page);
        }
        after = step.last;
        let_others_run().await;
    }
}

struct Step {
    rows: BTreeMap<RecordId, StoredRow>,
    /// Up to which id the step has seen everything; `None` at the end.
    last: Option<RecordId>,
}

fn step(
    shared: &Shared,
    state: Option<StateKind>,
    after: Option<RecordId>,
) -> Result<Step, StoreError> {
    let open = shared.index.range(after, STEP_ROWS);
    let open_end = full_end(&open);
    let settled = match state {
        // An unsettled row is in the index.
        Some(state) if !state.is_settled() => Vec::new(),
        Some(_) | None => settled_range(shared, after)?,
    };
    let settled_end = full_end(&settled);
    let last = match (open_end, settled_end) {
        (Some(open), Some(settled)) => Some(open.min(settled)),
        (end, None) | (None, end) => end,
    };
    let mut rows: BTreeMap<_, _> = settled.into_iter().collect();
    rows.extend(open);
    if let Some(last) = last {
        rows.retain(|id, _| *id <= last);
    }
    Ok(Step { rows, last })
}

/// The last id, if there may be more after it.
fn full_end(rows: &[(RecordId, StoredRow)]) -> Option<RecordId> {
    match rows.len() < STEP_ROWS {
        true => None,
        false => rows.last().map(|(id, _)| *id),
    }
}

fn settled_range(
    shared: &Shared,
    after: Option<RecordId>,
) -> Result<Vec<(RecordId, StoredRow)>, StoreError> {
    let start = after.map_or(Bound::Unbounded, |id| Bound::Excluded(*id.as_bytes()));
    let snapshot = shared.tables.db.snapshot();
    let range = (start, Bound::Unbounded);
    snapshot
        .range::<[u8; 32], _>(&shared.tables.settled, range)
        .take(STEP_ROWS)
        .map(|entry| {
            let (key, value) = entry
                .into_inner()
                .map_err(|error| Shared::unreadable(&error))?;
            let id = key.as_ref().try_into().map_err(|_| {
                StoreError::unavailable("the store holds a key that is not an id; it is damaged")
            })?;
            Ok((RecordId::from_bytes(id), StoredRow(value.into())))
        })
        .collect()
}

/// Gives the executor one turn.
async fn let_others_run() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
