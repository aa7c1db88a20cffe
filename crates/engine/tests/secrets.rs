//! A store whose keys were made with another secret is not opened: its keys would not be found.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at once"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::{ANYBODY, Fault, Faulty, counted, faulty, name};
use onlyonce_core::{Policy, RecordId, Secret, Timestamp};
use onlyonce_engine::{Engine, EngineBuilder, EngineError, MARKS_ROUTE, Policies, SecretError};
use onlyonce_store::{Filter, ListStore, MemoryStore, Store};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// `None` is the store's own secret.
fn with(
    store: &MemoryStore,
    current: Option<u8>,
    previous: Option<u8>,
) -> EngineBuilder<MemoryStore> {
    let mut builder = Engine::builder(store.clone());
    if let Some(byte) = current {
        builder = builder.secret(secret(byte));
    }
    if let Some(byte) = previous {
        builder = builder.previous_secret(secret(byte));
    }
    builder.without_background()
}

async fn open(
    store: &MemoryStore,
    current: Option<u8>,
    previous: Option<u8>,
) -> Result<Engine<MemoryStore>, SecretError> {
    match with(store, current, previous).open().await {
        Ok(engine) => Ok(engine),
        Err(EngineError::Secret(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

/// A key that was made under a secret, so that the store is not empty.
async fn charge(engine: &Engine<MemoryStore>, runs: &Arc<AtomicUsize>) -> &'static str {
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(runs, "ch_1"))
        .await;
    name(&reply.unwrap())
}

#[tokio::test]
async fn a_store_opens_again_with_the_same_secret() {
    for current in [None, Some(1)] {
        let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let first = open(&store, current, None).await.unwrap();
        assert_eq!(charge(&first, &runs).await, "executed");
        let again = open(&store, current, None).await.unwrap();
        assert_eq!(charge(&again, &runs).await, "replayed");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

/// Without this, a retry of every stored key would be a second charge.
#[tokio::test]
async fn another_secret_is_refused_whichever_way_it_changes() {
    for (before, after) in [(None, Some(1)), (Some(1), None), (Some(1), Some(2))] {
        let store = MemoryStore::new();
        open(&store, before, None).await.unwrap();
        for _ in 0..2 {
            let refused = open(&store, after, None).await.err();
            assert_eq!(refused, Some(SecretError::Other), "{before:?} {after:?}");
        }
        let unrelated = open(&store, Some(3), Some(4)).await.err();
        assert_eq!(unrelated, Some(SecretError::Other));
        open(&store, before, None).await.unwrap();
    }
}

#[tokio::test]
async fn with_the_previous_secret_the_store_opens_and_its_keys_are_found() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let own = store.secret([9; 32]).await.unwrap();
    let first = open(&store, None, None).await.unwrap();
    assert_eq!(charge(&first, &runs).await, "executed");
    let second = open(&store, Some(1), Some(own[0])).await.unwrap();
    assert_eq!(charge(&second, &runs).await, "replayed");
    // Going back is a change like any other: keys may have been made since.
    assert_eq!(
        open(&store, None, None).await.err(),
        Some(SecretError::Other)
    );
    let back = open(&store, None, Some(1)).await.unwrap();
    assert_eq!(charge(&back, &runs).await, "replayed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The other way to hide keys: taking the previous secret out while they are still stored.
#[tokio::test]
async fn the_previous_secret_is_needed_until_its_keys_have_expired() {
    let store = MemoryStore::new();
    open(&store, Some(1), None).await.unwrap();
    let retention = Policy::builder().retention(7 * DAY).build().unwrap();
    let rotating = with(&store, Some(2), Some(1)).policies(Policies::new(retention));
    rotating.open().await.unwrap();
    open(&store, Some(2), Some(1)).await.unwrap();
    for (current, previous) in [(2, None), (2, Some(3)), (3, Some(2))] {
        let refused = open(&store, Some(current), previous).await.err();
        let Some(SecretError::Dropped { left }) = refused else {
            panic!("{current} {previous:?}: {refused:?}");
        };
        assert!(left <= 7 * DAY && left > 6 * DAY, "{left:?}");
    }
}

#[tokio::test]
async fn once_its_keys_have_expired_the_previous_secret_may_go() {
    let clock = Arc::new(AtomicU64::new(1_000_000));
    let reads = Arc::clone(&clock);
    let store =
        MemoryStore::with_clock(move || Timestamp::from_millis(reads.load(Ordering::SeqCst)));
    let pass = |time: Duration| {
        let millis = u64::try_from(time.as_millis()).unwrap();
        clock.fetch_add(millis, Ordering::SeqCst);
    };
    open(&store, Some(1), None).await.unwrap();
    open(&store, Some(2), Some(1)).await.unwrap();
    let retention = Policy::default().retention();
    let left = Duration::from_millis(1);
    pass(retention.saturating_sub(left));
    let early = open(&store, Some(2), None).await.err();
    assert_eq!(early, Some(SecretError::Dropped { left }));
    pass(left);
    open(&store, Some(2), None).await.unwrap();
    open(&store, Some(3), Some(2)).await.unwrap();
}

/// A store of an earlier version: keys, and nothing that tells what they were made with.
#[tokio::test]
async fn keys_of_an_unnamed_secret_need_somebody_who_names_it() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let first = open(&store, Some(1), None).await.unwrap();
    assert_eq!(charge(&first, &runs).await, "executed");
    let id = marks(&store).await;
    let version = store.load(&id).await.unwrap().unwrap().version;
    let _ = store.swap(&id, Some(version), None).await.unwrap();
    for current in [1, 2] {
        let refused = open(&store, Some(current), None).await.err();
        assert_eq!(refused, Some(SecretError::Unmarked));
    }
    let named = open(&store, Some(1), Some(1)).await.unwrap();
    assert_eq!(charge(&named, &runs).await, "replayed");
    open(&store, Some(1), None).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_row_that_makes_no_sense_keeps_the_store_closed() {
    let store = MemoryStore::new();
    open(&store, Some(1), None).await.unwrap();
    let id = marks(&store).await;
    let row = store.load(&id).await.unwrap().unwrap();
    for bytes in [0, 15, 17, 39, 41] {
        let version = store.load(&id).await.unwrap().unwrap().version;
        let mut record = row.record.clone();
        record.memo = vec![1; bytes].into();
        let _ = store.swap(&id, Some(version), Some(&record)).await.unwrap();
        let refused = with(&store, Some(1), None).open().await;
        assert!(matches!(refused, Err(EngineError::Store(_))), "{bytes}");
    }
}

#[tokio::test]
async fn the_secret_cannot_be_read_from_the_store() {
    let store = MemoryStore::new();
    open(&store, Some(0xab), None).await.unwrap();
    open(&store, Some(0xcd), Some(0xab)).await.unwrap();
    let row = store.load(&marks(&store).await).await.unwrap().unwrap();
    let memo = row.record.memo;
    assert_eq!(memo.len(), 40);
    assert!(
        !memo
            .windows(4)
            .any(|part| part == [0xab; 4] || part == [0xcd; 4])
    );
}

/// Gateways that start together, on a store that nobody has used or while the secret changes.
#[tokio::test]
async fn engines_that_open_a_store_at_once_all_succeed() {
    let store = MemoryStore::new();
    for (current, previous) in [(Some(1), None), (Some(2), Some(1))] {
        let opening = (0..8).map(|_| open(&store, current, previous));
        for opened in futures_util::future::join_all(opening).await {
            opened.unwrap();
        }
    }
}

#[tokio::test]
async fn a_write_that_was_not_acknowledged_is_looked_for() {
    for fault in [Fault::WrittenUnacknowledged, Fault::LostUnacknowledged] {
        let store = Faulty::default();
        store.fail(&[fault]);
        faulty(&store).await;
        faulty(&store).await;
    }
}

/// Where the engine notes its secrets.
async fn marks(store: &MemoryStore) -> RecordId {
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    let mut ids = page.entries.iter().filter(|entry| {
        let record = &entry.row.as_ref().unwrap().record;
        record.route.as_str() == MARKS_ROUTE
    });
    ids.next().unwrap().id
}
