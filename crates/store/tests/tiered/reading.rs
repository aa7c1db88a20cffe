//! What a cache saves, and that concurrent readers share a read without seeing the past.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_conformance::suite::{lost, won};
use onlyonce_store::{Store, StoreError};

use crate::kit::{Dead, Durable, completed, in_process, tiered};

#[tokio::test]
async fn a_completed_row_is_read_once() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let version = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    for _ in 0..10 {
        let row = store.load(&id(1)).await.unwrap().unwrap();
        assert_eq!((*row.record, row.version), (completed(1, "a"), version));
    }
    assert_eq!(durable.asked.loads(), 1);
}

/// A retry's claim on a remote store: answered from the cache, like a read.
#[tokio::test]
async fn a_claim_of_a_completed_key_costs_no_write() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    let claim = executing(2, at(5_000));
    for _ in 0..10 {
        let row = lost(store.swap(&id(1), None, Some(&claim)).await.unwrap());
        assert_eq!(*row.unwrap().record, completed(1, "a"));
    }
    assert_eq!(
        durable.asked.swaps(),
        2,
        "the completion and the first claim"
    );
}

#[tokio::test]
async fn nothing_is_cached_before_the_store_told_its_time() {
    let durable = Durable::new();
    let store = onlyonce_store::Tiered::in_process(durable.clone(), 1 << 20);
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    for _ in 0..3 {
        store.load(&id(1)).await.unwrap().unwrap();
    }
    assert_eq!(durable.asked.loads(), 3);
    assert!(store.cache().is_empty());
}

#[tokio::test]
async fn only_completed_rows_are_cached() {
    use onlyonce_conformance::suite::samples::{record, state};
    use onlyonce_core::StateKind;

    let durable = Durable::new();
    let store = in_process(&durable).await;
    for (number, kind) in (0..).zip(StateKind::ALL) {
        let row = record(number, state(kind, at(9_000_000)));
        let _ = won(store.swap(&id(number), None, Some(&row)).await.unwrap());
        let before = durable.asked.loads();
        for _ in 0..3 {
            store.load(&id(number)).await.unwrap().unwrap();
        }
        let reads = if kind == StateKind::Completed { 1 } else { 3 };
        assert_eq!(durable.asked.loads() - before, reads, "{kind:?}");
    }
    let before = durable.asked.loads();
    assert_eq!(store.load(&id(99)).await.unwrap(), None);
    assert_eq!(store.load(&id(99)).await.unwrap(), None);
    assert_eq!(durable.asked.loads() - before, 2, "absence is not cached");
}

/// The hot key: one read, also with no cache to help.
#[tokio::test]
async fn a_thousand_concurrent_loads_of_a_completed_row_are_one() {
    let durable = Durable::new();
    let store = tiered(&durable, Dead).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    durable.hold_answers();
    let mut loads = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let store = Arc::clone(&store);
        loads.spawn(async move { *store.load(&id(1)).await.unwrap().unwrap().record });
    }
    // One thread: every load runs until it waits before this goes on.
    settle().await;
    assert_eq!(durable.asked.loads(), 1);
    durable.let_answer(1);
    assert_eq!(loads.join_all().await, vec![completed(1, "a"); 1_000]);
    assert_eq!(durable.asked.loads(), 1);
}

/// Lets every task of a single-threaded test run until it waits.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A read under way may have missed a write that another instance was told of before this
/// caller asked. Only a completed row cannot be such a miss.
#[tokio::test]
async fn a_caller_never_gets_an_absence_that_was_read_before_it_asked() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    durable.hold_answers();
    let early = spawn_load(&store);
    settle().await;
    // Another instance completes the key while the first read is on its way back.
    let _ = won(durable
        .store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    let late = [spawn_load(&store), spawn_load(&store), spawn_load(&store)];
    settle().await;
    assert_eq!(durable.asked.loads(), 1);
    durable.let_answer(2);
    assert_eq!(
        early.await.unwrap().unwrap(),
        None,
        "it asked before the write"
    );
    for late in late {
        let row = late.await.unwrap().unwrap();
        assert_eq!(*row.unwrap().record, completed(1, "a"));
    }
    assert_eq!(
        durable.asked.loads(),
        2,
        "the late ones shared the second read"
    );
}

type Load = tokio::task::JoinHandle<Result<Option<onlyonce_store::Row>, StoreError>>;

fn spawn_load<C: onlyonce_store::tiered::Cache>(
    store: &Arc<onlyonce_store::Tiered<Durable, C>>,
) -> Load {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.load(&id(1)).await })
}

/// The one that reads for all may be cancelled.
#[tokio::test]
async fn a_reader_that_goes_away_leaves_the_others_their_answer() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    durable.hold_answers();
    let leader = spawn_load(&store);
    settle().await;
    let joined = [spawn_load(&store), spawn_load(&store)];
    settle().await;
    leader.abort();
    settle().await;
    assert_eq!(durable.asked.loads(), 2, "one of the others reads");
    durable.let_answer(1);
    for joined in joined {
        assert!(joined.await.unwrap().unwrap().is_some());
    }
}

/// One failed read is one caller's failure; those who asked later get a read of their own.
#[tokio::test]
async fn a_failed_read_is_not_handed_to_those_who_came_later() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    durable.is_down.store(true, Ordering::SeqCst);
    assert!(store.load(&id(1)).await.is_err());
    durable.is_down.store(false, Ordering::SeqCst);
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

#[tokio::test]
async fn a_cached_row_is_given_while_the_durable_store_is_down() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    durable.is_down.store(true, Ordering::SeqCst);
    assert!(store.load(&id(1)).await.unwrap().is_some());
    assert!(store.load(&id(2)).await.is_err());
}
