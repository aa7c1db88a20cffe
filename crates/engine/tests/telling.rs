//! What people and their metrics are told is what happened, also when an acknowledgement is lost.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{ANYBODY, EventLog, Fault, Faulty, counted, faulty, name, rows};
use onlyonce_core::{
    Decision, Fence, RecordId, Resolution, Response, State, StateKind, StoredResponse,
    UnknownReason,
};
use onlyonce_engine::{Engine, EngineError, Finished, Outcome, Reply};
use onlyonce_store::{MemoryStore, Store};

/// A key whose outcome is unknown, and its fence.
async fn unknown_key(engine: &Engine<Faulty>, store: &Faulty) -> (RecordId, Fence) {
    let unknown = Finished {
        outcome: Outcome::Unknown(UnknownReason::HandlerSaidSo),
        value: (),
    };
    let work = |_| std::future::ready(unknown);
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    reply.unwrap();
    let (id, record) = rows(&store.store).await.remove(0);
    assert_eq!(record.state.kind(), StateKind::Unknown);
    (id, record.fence)
}

/// An operator who is told "refused" pays by hand, and the retry of a key that was released after
/// all charges once more.
#[tokio::test]
async fn a_persons_decision_whose_acknowledgement_was_lost_is_not_called_refused() {
    let decisions = [
        (Resolution::Released, Decision::Settled),
        (
            Resolution::Completed(Response::Plain(StoredResponse::from_bytes("by hand"))),
            Decision::Settled,
        ),
        (Resolution::Forget, Decision::Settled),
        (Resolution::AskAgain, Decision::Rescheduled),
    ];
    for (resolution, expected) in decisions {
        for fault in [
            Fault::WrittenUnacknowledged,
            Fault::LostUnacknowledged,
            Fault::Hangs,
        ] {
            let store = Faulty::default();
            let engine = faulty(&store).await;
            let (id, fence) = unknown_key(&engine, &store).await;
            store.fail(&[fault]);
            let told = engine.resolve(&id, fence, resolution.clone()).await;
            assert_eq!(told, Ok(expected), "{resolution:?} {fault:?}");
        }
    }
}

/// It was released, and others have changed the key since. Nobody can tell the person more.
#[tokio::test]
async fn a_persons_decision_that_others_have_overtaken_is_uncertain_and_not_refused() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let (id, fence) = unknown_key(&engine, &store).await;
    store.fail(&[Fault::WrittenThenGone]);
    let told = engine.resolve(&id, fence, Resolution::Released).await;
    let is_uncertain = matches!(&told, Err(EngineError::Store(error)) if error.may_have_written());
    assert!(is_uncertain, "{told:?}");
}

/// Clients retry more often than anybody sweeps. Whoever notices first tells of it.
#[tokio::test]
async fn a_lease_whose_end_a_retry_notices_is_told_of() {
    let (store, events) = (MemoryStore::new(), EventLog::default());
    let engine = Engine::builder(store.clone())
        .observer(events.clone())
        .without_background();
    let engine = engine.open().await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let retry = async || {
        let retry = engine.guard("pay", ANYBODY, "k");
        retry.run(b"", counted(&runs, "ch_1")).await.unwrap()
    };
    assert_eq!(name(&retry().await), "executed");
    // As a process leaves it that was killed in the middle, some time ago.
    let (id, mut record) = rows(&store).await.remove(0);
    record.state = State::Executing {
        lease_until: record.created_at,
        doubt: None,
    };
    let version = store.load(&id).await.unwrap().unwrap().version;
    let _ = store.swap(&id, Some(version), Some(&record)).await.unwrap();
    assert_eq!(name(&retry().await), "unknown");
    assert_eq!(name(&retry().await), "unknown");
    assert_eq!(events.count("BecameUnknown"), 1);
    assert_eq!(events.count("decision: LeaseExpired"), 1);
}

/// One damaged row is no failing store: it is told of, and then left alone for a while.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_not_told_of_at_every_pass_and_can_be_removed() {
    let (store, events) = (Faulty::default(), EventLog::default());
    let engine = Engine::builder(store.clone()).observer(events.clone());
    let engine = engine.without_background().open().await.unwrap();
    let (id, _) = unknown_key(&engine, &store).await;
    let (_, mut record) = rows(&store.store).await.remove(0);
    record.state = State::Executing {
        lease_until: record.created_at,
        doubt: None,
    };
    let version = store.load(&id).await.unwrap().unwrap().version;
    let _ = store.swap(&id, Some(version), Some(&record)).await.unwrap();
    *store.corrupt.lock().unwrap() = true;
    let mut failed = 0;
    for _ in 0..100 {
        failed += engine.sweep().await.unwrap().failed;
    }
    // Once at first; then after a second, two, four … if this takes so long.
    assert!((1..10).contains(&failed), "{failed}");
    assert_eq!(events.count("StoreFailed"), failed);
    // Not by a version that nobody has seen.
    let told = engine.forget_unreadable(&id, version).await;
    assert_eq!(told, Ok(Decision::Fenced));
    *store.corrupt.lock().unwrap() = false;
    let version = store.load(&id).await.unwrap().unwrap().version;
    let told = engine.forget_unreadable(&id, version).await;
    assert_eq!(told, Ok(Decision::Settled));
    assert_eq!(rows(&store.store).await, []);
}

/// Writes that stall and reads that do not: the caller is told when the patience ends, and not after
/// as many writes as there may be rounds.
#[tokio::test]
async fn a_caller_waits_no_longer_than_the_patience_for_an_outcome_to_be_written() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let stalling = store.clone();
    let work = move |_| {
        stalling.fail(&[Fault::Hangs; 100]);
        std::future::ready(Finished::completed(StoredResponse::from_bytes("ch_1"), ()))
    };
    let before = store.swaps.load(Ordering::SeqCst);
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    assert!(matches!(reply, Ok(Reply::Unknown(_))));
    // The claim; writes of 50 ms each for 300 ms; and the one that was under way by then.
    let swaps = store.swaps.load(Ordering::SeqCst) - before;
    assert!((2..=8).contains(&swaps), "{swaps}");
}
