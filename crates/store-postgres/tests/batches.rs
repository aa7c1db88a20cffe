//! One round trip per claim and per completion, shared by those who come at once; and batches that
//! neither block nor spoil each other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{client, migrated, open, options};
use onlyonce_conformance::servers::postgres::url_at;
use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_conformance::suite::together;
use onlyonce_core::RouteName;
use onlyonce_store::{Store, StoreError, Swap, Version};
use onlyonce_store_postgres::PostgresStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Far more than any of these limits; a test that needs it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts the round trips of the protocol: every `Sync` and every plain query waits for an answer.
struct Counter {
    address: SocketAddr,
    round_trips: Arc<AtomicU64>,
}

impl Counter {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let round_trips = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&round_trips);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                let (from_client, mut to_client) = client.into_split();
                let (mut from_server, to_server) = server.into_split();
                tokio::spawn(requests(from_client, to_server, Arc::clone(&counted)));
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                });
            }
        });
        Self {
            address,
            round_trips,
        }
    }

    fn take(&self) -> u64 {
        self.round_trips.swap(0, Ordering::SeqCst)
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: Arc<AtomicU64>) {
    // The first message has no type.
    let mut tagged = false;
    loop {
        let tag = if tagged {
            from.read_u8().await.ok()
        } else {
            Some(0)
        };
        let Some(tag) = tag else { return };
        let Ok(length) = from.read_u32().await else {
            return;
        };
        let mut rest = vec![0; length as usize - 4];
        if from.read_exact(&mut rest).await.is_err() {
            return;
        }
        if tag == b'S' || tag == b'Q' {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let mut message = Vec::new();
        if tagged {
            message.push(tag);
        }
        message.extend(length.to_be_bytes());
        message.extend(rest);
        if to.write_all(&message).await.is_err() {
            return;
        }
        tagged = true;
    }
}

fn won(swap: Swap) -> Version {
    match swap {
        Swap::Won(version) => version,
        Swap::Lost(row) => panic!("lost to {row:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_a_completion_and_a_replay_are_one_round_trip_each() {
    const CALLS: u64 = 20;
    let server = migrated().await;
    let counter = Counter::start(server.address()).await;
    let url = format!("{}?sslmode=disable", url_at(counter.address));
    let mut options = options(&url);
    // One connection for swaps, so that none is made while counting, nor asked about itself.
    options.pool = 2;
    options.ask_again_after = PATIENCE;
    let store = PostgresStore::open(&options).await.unwrap();
    counter.take();
    for number in 0..CALLS {
        won(store
            .swap(&id(number), None, Some(&executing(number, at(5_000))))
            .await
            .unwrap());
    }
    assert_eq!(counter.take(), CALLS, "claims");
    for number in 0..CALLS {
        let claim = executing(number, at(5_000));
        let Swap::Lost(Some(row)) = store.swap(&id(number), None, Some(&claim)).await.unwrap()
        else {
            panic!("the key is taken");
        };
        assert_eq!(counter.take(), 1, "a replay");
        let done = completed(number, "done");
        won(store
            .swap(&id(number), Some(row.version), Some(&done))
            .await
            .unwrap());
        assert_eq!(counter.take(), 1, "a completion");
    }
    let claims = (100..164).map(|number| {
        let store = store.clone();
        async move {
            let claim = executing(number, at(5_000));
            won(store.swap(&id(number), None, Some(&claim)).await.unwrap())
        }
    });
    together(claims).await;
    let shared = counter.take();
    println!("64 claims at once: {shared} round trips");
    assert!(shared < 64, "{shared} round trips for 64 claims at once");
}

/// Two instances write the same rows in batches, in whatever order they are asked.
#[tokio::test(flavor = "multi_thread")]
async fn two_stores_on_the_same_rows_never_deadlock_and_lose_nothing() {
    const ROWS: u64 = 12;
    const TASKS: u64 = 32;
    const ROUNDS: u64 = 25;
    let server = migrated().await;
    let stores = [open(&server).await, open(&server).await];
    for row in 0..ROWS {
        won(stores[0]
            .swap(&id(row), None, Some(&executing(0, at(0))))
            .await
            .unwrap());
    }
    let tasks = (0..TASKS).map(|task| {
        let store = stores[usize::try_from(task % 2).unwrap()].clone();
        async move {
            for round in 0..ROUNDS {
                // Each task goes through the rows in another order.
                let row = id((round * (2 * task + 1) + task) % ROWS);
                loop {
                    let current = store.load(&row).await.unwrap().unwrap();
                    let mut next = current.record;
                    let count = next.state.deadline().unwrap().as_millis();
                    next.state = executing(0, at(count + 1)).state;
                    let swap = store.swap(&row, Some(current.version), Some(&next)).await;
                    if let Swap::Won(_) = swap.unwrap() {
                        break;
                    }
                }
            }
        }
    });
    together(tasks).await;
    let mut total = 0;
    for row in 0..ROWS {
        let row = stores[0].load(&id(row)).await.unwrap().unwrap();
        total += row.record.state.deadline().unwrap().as_millis();
    }
    assert_eq!(total, TASKS * ROUNDS);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    let row = client(&server)
        .await
        .query_one(deadlocks, &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
    assert!(!server.log().contains("deadlock"), "{}", server.log());
}

/// One row that the server refuses must not be the ruin of those that shared its statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_fails_fails_alone() {
    let server = migrated().await;
    let admin = client(&server).await;
    admin
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.route = 'poison' THEN RAISE EXCEPTION 'not this one'; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON onlyonce_record
                 FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await
        .unwrap();
    let store = {
        let mut options = options(&server.url());
        options.statement_timeout = std::time::Duration::from_millis(300);
        PostgresStore::open(&options).await.unwrap()
    };
    let claims = (0..100).map(|number| {
        let store = store.clone();
        async move {
            let mut claim = executing(number, at(5_000));
            if number == 50 {
                claim.route = RouteName::new("poison").unwrap();
            }
            store.swap(&id(number), None, Some(&claim)).await
        }
    });
    for (number, answer) in (0..).zip(together(claims).await) {
        let row = store.load(&id(number)).await.unwrap();
        if number == 50 {
            let error = answer.unwrap_err();
            assert!(!error.may_have_written(), "{error}");
            assert!(error.to_string().contains("not this one"), "{error}");
            assert_eq!(row, None);
        } else {
            assert_eq!(Some(won(answer.unwrap())), row.map(|row| row.version));
        }
    }
}

/// What the database cannot hold is refused before it can spoil a batch.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_is_refused_before_it_is_sent() {
    let server = migrated().await;
    let store = open(&server).await;
    let mut odd = executing(1, at(5_000));
    odd.route = RouteName::new("a\0b").unwrap();
    let error = store.swap(&id(1), None, Some(&odd)).await.unwrap_err();
    assert!(error.to_string().contains("route"), "{error}");
    let large = completed(1, vec![0; 17 << 20]);
    let error = store.swap(&id(1), None, Some(&large)).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
}

/// On a full disk, and where a right is missing, only those fail who need what is not there: a
/// replay writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_reads_does_not_fail_with_those_who_write() {
    const ROWS: u64 = 200;
    let server = migrated().await;
    let mut options = options(&server.url());
    options.pool = 2;
    let store = PostgresStore::open(&options).await.unwrap();
    for number in 0..ROWS {
        let claim = executing(number, at(5_000));
        won(store.swap(&id(number), None, Some(&claim)).await.unwrap());
    }
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'no' USING ERRCODE = TG_ARGV[0];
         END $$";
    let admin = client(&server).await;
    admin.batch_execute(refuse).await.unwrap();
    for code in ["53100", "42501", "57014", "53200"] {
        let trigger = format!(
            "DROP TRIGGER IF EXISTS refuse ON onlyonce_record;
             CREATE TRIGGER refuse BEFORE INSERT ON onlyonce_record
             FOR EACH ROW EXECUTE FUNCTION refuse('{code}')"
        );
        admin.batch_execute(&trigger).await.unwrap();
        let claims = (0..2 * ROWS).map(|number| {
            let store = store.clone();
            async move {
                let claim = executing(number, at(5_000));
                (number, store.swap(&id(number), None, Some(&claim)).await)
            }
        });
        for (number, answer) in together(claims).await {
            match answer {
                Ok(Swap::Lost(Some(_))) if number < ROWS => {}
                Err(error) if number >= ROWS => {
                    assert!(!error.may_have_written(), "{error}");
                    assert!(error.to_string().contains(code), "{error}");
                }
                other => panic!("{number}, {code}: {other:?}"),
            }
        }
    }
}

/// Apps hold the rows of some keys. The other connections are for those who ask for others.
#[tokio::test(flavor = "multi_thread")]
async fn locked_rows_keep_one_connection_busy() {
    const LOCKED: u64 = 6;
    // Each fails in a statement that it shares, and then by itself, before it is known.
    const UNKNOWN_TRIES_MAX: usize = 12;
    let server = migrated().await;
    let mut options = options(&server.url());
    options.lock_timeout = Duration::from_millis(200);
    options.statement_timeout = Duration::from_secs(30);
    let store = PostgresStore::open(&options).await.unwrap();
    let mut versions = Vec::new();
    for number in 0..LOCKED {
        let claim = executing(number, at(5_000));
        versions.push(won(store
            .swap(&id(number), None, Some(&claim))
            .await
            .unwrap()));
    }
    let mut app = client(&server).await;
    let held = app.transaction().await.unwrap();
    let lock = "SELECT FROM onlyonce_record FOR UPDATE";
    held.query(lock, &[]).await.unwrap();
    let completions = (0..).zip(versions).map(|(number, version)| {
        let store = store.clone();
        tokio::spawn(async move {
            let done = completed(number, "done");
            store.swap(&id(number), Some(version), Some(&done)).await
        })
    });
    let completions: Vec<_> = completions.collect();
    let tried = async {
        while server.log().matches("due to lock timeout").count() <= UNKNOWN_TRIES_MAX {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let operator = client(&server).await;
    for _ in 0..200 {
        let row = operator.query_one(waiting, &[]).await.unwrap();
        let waiting: i64 = row.get(0);
        assert!(waiting <= 1, "{waiting} connections wait for locks");
        let claim = executing(1_000, at(5_000));
        let _ = store.swap(&id(1_000), None, Some(&claim)).await.unwrap();
    }
    held.rollback().await.unwrap();
    for completion in completions {
        won(completion.await.unwrap().unwrap());
    }
}

/// Retries of large answers come in parts: all of them at once would be as much memory as there are
/// callers.
#[tokio::test(flavor = "multi_thread")]
async fn large_answers_do_not_share_one_statement() {
    const ROWS: u64 = 40;
    const BODY_BYTES: usize = 1 << 20;
    // Each statement has at most 4 MiB of them.
    const STATEMENTS_MIN: u64 = 10;
    let server = migrated().await;
    let counter = Counter::start(server.address()).await;
    let mut options = options(&format!("{}?sslmode=disable", url_at(counter.address)));
    options.pool = 2;
    let store = PostgresStore::open(&options).await.unwrap();
    for number in 0..ROWS {
        let done = completed(number, body(BODY_BYTES));
        won(store.swap(&id(number), None, Some(&done)).await.unwrap());
    }
    counter.take();
    let claims = (0..ROWS).map(|number| {
        let store = store.clone();
        async move {
            let claim = executing(number, at(5_000));
            (number, store.swap(&id(number), None, Some(&claim)).await)
        }
    });
    for (number, answer) in together(claims).await {
        let Ok(Swap::Lost(Some(row))) = answer else {
            panic!("{number}: {answer:?}");
        };
        assert_eq!(*row.record, completed(number, body(BODY_BYTES)));
    }
    let statements = counter.take();
    assert!(statements >= STATEMENTS_MIN, "{statements} statements");
}
