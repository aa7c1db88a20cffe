//! Shutting down, limits, waiting, renewing: the engine over time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    ANYBODY, Faulty, begun, body, config_where, counted, faulty, kinds, name, short_lease,
};
use onlyonce_core::{RecordId, State, StateKind, StoredResponse, Timestamp};
use onlyonce_engine::{Engine, EngineConfig, EngineError, Finished, GuardError, Outcome, Reply};
use onlyonce_store::MemoryStore;
use tokio::sync::oneshot;

/// Shutting down: what can finish finishes, the rest is unknown, nothing new begins, and
/// replays are still answered.
#[tokio::test]
async fn draining_finishes_what_it_can_and_settles_the_rest_as_unknown() {
    for callers_work in [false, true] {
        let store = MemoryStore::new();
        let config = config_where(callers_work);
        let engine = Engine::builder(store.clone()).config(config);
        let engine = engine.open().await.unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        engine
            .guard("pay", ANYBODY, "done")
            .run(b"", counted(&runs, "done"))
            .await
            .unwrap();
        let (begin, begun) = oneshot::channel();
        let stuck = tokio::spawn({
            let engine = engine.clone();
            async move {
                let work = |_| async move {
                    begin.send(()).unwrap();
                    std::future::pending::<Finished<()>>().await
                };
                engine
                    .guard("pay", ANYBODY, "stuck")
                    .run(b"", work)
                    .await
                    .unwrap()
            }
        });
        begun.await.unwrap();
        assert_eq!(engine.drain(Duration::from_millis(20)).await, 1);
        assert_eq!(name(&stuck.await.unwrap()), "unknown");
        let refused = engine
            .guard("pay", ANYBODY, "new")
            .run(b"", counted(&runs, "new"))
            .await;
        assert!(matches!(
            refused,
            Err(GuardError::Engine(EngineError::ShuttingDown))
        ));
        let replay = engine
            .guard("pay", ANYBODY, "done")
            .run(b"", counted(&runs, "?"))
            .await
            .unwrap();
        assert_eq!(body(&replay), b"done");
        let mut kinds = kinds(&store).await;
        kinds.sort();
        assert_eq!(kinds, [StateKind::Unknown, StateKind::Completed]);
    }
}

#[tokio::test]
async fn the_limit_of_executions_refuses_new_work_and_still_replays() {
    let config = EngineConfig {
        executions_max: 1,
        ..EngineConfig::default()
    };
    let engine = Engine::builder(MemoryStore::new())
        .config(config)
        .open()
        .await
        .unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    engine
        .guard("pay", ANYBODY, "done")
        .run(b"", counted(&runs, "done"))
        .await
        .unwrap();
    let end = Finished {
        outcome: Outcome::Released,
        value: (),
    };
    let (running, go) = begun(&engine, "busy", end).await;
    let refused = engine
        .guard("pay", ANYBODY, "new")
        .run(b"", counted(&runs, "new"))
        .await;
    assert!(matches!(
        refused,
        Err(GuardError::Engine(EngineError::Overloaded { limit: 1 }))
    ));
    let replay = engine
        .guard("pay", ANYBODY, "done")
        .run(b"", counted(&runs, "?"))
        .await
        .unwrap();
    assert_eq!(body(&replay), b"done");
    go.send(()).unwrap();
    running.await.unwrap();
    let admitted = engine
        .guard("pay", ANYBODY, "new")
        .run(b"", counted(&runs, "new"))
        .await
        .unwrap();
    assert_eq!(name(&admitted), "executed");
}

/// One round trip for a claim and one for a completion, where reading costs one too.
#[tokio::test]
async fn a_new_key_costs_two_swaps_and_no_read_on_a_remote_store() {
    let store = Faulty {
        cheap_reads: false,
        ..Faulty::default()
    };
    let engine = faulty(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));
    store.swaps.store(0, Ordering::SeqCst);
    store.loads.store(0, Ordering::SeqCst);
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    let counts = || {
        (
            store.swaps.load(Ordering::SeqCst),
            store.loads.load(Ordering::SeqCst),
        )
    };
    assert_eq!(counts(), (2, 0));
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(counts(), (3, 0));
}

/// A waiter in this process is woken by the completion, not by its next poll.
#[tokio::test]
async fn a_waiter_is_woken_at_once() {
    let config = EngineConfig {
        wait_poll_min: Duration::from_secs(3600),
        wait_poll_max: Duration::from_secs(3600),
        ..EngineConfig::default()
    };
    let engine = Engine::builder(MemoryStore::new())
        .config(config)
        .open()
        .await
        .unwrap();
    let end = Finished::completed(StoredResponse::from_bytes("ch_1"), ());
    let (first, go) = begun(&engine, "k", end).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let mut waiter = Box::pin(
        engine
            .guard("pay", ANYBODY, "k")
            .wait(Duration::from_secs(7200))
            .run(b"", counted(&runs, "?")),
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(20), &mut waiter)
            .await
            .is_err()
    );
    go.send(()).unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(10), waiter)
        .await
        .expect("woken");
    assert_eq!(body(&woken.unwrap()), b"ch_1");
    first.await.unwrap();
}

/// The end of a lease, as it is stored.
async fn lease_end(engine: &Engine<MemoryStore>, id: &RecordId) -> Timestamp {
    let record = engine.inspect(id).await.unwrap().expect("claimed");
    let State::Executing { lease_until, .. } = record.state else {
        panic!("{:?}", record.state.kind());
    };
    lease_until
}

/// The work is slower than its lease; renewing keeps the key.
#[tokio::test]
async fn a_lease_is_renewed_while_the_work_runs() {
    let engine = Engine::builder(MemoryStore::new()).policies(short_lease());
    let engine = engine.open().await.unwrap();
    let inside = engine.clone();
    let work = |execution: onlyonce_engine::Execution| async move {
        let first = lease_end(&inside, execution.id()).await;
        let outlasted = async {
            while !first.has_passed(inside.now())
                || lease_end(&inside, execution.id()).await == first
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let outlasted = tokio::time::timeout(Duration::from_secs(10), outlasted).await;
        outlasted.expect("the first lease is over, and another one is stored");
        Finished::completed(StoredResponse::from_bytes("slow"), execution.is_held())
    };
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", work)
        .await
        .unwrap();
    assert!(
        matches!(reply, Reply::Executed { value: true, .. }),
        "{}",
        name(&reply)
    );
}
