//! Listing, in the order of ids.
//!
//! A page is gathered in short steps, and other tasks get their turn between them. Every step
//! takes a new look at the index, which has each row once, whatever its state; so a row that is
//! there during the whole listing is found, and once.

use std::future::poll_fn;
use std::task::Poll;

use onlyonce_core::RecordId;
use onlyonce_store::{Cursor, Filter, Listed, Page, StoreError};

use crate::reader;
use crate::shared::Log;

/// How many rows a step reads: at 1 KiB each, well under a millisecond from memory.
const STEP_ROWS: usize = 256;

pub(crate) async fn list(
    log: &Log,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut page = Page::default();
    let mut after = after.map(|Cursor(id)| id);
    loop {
        let ids = step(log, filter, after);
        let Some(last) = ids.last() else {
            return Ok(page);
        };
        after = Some(*last);
        for id in ids {
            let Some(row) = reader::load(log, &id)? else {
                continue;
            };
            let row = row.decode(&id);
            let matches = match &row {
                Ok(row) => filter.matches(&row.record),
                Err(_) => filter.matches_unreadable(),
            };
            if !matches {
                continue;
            }
            if page.entries.len() >= limit {
                page.next = page.entries.last().map(|last| Cursor(last.id));
                return Ok(page);
            }
            page.entries.push(Listed { id, row });
        }
        let_others_run().await;
    }
}

/// The next ids that may match. None means the end.
fn step(log: &Log, filter: &Filter, after: Option<RecordId>) -> Vec<RecordId> {
    if filter.leaves_settled_out() {
        log.open.range(after, STEP_ROWS)
    } else {
        log.index.range(after, STEP_ROWS)
    }
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
