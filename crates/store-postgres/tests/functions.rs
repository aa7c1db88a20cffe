//! The SQL functions: an app settles its key in its own transaction.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::time::Duration;

use common::{client, migrated, open};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::suite::samples::{at, completed, executing, id, record, state};
use onlyonce_core::{
    Doubt, Fence, Record, RecordId, Response, State, StateKind, StoredResponse, Timestamp,
    UnknownReason,
};
use onlyonce_store::{Row, Store, Swap, Version};
use onlyonce_store_postgres::{PostgresStore, execution_token};
use tokio_postgres::Client;

const RETENTION: Duration = Duration::from_secs(3600);

struct Setup {
    server: Postgres,
    store: PostgresStore,
    app: Client,
}

impl Setup {
    async fn new() -> Self {
        let server = migrated().await;
        let (store, app) = (open(&server).await, client(&server).await);
        let table = "CREATE TABLE payments (name text PRIMARY KEY)";
        app.batch_execute(table).await.unwrap();
        Self { server, store, app }
    }

    async fn put(&self, record: &Record) -> Version {
        let swap = self.store.swap(&id(1), None, Some(record)).await.unwrap();
        match swap {
            Swap::Won(version) => version,
            Swap::Lost(_) => panic!("the key is free"),
        }
    }

    async fn row(&self) -> Row {
        self.store.load(&id(1)).await.unwrap().unwrap()
    }

    async fn payments(&self) -> i64 {
        let asked = self.app.query_one("SELECT count(*) FROM payments", &[]);
        asked.await.unwrap().get(0)
    }

    async fn run(&self, sql: &str) -> Result<(), String> {
        let ran = self.app.batch_execute(sql).await;
        ran.map_err(|error| {
            error
                .code()
                .map_or_else(String::new, |code| code.code().into())
        })
    }
}

fn token(record: &Record) -> String {
    execution_token(&id(1), record.fence, RETENTION)
}

fn complete(token: &str, body: &str) -> String {
    let headers =
        r#"[["Content-Type", "application/json"], ["x-note", "Größe \\ 1"], ["x-empty", ""]]"#;
    format!("SELECT onlyonce_complete('{token}', 201, '{headers}', convert_to('{body}', 'UTF8'))")
}

fn answer(body: &'static str) -> StoredResponse {
    let lines: [(&[u8], &[u8]); 3] = [
        (b"content-type", b"application/json"),
        (b"x-note", "Größe \\ 1".as_bytes()),
        (b"x-empty", b""),
    ];
    StoredResponse {
        status: 201,
        headers: onlyonce_core::HeaderBlock::from_lines(lines).unwrap(),
        ..StoredResponse::from_bytes(body)
    }
}

/// An app that commits carelessly elsewhere must not show an answer that a crash takes back.
#[tokio::test]
async fn the_transaction_that_settles_a_key_is_synced() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let careless = "DO $$ BEGIN IF current_setting('synchronous_commit') = 'off' THEN \
                    RAISE EXCEPTION 'careless'; END IF; END $$";
    let work = format!(
        "SET synchronous_commit = off; BEGIN; {}; {careless}; COMMIT",
        complete(&token(&claim), "{}")
    );
    setup.run(&work).await.unwrap();
    assert_eq!(
        setup.run(careless).await,
        Err("P0001".into()),
        "elsewhere as before"
    );
}

/// The effect and the completion are one: what the app committed is what a retry replays.
#[tokio::test]
async fn a_completion_in_the_apps_transaction_is_replayed_byte_for_byte() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    let version = setup.put(&claim).await;
    let before = setup.store.now().await.unwrap();
    let work = format!(
        "BEGIN; INSERT INTO payments VALUES ('p1'); {}; COMMIT",
        complete(&token(&claim), "{\"id\":1}")
    );
    setup.run(&work).await.unwrap();
    let row = setup.row().await;
    assert_ne!(row.version, version);
    let State::Completed {
        response,
        expires_at,
    } = row.record.state.clone()
    else {
        panic!("{:?}", row.record.state);
    };
    assert_eq!(response, Response::Plain(answer("{\"id\":1}")));
    assert!(expires_at >= before.after(RETENTION));
    assert!(expires_at <= setup.store.now().await.unwrap().after(RETENTION));
    let expected = Record {
        state: row.record.state.clone(),
        updated_at: row.record.updated_at,
        // Nobody asks about a known outcome.
        memo: bytes::Bytes::new(),
        ..claim
    };
    assert_eq!(*row.record, expected);
    assert_eq!(setup.payments().await, 1);
}

/// What was rolled back did not happen, and the key does not say that it did.
#[tokio::test]
async fn a_rollback_takes_the_completion_along() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    let version = setup.put(&claim).await;
    let work = format!(
        "BEGIN; INSERT INTO payments VALUES ('p1'); {}; ROLLBACK",
        complete(&token(&claim), "gone")
    );
    setup.run(&work).await.unwrap();
    let row = setup.row().await;
    assert_eq!((row.version, *row.record), (version, claim));
    assert_eq!(setup.payments().await, 0);
}

/// The heart of it: an execution that lost its key cannot commit its effect.
#[tokio::test]
async fn another_fence_aborts_the_apps_transaction() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let zombie = Record {
        fence: Fence::from_bytes([9; 16]),
        ..claim.clone()
    };
    for call in [
        complete(&token(&zombie), "zombie"),
        format!("SELECT onlyonce_release('{}')", token(&zombie)),
        format!("SELECT onlyonce_unknown('{}')", token(&zombie)),
    ] {
        let work = format!("BEGIN; INSERT INTO payments VALUES ('p1'); {call}; COMMIT");
        assert_eq!(setup.run(&work).await, Err("OO001".into()), "{call}");
        setup.run("ROLLBACK").await.unwrap();
        assert_eq!(setup.payments().await, 0);
        assert_eq!(*setup.row().await.record, claim);
    }
    let nowhere = execution_token(&id(2), claim.fence, RETENTION);
    let absent = setup.run(&complete(&nowhere, "absent")).await;
    assert_eq!(absent, Err("OO001".into()));
}

/// Two executors race with the same effect: one commits, the other's effect is undone.
#[tokio::test]
async fn of_an_old_and_a_new_execution_only_the_holder_commits() {
    let setup = Setup::new().await;
    let first = executing(1, at(5_000));
    let version = setup.put(&first).await;
    let second = executing(2, at(9_000));
    let swap = setup.store.swap(&id(1), Some(version), Some(&second)).await;
    assert!(matches!(swap, Ok(Swap::Won(_))));
    let other = client(&setup.server).await;
    let work = |record: &Record, name: &str| {
        let call = complete(&token(record), name);
        format!("BEGIN; INSERT INTO payments VALUES ('{name}'); {call}; COMMIT")
    };
    let (stale, held) = (work(&first, "stale"), work(&second, "held"));
    let (stale, held) = tokio::join!(setup.app.batch_execute(&stale), other.batch_execute(&held));
    assert_eq!(stale.unwrap_err().code().unwrap().code(), "OO001");
    held.unwrap();
    setup.run("ROLLBACK").await.unwrap();
    assert_eq!(setup.payments().await, 1);
}

#[tokio::test]
async fn completing_twice_with_the_same_answer_is_harmless() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let call = complete(&token(&claim), "same");
    setup.run(&call).await.unwrap();
    let row = setup.row().await;
    setup.run(&call).await.unwrap();
    assert_eq!(setup.row().await, row);
    let another = setup.run(&complete(&token(&claim), "another")).await;
    assert_eq!(another, Err("OO003".into()));
    assert_eq!(setup.row().await, row);
}

/// The executor's own word beats what was presumed meanwhile; a settled key is settled.
#[tokio::test]
async fn what_may_be_settled_depends_on_the_state() {
    let cases = [
        (StateKind::Executing, [None, None, None]),
        (StateKind::Unknown, [None, None, None]),
        (StateKind::DeadLetter, [None, None, None]),
        (StateKind::Released, [Some("OO001"), None, Some("OO001")]),
        (
            StateKind::Completed,
            [Some("OO003"), Some("OO001"), Some("OO001")],
        ),
        (
            StateKind::Expired,
            [Some("OO001"), Some("OO001"), Some("OO001")],
        ),
    ];
    let setup = Setup::new().await;
    for (kind, expected) in cases {
        for (call, expected) in ["complete", "release", "unknown"].into_iter().zip(expected) {
            let record = record(1, state(kind, at(1 << 50)));
            let version = setup.put(&record).await;
            let token = token(&record);
            let sql = match call {
                "complete" => complete(&token, "done"),
                other => format!("SELECT onlyonce_{other}('{token}')"),
            };
            let error = setup.run(&sql).await.err();
            assert_eq!(error.as_deref(), expected, "{call} of {kind:?}");
            let row = setup.row().await;
            if expected.is_some() {
                assert_eq!((&*row.record, row.version), (&record, version));
            }
            let _ = setup.store.swap(&id(1), Some(row.version), None).await;
        }
    }
}

#[tokio::test]
async fn a_release_and_an_unknown_are_read_by_the_store() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let now = setup.store.now().await.unwrap();
    let unknown = format!("SELECT onlyonce_unknown('{}')", token(&claim));
    setup.run(&unknown).await.unwrap();
    let State::Unknown {
        reason: UnknownReason::HandlerSaidSo,
        since,
        reconcile_at,
        attempts: 0,
    } = setup.row().await.record.state
    else {
        panic!("unknown, because the handler said so");
    };
    assert!(since >= now && reconcile_at >= since);
    let release = format!("SELECT onlyonce_release('{}')", token(&claim));
    setup.run(&release).await.unwrap();
    let State::Released { expires_at } = setup.row().await.record.state else {
        panic!("released");
    };
    assert!(expires_at >= now.after(RETENTION));
}

/// That a second attempt did nothing says nothing about the first, of which nobody knows.
#[tokio::test]
async fn a_release_leaves_the_doubt_about_an_earlier_attempt() {
    let setup = Setup::new().await;
    let mut claim = executing(1, at(5_000));
    let reason = UnknownReason::NoCompleteAnswer;
    claim.state = State::Executing {
        lease_until: at(5_000),
        doubt: Some(Doubt {
            reason,
            since: at(1_000),
        }),
    };
    claim.attempt = 2;
    setup.put(&claim).await;
    assert_eq!(*setup.row().await.record, claim);
    let release = format!("SELECT onlyonce_release('{}')", token(&claim));
    // The second time because the first acknowledgement was lost.
    for _ in 0..2 {
        setup.run(&release).await.unwrap();
        let State::Unknown {
            reason: kept,
            since,
            attempts: 0,
            ..
        } = setup.row().await.record.state
        else {
            panic!("unknown again");
        };
        assert_eq!((kept, since), (reason, at(1_000)));
    }
}

/// A sweeper was faster: what it presumed, the app now says itself.
#[tokio::test]
async fn an_app_that_does_not_know_says_so_of_a_key_that_is_unknown_already() {
    for kind in [StateKind::Unknown, StateKind::DeadLetter] {
        let setup = Setup::new().await;
        let mut claim = executing(1, at(5_000));
        claim.state = state(kind, at(5_000));
        setup.put(&claim).await;
        let unknown = format!("SELECT onlyonce_unknown('{}')", token(&claim));
        let mut versions = Vec::new();
        for _ in 0..2 {
            setup.run(&unknown).await.unwrap();
            let row = setup.row().await;
            versions.push(row.version);
            let (State::Unknown { reason, .. } | State::DeadLetter { reason, .. }) =
                row.record.state
            else {
                panic!("as before, but for the reason");
            };
            assert_eq!(reason, UnknownReason::HandlerSaidSo);
            assert_eq!(row.record.state.deadline(), claim.state.deadline());
        }
        assert_eq!(versions[0], versions[1], "the second time changes nothing");
    }
}

#[tokio::test]
async fn nonsense_is_refused_before_anything_is_written() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let good = token(&claim);
    for call in [
        "onlyonce_complete('v2.1.2.3', 200, '[]', '')".to_owned(),
        "onlyonce_complete('', 200, '[]', '')".to_owned(),
        "onlyonce_release(NULL)".to_owned(),
        format!("onlyonce_complete('{good}9999999999999999', 200, '[]', '')"),
        format!("onlyonce_complete('{good}', 99, '[]', '')"),
        format!("onlyonce_complete('{good}', 103, '[]', '')"),
        // What a driver makes of an optional parameter.
        "onlyonce_begin('t', 'k', 'p', lease => NULL)".to_owned(),
        "onlyonce_begin('t', 'k', 'p', retention => NULL)".to_owned(),
        "onlyonce_begin('t', 'k', 'p', route => NULL)".to_owned(),
        format!("onlyonce_complete('{good}', NULL, '[]', '')"),
        format!("onlyonce_complete('{good}', 200, '\"text\"', '')"),
        format!("onlyonce_complete('{good}', 200, '[[\"a\"]]', '')"),
        format!("onlyonce_complete('{good}', 200, '[[\"a b\", \"c\"]]', '')"),
        format!("onlyonce_complete('{good}', 200, '[[\"a\", \"c\\r\\nd: e\"]]', '')"),
        format!("onlyonce_complete('{good}', 200, '{{\"a\": null}}', '')"),
    ] {
        let refused = setup.run(&format!("SELECT {call}")).await;
        assert_eq!(refused, Err("OO002".into()), "{call}");
    }
    assert_eq!(*setup.row().await.record, claim);
}

#[tokio::test]
async fn headers_may_be_an_object_with_lists() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let call = format!(
        "SELECT onlyonce_complete('{}', 200, '{{\"Set-Cookie\": [\"a=1\", \"b=2\"], \"etag\": \"x\"}}', NULL)",
        token(&claim)
    );
    setup.run(&call).await.unwrap();
    let State::Completed {
        response: Response::Plain(plain),
        ..
    } = setup.row().await.record.state
    else {
        panic!("completed");
    };
    let mut lines: Vec<_> = plain.headers.iter().collect();
    lines.sort_unstable();
    let expected: [(&[u8], &[u8]); 3] = [
        (b"etag", b"x"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ];
    assert_eq!(lines, expected);
    assert!(plain.body.is_empty());
}

/// For ever saturates; it does not wrap around to the past.
#[tokio::test]
async fn a_retention_without_end_never_passes() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let forever = execution_token(&id(1), claim.fence, Duration::MAX);
    setup.run(&complete(&forever, "kept")).await.unwrap();
    let deadline = setup.row().await.record.state.deadline();
    assert_eq!(deadline, Some(Timestamp::from_millis(u64::MAX)));
    assert!(setup.store.due(at(u64::MAX), 10).await.unwrap().is_empty());
}

/// A gateway that renews the lease while the app's transaction holds the row must neither wait
/// for ever nor hold up others.
#[tokio::test]
async fn a_row_held_by_an_app_holds_up_no_other_row() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    let version = setup.put(&claim).await;
    let hold = format!("BEGIN; {}", complete(&token(&claim), "slow"));
    setup.run(&hold).await.unwrap();
    let renewed = executing(1, at(9_000));
    let renewal = {
        let (store, renewed) = (setup.store.clone(), renewed.clone());
        tokio::spawn(async move { store.swap(&id(1), Some(version), Some(&renewed)).await })
    };
    for number in 2..60 {
        let claim = executing(number, at(5_000));
        let swap = setup.store.swap(&id(number), None, Some(&claim)).await;
        assert!(matches!(swap, Ok(Swap::Won(_))), "{number}: {swap:?}");
        // A claim of the held key learns its last committed row, without waiting.
        let retry = setup.store.swap(&id(1), None, Some(&claim)).await;
        assert!(matches!(retry, Ok(Swap::Lost(Some(_)))), "{retry:?}");
    }
    assert!(!renewal.is_finished());
    setup.run("COMMIT").await.unwrap();
    match renewal.await.unwrap() {
        Ok(Swap::Lost(Some(row))) => assert_eq!(row, setup.row().await),
        other => panic!("{other:?}"),
    }
}

const BEGIN: &str = "SELECT decision, execution, status, headers::text, body \
     FROM onlyonce_begin('tenant-1', 'key-1', 'payload')";

/// An app without a gateway: claim, effect and completion in one transaction.
#[tokio::test]
async fn begin_effect_and_completion_are_one_transaction() {
    let setup = Setup::new().await;
    setup.run("BEGIN").await.unwrap();
    let begun = setup.app.query_one(BEGIN, &[]).await.unwrap();
    assert_eq!(begun.get::<_, &str>(0), "execute");
    let execution: String = begun.get(1);
    setup
        .run("INSERT INTO payments VALUES ('p1')")
        .await
        .unwrap();
    // A second caller waits for the first one's commit, and then gets its answer.
    let other = client(&setup.server).await;
    let second = tokio::spawn(async move { other.query_one(BEGIN, &[]).await });
    setup.run(&complete(&execution, "paid")).await.unwrap();
    setup.run("COMMIT").await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.get::<_, &str>(0), "replay");
    assert_eq!(second.get::<_, Option<&str>>(1), None);
    assert_eq!(second.get::<_, i32>(2), 201);
    let headers: serde_json::Value = serde_json::from_str(second.get(3)).unwrap();
    let expected = serde_json::json!([
        ["content-type", "application/json"],
        ["x-note", "Größe \\ 1"],
        ["x-empty", ""]
    ]);
    assert_eq!(headers, expected);
    assert_eq!(second.get::<_, &[u8]>(4), b"paid");
    assert_eq!(setup.payments().await, 1);
}

/// Whoever asks in a transaction that lasts must not keep the one that is at work from completing.
#[tokio::test]
async fn a_begin_that_is_told_to_wait_locks_nothing() {
    let setup = Setup::new().await;
    let begun = setup.app.query_one(BEGIN, &[]).await.unwrap();
    let execution: String = begun.get(1);
    let other = client(&setup.server).await;
    other.batch_execute("BEGIN").await.unwrap();
    let asked = other.query_one(BEGIN, &[]).await.unwrap();
    assert_eq!(asked.get::<_, &str>(0), "in_flight");
    setup.run("SET lock_timeout = '2s'").await.unwrap();
    setup.run(&complete(&execution, "paid")).await.unwrap();
    let asked = other.query_one(BEGIN, &[]).await.unwrap();
    assert_eq!(asked.get::<_, &str>(0), "replay");
    other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn what_begin_wrote_is_read_by_the_store() {
    let setup = Setup::new().await;
    let begun = setup.app.query_one(BEGIN, &[]).await.unwrap();
    let execution: &str = begun.get(1);
    let mut parts = execution.split('.').skip(1);
    let row_id = RecordId::from_hex(parts.next().unwrap()).unwrap();
    let row = setup.store.load(&row_id).await.unwrap().unwrap();
    assert_eq!(row.record.fence.to_string(), parts.next().unwrap());
    assert_eq!(parts.next(), Some("86400000"));
    assert_eq!(row.record.state.kind(), StateKind::Executing);
    assert_eq!(row.record.attempt, 1);
    assert_eq!(row.record.route.as_str(), "sql");
    let lease = row
        .record
        .state
        .deadline()
        .unwrap()
        .since(row.record.created_at);
    assert_eq!(lease, Duration::from_secs(15));
}

/// The same rules as the gateway's, state by state.
#[tokio::test]
async fn begin_decides_as_the_rules_say() {
    let setup = Setup::new().await;
    let decide = async |sql: &str| -> (String, Option<String>) {
        let row = setup.app.query_one(sql, &[]).await.unwrap();
        (row.get(0), row.get(1))
    };
    let (decision, execution) = decide(BEGIN).await;
    assert_eq!(decision, "execute");
    let execution = execution.unwrap();
    assert_eq!(decide(BEGIN).await, ("in_flight".into(), None));
    let other_payload = BEGIN.replace("'payload'", "'another'");
    assert_eq!(decide(&other_payload).await, ("mismatch".into(), None));
    let other_tenant = BEGIN.replace("tenant-1", "tenant-2");
    assert_eq!(decide(&other_tenant).await.0, "execute");
    let slid = BEGIN.replace("'tenant-1', 'key-1'", "'tenant-1k', 'ey-1'");
    assert_eq!(decide(&slid).await.0, "execute");
    let release = format!("SELECT onlyonce_release('{execution}')");
    setup.run(&release).await.unwrap();
    let (decision, second) = decide(BEGIN).await;
    assert_eq!(decision, "execute");
    let second = second.unwrap();
    assert_ne!(second, execution);
    assert_eq!(
        setup.run(&complete(&execution, "late")).await,
        Err("OO001".into())
    );
    setup
        .run("UPDATE onlyonce_record SET deadline = 1")
        .await
        .unwrap();
    assert_eq!(decide(BEGIN).await, ("unknown".into(), None));
    assert_eq!(decide(BEGIN).await, ("unknown".into(), None));
    setup.run(&complete(&second, "after all")).await.unwrap();
    assert_eq!(decide(BEGIN).await, ("replay".into(), None));
    setup
        .run("UPDATE onlyonce_record SET deadline = 1")
        .await
        .unwrap();
    assert_eq!(decide(&other_payload).await.0, "execute");
}

/// An app's role needs one right: to call the functions. It sees no row and no secret.
#[tokio::test]
async fn an_app_needs_no_right_to_the_tables() {
    let setup = Setup::new().await;
    let claim = executing(1, at(5_000));
    setup.put(&claim).await;
    let grants = "CREATE ROLE app; GRANT INSERT ON payments TO app; SET ROLE app";
    setup.run(grants).await.unwrap();
    let call = complete(&token(&claim), "paid");
    assert_eq!(setup.run(&call).await, Err("42501".into()));
    let table = "SELECT * FROM onlyonce_record";
    assert_eq!(setup.run(table).await, Err("42501".into()));
    let grant = "RESET ROLE; GRANT EXECUTE ON FUNCTION \
                 onlyonce_complete(text, integer, jsonb, bytea) TO app; SET ROLE app";
    setup.run(grant).await.unwrap();
    setup.run(&call).await.unwrap();
    assert_eq!(setup.run(table).await, Err("42501".into()));
    let expected = completed(1, "").state.kind();
    assert_eq!(setup.row().await.record.state.kind(), expected);
}
