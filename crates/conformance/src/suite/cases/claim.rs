//! The conditional write: who wins, who loses, and what a loser learns.

use onlyonce_core::StateKind;
use onlyonce_store::{Store, Version};

use crate::suite::samples::{at, completed, executing, id, record, state};
use crate::suite::{Harness, Setup, lost, same, won};

/// A key that was never seen must not look like one that was.
pub async fn a_load_of_nothing_is_none<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    assert_eq!(store.load(&id(1)).await, None);
}

/// The claim itself.
pub async fn a_swap_that_expects_nothing_writes_the_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.round_trip(&id(1), &executing(1, at(5_000))).await;
}

/// Two callers with one key: the second must not execute.
pub async fn a_swap_that_expects_nothing_loses_to_a_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &executing(1, at(5_000))).await;
    let second = executing(2, at(6_000));
    assert!(lost(store.swap(&id(1), None, Some(&second)).await).is_some());
}

/// A loser decides from the row it lost to, without reading again: that row may have changed.
pub async fn a_lost_swap_returns_the_row_and_its_version<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let first = completed(1, "first");
    let version = store.put(&id(1), &first).await;
    let second = executing(2, at(6_000));
    let swap = store.swap(&id(1), None, Some(&second)).await;
    let row = lost(swap).expect("the loser learns the row");
    same(&row.record, &first);
    assert_eq!(row.version, version);
}

/// A loser that wrote anyway would replace the answer that others replay.
pub async fn a_lost_swap_changes_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &completed(1, "first")).await;
    let before = store.row(&id(1)).await;
    let second = executing(2, at(6_000));
    let _ = lost(store.swap(&id(1), None, Some(&second)).await);
    assert_eq!(store.row(&id(1)).await, before);
}

/// A stalled caller that evicts its key must not evict its successor's.
pub async fn a_lost_removal_changes_nothing_and_returns_the_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let stale = store.put(&id(1), &executing(1, at(5_000))).await;
    store.replace(&id(1), stale, &completed(2, "kept")).await;
    let row = store.row(&id(1)).await;
    let swap = store.swap(&id(1), Some(stale), None).await;
    assert_eq!(lost(swap), Some(row.clone()));
    assert_eq!(store.row(&id(1)).await, row);
}

/// A removal without a version means "if there is none": it is not a forced one.
pub async fn a_removal_that_expects_nothing_loses_to_a_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.put(&id(1), &completed(1, "kept")).await;
    let row = store.row(&id(1)).await;
    assert_eq!(
        lost(store.swap(&id(1), None, None).await),
        Some(row.clone())
    );
    assert_eq!(store.row(&id(1)).await, row);
}

/// What was to be removed is not there, as was expected.
pub async fn a_removal_that_expects_nothing_wins_where_there_is_nothing<H: Harness>(
    setup: &Setup<H>,
) {
    let store = setup.open().await;
    let _ = won(store.swap(&id(1), None, None).await);
    assert_eq!(store.load(&id(1)).await, None);
    assert!(store.due(at(u64::MAX), 10).await.is_empty());
}

/// A completion whose row was purged must not come back to life.
pub async fn a_swap_that_expects_a_row_loses_to_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    let late = completed(1, "late");
    assert_eq!(
        lost(store.swap(&id(1), Some(version), Some(&late)).await),
        None
    );
    assert_eq!(store.load(&id(1)).await, None);
}

/// Of two sweeps that purge one row, one must learn that it came second.
pub async fn a_removal_that_expects_a_row_loses_to_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    assert_eq!(lost(store.swap(&id(1), Some(version), None).await), None);
}

/// A version alone does not make a row: nothing was ever written under this id.
pub async fn an_id_that_was_never_written_loses_to_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let next = completed(2, "stray");
    for expected in [Version(0), version, Version(u64::MAX)] {
        let swap = store.swap(&id(2), Some(expected), Some(&next)).await;
        assert_eq!(lost(swap), None);
    }
    assert_eq!(store.load(&id(2)).await, None);
}

/// Evicted means as if it had never been there.
pub async fn a_removed_row_is_gone<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &completed(1, "gone")).await;
    store.remove(&id(1), version).await;
    assert_eq!(store.load(&id(1)).await, None);
}

/// A request that was rejected before execution may be corrected and sent under the same key.
pub async fn a_removed_id_can_be_claimed_again<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.remove(&id(1), version).await;
    store.round_trip(&id(1), &executing(2, at(6_000))).await;
}

/// A key's whole life, as a good day goes.
pub async fn a_claim_is_renewed_completed_and_purged<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let claimed = store.put(&id(1), &executing(1, at(5_000))).await;
    let renewed = store
        .replace(&id(1), claimed, &executing(1, at(9_000)))
        .await;
    let answer = completed(1, "done");
    let settled = store.replace(&id(1), renewed, &answer).await;
    same(&store.row(&id(1)).await.record, &answer);
    store.remove(&id(1), settled).await;
    assert_eq!(store.load(&id(1)).await, None);
}

/// One key's writes must never show under another.
pub async fn rows_do_not_touch_each_other<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for number in 0..50 {
        store.put(&id(number), &executing(number, at(5_000))).await;
    }
    for number in (0..50).step_by(2) {
        let row = store.row(&id(number)).await;
        store.remove(&id(number), row.version).await;
    }
    for number in 0..50 {
        let found = store.load(&id(number)).await.map(|row| *row.record);
        let expected = (number % 2 == 1).then(|| executing(number, at(5_000)));
        assert_eq!(found, expected, "row {number}");
    }
}

/// The store has no rules: that a row is past its time is for the engine to say, which may keep
/// it for audit and must never forget one whose effect may have happened.
pub async fn a_row_past_its_deadline_is_still_there<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, kind) in (0..).zip(StateKind::ALL) {
        let past = record(number, state(kind, at(1)));
        store.put(&id(number), &past).await;
        same(&store.row(&id(number)).await.record, &past);
        let claim = executing(99, at(5_000));
        let swap = store.swap(&id(number), None, Some(&claim)).await;
        assert!(lost(swap).is_some(), "{kind:?} still holds its id");
    }
}

/// The engine chooses its order of reads and writes, and people their trust, by the profile.
pub async fn the_profile_has_a_name_and_agrees_with_the_harness<H: Harness>(setup: &Setup<H>) {
    let profile = setup.open().await.store().profile();
    assert!(!profile.name.is_empty(), "profile().name");
    assert_eq!(profile.durable, H::DURABLE, "profile().durable");
    assert_eq!(profile.shared, H::SHARED, "profile().shared");
}
