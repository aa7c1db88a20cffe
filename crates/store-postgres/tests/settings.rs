//! What a server promises can be changed while it runs, and a commit is worth what it waits for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{client, migrated, migrated_with, open, options};
use onlyonce_conformance::servers::postgres::{
    Postgres, PostgresOptions as ServerOptions, binary, url_at,
};
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_store::{Store, StoreError, Swap};
use onlyonce_store_postgres::{PostgresOptions, PostgresStore, migrate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Far more than any of these limits; a test that needs it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn claim(store: &PostgresStore, number: u64) -> Result<Swap, StoreError> {
    let claim = executing(number, at(5_000));
    store.swap(&id(number), None, Some(&claim)).await
}

/// Changes a setting of the running server, and waits until sessions have it.
async fn set(server: &Postgres, name: &str, value: &str) {
    let operator = client(server).await;
    let change = format!("ALTER SYSTEM SET {name} = '{value}'");
    operator.batch_execute(&change).await.unwrap();
    let reload = "SELECT pg_reload_conf()";
    operator.batch_execute(reload).await.unwrap();
    let shown = async {
        let show = format!("SHOW {name}");
        while operator
            .query_one(&show, &[])
            .await
            .unwrap()
            .get::<_, &str>(0)
            != value
        {}
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap();
}

/// An acknowledged claim that a crash takes back is a request that runs twice.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_become_careless_under_a_running_store_are_not_the_stores() {
    // What is not synced by its commit is not synced for a long time.
    let lazy = ServerOptions::default().setting("wal_writer_delay", "10000");
    let mut server = migrated_with(&lazy).await;
    let store = open(&server).await;
    assert!(claim(&store, 1).await.is_ok());
    set(&server, "synchronous_commit", "off").await;
    for number in 2..10 {
        assert!(matches!(claim(&store, number).await, Ok(Swap::Won(_))));
    }
    server.kill();
    server.restart();
    let store = open(&server).await;
    for number in 1..10 {
        let row = store.load(&id(number)).await.unwrap();
        assert!(row.is_some(), "{number} was acknowledged and is gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn syncs_that_are_turned_off_under_a_running_store_are_noticed() {
    let syncing = ServerOptions {
        fsync: true,
        ..ServerOptions::default()
    };
    for setting in ["fsync", "full_page_writes"] {
        let server = Postgres::with(&syncing);
        let mut strict = PostgresOptions::from_url(&server.url()).unwrap();
        strict.ask_again_after = Duration::from_millis(100);
        migrate(&strict).await.unwrap();
        let store = PostgresStore::open(&strict).await.unwrap();
        assert!(claim(&store, 1).await.is_ok());
        set(&server, setting, "off").await;
        let refused = async {
            loop {
                if let Err(error) = claim(&store, 2).await {
                    return error;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let error = tokio::time::timeout(PATIENCE, refused).await.unwrap();
        assert!(error.to_string().contains(setting), "{error}");
        assert!(!error.may_have_written(), "{error}");
        set(&server, setting, "on").await;
        let back = async {
            while claim(&store, 2).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.unwrap();
    }
}

/// A connection asks twice, and what it is told first is judged. Kept was what it is told then: a
/// server that had stopped syncing in between was used for ever.
#[tokio::test(flavor = "multi_thread")]
async fn syncs_that_are_turned_off_while_a_connection_is_made_are_noticed() {
    let syncing = ServerOptions {
        fsync: true,
        ..ServerOptions::default()
    };
    let server = Postgres::with(&syncing);
    let direct = PostgresOptions::from_url(&server.url()).unwrap();
    migrate(&direct).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = url_at(listener.local_addr().unwrap());
    let changing = async {
        loop {
            let (mut asks, mut asked) = listener.accept().await.unwrap().0.into_split();
            let real = tokio::net::TcpStream::connect(server.address()).await;
            let (mut answers, mut answered) = real.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut asked).await });
            let mut bytes = vec![0; 65_536];
            while let Ok(count) = asks.read(&mut bytes).await
                && count > 0
            {
                let part = &bytes[..count];
                let second = b"SET synchronous_commit = ";
                if part.windows(second.len()).any(|window| window == second) {
                    set(&server, "fsync", "off").await;
                }
                answered.write_all(part).await.unwrap();
            }
        }
    };
    let strict = PostgresOptions::from_url(&through).unwrap();
    let error = tokio::select! {
        opened = PostgresStore::open(&strict) => opened.unwrap_err(),
        () = changing => unreachable!("it serves on"),
    };
    assert!(error.to_string().contains("settings changed"), "{error}");
}

/// Whoever has a standby that is to be waited for waits for it: what is on the primary alone is
/// lost in the failover that the standby is for.
#[tokio::test(flavor = "multi_thread")]
async fn local_commits_wait_for_a_standby_that_is_named() {
    let server = migrated().await;
    set(&server, "synchronous_commit", "local").await;
    let mut options = options(&server.url());
    options.statement_timeout = Duration::from_millis(200);
    let store = PostgresStore::open(&options).await.unwrap();
    assert!(claim(&store, 1).await.is_ok());
    set(&server, "synchronous_standby_names", "nobody").await;
    let store = PostgresStore::open(&options).await.unwrap();
    let error = claim(&store, 2).await.unwrap_err();
    assert!(error.may_have_written(), "{error}");
    set(&server, "synchronous_standby_names", "").await;
}

fn warns(store: &PostgresStore, of: &str) -> bool {
    store.warnings().iter().any(|line| line.contains(of))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_may_lose_claims_is_warned_of() {
    let of = "synchronous_standby_names";
    let server = migrated().await;
    assert!(!warns(&open(&server).await, of));
    let place = server.address().to_string();
    let two = server.url().replace(&place, &format!("{place},{place}"));
    let store = PostgresStore::open(&options(&two)).await.unwrap();
    assert!(warns(&store, of));
    // Somebody else has a standby.
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Command::new(binary("pg_receivewal"))
        .args(["--no-password", "--no-sync", "--dbname", &server.url()])
        .arg("--directory")
        .arg(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let warned = async { while !warns(&open(&server).await, of) {} };
    let warned = tokio::time::timeout(PATIENCE, warned).await;
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    warned.expect("a warning");
}

/// Without it nobody can see which statements the server still works on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_show_its_work_is_warned_of() {
    let hidden = ServerOptions::default().setting("track_activities", "off");
    let server = migrated_with(&hidden).await;
    assert!(warns(&open(&server).await, "track_activities"));
}
