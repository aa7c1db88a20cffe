//! Servers that are killed, frozen, cut off and emptied of scripts.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{claim, found, open, patiently};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_conformance::suite::samples::{at, completed, executing, id};
use onlyonce_store::{Store, StoreError, Swap};

/// A store whose operations end soon, behind a proxy.
async fn behind(proxy: &FaultProxy) -> onlyonce_store_redis::RedisStore {
    open(&format!(
        "redis://{}?timeout_ms=700&connect_timeout_ms=700",
        proxy.address()
    ))
    .await
}

/// A claim that was acknowledged and forgotten is an effect that happens twice.
#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_kill_9() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    let mut acknowledged = HashMap::new();
    for round in 0..3_u64 {
        let (numbers, mut claims) = (round * 1_000..(round + 1) * 1_000, Vec::new());
        for number in numbers {
            let store = store.clone();
            claims.push(tokio::spawn(async move {
                (number, claim(&store, number).await)
            }));
        }
        // In the middle of them.
        let first = claims.remove(0).await.expect("a task");
        claims.push(tokio::spawn(async move { first }));
        server.kill();
        for claim in claims {
            match claim.await.expect("a task") {
                (number, Ok(version)) => drop(acknowledged.insert(number, version)),
                (_, Err(error)) => assert!(error.is_transient(), "{error}"),
            }
        }
        server.restart();
        for (number, version) in &acknowledged {
            let row = found(&store, *number).await;
            assert_eq!(row.map(|row| row.version), Some(*version), "claim {number}");
        }
    }
    assert!(acknowledged.len() >= 3, "each round acknowledged some");
}

/// A frozen server must not freeze its callers.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_ends_in_an_error_and_recovers() {
    let server = RedisServer::start();
    // With more of them it depends on whose turn it is what is sent.
    let impatient = "timeout_ms=700&connect_timeout_ms=700&connections=1";
    let store = open(&format!("{}?{impatient}", server.url())).await;
    claim(&store, 1).await.expect("a claim");
    server.freeze();
    let write = claim(&store, 2).await.expect_err("nobody answers");
    assert!(write.may_have_written(), "it was sent: {write}");
    let read = store.load(&id(1)).await.expect_err("nobody answers");
    assert!(!read.may_have_written(), "{read}");
    // A new connection is accepted by the system, and no server greets it.
    let later = claim(&store, 3).await.expect_err("nobody answers");
    assert!(!later.may_have_written(), "it was never sent: {later}");
    server.thaw();
    assert!(found(&store, 1).await.is_some());
    assert!(found(&store, 3).await.is_none(), "never sent");
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable_and_not_ambiguous() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    server.kill();
    // The first may have been sent into the closing connection.
    let _ = claim(&store, 1).await.expect_err("nobody is there");
    for number in 2..20 {
        let error = claim(&store, number).await.expect_err("nobody is there");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    server.restart();
    patiently(|| claim(&store, 20)).await;
    assert_eq!(store.load(&id(2)).await, Ok(None));
}

/// The write happened and its answer did not arrive. The store says so, sends it no second time,
/// and a later read tells the truth.
#[tokio::test]
async fn a_cut_after_the_request_is_ambiguous_and_a_load_tells() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let store = behind(&proxy).await;
    let version = claim(&store, 1).await.expect("a claim");
    proxy.set(Plan::cut_the_answer()).await;
    let answer = completed(1, "done");
    let cut = store.swap(&id(1), Some(version), Some(&answer)).await;
    assert!(matches!(cut, Err(StoreError::Ambiguous { .. })), "{cut:?}");
    proxy.mend().await;
    let row = found(&store, 1).await.expect("the row");
    assert_eq!(*row.record, answer);
    assert_ne!(row.version, version);
    let again = store.swap(&id(1), Some(version), Some(&answer)).await;
    assert!(matches!(again, Ok(Swap::Lost(Some(_)))), "{again:?}");
}

/// The request never arrived; that looks the same from here.
#[tokio::test]
async fn a_request_that_is_swallowed_is_ambiguous_and_a_load_tells() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let store = behind(&proxy).await;
    proxy.set(Plan::to_server(Fault::Blackhole)).await;
    let swallowed = claim(&store, 1).await;
    assert!(
        matches!(swallowed, Err(StoreError::Ambiguous { .. })),
        "{swallowed:?}"
    );
    proxy.mend().await;
    assert_eq!(found(&store, 1).await, None);
    patiently(|| claim(&store, 1)).await;
}

#[tokio::test]
async fn a_refused_connection_is_unavailable() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let store = behind(&proxy).await;
    let both = Plan {
        refuse: true,
        ..Plan::both(Fault::ResetAfter(0))
    };
    proxy.set(both).await;
    let _ = store.load(&id(1)).await.expect_err("the connection ends");
    for number in 1..5 {
        let error = claim(&store, number).await.expect_err("nobody listens");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    proxy.mend().await;
    patiently(|| claim(&store, 1)).await;
}

/// A slow server is not a failed one.
#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let store = behind(&proxy).await;
    proxy
        .set(Plan::to_client(Fault::Delay(Duration::from_millis(50))))
        .await;
    claim(&store, 1).await.expect("a claim");
}

/// Scripts are forgotten by a flush and by a restart; the store sends them again.
#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    claim(&store, 1).await.expect("a claim");
    server.order(&["SCRIPT", "FLUSH"]);
    claim(&store, 2).await.expect("a claim without its script");
    assert_eq!(store.due(at(5_000), 10).await.expect("due").len(), 2);
    server.restart();
    found(&store, 1).await.expect("the row");
    claim(&store, 3).await.expect("a claim without its script");
    store.now().await.expect("the time");
    assert_eq!(store.due(at(5_000), 10).await.expect("due").len(), 3);
}

/// A row that somebody wrote over is not "no row".
#[tokio::test]
async fn a_damaged_row_is_corrupt_and_can_be_removed() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let version = claim(&store, 1).await.expect("a claim");
    let keys = server.cli(&["KEYS", "onlyonce:*:r:*"]);
    let _ = server.cli(&["SETRANGE", &keys, "20", "damage"]);
    let expected = StoreError::Corrupt {
        version,
        reason: "the record's checksum does not match: it is damaged or stands under another id"
            .into(),
    };
    assert_eq!(store.load(&id(1)).await, Err(expected.clone()));
    let next = executing(2, at(5_000));
    assert_eq!(store.swap(&id(1), None, Some(&next)).await, Err(expected));
    let removed = store.swap(&id(1), Some(version), None).await;
    assert!(matches!(removed, Ok(Swap::Won(_))), "{removed:?}");
    assert_eq!(store.load(&id(1)).await, Ok(None));
}

/// Nor is one that somebody emptied: a claim there would run what was run before.
#[tokio::test]
async fn an_emptied_row_is_corrupt() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    claim(&store, 1).await.expect("a claim");
    let key = server.cli(&["KEYS", "onlyonce:*:r:*"]);
    for rest in ["", "short"] {
        server.order(&["SET", &key, rest]);
        let loaded = store.load(&id(1)).await;
        let Err(StoreError::Corrupt { version, .. }) = loaded else {
            panic!("{rest:?}: {loaded:?}");
        };
        let next = executing(2, at(5_000));
        let claimed = store.swap(&id(1), None, Some(&next)).await;
        assert!(
            matches!(claimed, Err(StoreError::Corrupt { .. })),
            "{claimed:?}"
        );
        let removed = store.swap(&id(1), Some(version), None).await;
        assert!(matches!(removed, Ok(Swap::Won(_))), "{removed:?}");
        assert_eq!(store.load(&id(1)).await, Ok(None));
    }
}
