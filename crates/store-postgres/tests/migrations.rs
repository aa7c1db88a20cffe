//! The schema: made once, whoever makes it, and refused when it is not this build's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use common::{client, migrated, open, options};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_store::{Store, Swap};
use onlyonce_store_postgres::{OpenError, PostgresStore, migrate};

const NEWEST: i32 = 2;

#[tokio::test]
async fn a_second_migration_finds_nothing_to_do() {
    let server = Postgres::start();
    let first = migrate(&options(&server.url())).await.unwrap();
    assert_eq!((first.from, first.to), (0, NEWEST));
    let store = open(&server).await;
    let claim = executing(1, at(5_000));
    let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    assert!(matches!(swap, Swap::Won(_)));
    let second = migrate(&options(&server.url())).await.unwrap();
    assert_eq!((second.from, second.to), (NEWEST, NEWEST));
    assert_eq!(store.load(&id(1)).await.unwrap().unwrap().record, claim);
}

/// Three instances that are started at once all migrate.
#[tokio::test]
async fn of_several_migrations_at_once_one_does_the_work() {
    let server = Postgres::start();
    let options = options(&server.url());
    let done = tokio::try_join!(migrate(&options), migrate(&options), migrate(&options)).unwrap();
    let mut from = [done.0.from, done.1.from, done.2.from];
    from.sort_unstable();
    assert_eq!(from, [0, NEWEST, NEWEST]);
    open(&server).await;
}

#[tokio::test]
async fn a_database_without_tables_is_refused() {
    let server = Postgres::start();
    let error = PostgresStore::open(&options(&server.url()))
        .await
        .unwrap_err();
    assert!(matches!(&error, OpenError::OldSchema { found: 0, .. }));
    assert!(
        error.to_string().contains("onlyonce migrate --store"),
        "{error}"
    );
}

#[tokio::test]
async fn an_older_schema_is_refused_and_can_be_migrated() {
    let server = migrated().await;
    let client = client(&server).await;
    let undo = "DELETE FROM onlyonce_schema WHERE version = 2;
                DROP FUNCTION onlyonce_begin, onlyonce_complete, onlyonce_release, onlyonce_unknown,
                onlyonce_sql_id, onlyonce_over, onlyonce_hold, onlyonce_header_pairs,
                onlyonce_header_lines, onlyonce_token, onlyonce_has_passed, onlyonce_after,
                onlyonce_time, onlyonce_durably";
    client.batch_execute(undo).await.unwrap();
    let error = PostgresStore::open(&options(&server.url()))
        .await
        .unwrap_err();
    assert!(matches!(
        &error,
        OpenError::OldSchema {
            found: 1,
            needed: NEWEST,
            ..
        }
    ));
    let migrated = migrate(&options(&server.url())).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (1, NEWEST));
    open(&server).await;
}

/// An old binary must not write rows that a new schema means differently.
#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_says_otherwise() {
    let server = migrated().await;
    let client = client(&server).await;
    let newer = "INSERT INTO onlyonce_schema VALUES (3, 2, 'of the future')";
    client.batch_execute(newer).await.unwrap();
    open(&server).await;
    let breaking = "UPDATE onlyonce_schema SET readable_by = 3 WHERE version = 3";
    client.batch_execute(breaking).await.unwrap();
    let options = options(&server.url());
    for error in [
        PostgresStore::open(&options).await.unwrap_err(),
        migrate(&options).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, OpenError::NewerSchema { found: 3, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("upgrade onlyonce"), "{error}");
    }
}

#[tokio::test]
async fn a_step_with_another_content_is_refused() {
    let server = migrated().await;
    let client = client(&server).await;
    let other = "UPDATE onlyonce_schema SET checksum = 'another' WHERE version = 1";
    client.batch_execute(other).await.unwrap();
    let error = migrate(&options(&server.url())).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::ChangedMigration { version: 1, .. }),
        "{error}"
    );
}

/// Two deployments in one database do not see each other.
#[tokio::test]
async fn schemas_are_apart() {
    let server = migrated().await;
    let url = format!("{}?schema=other%20Keys", server.url());
    migrate(&options(&url)).await.unwrap();
    let (one, two) = (
        open(&server).await,
        PostgresStore::open(&options(&url)).await.unwrap(),
    );
    let claim = executing(1, at(5_000));
    for store in [&one, &two] {
        let swap = store.swap(&id(1), None, Some(&claim)).await.unwrap();
        assert!(matches!(swap, Swap::Won(_)));
    }
    let two_secret = two.secret([2; 32]).await.unwrap();
    assert_ne!(one.secret([1; 32]).await.unwrap(), two_secret);
}

/// An operator reads rows in psql.
#[tokio::test]
async fn rows_can_be_read_by_people() {
    let server = migrated().await;
    let store = open(&server).await;
    let answer = onlyonce_conformance::suite::samples::answer();
    let record = onlyonce_conformance::suite::samples::response(1, answer);
    let _ = store.swap(&id(1), None, Some(&record)).await.unwrap();
    let client = client(&server).await;
    let row = client
        .query_one(
            "SELECT id, state, route, response_status, response_headers, response_body_start, \
             created_at::text FROM onlyonce_keys",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), id(1).to_string());
    assert_eq!(row.get::<_, &str>(1), "completed");
    assert_eq!(row.get::<_, &str>(2), "payments");
    assert_eq!(row.get::<_, i32>(3), 201);
    let headers = "content-type: application/json\nset-cookie: a=1\nset-cookie: b=2\n";
    assert_eq!(row.get::<_, &str>(4), headers);
    assert_eq!(row.get::<_, &str>(5), "{\"id\":\"pay_1\"}");
    assert!(row.get::<_, &str>(6).starts_with("1970-01-01 00:00:01"));
}
