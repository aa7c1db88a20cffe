//! One request after another: execute, replay, refuse.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{ANYBODY, body, counted, engine, engine_where, kinds, name};
use onlyonce_core::{
    Expiry, Keyring, Policy, Reuse, RouteName, StateKind, StoredResponse, TombstoneReason,
    UnknownReason,
};
use onlyonce_engine::{
    Engine, EngineConfig, EngineError, Finished, GuardError, Outcome, Policies, Reply,
};
use onlyonce_store::{Filter, ListStore, MemoryStore};

/// The promise in one test: the effect happens once, and every retry gets the first answer.
#[tokio::test]
async fn a_retry_gets_the_first_answer_and_runs_nothing() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    let first = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    assert_eq!(name(&first), "executed");
    for _ in 0..3 {
        let again = engine
            .guard("pay", ANYBODY, "k")
            .run(b"", counted(&runs, "ch_2"))
            .await
            .unwrap();
        assert_eq!(body(&again), b"ch_1");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The textbook middleware answers the second payload with the first one's receipt.
#[tokio::test]
async fn another_payload_under_the_key_is_refused() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    let guard = || engine.guard("pay", ANYBODY, "k");
    guard()
        .run(b"10 EUR", counted(&runs, "ch_1"))
        .await
        .unwrap();
    let other = guard()
        .run(b"99 EUR", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(name(&other), "mismatch");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A key shared between tenants shows one tenant's receipt to another.
#[tokio::test]
async fn another_principal_with_the_same_key_runs_its_own_work() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    let guard = |principal| engine.guard("pay", principal, "k");
    guard(b"alice")
        .run(b"", counted(&runs, "alice's"))
        .await
        .unwrap();
    let other = guard(b"bob")
        .run(b"", counted(&runs, "bob's"))
        .await
        .unwrap();
    assert_eq!(name(&other), "executed");
    let again = guard(b"alice").run(b"", counted(&runs, "?")).await.unwrap();
    assert_eq!(body(&again), b"alice's");
}

#[tokio::test]
async fn sixty_four_callers_of_one_key_execute_once_and_the_rest_get_its_answer() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let (engine, work) = (engine.clone(), counted(&runs, "ch_1"));
            tokio::spawn(async move {
                let wait = Duration::from_secs(10);
                engine
                    .guard("pay", ANYBODY, "k")
                    .wait(wait)
                    .run(b"", work)
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut executed = 0;
    for caller in callers {
        match caller.await.unwrap() {
            Reply::Executed { .. } => executed += 1,
            reply => assert_eq!(body(&reply), b"ch_1"),
        }
    }
    assert_eq!((executed, runs.load(Ordering::SeqCst)), (1, 1));
}

/// Work that proves it did nothing gives the key back; the retry runs as a second attempt.
#[tokio::test]
async fn released_work_runs_again_for_the_same_payload_only() {
    let engine = engine().await;
    let released = engine
        .guard("pay", ANYBODY, "k")
        .run(b"a", |_| async { Finished::released(()) });
    assert_eq!(name(&released.await.unwrap()), "executed");
    let other = engine
        .guard("pay", ANYBODY, "k")
        .run(b"b", |_| async { Finished::released(()) });
    assert_eq!(name(&other.await.unwrap()), "mismatch");
    let again = engine
        .guard("pay", ANYBODY, "k")
        .run(b"a", |execution| async move {
            Finished::completed(StoredResponse::from_bytes("done"), execution.attempt())
        });
    assert!(matches!(
        again.await.unwrap(),
        Reply::Executed { value: 2, .. }
    ));
}

/// A 400 before execution must let the client mend the payload under the same key.
#[tokio::test]
async fn rejected_work_leaves_no_trace() {
    let engine = engine().await;
    let rejected = || async {
        Finished {
            outcome: Outcome::Rejected,
            value: (),
        }
    };
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"a", move |_| rejected())
        .await
        .unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let mended = engine
        .guard("pay", ANYBODY, "k")
        .run(b"b", counted(&runs, "ch_1"))
        .await
        .unwrap();
    assert_eq!(name(&mended), "executed");
}

#[tokio::test]
async fn work_that_cannot_tell_is_never_run_again() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", |_| async { Finished::unknown(()) })
        .await
        .unwrap();
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    let Reply::Unknown(Some(record)) = retry else {
        panic!("{}", name(&retry))
    };
    assert_eq!(record.state.kind(), StateKind::Unknown);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// A panic after the charge looks like a panic before it.
#[tokio::test]
async fn a_panic_is_an_unknown_outcome() {
    for callers_work in [false, true] {
        let (engine, runs) = (
            engine_where(callers_work).await,
            Arc::new(AtomicUsize::new(0)),
        );
        let panicked = engine
            .guard("pay", ANYBODY, "k")
            .run(b"", |_| async { panic!("planted") })
            .await
            .unwrap() as Reply<()>;
        let Reply::Unknown(Some(record)) = panicked else {
            panic!("{}", name(&panicked))
        };
        let onlyonce_core::State::Unknown { reason, .. } = record.state else {
            panic!()
        };
        assert_eq!(reason, UnknownReason::Panicked);
        let retry = engine
            .guard("pay", ANYBODY, "k")
            .run(b"", counted(&runs, "ch_2"))
            .await
            .unwrap();
        assert_eq!(name(&retry), "unknown");
    }
}

#[tokio::test]
async fn a_tombstone_refuses_retries_and_never_runs_again() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    let outcome = Outcome::NotReplayable(TombstoneReason::Stream);
    let stream = move |_| async { Finished { outcome, value: () } };
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", stream)
        .await
        .unwrap();
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert!(matches!(
        retry,
        Reply::NotReplayable(TombstoneReason::Stream)
    ));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_single_use_key_is_refused_the_second_time_whatever_it_carries() {
    let single = Policy::builder().reuse(Reuse::SingleUse).build().unwrap();
    let engine = Engine::builder(MemoryStore::new()).policies(Policies::new(single));
    let (engine, runs) = (engine.open().await.unwrap(), Arc::new(AtomicUsize::new(0)));
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    for payload in [&b""[..], b"other"] {
        let again = engine
            .guard("pay", ANYBODY, "k")
            .run(payload, counted(&runs, "ch_2"));
        assert_eq!(name(&again.await.unwrap()), "already used");
    }
}

/// The downstream call of a second attempt must carry the first one's key.
#[tokio::test]
async fn a_child_key_is_the_same_for_every_attempt_and_another_for_every_call() {
    let engine = engine().await;
    let (send, mut keys) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..2 {
        let send = send.clone();
        let work = move |execution: onlyonce_engine::Execution| async move {
            send.send((execution.child_key("card"), execution.child_key("mail")))
                .unwrap();
            Finished::released(())
        };
        engine
            .guard("pay", ANYBODY, "k")
            .run(b"", work)
            .await
            .unwrap();
    }
    let (first, second) = (keys.recv().await.unwrap(), keys.recv().await.unwrap());
    assert_eq!(first, second);
    assert_ne!(first.0, first.1);
    assert_eq!(first.0.len(), 32);
}

/// Stored card data must not lie in the clear where a ring is configured.
#[tokio::test]
async fn with_a_key_ring_the_store_never_sees_the_answer() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let engine = Engine::builder(store.clone()).keyring(Keyring::new(1, [9; 32]));
    let engine = engine.open().await.unwrap();
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "4242424242424242"))
        .await
        .unwrap();
    let rows = store.list(&Filter::default(), None, 10).await.unwrap();
    assert!(!format!("{rows:?}").contains("4242"));
    let again = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "?"))
        .await
        .unwrap();
    assert_eq!(body(&again), b"4242424242424242");

    let without = Engine::builder(store).open().await.unwrap();
    let refused = without
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "?"))
        .await;
    assert!(matches!(
        refused,
        Err(GuardError::Engine(EngineError::Seal(_)))
    ));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// Keys claimed before the secret was rotated are found after it.
#[tokio::test]
async fn a_rotated_secret_still_finds_the_keys_of_the_previous_one() {
    use onlyonce_core::Secret;
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let old = Engine::builder(store.clone())
        .secret(Secret::new([1; 32]))
        .open()
        .await
        .unwrap();
    old.guard("pay", ANYBODY, "k")
        .run(b"a", counted(&runs, "ch_1"))
        .await
        .unwrap();
    let new = Engine::builder(store)
        .secret(Secret::new([2; 32]))
        .previous_secret(Secret::new([1; 32]))
        .open()
        .await
        .unwrap();
    let again = new
        .guard("pay", ANYBODY, "k")
        .run(b"a", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(body(&again), b"ch_1");
    let other = new
        .guard("pay", ANYBODY, "k")
        .run(b"b", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(name(&other), "mismatch");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_malformed_key_is_refused_before_anything_runs() {
    let (engine, runs) = (engine().await, Arc::new(AtomicUsize::new(0)));
    for key in ["", "with space", &"x".repeat(256)] {
        let refused = engine
            .guard("pay", ANYBODY, key)
            .run(b"", counted(&runs, "ch_1"))
            .await;
        assert!(matches!(refused, Err(GuardError::Key(_))), "{key:?}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// Each route keeps its keys as long as its own policy says.
#[tokio::test]
async fn routes_have_their_own_retention() {
    let route = RouteName::new("long").unwrap();
    let long = Policy::builder()
        .retention(Duration::from_secs(86_400 * 30))
        .build()
        .unwrap();
    let store = MemoryStore::new();
    let policies = Policies::default().route(&route, long);
    let engine = Engine::builder(store)
        .policies(policies)
        .open()
        .await
        .unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let mut expiries = Vec::new();
    for route in ["long", "short"] {
        engine
            .guard(route, ANYBODY, "k")
            .run(b"", counted(&runs, "x"))
            .await
            .unwrap();
        let again = engine
            .guard(route, ANYBODY, "k")
            .run(b"", counted(&runs, "x"))
            .await
            .unwrap();
        let Reply::Replayed(replay) = again else {
            panic!()
        };
        expiries.push(replay.expires_at.since(replay.created_at).as_secs() / 86_400);
    }
    assert_eq!(expiries, [30, 1]);
}

/// Past its retention a key is free again, and a soft-expired row stays for audit.
#[tokio::test]
async fn an_expired_key_runs_again_and_is_kept_for_audit_where_asked() {
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(1_000_000));
    let reads = Arc::clone(&clock);
    let store = MemoryStore::with_clock(move || {
        onlyonce_core::Timestamp::from_millis(reads.load(Ordering::SeqCst))
    });
    let policy = Policy::builder()
        .retention(Duration::from_secs(60))
        .expiry(Expiry::Keep(Duration::from_secs(600)))
        .build()
        .unwrap();
    let config = EngineConfig {
        clock_refresh: Duration::ZERO,
        ..EngineConfig::default()
    };
    let open = |store: MemoryStore| {
        Engine::builder(store)
            .config(config)
            .policies(Policies::new(policy.clone()))
            .without_background()
            .open()
    };
    let (engine, runs) = (
        open(store.clone()).await.unwrap(),
        Arc::new(AtomicUsize::new(0)),
    );
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    clock.fetch_add(61_000, Ordering::SeqCst);
    let later = open(store.clone()).await.unwrap();
    assert_eq!(later.sweep().await.unwrap().expired, 1);
    assert_eq!(kinds(&store).await, [StateKind::Expired]);
    let again = later
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(name(&again), "executed");
}

/// A repetition is recognised by its child key. A second attempt that is rejected must not make
/// the third one a stranger to the upstream, which may have executed the first.
#[tokio::test]
async fn a_rejected_repetition_keeps_the_key_where_the_upstream_recognises_it() {
    let dedupes = onlyonce_core::Upstream::Dedupes { reexecute: true };
    let policy = Policy::builder().upstream(dedupes).build().unwrap();
    let engine = Engine::builder(MemoryStore::new()).policies(Policies::new(policy));
    let engine = engine.open().await.unwrap();
    let (send, mut keys) = tokio::sync::mpsc::unbounded_channel();
    let outcomes = [
        Outcome::Unknown(UnknownReason::NoCompleteAnswer),
        Outcome::Rejected,
        Outcome::Completed(StoredResponse::from_bytes("done")),
    ];
    for outcome in outcomes {
        let in_doubt = !matches!(outcome, Outcome::Completed(_));
        let send = send.clone();
        let work = move |execution: onlyonce_engine::Execution| async move {
            send.send(execution.child_key("card")).unwrap();
            Finished { outcome, value: () }
        };
        let reply = engine
            .guard("pay", ANYBODY, "k")
            .run(b"", work)
            .await
            .unwrap();
        let Reply::Executed { outcome, .. } = reply else {
            panic!("{}", name(&reply));
        };
        // That the second attempt was rejected does not make the first one certain.
        assert_eq!(matches!(outcome, Outcome::Unknown(_)), in_doubt);
    }
    let first = keys.recv().await.unwrap();
    assert_eq!(keys.recv().await.unwrap(), first);
    assert_eq!(keys.recv().await.unwrap(), first);
}
