//! Which server a connection leads to: one that is silent is left, and nothing is left behind there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{client, migrated, options};
use onlyonce_conformance::servers::postgres::{Postgres, PostgresOptions as ServerOptions, url_at};
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_store::{Store, StoreError, Swap};
use onlyonce_store_postgres::{OpenError, PostgresStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Far more than any of these limits; a test that needs it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The URL of several servers, in this order.
fn url_of(servers: &[&Postgres]) -> String {
    let places: Vec<_> = servers.iter().map(|server| server.address()).collect();
    let places: Vec<_> = places.iter().map(ToString::to_string).collect();
    let first = servers[0];
    let one = first.address().to_string();
    first.url().replace(&one, &places.join(","))
}

async fn claim(store: &PostgresStore, number: u64) -> Result<Swap, StoreError> {
    let claim = executing(number, at(5_000));
    store.swap(&id(number), None, Some(&claim)).await
}

/// Claims until one gets through.
async fn until_it_works(store: &PostgresStore, number: u64) {
    let trying = async {
        while claim(store, number).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let works = tokio::time::timeout(PATIENCE, trying).await;
    works.expect("the store is back");
}

/// A line that passes the login, and swallows every query.
async fn swallow_queries(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            tokio::spawn(async move { login(from_client, to_server).await });
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
            });
        }
    });
    address
}

/// Passes what a client sends up to its first query. Whoever ends the connection is heard.
async fn login(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
    // The first message has no type.
    let mut tag = None;
    loop {
        let length = from.read_u32().await.ok()?;
        let mut rest = vec![0; length as usize - 4];
        from.read_exact(&mut rest).await.ok()?;
        if tag.is_none_or(|tag| tag == b'p') {
            to.write_all(tag.as_slice()).await.ok()?;
            to.write_all(&length.to_be_bytes()).await.ok()?;
            to.write_all(&rest).await.ok()?;
        }
        tag = Some(from.read_u8().await.ok()?);
    }
}

/// A gateway that tries again and again must not fill the server with connections that it gave up.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs_after_the_login_is_closed() {
    const TRIES: usize = 5;
    let server = migrated().await;
    let address = swallow_queries(server.address()).await;
    let url = format!("{}?sslmode=disable&application_name=hung", url_at(address));
    let mut options = options(&url);
    options.connect_timeout = Duration::from_millis(300);
    for _ in 0..TRIES {
        let error = PostgresStore::open(&options).await.unwrap_err();
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    }
    let operator = client(&server).await;
    let gone = async {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hung'";
        while operator
            .query_one(count, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            > 0
        {}
    };
    let gone = tokio::time::timeout(Duration::from_secs(10), gone).await;
    gone.expect("the server is told that they are over");
}

/// A host that neither answers nor refuses, such as one whose power is cut, must not stand before
/// the one that was promoted in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_host_does_not_stand_before_the_others() {
    let (silent, server) = (migrated().await, migrated().await);
    let mut options = options(&url_of(&[&silent, &server]));
    options.connect_timeout = Duration::from_millis(500);
    options.statement_timeout = Duration::from_millis(500);
    let store = PostgresStore::open(&options).await.unwrap();
    let _ = claim(&store, 1).await.unwrap();
    silent.freeze();
    until_it_works(&store, 2).await;
    assert!(store.load(&id(2)).await.unwrap().is_some());
    let opened = PostgresStore::open(&options).await.unwrap();
    assert!(opened.load(&id(2)).await.unwrap().is_some());
    assert!(opened.load(&id(1)).await.unwrap().is_none());
    silent.thaw();
}

/// A primary, and a standby with the same data, which can be promoted.
async fn primary_and_standby() -> (Postgres, Postgres) {
    let mut primary = migrated().await;
    primary.stop();
    let standby = ServerOptions {
        standby: true,
        ..ServerOptions::default()
    };
    let standby = primary.copy(&standby);
    primary.restart();
    (primary, standby)
}

async fn promote(standby: &Postgres) {
    let operator = client(standby).await;
    let promote = "SELECT pg_promote(wait => true)";
    assert!(
        operator
            .query_one(promote, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
}

/// The primary from before a failover comes back as it was: it knows nothing of the keys that were
/// settled since, and they would run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_from_before_a_failover_is_refused() {
    let (mut old, mut new) = primary_and_standby().await;
    let options = options(&url_of(&[&old, &new]));
    let store = PostgresStore::open(&options).await.unwrap();
    until_it_works(&store, 1).await;
    old.kill();
    promote(&new).await;
    until_it_works(&store, 2).await;
    old.restart();
    new.stop();
    let refused = async {
        loop {
            match claim(&store, 3).await {
                Err(error) if error.to_string().contains("timeline 1") => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(swap) => panic!("{swap:?} on the old primary"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(store.load(&id(2)).await.is_err());
    new.restart();
    until_it_works(&store, 4).await;
    assert!(store.load(&id(2)).await.unwrap().is_some());
}

/// A gateway that is started while both take writes uses the one that was promoted.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_primaries_the_later_timeline_is_used() {
    let (old, new) = primary_and_standby().await;
    promote(&new).await;
    for url in [url_of(&[&old, &new]), url_of(&[&new, &old])] {
        let store = PostgresStore::open(&options(&url)).await.unwrap();
        let _ = claim(&store, 1).await.unwrap();
    }
    let alone = PostgresStore::open(&options(&old.url())).await.unwrap();
    assert_eq!(alone.load(&id(1)).await.unwrap(), None);
}

/// The old primary was cut off from whoever promoted the new one, and not from the gateways: nothing
/// breaks there, and other gateways are on the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_replaced_and_lives_on_is_left() {
    let (old, new) = primary_and_standby().await;
    let mut options = options(&url_of(&[&old, &new]));
    options.ask_again_after = Duration::from_millis(100);
    let store = PostgresStore::open(&options).await.unwrap();
    let _ = claim(&store, 1).await.unwrap();
    promote(&new).await;
    let there = PostgresStore::open(&common::options(&new.url()))
        .await
        .unwrap();
    let moved = async {
        let mut number = 2;
        loop {
            let is_claimed = claim(&store, number).await.is_ok();
            if is_claimed && there.load(&id(number)).await.unwrap().is_some() {
                return;
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.unwrap();
    for number in 10_000..10_020 {
        until_it_works(&store, number).await;
        assert!(there.load(&id(number)).await.unwrap().is_some());
    }
}

/// A managed server may refuse to say: then it is used as before, with a warning where it matters.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_say_its_timeline_is_used() {
    let server = migrated().await;
    let hide = "ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO hidden";
    client(&server).await.batch_execute(hide).await.unwrap();
    let (one, two) = (server.url(), url_of(&[&server, &server]));
    for (url, is_told) in [(one, false), (two, true)] {
        let store = PostgresStore::open(&options(&url)).await.unwrap();
        let warnings = store.warnings();
        let told = warnings.iter().any(|line| line.contains("timeline"));
        assert_eq!(told, is_told, "{warnings:?}");
        assert!(claim(&store, 1).await.is_ok());
    }
}

/// A line that passes one connection, and is silent on the others.
async fn pass_one(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
        let mut silent = Vec::new();
        loop {
            silent.push(listener.accept().await.unwrap());
        }
    });
    address
}

/// What waits for a connection that is being made could go on one that is there.
#[tokio::test(flavor = "multi_thread")]
async fn claims_do_not_wait_for_connections_that_are_being_made() {
    let server = migrated().await;
    let address = pass_one(server.address()).await;
    let mut options = options(&format!("{}?sslmode=disable", url_at(address)));
    options.connect_timeout = PATIENCE;
    let store = PostgresStore::open(&options).await.unwrap();
    let claims = async {
        for round in 0..10 {
            let mut claims = JoinSet::new();
            for number in 0..32 {
                let store = store.clone();
                claims.spawn(async move { claim(&store, round * 100 + number).await });
            }
            assert!(claims.join_all().await.iter().all(Result::is_ok));
        }
    };
    let answered = tokio::time::timeout(PATIENCE / 2, claims).await;
    answered.expect("one connection is enough");
}
