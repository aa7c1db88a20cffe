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
    ANYBODY, Fault, Faulty, body, config_where, counted, eventually, faulty, kinds, name,
};
use onlyonce_core::StateKind;
use onlyonce_engine::{Engine, Event, Observer};

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

/// What panicked cannot be gone on with, and it may have written: the key is given back.
#[tokio::test]
async fn a_claim_that_panics_in_the_store_is_given_back() {
    let (store, runs) = (Faulty::default(), Arc::new(AtomicUsize::new(0)));
    let engine = faulty(&store).await;
    store.fail(&[Fault::WrittenThenPanics]);
    let (asking, work) = (engine.clone(), counted(&runs, "ch_1"));
    let panicked = tokio::spawn(async move {
        let reply = asking.guard("pay", ANYBODY, "k").run(b"", work).await;
        name(&reply.unwrap())
    });
    assert!(panicked.await.unwrap_err().is_panic());
    eventually("the key is released", async || {
        kinds(&store.store).await == [StateKind::Released]
    })
    .await;
    let guard = engine.guard("pay", ANYBODY, "k");
    let retry = guard.run(b"", counted(&runs, "ch_1")).await;
    assert_eq!(name(&retry.unwrap()), "executed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The same when it goes on without its caller.
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
