//! Versions: whoever expects one expects one exact write, for ever.

use std::collections::HashSet;

use onlyonce_store::Version;

use crate::suite::samples::{at, completed, executing, id};
use crate::suite::{Harness, Setup, lost, same, won};

/// The holder of a key must be able to settle it.
pub async fn the_right_version_wins<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let answer = completed(1, "done");
    let settled = store.swap(&id(1), Some(version), Some(&answer)).await;
    let settled = won(settled);
    let row = store.row(&id(1)).await;
    same(&row.record, &answer);
    assert_eq!(row.version, settled);
}

/// An executor that lost its lease must not overwrite what came after it.
pub async fn a_stale_version_loses_to_the_newer_row<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let stale = store.put(&id(1), &executing(1, at(5_000))).await;
    store.replace(&id(1), stale, &completed(2, "newer")).await;
    let newer = store.row(&id(1)).await;
    let late = completed(1, "late");
    let swap = store.swap(&id(1), Some(stale), Some(&late)).await;
    assert_eq!(lost(swap), Some(newer.clone()));
    assert_eq!(store.row(&id(1)).await, newer);
}

/// No number is a master key.
pub async fn a_version_that_was_never_given_loses<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let next = completed(2, "forged");
    let near = [version.0.wrapping_add(1), version.0.wrapping_sub(1)];
    for forged in [0, u64::MAX].into_iter().chain(near) {
        if forged == version.0 {
            continue;
        }
        let swap = store.swap(&id(1), Some(Version(forged)), Some(&next)).await;
        assert!(lost(swap).is_some(), "version {forged}");
    }
    assert_eq!(store.row(&id(1)).await.version, version);
}

/// A reader's version must be good for the next write.
pub async fn a_loaded_version_is_the_one_that_the_swap_gave<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut given = store.put(&id(1), &executing(1, at(5_000))).await;
    for lease_ms in 5_001..5_010 {
        assert_eq!(store.row(&id(1)).await.version, given);
        let renewed = executing(1, at(lease_ms));
        given = store.replace(&id(1), given, &renewed).await;
    }
}

/// Two renewals in one millisecond write the same bytes; the first one's version is stale all
/// the same.
pub async fn a_swap_to_the_identical_record_makes_a_new_version<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let row = executing(1, at(5_000));
    let first = store.put(&id(1), &row).await;
    let second = store.replace(&id(1), first, &row).await;
    assert_ne!(first, second);
    assert_eq!(store.row(&id(1)).await.version, second);
    let _ = lost(store.swap(&id(1), Some(first), Some(&row)).await);
}

/// A version that returned would let a stale writer through.
pub async fn every_write_of_a_row_has_another_version<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut version = store.put(&id(1), &executing(1, at(5_000))).await;
    let mut seen = HashSet::from([version]);
    for lease_ms in 0..200 {
        let renewed = executing(1, at(lease_ms));
        version = store.replace(&id(1), version, &renewed).await;
        assert!(seen.insert(version), "version {version} returned");
    }
}

/// A counter kept in the row starts again when the row is removed, and a zombie then acts on
/// its successor.
pub async fn a_row_written_again_has_a_version_never_seen<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut seen = HashSet::new();
    for round in 0..50 {
        let version = store.put(&id(1), &executing(round, at(5_000))).await;
        assert!(seen.insert(version), "version {version} returned");
        let removal = store.remove(&id(1), version).await;
        assert!(seen.insert(removal), "version {removal} returned");
    }
}

/// The zombie itself: it wakes after its row was removed and claimed by somebody else.
pub async fn an_old_version_never_matches_a_successor<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut old = Vec::new();
    for round in 0..20 {
        let version = store.put(&id(1), &executing(round, at(5_000))).await;
        let row = store.row(&id(1)).await;
        for zombie in &old {
            let late = completed(99, "zombie");
            let swap = store.swap(&id(1), Some(*zombie), Some(&late)).await;
            assert_eq!(lost(swap), Some(row.clone()));
            let swap = store.swap(&id(1), Some(*zombie), None).await;
            assert_eq!(lost(swap), Some(row.clone()));
        }
        old.extend([version, store.remove(&id(1), version).await]);
    }
}

/// A removal is acknowledged with a version so that a log can name it; no row ever has it.
pub async fn the_version_of_a_removal_matches_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    let removal = store.remove(&id(1), version).await;
    let late = completed(1, "late");
    let swap = store.swap(&id(1), Some(removal), Some(&late)).await;
    assert_eq!(lost(swap), None);
    let successor = executing(2, at(5_000));
    let version = store.put(&id(1), &successor).await;
    assert_ne!(version, removal);
    let swap = store.swap(&id(1), Some(removal), Some(&late)).await;
    assert!(lost(swap).is_some());
}
