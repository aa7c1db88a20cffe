//! What is particular to this store: round trips, the server's own expiry, its clock, races.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{claim, open};
use onlyonce_conformance::servers::redis::{RedisServer, until};
use onlyonce_conformance::suite::samples::{at, completed, executing, id, record, state};
use onlyonce_conformance::suite::together;
use onlyonce_core::{StateKind, Timestamp};
use onlyonce_store::{Filter, ListStore, Store, Swap};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that counts how often the client had to wait for an answer before it sent more.
async fn counting(target: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let trips = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&trips);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(target).await.expect("the server");
            tokio::spawn(relay(client, server, Arc::clone(&counted)));
        }
    });
    (address, trips)
}

async fn relay(mut client: TcpStream, mut server: TcpStream, trips: Arc<AtomicU64>) {
    let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
    let mut is_waiting = false;
    loop {
        tokio::select! {
            Ok(bytes) = client.read(&mut asked) => {
                if bytes == 0 { return; }
                if !is_waiting { trips.fetch_add(1, Ordering::Relaxed); }
                is_waiting = true;
                if server.write_all(&asked[..bytes]).await.is_err() { return; }
            }
            Ok(bytes) = server.read(&mut answered) => {
                if bytes == 0 { return; }
                is_waiting = false;
                if client.write_all(&answered[..bytes]).await.is_err() { return; }
            }
            else => return,
        }
    }
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let line = server
        .info(&format!("cmdstat_{command}"))
        .unwrap_or_default();
    let calls = line
        .strip_prefix("calls=")
        .and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// One for the claim, one for the completion, one for a loser with its row, one for a load; also
/// when replicas must confirm.
#[tokio::test]
async fn every_operation_is_one_round_trip() {
    let server = RedisServer::start();
    let _replica = RedisServer::replica_of(&server, &[]);
    for options in ["?connections=1", "?wait=1&connections=1"] {
        let _ = server.cli(&["FLUSHALL"]);
        let (address, trips) = counting(server.address()).await;
        let store = open(&format!("redis://{address}{options}")).await;
        // The scripts that the opening did not need are sent with their text once.
        store.load(&id(9)).await.expect("a load");
        let _ = server.cli(&["CONFIG", "RESETSTAT"]);
        let before = trips.load(Ordering::Relaxed);
        let round_trips = || trips.load(Ordering::Relaxed) - before;

        let version = claim(&store, 1).await.expect("a claim");
        assert_eq!(round_trips(), 1, "the claim");
        let answer = completed(1, vec![7; 100_000]);
        let won = store.swap(&id(1), Some(version), Some(&answer)).await;
        assert!(matches!(won, Ok(Swap::Won(_))));
        assert_eq!(round_trips(), 2, "the completion");
        let loser = executing(2, at(5_000));
        let lost = store.swap(&id(1), None, Some(&loser)).await;
        assert!(matches!(lost, Ok(Swap::Lost(Some(_)))));
        assert_eq!(round_trips(), 3, "the replay");
        assert_eq!(calls(&server, "evalsha"), 3);
        store.load(&id(1)).await.expect("a load");
        assert_eq!(round_trips(), 4, "the load");
        assert_eq!(calls(&server, "eval"), 0);
    }
}

/// A server that takes no more connections is still used by those that there are.
#[tokio::test]
async fn one_connection_serves_when_no_other_can_be_made() {
    let server = RedisServer::start();
    let store = open(&format!("redis://{}", server.address())).await;
    // The first is from opening.
    let _ = server.cli(&["CONFIG", "SET", "maxclients", "1"]);
    for number in 1..=20 {
        claim(&store, number).await.expect("a claim");
    }
}

const HOUR_MS: u64 = 3_600_000;

/// Slower than any machine is between a write and a look at it.
const SLOWNESS_MS: u64 = 60_000;

/// In how many milliseconds the server drops a row by itself; `None` when never.
fn drops_in_ms(server: &RedisServer, number: u64) -> Option<u64> {
    server.cli(&["PTTL", &key(number)]).parse().ok()
}

/// The server's own expiry is for when no engine runs. It waits for the row's deadline and the
/// grace, and never takes a row whose outcome is not known.
#[tokio::test]
async fn only_settled_rows_are_left_to_the_servers_expiry() {
    let server = RedisServer::start();
    let store = open(&format!("{}?expiry_grace_s=7200", server.url())).await;
    let now = store.now().await.expect("now");
    let deadline = now.after(Duration::from_millis(HOUR_MS));
    for (number, kind) in (0..).zip(StateKind::ALL) {
        for (number, deadline) in [
            (number, deadline),
            (number + 100, Timestamp::from_millis(u64::MAX)),
        ] {
            let mut row = record(number, state(kind, deadline));
            row.updated_at = now;
            let won = store.swap(&id(number), None, Some(&row)).await;
            assert!(matches!(won, Ok(Swap::Won(_))));
            if kind.is_settled() && deadline.as_millis() != u64::MAX {
                let left = drops_in_ms(&server, number).expect("it is dropped once");
                let expected = 3 * HOUR_MS - SLOWNESS_MS..=3 * HOUR_MS;
                assert!(expected.contains(&left), "{kind:?}: {left}");
            } else {
                assert_eq!(drops_in_ms(&server, number), None, "{kind:?}");
            }
        }
    }
    // A settled row that is claimed again is not settled any more.
    let number = 3;
    let row = store.load(&id(number)).await.expect("load").expect("a row");
    assert!(row.record.state.kind().is_settled());
    let again = executing(1, at(5_000));
    let won = store
        .swap(&id(number), Some(row.version), Some(&again))
        .await;
    assert!(matches!(won, Ok(Swap::Won(_))));
    assert_eq!(drops_in_ms(&server, number), None);
}

/// In a cluster the clock that decides is another node's. A node that is two days ahead of it must
/// not drop an answer that was promised for a day, and one that is behind must not keep it for
/// days. A deadline that has passed already leaves the grace.
#[tokio::test]
async fn a_node_with_a_wrong_clock_drops_no_row_early() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let here = store.now().await.expect("now").as_millis();
    let days = |days: u64| days * 24 * HOUR_MS;
    for (number, decided_at, deadline, expected) in [
        (1, here - days(2), here - days(1), days(1) + HOUR_MS),
        (2, here + days(2), here + days(3), days(1) + HOUR_MS),
        (3, here, here - days(1), HOUR_MS),
    ] {
        let mut row = record(number, state(StateKind::Completed, at(deadline)));
        row.updated_at = at(decided_at);
        let won = store.swap(&id(number), None, Some(&row)).await;
        assert!(matches!(won, Ok(Swap::Won(_))));
        let left = drops_in_ms(&server, number).expect("it is dropped once");
        assert!(
            (expected - SLOWNESS_MS..=expected).contains(&left),
            "{number}: {left}"
        );
    }
}

fn key(number: u64) -> String {
    let id = id(number);
    let bytes = id.as_bytes().iter();
    let hex = bytes
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat();
    format!("onlyonce:{{{}}}:r:{hex}", id.as_bytes()[0] / 4)
}

/// Indexes that kept what the server dropped would grow for ever.
#[tokio::test]
async fn a_row_that_the_server_dropped_leaves_the_indexes() {
    const ROWS: u64 = 300;
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for number in 0..ROWS {
        let expired = record(number, state(StateKind::Released, at(number)));
        let won = store.swap(&id(number), None, Some(&expired)).await;
        assert!(matches!(won, Ok(Swap::Won(_))));
    }
    // As if their grace were over.
    let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
                  redis.call('PEXPIRE', key, 1) end";
    let _ = server.cli(&["EVAL", script, "0", "onlyonce:*:r:*"]);
    claim(&store, ROWS).await.expect("a claim");
    let rows = || {
        server.cli(&[
            "--raw",
            "EVAL",
            "return #redis.call('KEYS', ARGV[1])",
            "0",
            "onlyonce:*:r:*",
        ])
    };
    until("the server drops what is settled", || rows() == "1");
    assert!(indexed(&server) > 2, "the indexes do not know yet");
    let due = store.due(at(u64::MAX), 1_000).await.expect("due");
    assert_eq!(due, [id(ROWS)]);
    assert_eq!(indexed(&server), 2, "one row, in both indexes");
    // A key whose row was dropped is free again.
    claim(&store, 7).await.expect("a claim");
}

/// A list finds them as well.
#[tokio::test]
async fn a_list_leaves_out_what_the_server_dropped() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for number in 0..20 {
        claim(&store, number).await.expect("a claim");
    }
    for number in 0..10 {
        let _ = server.cli(&["DEL", &key(number)]);
    }
    let page = store
        .list(&Filter::default(), None, 100)
        .await
        .expect("a list");
    assert_eq!(page.entries.len(), 10);
    assert_eq!(page.next, None);
    assert_eq!(indexed(&server), 20, "ten rows, in both indexes");
}

/// Operators look every few seconds at what waits: not for the price of all that does not. A user
/// who may not ask which rows the server may drop sees the same, for more.
#[tokio::test]
async fn a_list_of_what_is_not_settled_reads_no_other_rows() {
    const ROWS: u64 = 3_000;
    let server = RedisServer::start();
    let url = format!("redis://app:hunter2@127.0.0.1:{}", server.port());
    let user = ["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "+@all"];
    server.order(&user);
    let store = open(&url).await;
    let settled = (0..ROWS).map(|number| (id(number), completed(number, "ch_1")));
    for (id, record) in settled {
        let _ = store.swap(&id, None, Some(&record)).await.expect("a row");
    }
    for number in ROWS..ROWS + 5 {
        claim(&store, number).await.expect("a claim");
    }
    let filter = Filter {
        unsettled: true,
        ..Filter::default()
    };
    let reads = || {
        let stats = server.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_get:"));
        let calls = line.and_then(|line| line.strip_prefix("cmdstat_get:calls="));
        let calls = calls.and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    for (rule, reads_at_most) in [("+pttl", 5), ("-pttl", ROWS + 5)] {
        server.order(&["ACL", "SETUSER", "app", rule]);
        let (before, mut found, mut after) = (reads(), Vec::new(), None);
        loop {
            let page = store.list(&filter, after, 2).await.expect("a list");
            found.extend(page.entries.iter().map(|entry| entry.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 5, "{rule}");
        assert!(found.is_sorted());
        let all = reads() - before;
        // A page ends where it is full, so the next one may look at some rows again.
        assert!(all <= reads_at_most * 3, "{all} reads with {rule}");
    }
}

/// The number of entries in all indexes.
fn indexed(server: &RedisServer) -> u64 {
    let script = "local n = 0 for _, name in ipairs({'due', 'ids'}) do \
                  for _, key in ipairs(redis.call('KEYS', 'onlyonce:*:' .. name)) do \
                  n = n + redis.call('ZCARD', key) end end return n";
    server
        .cli(&["--raw", "EVAL", script, "0"])
        .parse()
        .expect("a number")
}

/// Setting the server's clock back neither revives a lease nor stops the time.
#[tokio::test]
async fn time_goes_on_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let now = store.now().await.expect("now").as_millis();
    // As if the clock had been an hour ahead until this moment.
    let ahead = now + 3_600_000;
    let set = [
        "HSET",
        "onlyonce:{0}:clock",
        "given",
        &ahead.to_string(),
        "clock",
        &ahead.to_string(),
    ];
    let _ = server.cli(&set);
    let mut latest = store.now().await.expect("now").as_millis();
    assert!((ahead..ahead + 60_000).contains(&latest));
    let start = latest;
    while latest < start + 20 {
        let next = store.now().await.expect("now").as_millis();
        assert!(next >= latest, "{next} after {latest}");
        latest = next;
    }
}

/// Four instances, the same keys, at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn of_four_stores_racing_on_each_key_one_wins() {
    const KEYS: u64 = 200;
    let server = RedisServer::start();
    let mut racers = Vec::new();
    for racer in 0..4 {
        let store = open(&server.url()).await;
        racers.push(async move {
            let mut won = Vec::new();
            for number in 0..KEYS {
                let claim = executing(racer, at(5_000));
                match store
                    .swap(&id(number), None, Some(&claim))
                    .await
                    .expect("a swap")
                {
                    Swap::Won(version) => won.push((number, version)),
                    Swap::Lost(row) => assert!(row.is_some()),
                }
            }
            won
        });
    }
    let mut won = together(racers).await.concat();
    won.sort_unstable();
    let numbers: Vec<_> = won.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..KEYS).collect::<Vec<_>>());
}

/// A sweep after a long pause: many are due, in few shards, and the earliest must come first.
#[tokio::test(flavor = "multi_thread")]
async fn the_earliest_come_first_however_unevenly_they_are_spread() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    // All in one shard, and a few elsewhere in between.
    let crowded = |number: u16| {
        let mut bytes = [0; 32];
        bytes[30..].copy_from_slice(&number.to_be_bytes());
        onlyonce_core::RecordId::from_bytes(bytes)
    };
    let mut expected = Vec::new();
    for number in 0..400_u16 {
        let id = if number % 10 == 0 {
            id(number.into())
        } else {
            crowded(number)
        };
        let claim = executing(1, at(number.into()));
        let won = store.swap(&id, None, Some(&claim)).await;
        assert!(matches!(won, Ok(Swap::Won(_))));
        expected.push(id);
    }
    for limit in [1, 50, 200, 399, 1_000] {
        let due = store.due(at(10_000), limit).await.expect("due");
        assert_eq!(due, expected[..limit.min(400)], "limit {limit}");
    }
}
