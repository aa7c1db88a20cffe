//! The server dies, stops, vanishes or refuses: errors come in bounded time and tell the truth.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::time::Duration;

use common::{client, migrated, migrated_with, open, options};
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::postgres::{Postgres, PostgresOptions as ServerOptions, url_at};
use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_store::{Store, StoreError, Swap, Version};
use onlyonce_store_postgres::PostgresStore;
use tokio::task::JoinSet;

/// Far more than any of these limits; a test that needs it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn impatient(url: &str) -> PostgresStore {
    let mut options = options(url);
    options.statement_timeout = Duration::from_millis(500);
    options.connect_timeout = Duration::from_secs(2);
    PostgresStore::open(&options).await.unwrap()
}

async fn claim(store: &PostgresStore, number: u64) -> Result<Swap, StoreError> {
    let claim = executing(number, at(5_000));
    let row = id(number);
    let swap = store.swap(&row, None, Some(&claim));
    tokio::time::timeout(PATIENCE, swap)
        .await
        .expect("an answer")
}

/// Claims until one gets through.
async fn until_it_works(store: &PostgresStore, number: u64) {
    let trying = async {
        while claim(store, number).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, trying)
        .await
        .expect("the store is back");
}

/// Every connection that was open is used up after a while; after that nothing is sent.
async fn nothing_can_be_sent(store: &PostgresStore, number: u64) -> StoreError {
    const CONNECTIONS: usize = 4;
    for _ in 0..=CONNECTIONS {
        let error = claim(store, number).await.unwrap_err();
        if !error.may_have_written() {
            return error;
        }
    }
    panic!("more connections than there can be");
}

fn won(swap: Result<Swap, StoreError>) -> Version {
    match swap {
        Ok(Swap::Won(version)) => version,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_is_survived() {
    let mut server = migrated().await;
    let store = open(&server).await;
    let version = won(claim(&store, 1).await);
    server.stop();
    let refused = claim(&store, 2).await.unwrap_err();
    assert!(refused.is_transient());
    assert!(store.load(&id(1)).await.is_err());
    server.restart();
    until_it_works(&store, 3).await;
    let row = store.load(&id(1)).await.unwrap().unwrap();
    assert_eq!(row.version, version);
    won(store
        .swap(&id(1), Some(version), Some(&completed(1, "done")))
        .await);
}

/// What was acknowledged is there, what was refused is not, and only what was ambiguous may be
/// either.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_true_when_the_server_is_killed() {
    const WRITERS: u64 = 32;
    let syncing = ServerOptions {
        fsync: true,
        ..ServerOptions::default()
    };
    let mut server = migrated_with(&syncing).await;
    let store = impatient(&server.url()).await;
    for round in 0..3 {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                let mut answers = Vec::new();
                for number in 0..2_000 {
                    let number = (round * WRITERS + writer) * 10_000 + number;
                    let answer = claim(&store, number).await;
                    let failed = answer.is_err();
                    answers.push((number, answer));
                    if failed {
                        break;
                    }
                }
                answers
            });
        }
        // Some claims are acknowledged, others are under way.
        until_it_works(&store, 1_000_000 + round).await;
        let reached = async {
            while store
                .load(&id(round * WRITERS * 10_000 + 20))
                .await
                .unwrap()
                .is_none()
            {}
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
        server.kill();
        let answers = writers.join_all().await.concat();
        server.restart();
        until_it_works(&store, 2_000_000 + round).await;
        let mut counts = [0; 3];
        for (number, answer) in answers {
            let row = store.load(&id(number)).await.unwrap();
            match answer {
                Ok(Swap::Won(version)) => {
                    counts[0] += 1;
                    assert_eq!(row.map(|row| row.version), Some(version), "row {number}");
                }
                Ok(Swap::Lost(_)) => panic!("every id is claimed once"),
                Err(error) if error.may_have_written() => counts[1] += 1,
                Err(error) => {
                    counts[2] += 1;
                    assert_eq!(row, None, "{error}");
                }
            }
        }
        println!("won, may have written, not written: {counts:?}");
        assert!(counts[0] > 0 && counts[1] + counts[2] > 0, "{counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_given_up_in_bounded_time() {
    let server = migrated().await;
    let store = impatient(&server.url()).await;
    let version = won(claim(&store, 1).await);
    store.load(&id(1)).await.unwrap();
    server.freeze();
    let renewed = executing(1, at(9_000));
    let row = id(1);
    let swap = store.swap(&row, Some(version), Some(&renewed));
    let swap = tokio::time::timeout(PATIENCE, swap).await.expect("bounded");
    assert!(swap.unwrap_err().may_have_written(), "it was sent");
    let load = tokio::time::timeout(PATIENCE, store.load(&id(1)))
        .await
        .expect("bounded");
    assert!(!load.unwrap_err().may_have_written());
    nothing_can_be_sent(&store, 2).await;
    server.thaw();
    until_it_works(&store, 3).await;
    let row = store.load(&id(1)).await.unwrap().unwrap();
    assert!(row.version == version || *row.record == renewed);
}

/// The request arrives, the answer does not. A later load tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_after_the_request_is_ambiguous_and_a_load_tells_the_truth() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = open_through(&proxy).await;
    store.load(&id(1)).await.unwrap();
    for number in 1..10 {
        proxy.set(Plan::cut_the_answer()).await;
        let error = claim(&store, number).await.unwrap_err();
        assert!(error.may_have_written(), "{error}");
        proxy.mend().await;
        let row = store.load(&id(number)).await;
        let row = match row {
            Ok(row) => row,
            // The connection for reads was cut too, and says so once.
            Err(_) => store.load(&id(number)).await.unwrap(),
        };
        assert_eq!(*row.unwrap().record, executing(number, at(5_000)));
        until_it_works(&store, 100 + number).await;
    }
}

/// The same for a batch: everybody in it is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_batch_is_ambiguous_for_every_caller() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = open_through(&proxy).await;
    until_it_works(&store, 1_000).await;
    proxy.set(Plan::cut_the_answer()).await;
    let mut claims = JoinSet::new();
    for number in 0..40 {
        let store = store.clone();
        claims.spawn(async move { (number, claim(&store, number).await) });
    }
    let answers = claims.join_all().await;
    proxy.mend().await;
    until_it_works(&store, 1_001).await;
    let mut sent = 0;
    for (number, answer) in answers {
        let error = answer.unwrap_err();
        let row = open(&server).await.load(&id(number)).await.unwrap();
        if error.may_have_written() {
            sent += 1;
        } else {
            assert_eq!(row, None, "{error}");
        }
    }
    assert!(sent > 0);
}

async fn open_through(proxy: &FaultProxy) -> PostgresStore {
    PostgresStore::open(&options(&url_at(proxy.address())))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_refuses_and_comes_back() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = impatient(&url_at(proxy.address())).await;
    won(claim(&store, 1).await);
    proxy
        .set(Plan {
            to_client: Fault::ResetAfter(0),
            ..Plan::refuse()
        })
        .await;
    proxy
        .until(|counts| counts.connections == counts.ended)
        .await;
    let error = nothing_can_be_sent(&store, 2).await;
    let place = proxy.address().to_string();
    assert!(error.to_string().contains(&place), "{error}");
    proxy.mend().await;
    until_it_works(&store, 3).await;
}

/// Half-open: the line swallows everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_swallows_everything_is_given_up() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = impatient(&url_at(proxy.address())).await;
    won(claim(&store, 1).await);
    proxy.set(Plan::both(Fault::Blackhole)).await;
    assert!(claim(&store, 2).await.unwrap_err().may_have_written());
    nothing_can_be_sent(&store, 3).await;
    assert!(store.load(&id(1)).await.is_err());
    proxy.mend().await;
    until_it_works(&store, 4).await;
}

/// A slow line is slow, not wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_line_changes_no_answer() {
    let server = migrated().await;
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = open_through(&proxy).await;
    proxy
        .set(Plan::both(Fault::Delay(Duration::from_millis(30))))
        .await;
    let version = won(claim(&store, 1).await);
    let large = completed(1, body(200_000));
    won(store.swap(&id(1), Some(version), Some(&large)).await);
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, large);
}

/// After a failover the old primary may come back as a standby under the same address.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_read_only_is_left_until_it_takes_writes_again() {
    let server = migrated().await;
    let store = open(&server).await;
    won(claim(&store, 1).await);
    let admin = client(&server).await;
    let set = |value: &str| {
        format!(
            "SET default_transaction_read_only = off; ALTER SYSTEM SET default_transaction_read_only = {value}"
        )
    };
    let reload = "SET default_transaction_read_only = off; SELECT pg_reload_conf()";
    for statement in set("on").split("; ") {
        admin.batch_execute(statement).await.unwrap();
    }
    admin.batch_execute(reload).await.unwrap();
    let refused = async {
        let mut number = 10;
        loop {
            number += 1;
            match claim(&store, number).await {
                Ok(_) => {}
                Err(error) => return (number, error),
            }
        }
    };
    let (number, error) = tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(!error.may_have_written(), "{error}");
    let error = claim(&store, number + 1).await.unwrap_err();
    assert!(error.to_string().contains("primary"), "{error}");
    for statement in set("off").split("; ") {
        admin.batch_execute(statement).await.unwrap();
    }
    admin.batch_execute(reload).await.unwrap();
    until_it_works(&store, 2).await;
    assert_eq!(store.load(&id(number)).await.unwrap(), None);
}

/// Disk full, and other refusals of the server: nothing was written, and the line says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_was_not_written() {
    let server = migrated().await;
    let store = open(&server).await;
    let admin = client(&server).await;
    admin
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON onlyonce_record
                 FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await
        .unwrap();
    let error = claim(&store, 1).await.unwrap_err();
    assert!(!error.may_have_written(), "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert_eq!(store.load(&id(1)).await.unwrap(), None);
    admin
        .batch_execute("DROP TRIGGER refuse ON onlyonce_record")
        .await
        .unwrap();
    won(claim(&store, 1).await);
}

/// A pooler that loses its server says so with an error like any other, and knows no more than that.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_about_a_lost_connection_proves_nothing() {
    let server = migrated().await;
    let store = open(&server).await;
    let admin = client(&server).await;
    for (number, code) in (1..).zip(["40003", "08006", "08P01"]) {
        let refuse = format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE EXCEPTION 'lost' USING ERRCODE = '{code}';
             END $$;
             DROP TRIGGER IF EXISTS refuse ON onlyonce_record;
             CREATE TRIGGER refuse BEFORE INSERT ON onlyonce_record
                 FOR EACH ROW EXECUTE FUNCTION refuse()"
        );
        admin.batch_execute(&refuse).await.unwrap();
        let error = claim(&store, number).await.unwrap_err();
        assert!(error.may_have_written(), "{error}");
    }
}

/// A row that somebody else has locked for good is refused in bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_stays_locked_is_refused() {
    let server = migrated().await;
    let store = impatient(&server.url()).await;
    let version = won(claim(&store, 1).await);
    let other = client(&server).await;
    let lock = "BEGIN; SELECT * FROM onlyonce_record FOR UPDATE";
    other.batch_execute(lock).await.unwrap();
    let row = id(1);
    let swap = store.swap(&row, Some(version), None);
    let error = tokio::time::timeout(PATIENCE, swap)
        .await
        .unwrap()
        .unwrap_err();
    assert!(!error.may_have_written(), "{error}");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.load(&id(1)).await.unwrap().unwrap().version, version);
    won(store.swap(&id(1), Some(version), None).await);
}

/// Setting the server's clock back neither revives a lease nor stops the time.
#[tokio::test]
async fn time_goes_on_when_the_servers_clock_was_set_back() {
    const HOUR_MS: i64 = 3_600_000;
    let server = migrated().await;
    let store = open(&server).await;
    let admin = client(&server).await;
    let before = store.now().await.unwrap();
    let ahead = format!("UPDATE onlyonce_clock SET latest = latest + {HOUR_MS}");
    admin.batch_execute(&ahead).await.unwrap();
    let latest = store.now().await.unwrap();
    assert!(latest.since(before) >= Duration::from_secs(3600));
    let advanced = async { while store.now().await.unwrap() <= latest {} };
    tokio::time::timeout(PATIENCE, advanced).await.unwrap();
    let reopened = open(&server).await;
    assert!(reopened.now().await.unwrap() > latest);
}

/// Somebody has the clock's row, or a commit of it takes long: asking for the time goes on, and the
/// time does not go back.
#[tokio::test(flavor = "multi_thread")]
async fn asking_for_the_time_waits_for_nobody() {
    const HOUR_MS: i64 = 3_600_000;
    let server = migrated().await;
    let store = open(&server).await;
    let before = store.now().await.unwrap();
    let mut person = client(&server).await;
    let held = person.transaction().await.unwrap();
    let lock = format!("UPDATE onlyonce_clock SET latest = latest + {HOUR_MS}");
    held.batch_execute(&lock).await.unwrap();
    let mut latest = before;
    let advanced = async {
        while latest <= before {
            let now = store.now().await.unwrap();
            assert!(now >= latest, "{now:?} after {latest:?}");
            latest = now;
        }
    };
    tokio::time::timeout(PATIENCE, advanced).await.unwrap();
    assert!(latest.since(before) < Duration::from_secs(3600));
    open(&server).await.now().await.unwrap();
    held.commit().await.unwrap();
    let after = store.now().await.unwrap();
    assert!(after.since(before) >= Duration::from_secs(3600));
}

/// A server that is stopped while a claim is under way.
#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_shutdown_tells_no_lies() {
    let mut server: Postgres = migrated().await;
    let store = open(&server).await;
    until_it_works(&store, 10_000_000).await;
    let mut writers = JoinSet::new();
    for writer in 0..16 {
        let store = store.clone();
        writers.spawn(async move {
            for number in 0..100_000 {
                let number = writer * 100_000 + number;
                let answer = claim(&store, number).await;
                if answer.is_err() {
                    return (number, answer);
                }
            }
            panic!("the server was stopped");
        });
    }
    server.stop();
    let answers = writers.join_all().await;
    server.restart();
    until_it_works(&store, 20_000_000).await;
    for (number, answer) in answers {
        let row = store.load(&id(number)).await.unwrap();
        let error = answer.unwrap_err();
        assert!(
            error.may_have_written() || row.is_none(),
            "{number}: {error}"
        );
    }
}

/// A row that stays locked is tried less and less often: every try takes a connection's time from
/// the rows that are not locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_tried_less_and_less_often() {
    // 10 ms, then twice as long each time up to half a second, fit into three seconds 12 times.
    const TRIES_MAX: usize = 16;
    let server = migrated().await;
    let mut options = options(&server.url());
    options.statement_timeout = Duration::from_secs(3);
    let store = PostgresStore::open(&options).await.unwrap();
    let version = won(claim(&store, 1).await);
    let mut app = client(&server).await;
    let held = app.transaction().await.unwrap();
    let lock = "SELECT FROM onlyonce_record FOR UPDATE";
    held.query(lock, &[]).await.unwrap();
    let done = completed(1, "done");
    let refused = store.swap(&id(1), Some(version), Some(&done)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })));
    let tries = server.log().matches("due to lock timeout").count();
    assert!((2..=TRIES_MAX).contains(&tries), "{tries} tries");
    held.rollback().await.unwrap();
    won(store.swap(&id(1), Some(version), Some(&done)).await);
}

/// Commits that wait for a standby which does not come: callers are refused, the server is not
/// filled with backends that wait, and when the standby is no longer asked for, all goes on.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_commits_do_not_pile_up_in_the_server() {
    const POOL: i64 = 4;
    const STALLED_EACH_MAX: i64 = 2;
    let server = migrated().await;
    let mut options = options(&format!("{}?application_name=the%20store", server.url()));
    options.statement_timeout = Duration::from_millis(100);
    let store = PostgresStore::open(&options).await.unwrap();
    let operator = client(&server).await;
    stall_commits(&operator, true).await;
    let mut refused_in_a_row = 0;
    let mut ambiguous = Vec::new();
    // Time enough for each connection to be given up and made again several times.
    for number in 0..10_000 {
        let claimed = claim(&store, number).await;
        if claimed.is_ok() && ambiguous.is_empty() && refused_in_a_row == 0 {
            // The server's checkpointer, which decides, has not read its settings yet.
            continue;
        }
        let error = claimed.unwrap_err();
        if error.may_have_written() {
            ambiguous.push(number);
            refused_in_a_row = 0;
        } else {
            refused_in_a_row += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let count = "SELECT count(*) FROM pg_stat_activity \
                     WHERE application_name = 'the store' AND state = 'active'";
        let working: i64 = operator.query_one(count, &[]).await.unwrap().get(0);
        assert!(working <= POOL * STALLED_EACH_MAX, "{working} backends");
        if refused_in_a_row >= 300 {
            break;
        }
    }
    assert!(refused_in_a_row >= 300, "it went on sending");
    stall_commits(&operator, false).await;
    until_it_works(&store, 1_000_000).await;
    // What was said to be ambiguous was: here, all of it happened.
    for number in ambiguous {
        assert!(store.load(&id(number)).await.unwrap().is_some());
    }
}

/// Makes every commit wait for a standby that does not exist.
async fn stall_commits(operator: &tokio_postgres::Client, stalled: bool) {
    let name = if stalled { "nobody" } else { "" };
    for order in [
        "SET synchronous_commit = local",
        &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"),
        "SELECT pg_reload_conf()",
    ] {
        operator.batch_execute(order).await.unwrap();
    }
    let shown = async {
        loop {
            let row = operator.query_one("SHOW synchronous_standby_names", &[]);
            if row.await.unwrap().get::<_, &str>(0) == name {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap();
}
