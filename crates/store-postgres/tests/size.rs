//! Purged rows leave no bloat: a table that is filled and purged again and again does not grow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::time::Duration;

use common::{client, migrated_with, open};
use onlyonce_conformance::servers::postgres::PostgresOptions as ServerOptions;
use onlyonce_conformance::suite::samples::{completed, id};
use onlyonce_store::{Filter, ListStore, Store, Swap};
use onlyonce_store_postgres::PostgresStore;
use tokio::task::JoinSet;
use tokio_postgres::Client;

const ROWS: i64 = 50_000;

/// How many rows a sweep takes at once.
const SWEEP: usize = 1_000;

/// What the second and third filling may take beside the first, in percent: what is removed while
/// a vacuum is under way waits for the next one. Rows that were not taken out, or whose space is
/// not used again, would make it 200 and 300.
const GROWTH_MAX: i64 = 160;

/// Far more than a vacuum of so few rows takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Copies the only row under as many other ids.
async fn fill(client: &Client) {
    let columns = "SELECT string_agg(attname, ', ') FROM pg_attribute \
                   WHERE attrelid = 'onlyonce_record'::regclass AND attnum > 0 AND attname <> 'id'";
    let columns: String = client.query_one(columns, &[]).await.unwrap().get(0);
    let copy = format!(
        "INSERT INTO onlyonce_record (id, {columns}) \
         SELECT sha256(int8send(n)), {columns} FROM onlyonce_record, generate_series(1, {ROWS}) AS n"
    );
    client.batch_execute(&copy).await.unwrap();
}

/// Takes every row out but the one that is copied, in batches, as a sweep does.
async fn purge(store: &PostgresStore) {
    loop {
        let page = store.list(&Filter::default(), None, SWEEP).await.unwrap();
        let mut removals = JoinSet::new();
        for entry in page.entries.into_iter().filter(|entry| entry.id != id(1)) {
            let (store, version) = (store.clone(), entry.row.unwrap().version);
            removals.spawn(async move { store.swap(&entry.id, Some(version), None).await });
        }
        if removals.is_empty() {
            return;
        }
        for removed in removals.join_all().await {
            assert!(matches!(removed, Ok(Swap::Won(_))), "{removed:?}");
        }
    }
}

/// Waits until autovacuum has made the space of purged rows usable, by itself. The server counts
/// late what its connections did: before it has heard of every removal, few dead rows mean nothing.
async fn until_vacuumed(client: &Client, removed: i64) {
    let counted = "SELECT n_tup_del, n_dead_tup FROM pg_stat_user_tables \
                   WHERE relname = 'onlyonce_record'";
    let vacuumed = async {
        loop {
            let row = client.query_one(counted, &[]).await.unwrap();
            let (deleted, dead): (i64, i64) = (row.get(0), row.get(1));
            if deleted >= removed && dead <= ROWS / 10 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, vacuumed)
        .await
        .expect("autovacuum comes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_purged_and_filled_again_does_not_grow() {
    // It looks every minute by default.
    let settings = ServerOptions::default().setting("autovacuum_naptime", "1s");
    let server = migrated_with(&settings).await;
    let client = client(&server).await;
    let answer = completed(1, vec![7; 200]);
    let swap = open(&server).await.swap(&id(1), None, Some(&answer)).await;
    let swap = swap.unwrap();
    assert!(matches!(swap, Swap::Won(_)));
    let mut sizes = Vec::new();
    for round in 1..=3 {
        fill(&client).await;
        let size = "SELECT pg_total_relation_size('onlyonce_record')";
        sizes.push(client.query_one(size, &[]).await.unwrap().get::<_, i64>(0));
        // Connections that end tell what they did; others may take ten seconds.
        purge(&open(&server).await).await;
        until_vacuumed(&client, round * ROWS).await;
    }
    println!("{sizes:?} bytes with {ROWS} rows");
    let first = *sizes.first().unwrap();
    assert!(first > ROWS * 200, "{sizes:?}");
    let most = *sizes.iter().max().unwrap();
    assert!(most * 100 <= first * GROWTH_MAX, "{sizes:?}");
}
