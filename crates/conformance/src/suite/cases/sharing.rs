//! Two handles to the same data, as two instances have: they must be as good as one.

use std::collections::HashSet;

use onlyonce_store::Filter;

use super::concurrency::{increment, row_of_the_one_winner};
use crate::suite::samples::{at, completed, executing, id};
use crate::suite::{Harness, Setup, lost, same, together};

/// A retry reaches another instance than the first request did.
pub async fn another_handle_sees_every_acknowledged_write<H: Harness>(setup: &Setup<H>) {
    let (one, two) = (setup.open().await, setup.open().await);
    let mut version = one.put(&id(1), &executing(1, at(0))).await;
    for lease_ms in 1..50 {
        let renewed = executing(1, at(lease_ms));
        version = one.replace(&id(1), version, &renewed).await;
        let row = two.row(&id(1)).await;
        same(&row.record, &renewed);
        assert_eq!(row.version, version);
        assert_eq!(two.due(at(lease_ms), 10).await, [id(1)]);
        assert_eq!(two.ids(&Filter::default(), 10).await, [id(1)]);
    }
    one.remove(&id(1), version).await;
    assert_eq!(two.load(&id(1)).await, None);
}

/// What one instance claimed, another may settle: a version means the same to both.
pub async fn a_version_is_good_through_another_handle<H: Harness>(setup: &Setup<H>) {
    let (one, two) = (setup.open().await, setup.open().await);
    let stale = one.put(&id(1), &executing(1, at(5_000))).await;
    two.replace(&id(1), stale, &completed(1, "done")).await;
    let late = completed(1, "late");
    let row = lost(one.swap(&id(1), Some(stale), Some(&late)).await);
    assert_eq!(row, two.load(&id(1)).await);
}

/// The promise of a claim, between instances.
pub async fn of_claims_through_two_handles_one_wins<H: Harness>(setup: &Setup<H>) {
    let handles = [setup.open().await, setup.open().await];
    let claims = (0..64).zip(handles.iter().cycle()).map(|(number, store)| {
        let store = store.clone();
        async move {
            let claim = executing(number, at(5_000));
            (number, store.swap(&id(1), None, Some(&claim)).await)
        }
    });
    let row = row_of_the_one_winner(together(claims).await);
    assert_eq!(handles[0].row(&id(1)).await, row);
    assert_eq!(handles[1].row(&id(1)).await, row);
}

/// And of every other write.
pub async fn increments_through_two_handles_lose_nothing<H: Harness>(setup: &Setup<H>) {
    let handles = [setup.open().await, setup.open().await];
    handles[0].put(&id(1), &executing(1, at(0))).await;
    let tasks = handles.iter().cycle().take(32).map(|store| {
        let store = store.clone();
        async move {
            for _ in 0..5 {
                increment(&store).await;
            }
        }
    });
    together(tasks).await;
    let row = handles[1].row(&id(1)).await;
    same(&row.record, &executing(1, at(32 * 5)));
}

/// Two instances that number their writes each for itself give one version twice.
pub async fn two_handles_never_give_the_same_version<H: Harness>(setup: &Setup<H>) {
    let handles = [setup.open().await, setup.open().await];
    let mut version = handles[0].put(&id(1), &executing(1, at(0))).await;
    let mut seen = HashSet::from([version]);
    for (lease_ms, store) in (1..100).zip(handles.iter().cycle()) {
        let renewed = executing(1, at(lease_ms));
        version = store.replace(&id(1), version, &renewed).await;
        assert!(seen.insert(version), "version {version} returned");
    }
}

/// Two secrets, and one key has two rows.
pub async fn two_handles_agree_on_the_secret<H: Harness>(setup: &Setup<H>) {
    let (one, two) = (setup.open().await, setup.open().await);
    assert_eq!(one.secret([1; 32]).await, [1; 32]);
    assert_eq!(two.secret([2; 32]).await, [1; 32]);
}

/// Instances with skewed clocks must agree when a lease ends: they ask the store.
pub async fn the_clock_is_the_same_through_both_handles<H: Harness>(setup: &Setup<H>) {
    let handles = [setup.open().await, setup.open().await];
    let mut latest = handles[0].now().await;
    for store in handles.iter().cycle().take(1_000) {
        let now = store.now().await;
        assert!(now >= latest, "{now} after {latest}");
        latest = now;
    }
}

/// An instance that stops must not take the data of the others with it.
pub async fn a_closed_handle_leaves_the_other_working<H: Harness>(setup: &Setup<H>) {
    let (one, two) = (setup.open().await, setup.open().await);
    let version = one.put(&id(1), &executing(1, at(5_000))).await;
    let one = setup.reopen(one).await;
    two.replace(&id(1), version, &completed(1, "done")).await;
    same(&one.row(&id(1)).await.record, &completed(1, "done"));
}
