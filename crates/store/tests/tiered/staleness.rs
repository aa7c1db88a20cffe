//! What a cached row can be wrong about, and that nobody writes because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_conformance::suite::{lost, won};
use onlyonce_core::Timestamp;
use onlyonce_store::tiered::{Cached, MemoryCache, Tiered, TieredOptions};
use onlyonce_store::{MemoryStore, Row, Store, Version};

use crate::kit::{Durable, NOW, Poisoned, completed, expiring, in_process, tiered};

/// A durable store with a clock that a test moves.
fn on_a_clock() -> (Durable, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(NOW.as_millis()));
    let read = Arc::clone(&clock);
    let store =
        MemoryStore::with_clock(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
    (Durable::over(store), clock)
}

async fn forgotten_elsewhere(durable: &Durable) {
    let row = durable.store.load(&id(1)).await.unwrap().unwrap();
    let removal = durable.store.swap(&id(1), Some(row.version), None).await;
    let _ = won(removal.unwrap());
}

/// The one staleness there is, and its end.
#[tokio::test]
async fn a_key_forgotten_by_another_instance_is_replayed_here_for_the_maximum_age_only() {
    let (durable, clock) = on_a_clock();
    let store = in_process(&durable).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    forgotten_elsewhere(&durable).await;
    assert!(store.load(&id(1)).await.unwrap().is_some(), "still cached");
    let age_max = TieredOptions::default().age_max;
    clock.fetch_add(
        u64::try_from(age_max.as_millis()).unwrap(),
        Ordering::SeqCst,
    );
    store.now().await.unwrap();
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    let claim = executing(2, at(5_000));
    let _ = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
}

/// A use does not make a row younger.
#[tokio::test]
async fn a_row_in_constant_use_ages_all_the_same() {
    let (durable, clock) = on_a_clock();
    let store = in_process(&durable).await;
    let _ = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    for _ in 0..130 {
        store.load(&id(1)).await.unwrap().unwrap();
        clock.fetch_add(1_000, Ordering::SeqCst);
        store.now().await.unwrap();
    }
    assert_eq!(durable.asked.loads(), 3);
}

/// Whatever is decided from a stale row loses in the durable store.
#[tokio::test]
async fn a_write_that_expects_a_stale_row_loses_and_corrects_the_cache() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let stale = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    forgotten_elsewhere(&durable).await;
    let next = executing(9, at(5_000));
    let other = won(durable.store.swap(&id(1), None, Some(&next)).await.unwrap());
    // Here the row is still the completed one; a write upon it is not.
    assert_eq!(store.load(&id(1)).await.unwrap().unwrap().version, stale);
    let overwrite = executing(3, at(6_000));
    let row = lost(
        store
            .swap(&id(1), Some(stale), Some(&overwrite))
            .await
            .unwrap(),
    );
    assert_eq!(row.unwrap().version, other);
    assert_eq!(store.load(&id(1)).await.unwrap().unwrap().version, other);
}

#[tokio::test]
async fn a_row_is_not_used_near_its_expiry() {
    let (durable, clock) = on_a_clock();
    let store = in_process(&durable).await;
    let margin = TieredOptions::default().expiry_margin;
    let row = expiring(1, "a", margin + Duration::from_secs(10));
    let _ = won(store.swap(&id(1), None, Some(&row)).await.unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    store.load(&id(1)).await.unwrap().unwrap();
    assert_eq!(durable.asked.loads(), 1);
    clock.fetch_add(10_000, Ordering::SeqCst);
    store.now().await.unwrap();
    store.load(&id(1)).await.unwrap().unwrap();
    store.load(&id(1)).await.unwrap().unwrap();
    assert_eq!(
        durable.asked.loads(),
        3,
        "within the margin it is read anew"
    );
}

#[tokio::test]
async fn a_removal_here_is_seen_here_at_once() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let version = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// The write happened, its answer was lost: the row must be read anew.
#[tokio::test]
async fn a_write_whose_answer_was_lost_takes_the_row_out() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let version = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    store.load(&id(1)).await.unwrap().unwrap();
    durable.cuts_answers.store(true, Ordering::SeqCst);
    let error = store.swap(&id(1), Some(version), None).await.unwrap_err();
    assert!(error.may_have_written());
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// A read that began before a removal and ends after it must not bring the row back.
#[tokio::test]
async fn a_read_overtaken_by_a_removal_is_not_cached() {
    let durable = Durable::new();
    let store = in_process(&durable).await;
    let version = won(store
        .swap(&id(1), None, Some(&completed(1, "a")))
        .await
        .unwrap());
    durable.hold_answers();
    let reader = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.load(&id(1)).await.unwrap() })
    };
    durable.asked.until_loads(1).await;
    let _ = won(store.swap(&id(1), Some(version), None).await.unwrap());
    // Whoever asks now must not share the read that is still on its way, nor find its row.
    let after = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.load(&id(1)).await.unwrap() })
    };
    durable.asked.until_loads(2).await;
    durable.let_answer(2);
    assert!(
        reader.await.unwrap().is_some(),
        "it read before the removal"
    );
    assert_eq!(after.await.unwrap(), None);
    durable.let_answer(1);
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
}

/// Entries that no read may use, whoever put them there.
#[tokio::test]
async fn an_entry_that_is_not_a_fresh_completed_row_is_never_used() {
    let row = |record| Row {
        record: Box::new(record),
        version: Version(77),
    };
    let seconds = Duration::from_secs;
    let bad = [
        (row(executing(5, at(9_000_000))), NOW),
        (row(expiring(5, "x", Duration::ZERO)), NOW),
        (row(completed(5, "x")), Timestamp::ZERO),
        (row(completed(5, "x")), NOW.after(seconds(6))),
        (row(completed(5, "x")), Timestamp::from_millis(u64::MAX)),
    ];
    for (row, seen_at) in bad {
        let durable = Durable::new();
        let store = tiered(&durable, Poisoned(Cached { row, seen_at })).await;
        assert_eq!(store.load(&id(1)).await.unwrap(), None, "{seen_at}");
        let claim = executing(2, at(5_000));
        let _ = won(store.swap(&id(1), None, Some(&claim)).await.unwrap());
    }
}

/// A thread that panicked while it held the cache's lock leaves it usable.
#[tokio::test]
async fn a_poisoned_lock_is_no_end() {
    struct Panics(MemoryCache);
    impl onlyonce_store::tiered::Cache for Panics {
        async fn get(&self, id: &onlyonce_core::RecordId) -> Option<Cached> {
            self.0.get(id).await
        }
        fn put(&self, id: &onlyonce_core::RecordId, cached: Cached) {
            assert_ne!(*id, onlyonce_conformance::suite::samples::id(666));
            self.0.put(id, cached);
        }
        fn remove(&self, id: &onlyonce_core::RecordId) {
            self.0.remove(id);
        }
    }
    let durable = Durable::new();
    let cache = Panics(MemoryCache::new(1 << 20));
    let store = Arc::new(Tiered::new(
        durable.clone(),
        cache,
        TieredOptions::default(),
    ));
    store.now().await.unwrap();
    for number in [1, 666] {
        let row = completed(number, "a");
        let _ = won(store.swap(&id(number), None, Some(&row)).await.unwrap());
    }
    let panicking = Arc::clone(&store);
    let panicked = tokio::spawn(async move { panicking.load(&id(666)).await }).await;
    assert!(panicked.is_err());
    for _ in 0..3 {
        assert!(store.load(&id(1)).await.unwrap().is_some());
    }
    assert_eq!(durable.asked.loads(), 2);
}
