//! An append-only file counts only once it was rewritten for the first time. Whoever claims before
//! that, on a server that says `appendonly yes`, loses the claim in a crash.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::process::Command;

use common::{claim, found, open, patiently, try_open};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::redis::{RedisServer, until};
use onlyonce_conformance::suite::samples::id;
use onlyonce_store::Store;

/// Makes every rewrite last: 20 ms for each key, and there are [`KEYS`].
const SLOW: (&str, &str) = ("rdb-key-save-delay", "20000");

/// Makes a rewrite outlast its test.
const ENDLESS: (&str, &str) = ("rdb-key-save-delay", "1000000");

const KEYS: u32 = 200;

/// Something to rewrite.
fn fill(server: &RedisServer) {
    let filling = format!("for i = 1, {KEYS} do redis.call('SET', 'k' .. i, i) end return 'OK'");
    server.order(&["EVAL", &filling, "0"]);
}

fn rewrites(server: &RedisServer) -> bool {
    server.info("aof_rewrite_in_progress").as_deref() == Some("1")
}

/// Switched on by hand, as the refusal of `appendonly no` asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_after_the_file_was_switched_on_survives_a_crash() {
    let mut server = RedisServer::with(&[SLOW]);
    server.order(&["CONFIG", "SET", "appendonly", "no"]);
    fill(&server);
    server.order(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(rewrites(&server), "the first rewrite is slow");
    let store = open(&server.url()).await;
    claim(&store, 1).await.expect("a claim");
    server.restart();
    assert!(found(&store, 1).await.is_some(), "acknowledged, and gone");
}

/// A replica that has just copied everything is chosen in a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_on_a_replica_that_was_just_promoted_survives_a_crash() {
    let mut primary = RedisServer::start();
    fill(&primary);
    let mut replica = RedisServer::replica_of(&primary, &[SLOW]);
    replica.promote();
    primary.kill();
    assert!(rewrites(&replica), "the first rewrite is slow");
    let store = open(&replica.url()).await;
    claim(&store, 1).await.expect("a claim");
    // It starts as a replica of a primary that is gone.
    replica.restart();
    replica.promote();
    assert!(found(&store, 1).await.is_some(), "acknowledged, and gone");
}

/// A primary that was a replica for a moment has copied everything anew. Connections from before must
/// not be used as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_on_a_primary_that_was_a_replica_meanwhile_survives_a_crash() {
    let mut server = RedisServer::with(&[SLOW]);
    let other = RedisServer::start();
    fill(&other);
    let store = open(&server.url()).await;
    for number in 1..8 {
        claim(&store, number).await.expect("on every connection");
    }
    server.order(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    server.until_in_step();
    let error = store.load(&id(1)).await.expect_err("it is a replica");
    assert!(error.to_string().contains("read-only"), "{error}");
    server.promote();
    assert!(rewrites(&server), "the first rewrite is slow");
    patiently(|| claim(&store, 9)).await;
    server.restart();
    assert!(found(&store, 9).await.is_some(), "acknowledged, and gone");
}

/// A running store does not fail while its server does what it does every day.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_connects_again_during_a_later_rewrite() {
    let server = RedisServer::with(&[ENDLESS]);
    fill(&server);
    // The process that rewrites has the server's sockets too, so one that the server closes stays.
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let store = open(&format!("redis://{}", proxy.address())).await;
    claim(&store, 1).await.expect("a claim");
    let _ = server.cli(&["BGREWRITEAOF"]);
    until("it rewrites", || rewrites(&server));
    proxy.set(Plan::both(Fault::ResetAfter(0))).await;
    proxy
        .until(|counts| counts.ended == counts.connections)
        .await;
    proxy.mend().await;
    assert!(found(&store, 1).await.is_some());
    assert!(rewrites(&server), "it connected meanwhile");
}

/// Nobody knows whether a rewrite that failed was the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_that_failed_is_named() {
    let server = RedisServer::with(&[ENDLESS]);
    fill(&server);
    let _ = server.cli(&["BGREWRITEAOF"]);
    until("it rewrites", || rewrites(&server));
    end_child_of(&server);
    until("it failed", || {
        server.info("aof_last_bgrewrite_status").as_deref() == Some("err")
    });
    let refused = try_open(&server.url()).await.expect_err("it failed");
    let refused = refused.to_string();
    assert!(refused.contains("BGREWRITEAOF"), "{refused}");
    assert!(
        refused.contains("allow_unsafe_persistence=true"),
        "{refused}"
    );
    server.order(&["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    let _ = server.cli(&["BGREWRITEAOF"]);
    until("it succeeded", || {
        server.info("aof_last_bgrewrite_status").as_deref() == Some("ok")
    });
    open(&server.url()).await;
}

/// Kills the process that rewrites.
fn end_child_of(server: &RedisServer) {
    let process = server.info("process_id").expect("its id");
    let children = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(children).expect("its children");
    for child in children.split_whitespace() {
        let killed = Command::new("kill").args(["-KILL", child]).status();
        assert!(killed.expect("kill starts").success());
    }
}
