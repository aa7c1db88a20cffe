//! A list page by page: every row that stays is on exactly one page.

use std::collections::HashSet;

use onlyonce_core::{RecordId, StateKind};
use onlyonce_store::{Filter, ListStore, Store};

use super::listing::{mixture, write};
use crate::suite::samples::{at, executing, id, record, state};
use crate::suite::{Handle, Harness, Setup};

/// The smallest page meets every border.
pub async fn pages_of_1_visit_every_row_once<H: Harness>(setup: &Setup<H>) {
    visits_every_row_once(setup, 1).await;
}

/// The rows are no multiple of the page.
pub async fn pages_of_7_visit_every_row_once<H: Harness>(setup: &Setup<H>) {
    visits_every_row_once(setup, 7).await;
}

/// Everything at once is a page too.
pub async fn pages_of_1000_visit_every_row_once<H: Harness>(setup: &Setup<H>) {
    visits_every_row_once(setup, 1_000).await;
}

async fn visits_every_row_once<H: Harness>(setup: &Setup<H>, limit: usize) {
    let store = setup.open().await;
    let mut expected = write_rows(&store, 0..60).await;
    expected.sort_unstable();
    assert_eq!(store.ids(&Filter::default(), limit).await, expected);
}

/// A filter thins out a page; it must neither end the list early nor repeat a row.
pub async fn a_filtered_list_pages_like_any_other<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let rows = mixture();
    write(&store, &rows).await;
    let filter = Filter {
        state: Some(StateKind::DeadLetter),
        ..Filter::default()
    };
    let matching = rows.iter().filter(|(_, row)| filter.matches(row));
    let mut expected: Vec<_> = matching.map(|(id, _)| *id).collect();
    expected.sort_unstable();
    for limit in [1, 2, 5, 100] {
        assert_eq!(store.ids(&filter, limit).await, expected, "limit {limit}");
    }
}

/// A page's memory is bounded by its limit.
pub async fn a_page_has_at_most_its_limit<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    write_rows(&store, 0..20).await;
    for limit in [0, 1, 19] {
        let page = store.store().list(&Filter::default(), None, limit).await;
        let page = page.expect("list");
        assert!(page.entries.len() <= limit, "limit {limit}");
        assert!(limit == 0 || page.next.is_some(), "there is more");
    }
}

/// "More" on the last page would keep a reader asking for ever.
pub async fn the_last_page_has_no_next<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    write_rows(&store, 0..5).await;
    let page = store.page(&Filter::default(), None, 10).await;
    assert_eq!(page.entries.len(), 5);
    assert_eq!(page.next, None);
}

/// New keys come all the time; those already there must not be shown twice or skipped.
pub async fn rows_inserted_meanwhile_disturb_no_page<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut staying = write_rows(&store, 0..40).await;
    let mut seen = Vec::new();
    let mut after = None;
    for round in 0..1_000 {
        let page = store.page(&Filter::default(), after, 4).await;
        seen.extend(page.entries.into_iter().map(|entry| entry.id));
        after = page.next;
        if after.is_none() {
            break;
        }
        if round < 30 {
            write_rows(&store, 100 + round * 3..103 + round * 3).await;
        }
    }
    assert_eq!(after, None, "the list ends");
    assert!(seen.is_sorted_by(|a, b| a < b), "in order, none twice");
    staying.sort_unstable();
    let seen: HashSet<_> = seen.into_iter().collect();
    assert!(staying.iter().all(|id| seen.contains(id)), "none skipped");
}

/// Keys are purged all the time, the one that the cursor points at included.
pub async fn rows_removed_meanwhile_disturb_no_page<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut left = write_rows(&store, 0..40).await;
    left.sort_unstable();
    let mut seen = Vec::new();
    let mut after = None;
    for _ in 0..1_000 {
        let page = store.page(&Filter::default(), after, 4).await;
        for entry in page.entries {
            let row = entry.row.expect("a readable row");
            store.remove(&entry.id, row.version).await;
            seen.push(entry.id);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(
        seen, left,
        "each row once, although the ones before it left"
    );
}

/// A row that changes while the list is read is still one row.
pub async fn rows_changed_meanwhile_are_on_one_page<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut expected = write_rows(&store, 0..40).await;
    expected.sort_unstable();
    let mut seen = Vec::new();
    let mut after = None;
    for round in 0..1_000 {
        let page = store.page(&Filter::default(), after, 4).await;
        seen.extend(page.entries.into_iter().map(|entry| entry.id));
        after = page.next;
        if after.is_none() {
            break;
        }
        for row in &expected {
            let version = store.row(row).await.version;
            let mut changed = record(1, state(StateKind::Unknown, at(9_000)));
            changed.updated_at = at(3_000 + round);
            store.replace(row, version, &changed).await;
        }
    }
    assert_eq!(seen, expected);
}

async fn write_rows<S: Store + ListStore>(
    store: &Handle<S>,
    numbers: std::ops::Range<u64>,
) -> Vec<RecordId> {
    let mut ids = Vec::new();
    for number in numbers {
        store.put(&id(number), &executing(number, at(5_000))).await;
        ids.push(id(number));
    }
    ids
}
