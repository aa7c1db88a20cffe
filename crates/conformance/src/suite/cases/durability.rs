//! What was acknowledged is there again after the store was closed and opened.
//!
//! These cases cut no power: they catch what never reached the disk's file, and what is rebuilt
//! wrongly from it. Whether an acknowledged write survives a crash is for the fault tests.

use std::collections::HashSet;

use onlyonce_core::StateKind;
use onlyonce_store::Filter;

use crate::suite::samples::{at, body, completed, executing, id, record, sealed, state, tombstone};
use crate::suite::{Harness, Setup, lost, same, together};

/// A store that invents rows out of nothing refuses new keys.
pub async fn an_empty_store_is_empty_when_opened_again<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let store = setup.reopen(store).await;
    assert_eq!(store.load(&id(1)).await, None);
    assert!(store.due(at(u64::MAX), 10).await.is_empty());
    assert!(store.ids(&Filter::default(), 10).await.is_empty());
}

/// A claim that was forgotten is an effect that happens twice.
pub async fn a_claim_survives<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let claim = executing(1, at(5_000));
    let version = store.put(&id(1), &claim).await;
    let store = setup.reopen(store).await;
    let row = lost(store.swap(&id(1), None, Some(&claim)).await).expect("the claim");
    same(&row.record, &claim);
    assert_eq!(row.version, version);
}

/// An answer that a client saw is the answer that its retry gets.
pub async fn a_completion_survives_and_not_the_claim_before_it<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let claimed = store.put(&id(1), &executing(1, at(5_000))).await;
    let answer = completed(1, "answer");
    store.replace(&id(1), claimed, &answer).await;
    let store = setup.reopen(store).await;
    same(&store.row(&id(1)).await.record, &answer);
}

/// Every kind of row, whatever it is written as.
pub async fn every_state_survives<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut rows: Vec<_> = StateKind::ALL
        .map(|kind| record(1, state(kind, at(5))))
        .into();
    let reason = onlyonce_core::TombstoneReason::TooLarge;
    rows.extend([sealed(1), tombstone(1, reason), completed(1, "")]);
    for (number, row) in (0..).zip(&rows) {
        store.put(&id(number), row).await;
    }
    let store = setup.reopen(store).await;
    for (number, row) in (0..).zip(&rows) {
        same(&store.row(&id(number)).await.record, row);
    }
}

/// A large answer takes another path through many an engine.
pub async fn a_large_answer_survives<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let large = completed(1, body(1 << 20));
    store.put(&id(1), &large).await;
    let store = setup.reopen(store).await;
    same(&store.row(&id(1)).await.record, &large);
}

/// An evicted key that came back would refuse the corrected request.
pub async fn a_removal_survives<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    let store = setup.reopen(store).await;
    assert_eq!(store.load(&id(1)).await, None);
    assert!(store.ids(&Filter::default(), 10).await.is_empty());
}

/// An executor that outlives a restart of the store must still be able to complete.
pub async fn a_version_is_still_good_after_reopening<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let store = setup.reopen(store).await;
    assert_eq!(store.row(&id(1)).await.version, version);
    store.replace(&id(1), version, &completed(1, "done")).await;
}

/// A counter that starts again lets a zombie from before the restart act on its successor.
pub async fn versions_never_return_after_reopening<H: Harness>(setup: &Setup<H>) {
    let mut store = setup.open().await;
    let mut version = store.put(&id(1), &executing(1, at(5_000))).await;
    let mut seen = HashSet::from([version]);
    for round in 0..5 {
        store = setup.reopen(store).await;
        for lease_ms in 0..10 {
            let renewed = executing(round, at(lease_ms));
            version = store.replace(&id(1), version, &renewed).await;
            assert!(seen.insert(version), "version {version} returned");
        }
    }
}

/// The same where no row is left to count on from.
pub async fn versions_of_removed_rows_never_return_after_reopening<H: Harness>(setup: &Setup<H>) {
    let mut store = setup.open().await;
    let mut seen = HashSet::new();
    for round in 0..5 {
        for _ in 0..3 {
            let version = store.put(&id(1), &executing(round, at(5_000))).await;
            assert!(seen.insert(version), "version {version} returned");
            let removal = store.remove(&id(1), version).await;
            assert!(seen.insert(removal), "version {removal} returned");
        }
        store = setup.reopen(store).await;
    }
}

/// The zombie, again, across a restart.
pub async fn an_old_version_never_matches_after_reopening<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let removal = store.remove(&id(1), version).await;
    let store = setup.reopen(store).await;
    store.put(&id(1), &executing(2, at(5_000))).await;
    let row = store.row(&id(1)).await;
    for zombie in [version, removal] {
        let late = completed(1, "late");
        let swap = store.swap(&id(1), Some(zombie), Some(&late)).await;
        assert_eq!(lost(swap), Some(row.clone()));
    }
}

/// A lease whose deadline was forgotten is a key that is stuck for ever.
pub async fn deadlines_survive<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for number in 1..=50 {
        store.put(&id(number), &executing(1, at(number))).await;
    }
    let store = setup.reopen(store).await;
    let expected: Vec<_> = (1..=30).map(id).collect();
    assert_eq!(store.due(at(30), 100).await, expected);
}

/// Neither a moved deadline nor that of a removed row may come back.
pub async fn old_deadlines_stay_gone<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let moved = store.put(&id(1), &executing(1, at(5_000))).await;
    store.replace(&id(1), moved, &executing(1, at(9_000))).await;
    let removed = store.put(&id(2), &executing(1, at(5_000))).await;
    store.remove(&id(2), removed).await;
    let store = setup.reopen(store).await;
    assert!(store.due(at(8_999), 10).await.is_empty());
    assert_eq!(store.due(at(u64::MAX), 10).await, [id(1)]);
}

/// Under another secret every key of yesterday is a new one.
pub async fn the_secret_survives<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.secret([1; 32]).await;
    let store = setup.reopen(store).await;
    assert_eq!(store.secret([2; 32]).await, [1; 32]);
}

/// A lease written just before a restart must not come back to life after it.
pub async fn the_clock_is_not_earlier_after_reopening<H: Harness>(setup: &Setup<H>) {
    let mut store = setup.open().await;
    let mut latest = store.now().await;
    for number in 0..5 {
        store.put(&id(number), &executing(1, latest)).await;
        latest = store.now().await;
        store = setup.reopen(store).await;
        let now = store.now().await;
        assert!(now >= latest, "{now} after {latest}");
    }
}

/// What operators see is what there is.
pub async fn a_list_is_the_same_after_reopening<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for number in 0..40 {
        store.put(&id(number), &executing(number, at(5_000))).await;
    }
    let before = store.pages(&Filter::default(), 7).await;
    let store = setup.reopen(store).await;
    assert_eq!(store.pages(&Filter::default(), 7).await, before);
}

/// Many writes share one sync; each of them was acknowledged.
pub async fn every_one_of_2000_concurrent_writes_survives<H: Harness>(setup: &Setup<H>) {
    const TASKS: u64 = 40;
    const ROWS: u64 = 50;
    let store = setup.open().await;
    let tasks = (0..TASKS).map(|task| {
        let store = store.clone();
        async move {
            for row in task * ROWS..(task + 1) * ROWS {
                store.put(&id(row), &executing(row, at(5_000))).await;
            }
        }
    });
    together(tasks).await;
    let store = setup.reopen(store).await;
    for row in 0..TASKS * ROWS {
        same(
            &store.row(&id(row)).await.record,
            &executing(row, at(5_000)),
        );
    }
}

/// What recovery leaves behind must be good enough to recover from.
pub async fn rows_survive_many_reopenings<H: Harness>(setup: &Setup<H>) {
    let mut store = setup.open().await;
    for number in 0..8 {
        store.put(&id(number), &executing(number, at(5_000))).await;
        store = setup.reopen(store).await;
        for earlier in 0..=number {
            let row = store.row(&id(earlier)).await;
            same(&row.record, &executing(earlier, at(5_000)));
        }
    }
}
