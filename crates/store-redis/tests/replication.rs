//! Failovers. What the documentation promises is what happens: with `wait` an acknowledged claim
//! is there afterwards; without it, it can be lost.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use common::{Tally, claim, open, patiently, try_open};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::redis::{RedisSentinels, RedisServer};
use onlyonce_conformance::suite::samples::{completed, id};
use onlyonce_store::{Store, StoreError};

/// Where a confirmation must come, however busy the machine is.
const PATIENTLY: &str = "wait=1&wait_timeout_ms=30000&timeout_ms=40000";

/// A primary, and a replica whose stream from it can be cut.
async fn pair() -> (RedisServer, RedisServer, FaultProxy) {
    let primary = RedisServer::start();
    let proxy = FaultProxy::start(primary.address()).expect("a proxy");
    let (host, port) = ("127.0.0.1", proxy.address().port());
    let replica = tokio::task::spawn_blocking(move || {
        let replica = RedisServer::with(&[("replicaof", &format!("{host} {port}"))]);
        replica.until_in_step();
        replica
    });
    let replica = replica.await.expect("a replica");
    primary.until_confirmed();
    (primary, replica, proxy)
}

/// The replica is behind and becomes the primary.
fn fail_over(primary: &mut RedisServer, replica: &RedisServer) {
    primary.kill();
    replica.promote();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_wait_an_acknowledged_claim_survives_a_failover() {
    let (mut primary, replica, _proxy) = pair().await;
    let store = open(&format!("{}?{PATIENTLY}", primary.url())).await;
    let mut acknowledged = HashMap::new();
    for number in 0..100 {
        acknowledged.insert(number, claim(&store, number).await.expect("a claim"));
    }
    fail_over(&mut primary, &replica);
    let promoted = open(&replica.url()).await;
    for (number, version) in acknowledged {
        let row = promoted.load(&id(number)).await.expect("a load");
        assert_eq!(row.map(|row| row.version), Some(version));
    }
}

/// The replica does not get the claim, so the claim does not count; and after the failover it is
/// as if it had never been made.
#[tokio::test(flavor = "multi_thread")]
async fn with_wait_a_claim_that_the_replica_lacks_is_not_acknowledged() {
    let (mut primary, replica, proxy) = pair().await;
    let store = open(&format!("{}?wait=1&wait_timeout_ms=1000", primary.url())).await;
    claim(&store, 1).await.expect("a claim");
    proxy.set(Plan::to_client(Fault::Blackhole)).await;
    let lagging = claim(&store, 2).await.expect_err("nobody confirms it");
    assert!(matches!(lagging, StoreError::Ambiguous { .. }), "{lagging}");
    assert!(lagging.to_string().contains("0 of 1"), "{lagging}");
    // Nor is anybody shown what may be lost.
    let shown = store.load(&id(2)).await.expect_err("nobody confirms it");
    assert!(!shown.may_have_written(), "{shown}");
    fail_over(&mut primary, &replica);
    let promoted = open(&replica.url()).await;
    assert!(promoted.load(&id(1)).await.expect("a load").is_some());
    assert_eq!(promoted.load(&id(2)).await, Ok(None));
}

/// Keys that were tried while the replica was away must not stay in doubt: nothing was executed for
/// them. Only the first was written before anybody knew.
#[tokio::test(flavor = "multi_thread")]
async fn with_wait_nothing_is_claimed_while_the_replica_is_away() {
    let (primary, _replica, proxy) = pair().await;
    let url = format!("{}?wait=1&wait_timeout_ms=1000", primary.url());
    let store = open(&url).await;
    let version = claim(&store, 1).await.expect("a claim");
    proxy.set(Plan::to_client(Fault::Pause)).await;
    let first = claim(&store, 2).await.expect_err("nobody confirms it");
    assert!(first.may_have_written(), "{first}");
    let later = (3..40).map(|number| claim(&store, number));
    for refused in futures_util::future::join_all(later).await {
        let refused = refused.expect_err("nobody would confirm it");
        assert!(!refused.may_have_written(), "{refused}");
        assert!(refused.to_string().contains("0 of 1"), "{refused}");
    }
    // What was executed is written down all the same.
    let answer = completed(1, "answer");
    let written = store.swap(&id(1), Some(version), Some(&answer)).await;
    let written = written.expect_err("nobody confirms it");
    assert!(written.may_have_written(), "{written}");
    // Nor does a start leave anything behind.
    let refused = try_open(&url).await.expect_err("nobody confirms it");
    assert!(refused.to_string().contains("0 of 1"), "{refused}");
    assert_eq!(primary.cli(&["KEYS", "*:probe:*"]), "");
    proxy.mend().await;
    // A number of its own for each attempt: one that is not confirmed in time may be written.
    let mut numbers = 100..;
    patiently(|| claim(&store, numbers.next().expect("a number"))).await;
    for number in 3..40 {
        let row = patiently(|| async { store.load(&id(number)).await }).await;
        assert_eq!(row, None, "{number} was not written");
    }
}

/// The loss that the warning speaks of is real. Versions do not return all the same: the stale
/// holder's can never match what came after.
#[tokio::test(flavor = "multi_thread")]
async fn without_wait_a_failover_can_lose_an_acknowledged_claim() {
    let (mut primary, replica, proxy) = pair().await;
    let store = open(&primary.url()).await;
    assert!(store.warnings()[0].contains("a failover can lose acknowledged claims"));
    claim(&store, 1).await.expect("a claim");
    let waiting = open(&format!("{}?{PATIENTLY}", primary.url())).await;
    waiting.load(&id(1)).await.expect("the replica has it");
    proxy.set(Plan::to_client(Fault::Blackhole)).await;
    let lost = claim(&store, 2).await.expect("acknowledged");
    fail_over(&mut primary, &replica);
    let promoted = open(&replica.url()).await;
    assert!(promoted.load(&id(1)).await.expect("a load").is_some());
    assert_eq!(
        promoted.load(&id(2)).await,
        Ok(None),
        "acknowledged, and gone"
    );
    let again = claim(&promoted, 2).await.expect("free again");
    assert_ne!(again, lost, "a version never returns");
}

/// A primary that was demoted answers nothing from the past.
#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_primary_serves_nothing() {
    let (primary, replica, _proxy) = pair().await;
    let store = open(&primary.url()).await;
    claim(&store, 1).await.expect("a claim");
    replica.promote();
    let port = replica.port().to_string();
    primary.order(&["REPLICAOF", "127.0.0.1", &port]);
    for _ in 0..2 {
        let error = store.load(&id(1)).await.expect_err("it is a replica");
        assert!(error.to_string().contains("read-only replica"), "{error}");
        let error = claim(&store, 2).await.expect_err("it is a replica");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        let due = store.due(onlyonce_core::Timestamp::ZERO, 1).await;
        assert!(due.is_err(), "{due:?}");
    }
}

/// The primary dies under load; the sentinels choose another; the store follows.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_move_the_store_to_the_new_primary() {
    let mut servers = tokio::task::spawn_blocking(RedisSentinels::start)
        .await
        .expect("sentinels");
    let store = open(&format!("{}?wait=1", servers.url())).await;
    let ids: Vec<_> = (0..32).map(id).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(Tally::increment(
                store.clone(),
                ids.clone(),
                Arc::clone(&stop),
            ))
        })
        .collect();
    for id in &ids {
        while patiently(|| store.load(id)).await.is_none() {
            tokio::task::yield_now().await;
        }
    }
    let old = servers.servers[0].port();
    servers.servers[0].kill();
    tokio::task::block_in_place(|| {
        servers.until_moved_from(old);
        // The new primary needs a replica before anything counts again.
        servers.servers[0].restart();
    });
    // A number of its own for each attempt: one that was not answered may have been written.
    let mut numbers = 1_000..;
    patiently(|| {
        let (store, number) = (store.clone(), numbers.next().expect("a number"));
        async move { claim(&store, number).await }
    })
    .await;
    stop.store(true, Relaxed);
    let mut tally = Tally::default();
    for writer in writers {
        tally.add(writer.await.expect("a writer"));
    }
    println!(
        "{} won, {} ambiguous, {} refused",
        tally.won.len(),
        tally.ambiguous.len(),
        tally.refused
    );
    assert!(tally.refused > 0, "the failover was noticed");
    tally.check(&store, &ids).await;
}
