//! The index of deadlines under a real sweep: many rows, many writers, several sweepers.

use std::collections::HashMap;

use onlyonce_core::{RecordId, StateKind};
use onlyonce_store::{ListStore, Store, Swap};

use crate::suite::samples::{at, executing, id, record, state};
use crate::suite::{Handle, Harness, Setup, together};

/// Far beyond the deadlines that the sweeps of these cases look for.
const LATER_MS: u64 = 1_000_000;

/// The rows of every page must differ from the last page's, or a backlog is never worked off.
pub async fn a_backlog_of_2000_rows_is_worked_off_page_by_page<H: Harness>(setup: &Setup<H>) {
    const ROWS: u64 = 2_000;
    const PAGE: usize = 128;
    let store = setup.open().await;
    write_due(&store, 0..ROWS).await;
    let mut settled = HashMap::new();
    // Twice as many pages as needed: a store that gives a row again ends the case, not the run.
    for _ in 0..2 * (usize::try_from(ROWS).expect("small") / PAGE + 1) {
        let due = store.due(at(5_000), PAGE).await;
        assert!(due.len() <= PAGE, "a page keeps to its limit");
        for row in due {
            *settled.entry(row).or_insert(0) += 1;
            settle(&store, &row).await;
        }
    }
    assert_eq!(settled.len(), usize::try_from(ROWS).expect("small"));
    assert!(settled.values().all(|times| *times == 1), "each row once");
    assert!(store.due(at(5_000), PAGE).await.is_empty());
}

/// A row written while others are must not miss its place in the index.
pub async fn rows_written_at_once_are_all_due<H: Harness>(setup: &Setup<H>) {
    const WRITERS: u64 = 16;
    const ROWS: u64 = 20;
    let store = setup.open().await;
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        async move {
            for row in 0..ROWS {
                let number = writer * ROWS + row;
                let version = store.put(&id(number), &executing(1, at(LATER_MS))).await;
                let sooner = executing(1, at(number));
                store.replace(&id(number), version, &sooner).await;
                // Whatever else is being written, an index that is asked must answer in order.
                store.due(at(number), 5).await;
            }
        }
    });
    together(writers).await;
    let expected: Vec<_> = (0..WRITERS * ROWS).map(id).collect();
    assert_eq!(store.due(at(LATER_MS - 1), 10_000).await, expected);
}

/// Several instances sweep one store. Each row's deadline is acted on once: a second probe or a
/// second purge would act on what came after.
pub async fn several_sweepers_process_each_row_once<H: Harness>(setup: &Setup<H>) {
    const ROWS: u64 = 300;
    let store = setup.open().await;
    write_due(&store, 0..ROWS).await;
    let sweepers = (0..8).map(|_| {
        let store = store.clone();
        async move {
            let mut processed = Vec::new();
            // As many rounds as rows: progress is at least one row in each.
            for _ in 0..ROWS {
                let due = store.due(at(5_000), 32).await;
                if due.is_empty() {
                    break;
                }
                for row in due {
                    if settle(&store, &row).await {
                        processed.push(row);
                    }
                }
            }
            processed
        }
    });
    let mut processed = together(sweepers).await.concat();
    let mut expected: Vec<_> = (0..ROWS).map(id).collect();
    processed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(processed, expected);
}

/// Purging must neither take a fresh claim nor miss an old row.
pub async fn a_purge_of_1000_rows_leaves_new_claims_alone<H: Harness>(setup: &Setup<H>) {
    const OLD: u64 = 1_000;
    const NEW: u64 = 200;
    let store = setup.open().await;
    write_due(&store, 0..OLD).await;
    let purge = {
        let store = store.clone();
        async move {
            for _ in 0..OLD {
                let due = store.due(at(5_000), 100).await;
                if due.is_empty() {
                    return;
                }
                for row in due {
                    let version = store.row(&row).await.version;
                    store.remove(&row, version).await;
                }
            }
        }
    };
    let claims = {
        let store = store.clone();
        async move {
            for number in OLD..OLD + NEW {
                store.put(&id(number), &executing(1, at(LATER_MS))).await;
            }
        }
    };
    let tasks: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
        [Box::pin(purge), Box::pin(claims)];
    together(tasks).await;
    for number in 0..OLD + NEW {
        let found = store.load(&id(number)).await.is_some();
        assert_eq!(found, number >= OLD, "row {number}");
    }
    let left = store.due(at(LATER_MS), 5_000).await;
    assert_eq!(left.len(), usize::try_from(NEW).expect("small"));
}

async fn write_due<S: Store + ListStore>(store: &Handle<S>, rows: std::ops::Range<u64>) {
    for chunk in rows.collect::<Vec<_>>().chunks(50) {
        let writes = chunk.iter().map(|number| {
            let (store, number) = (store.clone(), *number);
            async move {
                let expired = record(number, state(StateKind::Released, at(number)));
                store.put(&id(number), &expired).await;
            }
        });
        together(writes).await;
    }
}

/// Moves a due row's deadline far ahead. False when somebody else did.
async fn settle<S: Store + ListStore>(store: &Handle<S>, row: &RecordId) -> bool {
    let current = store.row(row).await;
    if current.record.state.kind() == StateKind::Expired {
        return false;
    }
    let mut settled = current.record;
    settled.state = state(StateKind::Expired, at(LATER_MS));
    let swap = store.swap(row, Some(current.version), Some(&settled));
    matches!(swap.await, Swap::Won(_))
}
