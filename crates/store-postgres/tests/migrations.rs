//! The schema: made once, whoever makes it, and refused when it is not this build's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::collections::HashSet;
use std::time::Duration;

use common::{client, migrated, open, options};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::suite::samples::{at, completed, executing, id};
use onlyonce_store::{Filter, ListStore, Store, Swap, Version};
use onlyonce_store_postgres::{OpenError, PostgresStore, migrate};

const NEWEST: i32 = 7;

/// Undoes the third step; the later ones replace functions, and make an index again.
const WITHOUT_DRAWN_VERSIONS: &str = "DELETE FROM onlyonce_schema WHERE version >= 3;
     DROP TRIGGER onlyonce_draw_version ON onlyonce_record; DROP FUNCTION onlyonce_draw_version";

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
    assert_eq!(*store.load(&id(1)).await.unwrap().unwrap().record, claim);
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
    client.batch_execute(WITHOUT_DRAWN_VERSIONS).await.unwrap();
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
    let newer = "INSERT INTO onlyonce_schema VALUES (8, 7, 'of the future')";
    client.batch_execute(newer).await.unwrap();
    open(&server).await;
    let breaking = "UPDATE onlyonce_schema SET readable_by = 8 WHERE version = 8";
    client.batch_execute(breaking).await.unwrap();
    let options = options(&server.url());
    for error in [
        PostgresStore::open(&options).await.unwrap_err(),
        migrate(&options).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, OpenError::NewerSchema { found: 8, .. }),
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
    let options = options(&server.url());
    for error in [
        migrate(&options).await.unwrap_err(),
        PostgresStore::open(&options).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, OpenError::ChangedMigration { version: 1, .. }),
            "{error}"
        );
    }
}

/// The functions of a renamed schema go on where they were made: with another deployment's tables
/// there by now, one would settle the other's keys.
#[tokio::test]
async fn a_renamed_schema_is_refused() {
    let server = Postgres::start();
    let url = |schema: &str| options(&format!("{}?schema={schema}", server.url()));
    migrate(&url("old")).await.unwrap();
    PostgresStore::open(&url("old")).await.unwrap();
    let rename = "ALTER SCHEMA old RENAME TO new";
    client(&server).await.batch_execute(rename).await.unwrap();
    migrate(&url("old")).await.unwrap();
    let error = PostgresStore::open(&url("new")).await.unwrap_err();
    assert!(matches!(error, OpenError::RenamedSchema { .. }), "{error}");
    assert!(error.to_string().contains("search_path=old"), "{error}");
    PostgresStore::open(&url("old")).await.unwrap();
    for quoted in ["other%20Keys", "select", "%C3%A9t%C3%A9", "a'b"] {
        migrate(&url(quoted)).await.unwrap();
        PostgresStore::open(&url(quoted)).await.unwrap();
    }
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

/// Rows whose versions were counted are changed by whoever saw them, as before.
#[tokio::test]
async fn rows_with_counted_versions_go_on() {
    let server = migrated().await;
    let client = client(&server).await;
    client.batch_execute(WITHOUT_DRAWN_VERSIONS).await.unwrap();
    let claim = executing(1, at(5_000));
    let insert = "INSERT INTO onlyonce_record VALUES ($1, 7, 'executing', 5000, $2, 1, 'raw', $3, \
                  '', false, 'payments', $4, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
                  NULL, NULL, 1, '', 1)";
    let row = [
        id(1).as_bytes().to_vec(),
        vec![1; 16],
        vec![2; 32],
        vec![3; 8],
    ];
    let [id_bytes, fence, fingerprint, principal] = &row;
    client
        .execute(insert, &[id_bytes, fence, fingerprint, principal])
        .await
        .unwrap();
    migrate(&options(&server.url())).await.unwrap();
    let store = open(&server).await;
    let row = store.load(&id(1)).await.unwrap().unwrap();
    assert_eq!(row.version, Version(7));
    let swap = store.swap(&id(1), Some(row.version), Some(&claim)).await;
    let Ok(Swap::Won(version)) = swap else {
        panic!("{swap:?}");
    };
    assert_ne!(version, row.version);
    assert_eq!(store.load(&id(1)).await.unwrap().unwrap().version, version);
}

/// A standby that is promoted while it is behind counts on from an earlier number. A writer from
/// before must not take a new row for the one it saw.
#[tokio::test]
async fn versions_do_not_return_when_the_sequence_goes_back() {
    const ROWS: u64 = 200;
    let server = migrated().await;
    let client = client(&server).await;
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let back = "DELETE FROM onlyonce_record; ALTER SEQUENCE onlyonce_version RESTART";
        client.batch_execute(back).await.unwrap();
        let store = open(&server).await;
        for number in 0..ROWS {
            let claim = executing(1, at(5_000));
            let swap = store.swap(&id(number), None, Some(&claim)).await;
            let Ok(Swap::Won(version)) = swap else {
                panic!("{swap:?}");
            };
            assert!(seen.insert(version), "{version:?} came again");
        }
    }
}

/// What an app or a person changes has a new version as well, in whatever way it is done.
#[tokio::test]
async fn whoever_changes_a_row_gives_it_a_new_version() {
    let server = migrated().await;
    let store = open(&server).await;
    let claim = executing(1, at(5_000));
    let swap = store.swap(&id(1), None, Some(&claim)).await;
    let Ok(Swap::Won(version)) = swap else {
        panic!("{swap:?}");
    };
    let client = client(&server).await;
    let edit = "UPDATE onlyonce_record SET route = 'edited'";
    client.batch_execute(edit).await.unwrap();
    let lost = store.swap(&id(1), Some(version), None).await.unwrap();
    assert!(matches!(lost, Swap::Lost(Some(row)) if row.version != version));
}

/// The path of whoever calls must not decide what an operator in a function is.
#[tokio::test]
async fn every_function_is_looked_up_where_it_was_made() {
    let server = Postgres::start();
    let url = format!("{}?schema=other%20Keys", server.url());
    migrate(&options(&url)).await.unwrap();
    let client = client(&server).await;
    let functions = client
        .query(
            "SELECT proname::text, proconfig FROM pg_proc WHERE proname LIKE 'onlyonce\\_%' \
             AND proname <> 'onlyonce_draw_version'",
            &[],
        )
        .await
        .unwrap();
    assert!(functions.len() > 15, "{}", functions.len());
    for function in functions {
        let (name, config): (String, Option<Vec<String>>) = (function.get(0), function.get(1));
        let path = "search_path=\"other Keys\", pg_temp".to_owned();
        assert!(
            config.is_some_and(|config| config.contains(&path)),
            "{name}"
        );
    }
}

/// A transaction that lasts makes the migration wait. Writers must not wait behind it.
#[tokio::test(flavor = "multi_thread")]
async fn writers_go_on_while_a_migration_waits_for_a_table() {
    let server = migrated().await;
    let mut app = client(&server).await;
    app.batch_execute(WITHOUT_DRAWN_VERSIONS).await.unwrap();
    let lasting = app.transaction().await.unwrap();
    let write = "UPDATE onlyonce_record SET route = 'written'";
    lasting.batch_execute(write).await.unwrap();
    let migrating = options(&server.url());
    let migrating = tokio::spawn(async move { migrate(&migrating).await });
    let writer = client(&server).await;
    let patience = "SET lock_timeout = '5s'";
    writer.batch_execute(patience).await.unwrap();
    let waited = async {
        while server.log().matches("due to lock timeout").count() < 2 {
            writer.batch_execute(write).await.expect("a writer goes on");
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waited).await;
    waited.expect("the migration gives way");
    assert!(!migrating.is_finished());
    lasting.rollback().await.unwrap();
    assert_eq!(migrating.await.unwrap().unwrap().to, NEWEST);
    open(&server).await;
}

/// Undoes the seventh step.
const WITHOUT_INDEX: &str = "DELETE FROM onlyonce_schema WHERE version = 7;
     DROP INDEX onlyonce_record_unsettled";

/// Whether there is an index of what is not settled, and it can be used.
async fn has_index(client: &tokio_postgres::Client) -> bool {
    let ask = "SELECT count(*) = 1 FROM pg_index WHERE indisvalid
               AND indexrelid = to_regclass('onlyonce_record_unsettled')";
    client.query_one(ask, &[]).await.unwrap().get(0)
}

/// Waits until a statement like this waits for somebody.
async fn until_waiting(client: &tokio_postgres::Client, statement: &str) {
    let ask = "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE $1
               AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()";
    let waiting = async {
        while !client
            .query_one(ask, &[&statement])
            .await
            .unwrap()
            .get::<_, bool>(0)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waiting = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waiting.expect("it waits");
}

/// A table of millions takes minutes to index, in which other instances serve on.
#[tokio::test]
async fn the_index_is_built_while_others_write() {
    let server = migrated().await;
    let store = open(&server).await;
    let (admin, mut busy) = (client(&server).await, client(&server).await);
    admin.batch_execute(WITHOUT_INDEX).await.unwrap();
    // Whoever builds an index must wait until this one has ended.
    let transaction = busy.transaction().await.unwrap();
    let delete = "DELETE FROM onlyonce_record WHERE false";
    transaction.batch_execute(delete).await.unwrap();
    let options = options(&server.url());
    let migrating = tokio::spawn(async move { migrate(&options).await });
    until_waiting(&admin, "%CREATE INDEX CONCURRENTLY%").await;
    let (first, claim) = (id(1), executing(1, at(5_000)));
    let writing = store.swap(&first, None, Some(&claim));
    let swap = tokio::time::timeout(Duration::from_secs(5), writing).await;
    assert!(matches!(
        swap.expect("nobody waits for it").unwrap(),
        Swap::Won(_)
    ));
    assert!(!has_index(&admin).await && !migrating.is_finished());
    transaction.commit().await.unwrap();
    migrating.await.unwrap().unwrap();
    assert!(has_index(&admin).await);
}

/// A build that is cut off leaves an index that nobody may use, and that costs every write.
#[tokio::test]
async fn an_index_that_broke_off_is_built_anew() {
    let server = migrated().await;
    let client = client(&server).await;
    let broken = "DELETE FROM onlyonce_schema WHERE version = 7;
        UPDATE pg_index SET indisvalid = false
        WHERE indexrelid = 'onlyonce_record_unsettled'::regclass";
    client.batch_execute(broken).await.unwrap();
    assert!(!has_index(&client).await);
    migrate(&options(&server.url())).await.unwrap();
    assert!(has_index(&client).await);
}

/// The process that builds it may be ended, and the server goes on: to begin anew each time would be
/// to come to no end.
#[tokio::test]
async fn an_index_that_was_built_and_not_noted_is_kept() {
    let server = migrated().await;
    let client = client(&server).await;
    let which = "SELECT 'onlyonce_record_unsettled'::regclass::oid";
    let before: u32 = client.query_one(which, &[]).await.unwrap().get(0);
    let forget = "DELETE FROM onlyonce_schema WHERE version = 7";
    client.batch_execute(forget).await.unwrap();
    migrate(&options(&server.url())).await.unwrap();
    let after: u32 = client.query_one(which, &[]).await.unwrap().get(0);
    assert_eq!(after, before);
    open(&server).await;
}

/// An older build waits for a migration inside a statement, which the index waits for.
#[tokio::test]
async fn an_older_build_that_waits_does_not_stop_the_index() {
    let server = migrated().await;
    let (admin, older) = (client(&server).await, client(&server).await);
    let mut busy = client(&server).await;
    admin.batch_execute(WITHOUT_INDEX).await.unwrap();
    let transaction = busy.transaction().await.unwrap();
    let delete = "DELETE FROM onlyonce_record WHERE false";
    transaction.batch_execute(delete).await.unwrap();
    let options = options(&server.url());
    let lock = format!(
        "SET lock_timeout = '5s'; SELECT pg_advisory_lock(1869507705, hashtext('{}'))",
        options.schema
    );
    let migrating = tokio::spawn(async move { migrate(&options).await });
    until_waiting(&admin, "%CREATE INDEX CONCURRENTLY%").await;
    let waiting = tokio::spawn(async move { older.batch_execute(&lock).await });
    until_waiting(&admin, "%pg_advisory_lock%").await;
    transaction.commit().await.unwrap();
    let migrated = tokio::time::timeout(Duration::from_secs(60), migrating).await;
    migrated.expect("it ends").unwrap().unwrap();
    assert!(has_index(&admin).await);
    let _ = waiting.await.unwrap();
}

/// More unsettled rows than one statement looks at: those that are wanted are found among them.
#[tokio::test]
async fn a_rare_state_is_found_among_many_rows_that_are_not_settled() {
    let server = migrated().await;
    let (store, client) = (open(&server).await, client(&server).await);
    let claim = executing(1, at(5_000));
    let _ = store.swap(&id(1), None, Some(&claim)).await.unwrap();
    let copies = "INSERT INTO onlyonce_record SELECT (jsonb_populate_record(one,
            jsonb_build_object('state', 'unknown', 'id',
                '\\x' || encode(sha256(number::text::bytea), 'hex')))).*
        FROM onlyonce_record AS one, generate_series(1, 45000) AS number";
    client.batch_execute(copies).await.unwrap();
    let filter = Filter {
        state: Some(onlyonce_core::StateKind::Executing),
        ..Filter::default()
    };
    let page = store.list(&filter, None, 10).await.unwrap();
    let found: Vec<_> = page.entries.iter().map(|entry| entry.id).collect();
    assert_eq!((found, page.next), (vec![id(1)], None));
}

/// Operators look every few seconds: at what waits, and not at millions of keys that do not.
#[tokio::test]
async fn what_is_not_settled_is_found_by_its_index() {
    let server = migrated().await;
    let (store, client) = (open(&server).await, client(&server).await);
    let settled = (1..200).map(|number| (id(number), completed(number, "ch_1")));
    for (id, record) in settled {
        let _ = store.swap(&id, None, Some(&record)).await.unwrap();
    }
    let _ = store
        .swap(&id(200), None, Some(&executing(200, at(5_000))))
        .await
        .unwrap();
    client
        .batch_execute("ANALYZE onlyonce_record")
        .await
        .unwrap();
    let scans = "SELECT indexrelname::text, idx_scan FROM pg_stat_user_indexes
                 WHERE relname = 'onlyonce_record'";
    let scans = async || {
        client
            .batch_execute("SELECT pg_stat_clear_snapshot()")
            .await
            .unwrap();
        let rows = client.query(scans, &[]).await.unwrap();
        let counts = rows.iter().map(|row| (row.get(0), row.get(1)));
        counts.collect::<std::collections::HashMap<String, i64>>()
    };
    let filter = Filter {
        unsettled: true,
        ..Filter::default()
    };
    let listed = store.list(&filter, None, 10).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    let used = async {
        while scans().await["onlyonce_record_unsettled"] == 0 {
            // The server tells of its scans a moment after they have ended.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), used)
        .await
        .expect("the index is used");
}
