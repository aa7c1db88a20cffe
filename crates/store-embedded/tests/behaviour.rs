//! What is particular to this store, beyond the suite: batches, moves between states, limits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use onlyonce_core::StateKind;
use onlyonce_store::{Filter, ListStore, Store, StoreError, Swap};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore, OpenError};

/// Group commit is the whole point: a thousand callers must not pay a thousand syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_share_few_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { win(&store, &id(number), None, Some(&executing(9))).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.swaps, 1000);
    assert!(stats.syncs < 500, "{stats:?}");
}

/// A second winner in the same batch would be a second execution.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_claims_in_one_batch_one_wins_and_the_others_see_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for round in 0..50 {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    store
                        .swap(&id(round), None, Some(&executing(9)))
                        .await
                        .unwrap()
                })
            })
            .collect();
        let (mut won, mut seen) = (Vec::new(), Vec::new());
        for task in tasks {
            match task.await.unwrap() {
                Swap::Won(version) => won.push(version),
                Swap::Lost(row) => seen.push(row.unwrap().version),
            }
        }
        assert_eq!(won.len(), 1);
        assert!(seen.iter().all(|version| *version == won[0]));
    }
}

/// A row that changes state is never absent in between: an absent row may be claimed, and its
/// effect would happen twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_moves_between_states_and_files_is_never_absent_and_never_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    // Segments of a few rows, cleaned all the time: rows also move between files.
    let store = EmbeddedStore::open(&EmbeddedOptions {
        segment_bytes_max: 2048,
        dead_bytes_max: 0,
        ..EmbeddedOptions::new(folder.path())
    })
    .unwrap();
    let moving = id(1);
    let mut version = win(&store, &moving, None, Some(&executing(9))).await;
    let is_done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, is_done) = (store.clone(), Arc::clone(&is_done));
            tokio::spawn(async move {
                let (mut loads, mut last) = (0_u64, None);
                while !is_done.load(Ordering::Relaxed) {
                    let row = store.load(&moving).await.unwrap();
                    let seen = row.expect("the row is there all the time").version;
                    assert!(
                        last <= Some(seen),
                        "an older state was seen after a newer one"
                    );
                    last = Some(seen);
                    loads += 1;
                    let page = store.list(&Filter::default(), None, 10).await.unwrap();
                    let found = page.entries.iter().filter(|entry| entry.id == moving);
                    assert_eq!(found.count(), 1);
                    tokio::task::yield_now().await;
                }
                loads
            })
        })
        .collect();
    for round in 0..2000_u64 {
        let next = match round % 4 {
            0 => completed(u64::MAX - 1, 300),
            1 => executing(9),
            2 => released(u64::MAX - 1),
            _ => unknown(9),
        };
        version = win(&store, &moving, Some(version), Some(&next)).await;
        let other = id(2 + round % 3);
        let before = store.load(&other).await.unwrap().map(|row| row.version);
        win(&store, &other, before, Some(&completed(u64::MAX - 1, 200))).await;
    }
    is_done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    assert!(store.stats().segments_deleted > 10, "{:?}", store.stats());
}

/// The sweep asks for what is due all the time; it must get the earliest, of both kinds, and not
/// what is gone.
#[tokio::test]
async fn what_is_due_comes_from_all_segments_in_order_without_the_dead() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 2048);
    let mut versions = Vec::new();
    for number in 0..60 {
        let row = match number % 3 {
            0 => executing(1000 - number),
            1 => completed(1000 - number, 100),
            _ => released(1000 - number),
        };
        versions.push(win(&store, &id(number), None, Some(&row)).await);
    }
    for (number, version) in (0..60).zip(versions).step_by(2) {
        win(&store, &id(number), Some(version), None).await;
    }
    let expected: Vec<_> = (0..60)
        .rev()
        .filter(|number| number % 2 == 1)
        .map(id)
        .collect();
    assert_eq!(store.due(at(1000), 100).await.unwrap(), expected);
    assert_eq!(store.due(at(1000), 7).await.unwrap(), expected[..7]);
    assert_eq!(store.due(at(940), 100).await.unwrap(), []);
    assert_eq!(store.due(at(1000), 0).await.unwrap(), []);
    drop(store);
    let store = open_small(folder.path(), 2048);
    assert_eq!(store.due(at(1000), 100).await.unwrap(), expected);
}

#[tokio::test]
async fn a_list_of_unsettled_rows_has_them_all_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for number in 0..600 {
        let row = match number % 3 {
            0 => executing(9),
            1 => unknown(9),
            _ => completed(9, 10),
        };
        win(&store, &id(number), None, Some(&row)).await;
    }
    let filter = Filter {
        state: Some(StateKind::Unknown),
        ..Filter::default()
    };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&filter, after, 30).await.unwrap();
        found.extend(page.entries.iter().map(|entry| entry.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut expected: Vec<_> = (0..600).filter(|number| number % 3 == 1).map(id).collect();
    expected.sort();
    assert_eq!(found, expected);
}

/// A record over the limit must be refused before it is queued, not after it filled the memory.
#[tokio::test]
async fn a_record_over_the_limit_is_refused_and_one_at_the_limit_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&EmbeddedOptions {
        record_bytes_max: 200_000,
        ..EmbeddedOptions::new(folder.path())
    })
    .unwrap();
    let error = store.swap(&id(1), None, Some(&completed(9, 200_000))).await;
    assert!(matches!(
        error,
        Err(StoreError::TooLarge {
            bytes_max: 200_000,
            ..
        })
    ));
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    let large = completed(9, 199_000);
    win(&store, &id(1), None, Some(&large)).await;
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, large);
}

/// Options that contradict each other must not wait for the first large record to hang.
#[test]
fn options_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let opened = EmbeddedStore::open(&EmbeddedOptions {
        queue_bytes_max: 1024,
        ..EmbeddedOptions::new(folder.path())
    });
    assert!(matches!(opened, Err(OpenError::Options(_))));
}

/// More large rows than fit into the queue must wait their turn, and all get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn large_rows_wait_for_room_and_all_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(&EmbeddedOptions {
        record_bytes_max: 1024 * 1024,
        queue_bytes_max: 2 * 1024 * 1024,
        queue_swaps_max: 1,
        ..EmbeddedOptions::new(folder.path())
    })
    .unwrap();
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                win(&store, &id(number), None, Some(&completed(9, 900_000))).await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// A caller may give up at any time: a dropped future must neither lose the row of another nor
/// leave the store hanging.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaps_that_are_given_up_leave_a_store_that_closes_and_opens() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for number in 0..200 {
        let (id, row) = (id(number), executing(9));
        let swap = store.swap(&id, None, Some(&row));
        let _ = tokio::time::timeout(Duration::from_micros(number * 5), swap).await;
    }
    // The last handle, dropped inside a task: the writer must end without one.
    tokio::spawn(async move { drop(store) }).await.unwrap();
    let store = open(folder.path());
    for number in 0..200 {
        if let Some(row) = store.load(&id(number)).await.unwrap() {
            assert_eq!(*row.record, executing(9));
        }
    }
}

/// On a runtime with one thread nothing else can run while the store is dropped.
#[test]
fn the_last_handle_can_be_dropped_on_a_runtime_with_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(folder.path());
        win(&store, &id(1), None, Some(&executing(9))).await;
        drop(store);
    });
    drop(open(folder.path()));
}

/// A slow sync must not keep a replay waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_go_on_while_large_batches_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    win(&store, &id(1), None, Some(&completed(9, 100))).await;
    let is_done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, is_done) = (store.clone(), Arc::clone(&is_done));
            tokio::spawn(async move {
                for round in 0..8 {
                    let id = id(100 + writer * 100 + round);
                    win(&store, &id, None, Some(&completed(9, 4_000_000))).await;
                }
                is_done.store(true, Ordering::Relaxed);
            })
        })
        .collect();
    let (mut loads, mut syncs_seen) = (0_u64, 0);
    while !is_done.load(Ordering::Relaxed) {
        assert!(store.load(&id(1)).await.unwrap().is_some());
        assert!(store.due(at(5), 10).await.unwrap().is_empty());
        loads += 1;
        syncs_seen = store.stats().syncs;
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(
        loads > 10 * syncs_seen,
        "{loads} loads beside {syncs_seen} syncs"
    );
}

/// A new file of the log cannot be begun, as when the process is out of file handles: the last one
/// grows meanwhile, to twice its size, and nothing stops before that.
#[tokio::test]
async fn a_log_goes_on_in_its_last_file_while_there_cannot_be_another() {
    const BYTES: u64 = 16 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), BYTES);
    let in_the_way = folder.path().join("log/unfinished");
    std::fs::create_dir(&in_the_way).unwrap();
    let last_bytes = || {
        let last = log_files(folder.path()).pop().unwrap();
        std::fs::metadata(last).unwrap().len()
    };
    let mut written = 0;
    while last_bytes() < BYTES + BYTES / 2 {
        win(&store, &id(written), None, Some(&completed(9, 1000))).await;
        written += 1;
    }
    assert_eq!(log_files(folder.path()).len(), 1);
    std::fs::remove_dir(&in_the_way).unwrap();
    win(&store, &id(written), None, Some(&completed(9, 1000))).await;
    assert_eq!(log_files(folder.path()).len(), 2, "the next file is begun");
    drop(store);
    let store = open_small(folder.path(), BYTES);
    for number in 0..=written {
        assert!(store.load(&id(number)).await.unwrap().is_some());
    }
    std::fs::create_dir(&in_the_way).unwrap();
    let stopped = loop {
        written += 1;
        let row = completed(9, 1000);
        match store.swap(&id(written), None, Some(&row)).await {
            Ok(_) => assert!(last_bytes() < 3 * BYTES, "it grows without end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(stopped, StoreError::Stopped { .. }), "{stopped}");
}
