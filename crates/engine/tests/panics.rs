//! Panics beside the work, in an observer or a store's driver: they strand no key.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    ANYBODY, Fault, Faulty, begun, body, config_where, counted, eventually, faulty, kinds, name,
    short_lease,
};
use onlyonce_core::{StateKind, StoredResponse};
use onlyonce_engine::{Engine, Event, Finished, Observer};

/// An observer that panics about every event whose text has this in it.
struct Frightened(&'static str);

impl Observer for Frightened {
    fn observe(&self, event: &Event<'_>) {
        assert!(!format!("{event:?}").contains(self.0), "planted");
    }
}

/// Between a grant and its work there is nobody else who would give the key back.
#[tokio::test]
async fn an_observer_that_panics_does_not_keep_granted_work_from_running() {
    for about in ["Claimed", "StoreFailed", "Settled"] {
        for callers_work in [false, true] {
            let (store, runs) = (Faulty::default(), Arc::new(AtomicUsize::new(0)));
            let builder = Engine::builder(store.clone()).config(config_where(callers_work));
            let builder = builder.observer(Frightened(about)).without_background();
            let engine = builder.open().await.unwrap();
            let guard = || engine.guard("pay", ANYBODY, "k");
            store.fail(&[Fault::LostUnacknowledged]);
            let first = guard().run(b"", counted(&runs, "ch_1")).await;
            assert_eq!(name(&first.unwrap()), "executed", "{about}");
            let again = guard().run(b"", counted(&runs, "ch_2")).await;
            assert_eq!(body(&again.unwrap()), b"ch_1", "{about}");
            assert_eq!(runs.load(Ordering::SeqCst), 1);
        }
    }
}

/// A driver that panics has said nothing: the key may be held, and is not, unless a look says so.
#[tokio::test]
async fn a_claim_that_panics_in_the_store_executes_once_it_is_known_to_be_written() {
    let (store, runs) = (Faulty::default(), Arc::new(AtomicUsize::new(0)));
    let engine = faulty(&store).await;
    store.fail(&[Fault::WrittenThenPanics]);
    let guard = || engine.guard("pay", ANYBODY, "k");
    let first = guard().run(b"", counted(&runs, "ch_1")).await;
    assert_eq!(name(&first.unwrap()), "executed");
    let again = guard().run(b"", counted(&runs, "ch_2")).await;
    assert_eq!(body(&again.unwrap()), b"ch_1");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The same when it goes on without its caller: nobody executes, so it is given back.
#[tokio::test]
async fn a_claim_that_panics_in_the_store_after_its_caller_left_is_given_back() {
    let (store, runs) = (Faulty::default(), Arc::new(AtomicUsize::new(0)));
    let engine = faulty(&store).await;
    store.fail(&[Fault::Hangs, Fault::WrittenThenPanics]);
    let claim = engine.guard("pay", ANYBODY, "k");
    let asking = claim.run(b"", counted(&runs, "ch_1"));
    let waited = tokio::time::timeout(Duration::from_millis(5), asking).await;
    assert!(waited.is_err(), "the claim hangs");
    eventually("the key is released", async || {
        kinds(&store.store).await == [StateKind::Released]
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// Beside the work a panic of the driver must not cut it off, and after it must not lose its answer.
#[tokio::test]
async fn a_driver_that_panics_takes_no_work_and_no_answer_along() {
    for callers_work in [false, true] {
        let store = Faulty::default();
        let config = config_where(callers_work);
        let builder = Engine::builder(store.clone()).config(config);
        let builder = builder.policies(short_lease()).without_background();
        let engine = builder.open().await.unwrap();
        let end = Finished::completed(StoredResponse::from_bytes("ch_1"), ());
        let (caller, go) = begun(&engine, "k", end).await;
        let before = store.swaps.load(Ordering::SeqCst);
        // A renewal, and what is left of it for the completion.
        store.fail(&[Fault::WrittenThenPanics]);
        eventually("the lease is renewed", async || {
            store.swaps.load(Ordering::SeqCst) > before
        })
        .await;
        store.fail(&[Fault::WrittenThenPanics]);
        go.send(()).unwrap();
        assert_eq!(name(&caller.await.unwrap()), "executed");
        let runs = Arc::new(AtomicUsize::new(0));
        let guard = engine.guard("pay", ANYBODY, "k");
        let again = guard.run(b"", counted(&runs, "ch_2")).await;
        assert_eq!(body(&again.unwrap()), b"ch_1");
    }
}
