//! Listing, in the order of ids.
//!
//! A list with conditions looks at so many rows at a time, along the primary key, so that no
//! statement takes long however few rows match. Rows that are not settled have an index of their
//! own: there are few of them, but for bad days.

use onlyonce_core::{RecordId, RouteName, StateKind};
use onlyonce_store::{Cursor, Filter, Listed, Page, StoreError};

use crate::columns::{self, millis};
use crate::slot::Readers;
use crate::store::nothing_written;

/// How many rows one statement looks at: some tens of milliseconds.
const WINDOW_ROWS: i64 = 20_000;

pub(crate) async fn list(
    readers: &Readers,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    let mut page = Page::default();
    // Before every id: the empty one.
    let mut after: Vec<u8> = after.map_or_else(Vec::new, |Cursor(id)| id.as_bytes().to_vec());
    loop {
        let end = if *filter == Filter::default() {
            None
        } else {
            window_end(readers, filter, &after).await?
        };
        // One more than asked for tells whether there is a next page.
        let wanted = limit.saturating_add(1).saturating_sub(page.entries.len());
        let rows = rows(readers, filter, &after, end.as_deref(), wanted).await?;
        for entry in rows {
            if page.entries.len() >= limit {
                page.next = page.entries.last().map(|last| Cursor(last.id));
                return Ok(page);
            }
            page.entries.push(entry);
        }
        match end {
            None => return Ok(page),
            Some(end) => after = end,
        }
    }
}

async fn window_end(
    readers: &Readers,
    filter: &Filter,
    after: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let row = readers.run(async |session| {
        let window = if filter.leaves_settled_out() {
            &session.window_unsettled
        } else {
            &session.window
        };
        let client = &session.link.client;
        client.query_opt(window, &[&after, &WINDOW_ROWS]).await
    });
    let row = row.await.map_err(nothing_written)?;
    row.map(|row| row.try_get(0).map_err(StoreError::unavailable))
        .transpose()
}

async fn rows(
    readers: &Readers,
    filter: &Filter,
    after: &[u8],
    end: Option<&[u8]>,
    wanted: usize,
) -> Result<Vec<Listed>, StoreError> {
    let state = filter.state.map(StateKind::as_str);
    let route = filter.route.as_ref().map(RouteName::as_str);
    let principal = filter.principal.map(|principal| *principal.as_bytes());
    let principal = principal.as_ref().map(|principal| &principal[..]);
    let from = filter.updated_from.map(|time| millis(time) ^ i64::MIN);
    let before = filter.updated_before.map(|time| millis(time) ^ i64::MIN);
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
    let rows = readers.run(async |session| {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
            &after, &end, &state, &route, &principal, &from, &before, &wanted,
        ];
        let list = if filter.leaves_settled_out() {
            &session.list_unsettled
        } else {
            &session.list
        };
        session.link.client.query(list, &params).await
    });
    let rows = rows.await.map_err(nothing_written)?;
    let entries = rows.iter().filter_map(|row| columns::row(row, 0));
    let entry = |(id, row): (RecordId, _)| Listed { id, row };
    // One that cannot be read meets no condition.
    let belongs = |entry: &Listed| entry.row.is_ok() || filter.matches_unreadable();
    Ok(entries.map(entry).filter(belongs).collect())
}
