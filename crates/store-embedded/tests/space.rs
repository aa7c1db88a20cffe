//! Disk space is given back, and what was removed does not rise again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use onlyonce_core::{Record, RecordId};
use onlyonce_store::{Store, Swap, Version};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};
use proptest::prelude::*;

const MIB: u64 = 1024 * 1024;

async fn write_rows(store: &EmbeddedStore, numbers: std::ops::Range<u64>) -> Vec<Version> {
    let tasks: Vec<_> = numbers
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                win(&store, &id(number), None, Some(&completed(number, 4096))).await
            })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.push(task.await.unwrap());
    }
    versions
}

async fn remove(store: &EmbeddedStore, rows: Vec<(RecordId, Version)>) {
    let tasks: Vec<_> = rows
        .into_iter()
        .map(|(id, version)| {
            let store = store.clone();
            tokio::spawn(async move { win(&store, &id, Some(version), None).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn wait_until_below(folder: &std::path::Path, bytes: u64) -> u64 {
    for _ in 0..400 {
        if folder_bytes(folder) < bytes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    folder_bytes(folder)
}

/// Retention is worth nothing if the disk fills up all the same. Here the sweep removes what is
/// due, as in production, and the old files go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_shrinks_when_the_sweep_has_removed_most_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 8 * MIB);
    let versions = write_rows(&store, 0..20_000).await;
    let full = folder_bytes(folder.path());
    assert!(full > 80 * MIB, "{full}");
    let mut removed = 0;
    loop {
        let due = store.due(at(19_000), 1000).await.unwrap();
        if due.is_empty() {
            break;
        }
        let mut rows = Vec::new();
        for id in due {
            rows.push((id, store.load(&id).await.unwrap().unwrap().version));
        }
        removed += rows.len();
        remove(&store, rows).await;
    }
    assert_eq!(removed, 19_001);
    let left = wait_until_below(folder.path(), full / 4).await;
    assert!(left < full / 4, "{left} of {full}");
    drop(store);
    let store = open_small(folder.path(), 8 * MIB);
    for number in 0..20_000 {
        let row = store.load(&id(number)).await.unwrap();
        let expected = (number > 19_000).then(|| versions[usize::try_from(number).unwrap()]);
        assert_eq!(row.map(|row| row.version), expected, "row {number}");
    }
}

/// One row that is kept for years must not keep a whole log of dead ones: it is moved. It keeps
/// its version, or whoever loaded it before could not settle it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lived_rows_among_dead_ones_are_moved_and_keep_their_versions() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), MIB);
    let versions = write_rows(&store, 0..8_000).await;
    let letter = win(&store, &id(99_999), None, Some(&unknown(5))).await;
    let full = folder_bytes(folder.path());
    let rows = (0..8_000_u64)
        .filter(|number| number % 10 != 0)
        .map(|number| (id(number), versions[usize::try_from(number).unwrap()]));
    remove(&store, rows.collect()).await;
    let left = wait_until_below(folder.path(), full / 3).await;
    assert!(left < full / 3, "{left} of {full}");
    assert!(store.stats().rows_moved > 0);
    check_kept(&store, &versions, letter).await;
    drop(store);
    let store = open_small(folder.path(), MIB);
    check_kept(&store, &versions, letter).await;
    // A moved row is due when it was due before.
    let due = store.due(at(8_000), 10_000).await.unwrap();
    assert_eq!(due.len(), 801);
}

async fn check_kept(store: &EmbeddedStore, versions: &[Version], letter: Version) {
    for number in 0..8_000_u64 {
        let row = store.load(&id(number)).await.unwrap();
        let version = versions[usize::try_from(number).unwrap()];
        let expected = number.is_multiple_of(10).then_some(version);
        assert_eq!(row.map(|row| row.version), expected, "row {number}");
    }
    let row = store.load(&id(99_999)).await.unwrap().unwrap();
    assert_eq!((row.version, *row.record), (letter, unknown(5)));
}

#[derive(Debug, Clone)]
enum Step {
    Write { key: u8, kind: u8, body: u16 },
    Remove { key: u8 },
    LoseTo { key: u8 },
    Reopen,
    ForgetHints,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..12_u8, 0..4_u8, 0..600_u16)
            .prop_map(|(key, kind, body)| Step::Write { key, kind, body }),
        3 => (0..12_u8).prop_map(|key| Step::Remove { key }),
        1 => (0..12_u8).prop_map(|key| Step::LoseTo { key }),
        1 => Just(Step::Reopen),
        1 => Just(Step::ForgetHints),
    ];
    prop::collection::vec(step, 1..120)
}

fn row(kind: u8, body: u16) -> Record {
    let body = usize::from(body);
    match kind {
        0 => executing(body as u64),
        1 => unknown(body as u64),
        2 => released(body as u64),
        _ => completed(body as u64, body),
    }
}

async fn run(folder: &std::path::Path, steps: Vec<Step>) {
    let options = EmbeddedOptions {
        segment_bytes_max: 1500,
        dead_bytes_max: 0,
        ..EmbeddedOptions::new(folder)
    };
    let mut store = EmbeddedStore::open(&options).unwrap();
    let mut model: BTreeMap<u8, (Record, Version)> = BTreeMap::new();
    let mut latest = Version(0);
    for step in steps {
        match step {
            Step::Write { key, kind, body } => {
                let expected = model.get(&key).map(|(_, version)| *version);
                let next = row(kind, body);
                let version = win(&store, &id(key.into()), expected, Some(&next)).await;
                assert!(version > latest, "a version came again");
                latest = version;
                model.insert(key, (next, version));
            }
            Step::Remove { key } => {
                let expected = model.remove(&key).map(|(_, version)| version);
                let version = win(&store, &id(key.into()), expected, None).await;
                assert!(version > latest, "a version came again");
                latest = version;
            }
            Step::LoseTo { key } => {
                let stale = Some(Version(u64::MAX));
                let lost = store.swap(&id(key.into()), stale, None).await.unwrap();
                let Swap::Lost(lost) = lost else {
                    panic!("won with a version that was never given");
                };
                let lost = lost.map(|row| (*row.record, row.version));
                assert_eq!(lost.as_ref(), model.get(&key));
            }
            Step::Reopen => {
                drop(store);
                store = EmbeddedStore::open(&options).unwrap();
            }
            Step::ForgetHints => {
                drop(store);
                for file in std::fs::read_dir(folder.join("log")).unwrap() {
                    let path = file.unwrap().path();
                    if path
                        .extension()
                        .is_some_and(|extension| extension == "hint")
                    {
                        std::fs::remove_file(path).unwrap();
                    }
                }
                store = EmbeddedStore::open(&options).unwrap();
            }
        }
    }
    for key in 0..12 {
        let row = store.load(&id(key.into())).await.unwrap();
        let row = row.map(|row| (*row.record, row.version));
        assert_eq!(row.as_ref(), model.get(&key));
    }
    let mut due: Vec<_> = store.due(at(1000), 100).await.unwrap();
    due.sort();
    let mut expected: Vec<_> = model.keys().map(|key| id((*key).into())).collect();
    expected.sort();
    assert_eq!(due, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Cleaning, reopening and lost hints must never change what the store says: a removed row
    /// that rises again replays a forgotten answer, a lost one runs a request twice.
    #[test]
    fn the_store_says_what_a_map_would_say_through_cleaning_and_reopening(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(folder.path(), steps));
    }
}
