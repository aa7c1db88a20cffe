//! One page of a list of rows, bounded in rows, bytes and time.
//!
//! A store gives whole rows with their answers, of which a list shows nothing. So rows are read a
//! few at a time, and each answer is dropped before the next rows are read. Whatever ends a page,
//! it says where to go on: it may be short, or empty, and still have a next.

use std::time::Duration;

use onlyonce_core::Record;
use onlyonce_store::{Cursor, Filter, ListStore, Listed, Page, StoreError};
use tokio::time::timeout;

/// A page looks at so many times as many rows as it may show: most rows may be notes.
const ROWS_TIMES: usize = 16;

/// How many bytes of stored answers are read for one page, so that a list cannot be used to fill
/// the memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many rows are read at once at first: answers may be as large as `limits.stored_response`.
const STEP_FIRST: usize = 4;

/// How many at most.
const STEP_MAX: usize = 512;

/// How many bytes are read at once, about.
const STEP_BYTES: usize = 4 * 1024 * 1024;

/// How long the store may look for rows that match.
const SEARCH_TIME: Duration = Duration::from_secs(10);

/// If it found none in that time, every row is looked at here, for so long. Some stores read all
/// rows anyway, and do not say how far they came.
const CRAWL_TIME: Duration = Duration::from_secs(5);

/// What was found so far, as `show` tells it; rows of which it tells nothing are passed over.
struct Found<T, F> {
    shown: Vec<T>,
    show: F,
    /// Where to go on; none before the first row and after the last.
    after: Option<Cursor>,
    limit: usize,
    rows: usize,
    bytes: usize,
    step: usize,
}

/// The next rows of a filter, at most `limit`, each as `show` tells it, and where to go on.
pub(crate) async fn page<S: ListStore, T>(
    store: &S,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
    show: impl FnMut(Listed) -> Option<T>,
) -> Result<(Vec<T>, Option<Cursor>), StoreError> {
    let mut found = Found {
        shown: Vec::new(),
        show,
        after,
        limit,
        rows: 0,
        bytes: 0,
        step: STEP_FIRST,
    };
    match timeout(SEARCH_TIME, found.search(store, filter)).await {
        Ok(searched) => searched?,
        Err(_) if found.rows > 0 => {}
        Err(_) => match timeout(CRAWL_TIME, found.crawl(store, filter)).await {
            Ok(crawled) => crawled?,
            Err(_) if found.rows > 0 => {}
            Err(_) => return Err(StoreError::unavailable("no list in time")),
        },
    }
    Ok((found.shown, found.after))
}

impl<T, F: FnMut(Listed) -> Option<T>> Found<T, F> {
    /// Has the store look for rows that match.
    async fn search<S: ListStore>(&mut self, store: &S, filter: &Filter) -> Result<(), StoreError> {
        while self.has_room() && self.rows < self.limit.saturating_mul(ROWS_TIMES) {
            let step = self.step.min(self.limit - self.shown.len());
            let page = store.list(filter, self.after, step).await?;
            self.take(page, |_| true);
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Looks at every row.
    async fn crawl<S: ListStore>(&mut self, store: &S, filter: &Filter) -> Result<(), StoreError> {
        while self.has_room() {
            let page = store
                .list(&Filter::default(), self.after, self.step)
                .await?;
            self.take(page, |seen| match seen {
                Some(record) => filter.matches(record),
                None => filter.matches_unreadable(),
            });
            if self.after.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.shown.len() < self.limit && self.bytes < BYTES_MAX
    }

    /// Takes those rows that are wanted; of one that cannot be read there is no record.
    fn take(&mut self, page: Page, is_wanted: impl Fn(Option<&Record>) -> bool) {
        let mut bytes = 0;
        for listed in page.entries {
            if self.shown.len() >= self.limit {
                // The rest is for the next page.
                return;
            }
            let record = listed.row.as_ref().ok().map(|row| &*row.record);
            self.rows += 1;
            bytes += record.map_or(0, size);
            self.after = Some(Cursor(listed.id));
            if is_wanted(record) {
                self.shown.extend((self.show)(listed));
            }
        }
        self.after = page.next;
        self.bytes = self.bytes.saturating_add(bytes);
        self.step = match bytes {
            bytes if bytes > STEP_BYTES => (self.step / 2).max(1),
            bytes if bytes < STEP_BYTES / 4 => (self.step * 2).min(STEP_MAX),
            _ => self.step,
        };
    }
}

/// How large a record is, about.
fn size(record: &Record) -> usize {
    record.state.response_bytes() + record.memo.len()
}
