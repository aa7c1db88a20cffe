//! What operators look at: shard after shard, which is the order of ids.
//!
//! The server may drop settled rows when their time is over, and no others. So where no settled row
//! is wanted, it leaves those out that it may drop: their ids are looked at, and nothing else.

use onlyonce_core::RecordId;
use onlyonce_store::{Cursor, Filter, Listed, Page, StoreError};

use crate::answer::Answer;
use crate::call::{Call, What};
use crate::due::{read_id, tidy};
use crate::keys::{Shard, hex};
use crate::row;
use crate::scripts;
use crate::store::Inner;

/// How many rows are read at once: answers can be large, and most are not shown when a filter is
/// set.
const ROWS_MAX: usize = 128;

/// How many ids are looked at at once where most rows are left out: less than a millisecond.
const IDS_MAX: usize = 1024;

/// After so many bytes a script stops, so that it holds up nobody else for long.
const BYTES_MAX: usize = 4 << 20;

pub(crate) async fn list(
    inner: &Inner,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    if limit == 0 {
        return Ok(Page::default());
    }
    let after = after.map(|Cursor(id)| id);
    let first = after.as_ref().map_or(Shard::FIRST, Shard::of);
    let mut entries: Vec<Listed> = Vec::new();
    let kept_only = filter.leaves_settled_out();
    for shard in first.onwards() {
        let mut after = after.filter(|_| shard == first);
        loop {
            // One more than fits tells whether there is a next page.
            let wanted = (limit - entries.len()).saturating_add(1);
            let wanted = wanted.min(ROWS_MAX);
            let piece = read(inner, shard, after.as_ref(), wanted, kept_only).await?;
            for (id, bytes) in piece.rows {
                let row = row::decode(&id, bytes);
                let shown = match &row {
                    Ok(row) => filter.matches(&row.record),
                    Err(_) => filter.matches_unreadable(),
                };
                if !shown {
                    continue;
                }
                if entries.len() == limit {
                    let next = entries.last().map(|last| Cursor(last.id));
                    return Ok(Page { entries, next });
                }
                entries.push(Listed { id, row });
            }
            tidy(inner, shard, &piece.gone).await;
            match piece.last_id {
                Some(last) if !piece.is_last => after = Some(last),
                _ => break,
            }
        }
    }
    Ok(Page {
        entries,
        next: None,
    })
}

/// What was read at once.
struct Piece {
    rows: Vec<(RecordId, Vec<u8>)>,
    /// Ids that the server dropped the rows of.
    gone: Vec<RecordId>,
    /// The last that was looked at.
    last_id: Option<RecordId>,
    /// Whether the shard has no more.
    is_last: bool,
}

async fn read(
    inner: &Inner,
    shard: Shard,
    after: Option<&RecordId>,
    wanted: usize,
    kept_only: bool,
) -> Result<Piece, StoreError> {
    let (ids, rows) = (inner.keys.ids(shard), inner.keys.rows(shard));
    let start = after.map_or_else(|| "-".to_owned(), |id| format!("({}", hex(id)));
    let (looks, which) = if kept_only {
        (IDS_MAX, "kept")
    } else {
        (wanted, "")
    };
    let [looks, bytes, wanted] = [looks, BYTES_MAX, wanted].map(|number| number.to_string());
    let call = Call {
        shard,
        what: What::Script(
            &scripts::LIST,
            &[ids.as_bytes()],
            &[
                start.as_bytes(),
                looks.as_bytes(),
                rows.as_bytes(),
                bytes.as_bytes(),
                which.as_bytes(),
                wanted.as_bytes(),
            ],
        ),
        writes: false,
        confirmed: false,
        may_ask: false,
        mark: None,
    };
    let answer = inner.caller.call(&call).await?;
    let wrong = || StoreError::unavailable(Answer::Other.unexpected());
    let mut parts = answer.into_list().ok_or_else(wrong)?.into_iter();
    let (is_last, last_id) = parts.next().zip(parts.next()).ok_or_else(wrong)?;
    let mut piece = Piece {
        rows: Vec::new(),
        gone: Vec::new(),
        last_id: read_id(&last_id),
        is_last: matches!(is_last, Answer::Number(1)),
    };
    while let Some((id, row)) = parts.next().zip(parts.next()) {
        let id = read_id(&id).ok_or_else(wrong)?;
        if let Answer::Bytes(bytes) = row {
            piece.rows.push((id, bytes));
        } else {
            piece.gone.push(id);
        }
    }
    Ok(piece)
}
