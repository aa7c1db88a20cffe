//! What is refused at the start, with a line that names what to change; and what is allowed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use common::{claim, found, open, try_open};
use onlyonce_conformance::servers::free_port;
use onlyonce_conformance::servers::redis::{RedisServer, until};
use onlyonce_conformance::suite::samples::{at, completed, executing, id};
use onlyonce_store::{Store, StoreError, Swap};

/// The one line of a refusal, which must name these.
async fn refusal(url: &str, named: &[&str]) -> String {
    let error = try_open(url).await.expect_err(url).to_string();
    for name in named {
        assert!(error.contains(name), "{error} does not name {name}");
    }
    assert!(!error.contains('\n'), "one line: {error}");
    assert!(!error.contains("hunter2"), "no password: {error}");
    error
}

/// A setting that loses acknowledged claims is refused by name, and allowed by name.
async fn refused_unless_allowed(setting: (&str, &str), change: &str, option: &str) {
    let server = RedisServer::with(&[setting]);
    refusal(&server.url(), &[setting.0, change, option]).await;
    let store = open(&format!("{}?{option}", server.url())).await;
    assert!(!store.profile().durable, "the profile does not say durable");
    let warnings = store.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(setting.0) && warnings[0].contains(option));
    claim(&store, 1).await.expect("it works all the same");
}

#[tokio::test]
async fn a_server_without_an_append_only_file_is_refused() {
    let option = "allow_unsafe_persistence=true";
    refused_unless_allowed(("appendonly", "no"), "set `appendonly yes`", option).await;
}

#[tokio::test]
async fn a_server_that_syncs_every_second_is_refused() {
    let option = "allow_unsafe_persistence=true";
    refused_unless_allowed(
        ("appendfsync", "everysec"),
        "set `appendfsync always`",
        option,
    )
    .await;
}

/// It would not sync while it rewrites its file, although `appendfsync` says `always`.
#[tokio::test]
async fn a_server_that_does_not_sync_during_a_rewrite_is_refused() {
    let option = "allow_unsafe_persistence=true";
    let setting = ("no-appendfsync-on-rewrite", "yes");
    refused_unless_allowed(setting, "set `no-appendfsync-on-rewrite no`", option).await;
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let setting = ("maxmemory-policy", policy);
        let change = "set `maxmemory-policy noeviction`";
        refused_unless_allowed(setting, change, "allow_eviction=true").await;
    }
}

/// An option that allows what is not there changes nothing.
#[tokio::test]
async fn a_safe_server_is_durable_and_gives_no_warning() {
    let server = RedisServer::start();
    let allowing = "?allow_unsafe_persistence=true&allow_eviction=true";
    for options in ["", allowing] {
        let store = open(&format!("{}{options}", server.url())).await;
        assert!(store.profile().durable);
        assert_eq!(store.warnings(), Vec::<String>::new());
    }
}

/// What was checked at the start may be changed later; it is checked again with the next
/// connection, and nothing is claimed until then.
#[tokio::test]
async fn a_setting_that_became_unsafe_is_found_at_the_next_connection() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    claim(&store, 1).await.expect("a claim");
    server.order(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let _ = server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let error = loop {
        match store.load(&id(1)).await {
            Err(StoreError::Unavailable { reason }) if reason.contains("appendfsync") => {
                break reason;
            }
            // The connection's end may not have been noticed yet.
            Ok(_) | Err(_) => tokio::task::yield_now().await,
        }
    };
    assert!(error.contains("set `appendfsync always`"), "{error}");
    server.order(&["CONFIG", "SET", "appendfsync", "always"]);
    found(&store, 1).await.expect("the row");
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_named() {
    let server = RedisServer::with(&[("requirepass", "right")]);
    let port = server.port();
    refusal(&server.url(), &["wants a password", "USER:PASSWORD@"]).await;
    let url = format!("redis://:hunter2@127.0.0.1:{port}");
    refusal(
        &url,
        &["refuses the user or the password", "USER:PASSWORD@"],
    )
    .await;
    let url = format!("redis://nobody:hunter2@127.0.0.1:{port}");
    refusal(&url, &["refuses the user or the password"]).await;
    open(&format!("redis://:right@127.0.0.1:{port}")).await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let server = RedisServer::start();
    refusal(
        &format!("{}/99", server.url()),
        &["number after the /", "databases"],
    )
    .await;
    open(&format!("{}/15", server.url())).await;
}

/// Rows in one database are not those in another.
#[tokio::test]
async fn databases_and_prefixes_are_kept_apart() {
    let server = RedisServer::start();
    for place in ["/0", "/1", "/0?prefix=a", "/0?prefix=b"] {
        let store = open(&format!("{}{place}", server.url())).await;
        assert_eq!(store.load(&id(1)).await, Ok(None), "{place}");
        claim(&store, 1).await.expect("a claim");
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary, &[]);
    refusal(&replica.url(), &["read-only replica", "redis-sentinel://"]).await;
}

/// With replicas and without `wait`, a failover can lose claims: allowed, and said.
#[tokio::test]
async fn replicas_without_wait_are_a_warning() {
    let primary = RedisServer::start();
    let _replica = RedisServer::replica_of(&primary, &[]);
    let store = open(&primary.url()).await;
    let warnings = store.warnings();
    assert!(warnings[0].contains("wait="), "{warnings:?}");
    let waiting = open(&format!("{}?wait=1", primary.url())).await;
    assert_eq!(waiting.warnings(), Vec::<String>::new());
}

/// More replicas than there are would make every write one that may have happened.
#[tokio::test]
async fn waiting_for_replicas_that_are_not_there_is_refused() {
    let server = RedisServer::start();
    let url = format!("{}?wait=1&wait_timeout_ms=50", server.url());
    refusal(&url, &["0 of 1 replicas"]).await;
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_named() {
    let server = RedisServer::start();
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    refusal(&url, &["is not a cluster", "redis://"]).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_named() {
    let port = free_port().to_string();
    let node = RedisServer::with(&[("cluster-enabled", "yes"), ("cluster-port", &port)]);
    refusal(&node.url(), &["node of a cluster", "redis-cluster://"]).await;
    let url = format!("redis-cluster://127.0.0.1:{}", node.port());
    refusal(&url, &["in a cluster"]).await;
}

#[tokio::test]
async fn nobody_there_is_named() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let error = refusal(&url, &[&port.to_string(), "refused"]).await;
    assert!(error.contains("cannot be reached"), "{error}");
    let url = format!("redis-sentinel://127.0.0.1:{port}/main");
    refusal(&url, &["cannot be reached"]).await;
}

#[tokio::test]
async fn a_sentinel_that_is_none_is_named() {
    let server = RedisServer::start();
    let url = format!("redis-sentinel://127.0.0.1:{}/main", server.port());
    refusal(&url, &["SENTINEL"]).await;
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let server = RedisServer::start();
    let url = format!("rediss://127.0.0.1:{}?tls_ca=/nowhere.pem", server.port());
    refusal(&url, &["tls_ca=/nowhere.pem"]).await;
}

/// Each permission that the scripts need is tried out before anything relies on it.
#[tokio::test]
async fn a_missing_permission_is_named() {
    let server = RedisServer::start();
    let url = format!("redis://app:hunter2@127.0.0.1:{}", server.port());
    let grant = |rules: &[&str]| {
        let mut order = vec![
            "ACL",
            "SETUSER",
            "app",
            "reset",
            "on",
            ">hunter2",
            "~onlyonce:*",
        ];
        order.extend(rules);
        server.order(&order);
    };
    let needed = common::PERMISSIONS;
    grant(needed);
    open(&url).await;
    let replica = RedisServer::replica_of(&server, &[]);
    let rules: Vec<_> = needed
        .iter()
        .filter(|rule| **rule != "+pexpire")
        .copied()
        .collect();
    grant(&rules);
    refusal(
        &format!("{url}?wait=1"),
        &["lacks a permission", "ACL SETUSER"],
    )
    .await;
    drop(replica);
    for missing in [
        "+zadd",
        "+getex",
        "+hset",
        "+zrangebylex",
        "+exists",
        "+evalsha",
    ] {
        let rules: Vec<_> = needed
            .iter()
            .filter(|rule| **rule != missing)
            .copied()
            .collect();
        grant(&rules);
        refusal(&url, &["lacks a permission", "ACL SETUSER"]).await;
        assert_eq!(server.cli(&["KEYS", "*:probe:*"]), "", "left by {missing}");
    }
    // What must not be removed is dropped by the server.
    let rules: Vec<_> = needed
        .iter()
        .filter(|rule| **rule != "+del")
        .copied()
        .collect();
    grant(&rules);
    refusal(&url, &["lacks a permission"]).await;
    let keys = server.cli(&["KEYS", "*:probe:*"]);
    let row = keys.lines().find(|key| !key.ends_with(":ids"));
    let left_ms = server.cli(&["PTTL", row.expect("the row")]);
    assert!((1..=60_000).contains(&left_ms.parse().expect("a number")));
    let rules: Vec<_> = needed
        .iter()
        .filter(|rule| **rule != "+config|get")
        .copied()
        .collect();
    grant(&rules);
    refusal(&url, &["+config|get", "allow_unsafe_persistence=true"]).await;
    let store = open(&format!("{url}?allow_unsafe_persistence=true")).await;
    assert!(!store.profile().durable);
    // A key outside the user's pattern.
    grant(needed);
    refusal(&format!("{url}?prefix=other"), &["lacks a permission"]).await;
}

/// A full memory stops claims, and neither replays nor removals.
#[tokio::test]
async fn a_full_memory_is_named_and_writes_nothing() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let answer = completed(1, "answer");
    let Ok(Swap::Won(version)) = store.swap(&id(1), None, Some(&answer)).await else {
        panic!("the first write wins");
    };
    server.order(&["CONFIG", "SET", "maxmemory", "1"]);
    let claim = executing(2, at(5_000));
    let refused = store.swap(&id(2), None, Some(&claim)).await;
    let Err(StoreError::Unavailable { reason }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("maxmemory"), "{reason}");
    assert_eq!(store.load(&id(2)).await, Ok(None));
    let lost = store.swap(&id(1), None, Some(&claim)).await;
    assert!(
        matches!(lost, Ok(Swap::Lost(Some(_)))),
        "a replay: {lost:?}"
    );
    refusal(&server.url(), &["maxmemory"]).await;
    let removed = store.swap(&id(1), Some(version), None).await;
    assert!(matches!(removed, Ok(Swap::Won(_))), "{removed:?}");
}

/// The same where replicas must confirm also what is read.
#[tokio::test]
async fn a_full_memory_stops_no_replays_that_replicas_confirm() {
    let server = RedisServer::start();
    let _replica = RedisServer::replica_of(&server, &[]);
    let store = open(&format!("{}?wait=1", server.url())).await;
    let answer = completed(1, "answer");
    let won = store.swap(&id(1), None, Some(&answer)).await;
    assert!(matches!(won, Ok(Swap::Won(_))), "{won:?}");
    server.order(&["CONFIG", "SET", "maxmemory", "1"]);
    let claim = executing(2, at(5_000));
    let lost = store.swap(&id(1), None, Some(&claim)).await;
    assert!(
        matches!(lost, Ok(Swap::Lost(Some(_)))),
        "a replay: {lost:?}"
    );
    let loaded = store.load(&id(1)).await;
    assert!(matches!(loaded, Ok(Some(_))), "a read: {loaded:?}");
    let refused = store.swap(&id(2), None, Some(&claim)).await;
    let Err(StoreError::Unavailable { reason }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("maxmemory"), "{reason}");
}

/// A newer onlyonce may keep its rows elsewhere: both at once would claim a key twice.
#[tokio::test]
async fn rows_of_another_format_are_refused() {
    let server = RedisServer::start();
    server.order(&["SET", "onlyonce:{0}:format", "9"]);
    refusal(&server.url(), &["format", "upgrade onlyonce"]).await;
}

/// A server that starts is waited for, not failed on.
#[tokio::test]
async fn a_store_comes_back_by_itself() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    claim(&store, 1).await.expect("a claim");
    server.restart();
    until("it answers", || !server.cli(&["PING"]).is_empty());
    let row = found(&store, 1).await;
    assert!(row.is_some());
}
