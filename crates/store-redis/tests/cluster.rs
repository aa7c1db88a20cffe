//! A real cluster of three primaries and three replicas.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use common::{Server, Tally, open, patiently};
use onlyonce_conformance::servers::redis::RedisCluster;
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_conformance::suite::{self, Outcome};
use onlyonce_core::RecordId;
use onlyonce_store::{Filter, ListStore, Store, Swap};
use onlyonce_store_redis::RedisStore;

/// Starting a cluster takes seconds, so every case shares one.
#[test]
fn every_case_of_the_suite_holds_on_a_cluster() {
    let cluster = RedisCluster::start();
    let url = format!("{}?prefix=", cluster.url());
    let harness = Server::new(cluster, url);
    let mut broken = Vec::new();
    let cases = suite::all::<Server<RedisCluster>>();
    for case in &cases {
        let outcome = case.check(harness.clone());
        println!("{case:?}: {outcome:?}");
        if outcome != Outcome::Held {
            broken.push(format!("{case:?}: {outcome:?}"));
        }
    }
    assert!(cases.len() > 100, "{} cases", cases.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Writers that add to rows until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<Tally>>,
}

impl Load {
    async fn start(store: &RedisStore, ids: &[RecordId]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..8)
            .map(|_| Tally::increment(store.clone(), ids.to_vec(), Arc::clone(&stop)))
            .map(tokio::spawn)
            .collect();
        for id in ids {
            while patiently(|| store.load(id)).await.is_none() {
                tokio::task::yield_now().await;
            }
        }
        Self { stop, writers }
    }

    async fn end(self) -> Tally {
        self.stop.store(true, Relaxed);
        let mut tally = Tally::default();
        for writer in self.writers {
            tally.add(writer.await.expect("a writer"));
        }
        println!(
            "{} won, {} ambiguous, {} refused: {:#?}",
            tally.won.len(),
            tally.ambiguous.len(),
            tally.refused,
            tally.reasons
        );
        tally
    }
}

/// Each row counts on a little more.
async fn until_each_moves(store: &RedisStore, ids: &[RecordId]) {
    for id in ids {
        let version = |row: Option<onlyonce_store::Row>| row.map(|row| row.version);
        let before = version(patiently(|| store.load(id)).await);
        while version(patiently(|| store.load(id)).await) == before {
            tokio::task::yield_now().await;
        }
    }
}

/// A primary dies under load. Its replica takes over; nothing acknowledged is lost, and no
/// version is won twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_under_load_loses_nothing_acknowledged() {
    let mut cluster = RedisCluster::start();
    let store = open(&format!("{}?wait=1", cluster.url())).await;
    let ids: Vec<_> = (0..48).map(id).collect();
    let load = Load::start(&store, &ids).await;
    cluster.nodes[0].kill();
    tokio::task::block_in_place(|| {
        cluster.until_primary(3);
        // The new primary needs a replica before anything counts again.
        cluster.nodes[0].restart();
    });
    until_each_moves(&store, &ids).await;
    let tally = load.end().await;
    assert!(tally.refused > 0, "the failover was noticed");
    tally.check(&store, &ids).await;
}

/// A slot moves to another node with its rows and indexes, under load.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_under_load_loses_nothing() {
    let cluster = RedisCluster::start();
    let store = open(&cluster.url()).await;
    // All of one shard: rows, deadlines and ids move together.
    let ids: Vec<_> = (0..40)
        .map(|number| {
            let mut bytes = *id(number).as_bytes();
            bytes[0] = 7 * 4;
            RecordId::from_bytes(bytes)
        })
        .collect();
    let load = Load::start(&store, &ids).await;
    let slot = cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", "onlyonce:{7}:due"]);
    let slot: u16 = slot.parse().expect("a slot");
    let from = RedisCluster::first_owner(slot);
    for (from, to) in [(from, (from + 1) % 3), ((from + 1) % 3, (from + 2) % 3)] {
        tokio::task::block_in_place(|| cluster.move_slot(slot, from, to));
        until_each_moves(&store, &ids).await;
    }
    let tally = load.end().await;
    assert!(
        tally.ambiguous.is_empty(),
        "a move proves what was not done"
    );
    tally.check(&store, &ids).await;
    let mut due = patiently(|| store.due(at(u64::MAX), 1_000)).await;
    due.sort_unstable();
    let mut expected = ids.clone();
    expected.sort_unstable();
    assert_eq!(
        due, expected,
        "every row is still in the index of deadlines"
    );
    let page = store
        .list(&Filter::default(), None, 100)
        .await
        .expect("a list");
    let listed: Vec<_> = page.entries.iter().map(|entry| entry.id).collect();
    assert_eq!(listed, expected);
}

/// Slots that are shared out anew are followed by redirections, without opening the store again.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_follows_a_planned_failover() {
    let cluster = RedisCluster::start();
    let store = open(&cluster.url()).await;
    let ids: Vec<_> = (0..48).map(id).collect();
    let load = Load::start(&store, &ids).await;
    for replica in 3..6 {
        tokio::task::block_in_place(|| {
            cluster.fail_over_to(replica);
        });
    }
    until_each_moves(&store, &ids).await;
    // A planned failover waits for the replica: nothing is lost even without `wait`.
    load.end().await.check(&store, &ids).await;
}

/// What is due on the servers that are left is swept, whatever became of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_down_does_not_hide_what_is_due_elsewhere() {
    let mut cluster = RedisCluster::with(&[("cluster-require-full-coverage", "no")]);
    let store = open(&format!(
        "{}?timeout_ms=500&wait_timeout_ms=100",
        cluster.url()
    ))
    .await;
    let ids: Vec<_> = (0..48).map(id).collect();
    for (id, number) in ids.iter().zip(0..) {
        let claim = executing(number, at(5_000));
        let won = store.swap(id, None, Some(&claim)).await;
        assert!(matches!(won, Ok(Swap::Won(_))), "{won:?}");
    }
    // Its replica first, which would take over.
    cluster.nodes[3].kill();
    cluster.nodes[0].kill();
    let due = patiently(|| store.due(at(5_000), 100)).await;
    let mut left = Vec::new();
    for id in &ids {
        if store.load(id).await.is_ok() {
            left.push(*id);
        }
    }
    assert!((1..ids.len()).contains(&left.len()), "{}", left.len());
    assert!(left.iter().all(|id| due.contains(id)), "{due:?}, {left:?}");
    // Nobody may take it for an empty store because of the servers that answer.
    let unknown = store.due(at(0), 100).await;
    assert!(unknown.is_err(), "{unknown:?}");
}
