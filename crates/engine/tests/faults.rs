//! Callers that vanish, stores that fail, leases that run out: never a second execution.

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

use common::{
    ANYBODY, EventLog, Fault, Faulty, begun, body, config_where, counted, engine_where, eventually,
    faulty, kinds, name, short_lease,
};
use futures_util::FutureExt as _;
use onlyonce_core::{
    Command, Policy, Response, Reuse, StateKind, StoredResponse, TombstoneReason, Verdict,
};
use onlyonce_engine::{
    Carried, Engine, EngineConfig, EngineError, Finished, GuardError, Outcome, Policies, Reply,
    Resolver, TokioRuntime,
};
use onlyonce_store::{Filter, ListStore as _, MemoryStore};
use tokio::sync::oneshot;

/// A client that hangs up in the middle must not cancel the completion: its retry would find
/// the key stuck, or charge again.
#[tokio::test]
async fn a_dropped_caller_does_not_cancel_its_work() {
    for callers_work in [false, true] {
        let engine = engine_where(callers_work).await;
        let end = Finished::completed(StoredResponse::from_bytes("ch_1"), ());
        let (caller, go) = begun(&engine, "k", end).await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        let runs = Arc::new(AtomicUsize::new(0));
        let waiting = engine
            .guard("pay", ANYBODY, "k")
            .wait(Duration::from_secs(10));
        let waiting = waiting.run(b"", counted(&runs, "ch_2"));
        go.send(()).unwrap();
        assert_eq!(body(&waiting.await.unwrap()), b"ch_1");
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}

/// A caller may go away between any two steps of its request. What it began is finished, what it did
/// not begin is given back, and its retry makes it one execution in all.
#[tokio::test]
async fn wherever_a_caller_goes_away_its_work_is_done_once() {
    for callers_work in [false, true] {
        let engine = engine_where(callers_work).await;
        let mut left_after = 0;
        for polls in 0.. {
            let (runs, key) = (Arc::new(AtomicUsize::new(0)), format!("k-{polls}"));
            let again = Arc::clone(&runs);
            let work = |_| async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                again.fetch_add(1, Ordering::SeqCst);
                Finished::completed(StoredResponse::from_bytes("ch_1"), ())
            };
            let guard = engine.guard("pay", ANYBODY, &key);
            let has_ended = {
                let mut running = std::pin::pin!(guard.run(b"", work));
                let mut has_ended = false;
                for _ in 0..polls {
                    has_ended |= running.as_mut().now_or_never().is_some();
                    if has_ended {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                has_ended
            };
            let guard = engine.guard("pay", ANYBODY, &key);
            let retry = guard.wait(Duration::from_secs(10));
            let retry = retry.run(b"", counted(&runs, "ch_1")).await.unwrap();
            let answer = if let Reply::Executed { value, .. } = &retry {
                value.as_bytes()
            } else {
                body(&retry)
            };
            assert_eq!(answer, b"ch_1", "gone after {polls} polls");
            assert_eq!(runs.load(Ordering::SeqCst), 1, "gone after {polls} polls");
            if has_ended {
                left_after = polls;
                break;
            }
        }
        assert!(left_after > 1, "it goes away in the middle, too");
    }
}

/// What a request's task has with it, its work has, also after the caller has gone: lines of a log
/// would belong to nobody.
#[tokio::test]
async fn work_keeps_what_its_caller_had() {
    for callers_work in [false, true] {
        let engine = engine_where(callers_work).await;
        let (go, may_go) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let work = |_| async move {
            may_go.await.unwrap();
            let carried = TokioRuntime::carried().and_then(|it| it.downcast_ref().copied());
            tell.send(carried).unwrap();
            Finished::completed(StoredResponse::from_bytes("ch_1"), ())
        };
        let guard = engine.guard("pay", ANYBODY, "k");
        let what: Carried = Arc::new(7_u8);
        let mut running = Box::pin(TokioRuntime::carry(Some(what), guard.run(b"", work)));
        for _ in 0..10 {
            assert!(running.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(running);
        go.send(()).unwrap();
        assert_eq!(told.await, Ok(Some(7_u8)));
    }
}

/// The claim of a caller that vanished may still win. Nobody would execute it, so it must be
/// given back instead of becoming unknown.
#[tokio::test]
async fn a_claim_whose_caller_vanished_is_given_back() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    store.fail(&[Fault::Hangs]);
    let runs = Arc::new(AtomicUsize::new(0));
    {
        let mut asking = Box::pin(
            engine
                .guard("pay", ANYBODY, "k")
                .run(b"", counted(&runs, "ch_1")),
        );
        let polled = tokio::time::timeout(Duration::from_millis(5), &mut asking).await;
        assert!(polled.is_err(), "the claim hangs");
    }
    // Carried on in the background: the hung swap times out, the row is read, the second swap
    // wins, and the key is released.
    eventually("the key is released", async || {
        kinds(&store.store).await == [StateKind::Released]
    })
    .await;
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    assert_eq!(name(&retry), "executed");
}

/// An engine that looks for late writes for as long as a test takes.
async fn patient(store: &Faulty) -> Engine<Faulty> {
    patient_with(store, Policies::default()).await
}

async fn patient_with(store: &Faulty, policies: Policies) -> Engine<Faulty> {
    let config = EngineConfig {
        store_timeout: Duration::from_millis(50),
        settle_patience: Duration::from_secs(10),
        ..EngineConfig::default()
    };
    let builder = Engine::builder(store.clone())
        .config(config)
        .policies(policies);
    builder.without_background().open().await.unwrap()
}

/// A commit that waited for a standby appears after its caller was told that nothing was executed:
/// where there was no row, and over one that was released.
#[tokio::test]
async fn a_claim_that_is_written_after_it_was_given_up_is_given_back() {
    for is_second in [false, true] {
        let store = Faulty {
            cheap_reads: true,
            ..Faulty::default()
        };
        let engine = patient(&store).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let guard = || engine.guard("pay", ANYBODY, "k");
        if is_second {
            let in_vain = |_| std::future::ready(Finished::released(""));
            let first = guard().run(b"", in_vain).await;
            assert_eq!(name(&first.unwrap()), "executed");
        }
        store.fail(&[Fault::WrittenLate, Fault::Unavailable]);
        assert!(guard().run(b"", counted(&runs, "ch_1")).await.is_err());
        let loads = store.loads.load(Ordering::SeqCst);
        eventually("it has looked in vain", async || {
            store.loads.load(Ordering::SeqCst) > loads
        })
        .await;
        store.arrive().await;
        assert_eq!(kinds(&store.store).await, [StateKind::Executing]);
        eventually("the key is given back", async || {
            kinds(&store.store).await != [StateKind::Executing]
        })
        .await;
        let retry = guard().run(b"mended", counted(&runs, "ch_1")).await;
        assert_eq!(name(&retry.unwrap()), "executed", "{is_second}");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

/// What is on its way arrives where no row is left, and is removed, so that a mended request runs.
async fn arrives_and_is_removed(store: &Faulty, engine: &Engine<Faulty>) {
    assert!(kinds(&store.store).await.is_empty());
    store.arrive().await;
    assert_eq!(kinds(&store.store).await, [StateKind::Executing]);
    eventually("the late row is removed", async || {
        kinds(&store.store).await.is_empty()
    })
    .await;
    let runs = Arc::new(AtomicUsize::new(0));
    let mended = engine.guard("pay", ANYBODY, "k");
    let reply = mended.run(b"mended", counted(&runs, "ch_1")).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The claim was tried again and its work did nothing, so that no row is left: at once, or after the
/// next attempt. Then the first try is written after all, and nobody executes under it.
#[tokio::test]
async fn a_claim_that_is_written_after_its_work_did_nothing_is_removed() {
    for outcomes in [
        vec![Outcome::Rejected],
        vec![Outcome::Released, Outcome::Rejected],
    ] {
        let store = Faulty::default();
        let engine = patient(&store).await;
        store.fail(&[Fault::WrittenLate]);
        for outcome in outcomes {
            let work = move |_| std::future::ready(Finished { outcome, value: () });
            let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
            assert_eq!(name(&reply.unwrap()), "executed");
        }
        arrives_and_is_removed(&store, &engine).await;
    }
}

/// The same of a claim that was told of somebody else's execution, which then did nothing. Where keys
/// are for one use, another payload is told that it was used.
#[tokio::test]
async fn a_claim_that_is_written_after_it_was_told_of_another_is_removed() {
    for (reuse, payload, expected) in [
        (Reuse::Replay, &b""[..], "in flight"),
        (Reuse::Replay, b"another", "mismatch"),
        (Reuse::SingleUse, b"another", "already used"),
    ] {
        let store = Faulty::default();
        let policy = Policy::builder().reuse(reuse).build().unwrap();
        let engine = patient_with(&store, Policies::new(policy)).await;
        let rejected = Finished {
            outcome: Outcome::Rejected,
            value: (),
        };
        let (caller, go) = begun(&engine, "k", rejected).await;
        store.fail(&[Fault::WrittenLate]);
        let runs = Arc::new(AtomicUsize::new(0));
        let second = engine.guard("pay", ANYBODY, "k");
        let told = second.run(payload, counted(&runs, "ch_2")).await;
        assert_eq!(name(&told.unwrap()), expected);
        go.send(()).unwrap();
        assert_eq!(name(&caller.await.unwrap()), "executed");
        arrives_and_is_removed(&store, &engine).await;
    }
}

/// A disk that stalls holds up everybody's claim at once, and they all appear when it goes on.
#[tokio::test]
async fn however_many_claims_were_given_up_all_are_given_back() {
    const CLAIMS: usize = 1500;
    let store = Faulty {
        cheap_reads: true,
        ..Faulty::default()
    };
    let engine = patient(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let loads = || store.loads.load(Ordering::SeqCst);
    for number in 0..CLAIMS {
        store.fail(&[Fault::WrittenLate, Fault::Unavailable]);
        let key = number.to_string();
        let guard = engine.guard("pay", ANYBODY, &key);
        assert!(guard.run(b"", counted(&runs, "ch_1")).await.is_err());
    }
    let before = loads();
    eventually("each has been looked for in vain", async || {
        loads() >= before + CLAIMS
    })
    .await;
    store.arrive().await;
    let held = Filter {
        unsettled: true,
        ..Filter::default()
    };
    eventually("none is held", async || {
        let page = store.store.list(&held, None, 1).await.unwrap();
        page.entries.is_empty()
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// A process that ends before it has looked leaves the key held by nobody.
#[tokio::test]
async fn a_drain_waits_for_the_first_look_at_what_may_come_late() {
    let store = Faulty::default();
    // In the caller's task: nobody has had time for a look when it is told.
    let builder = Engine::builder(store.clone()).config(config_where(true));
    let engine = builder.without_background().open().await.unwrap();
    store.fail(&[Fault::WrittenLate]);
    let rejected = |_| {
        let outcome = Outcome::Rejected;
        std::future::ready(Finished { outcome, value: () })
    };
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", rejected).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    store.arrive().await;
    assert_eq!(kinds(&store.store).await, [StateKind::Executing]);
    assert_eq!(engine.drain(Duration::from_secs(10)).await, 0);
    assert!(kinds(&store.store).await.is_empty());
}

/// Two writes of one claim were on their way. The first to arrive is given back, and the row goes with
/// a rejected retry; then the second finds none.
#[tokio::test]
async fn a_claim_that_is_written_twice_after_it_was_given_up_leaves_nothing() {
    let store = Faulty {
        cheap_reads: true,
        ..Faulty::default()
    };
    let engine = patient(&store).await;
    store.fail(&[Fault::WrittenLate, Fault::WrittenLate, Fault::Unavailable]);
    let runs = Arc::new(AtomicUsize::new(0));
    let claim = engine.guard("pay", ANYBODY, "k");
    assert!(claim.run(b"", counted(&runs, "ch_1")).await.is_err());
    let second = store.late.lock().unwrap().pop();
    store.arrive().await;
    eventually("the key is released", async || {
        kinds(&store.store).await == [StateKind::Released]
    })
    .await;
    let rejecting = |_| {
        let outcome = Outcome::Rejected;
        std::future::ready(Finished { outcome, value: () })
    };
    let retry = engine.guard("pay", ANYBODY, "k").run(b"", rejecting).await;
    assert_eq!(name(&retry.unwrap()), "executed");
    store.late.lock().unwrap().extend(second);
    arrives_and_is_removed(&store, &engine).await;
}

/// "May have written": the claim must find its own row, not refuse itself with a 409.
#[tokio::test]
async fn a_claim_whose_acknowledgement_was_lost_still_executes_once() {
    for fault in [
        Fault::WrittenUnacknowledged,
        Fault::LostUnacknowledged,
        Fault::Hangs,
    ] {
        for cheap_reads in [true, false] {
            let store = Faulty {
                cheap_reads,
                ..Faulty::default()
            };
            let engine = faulty(&store).await;
            let runs = Arc::new(AtomicUsize::new(0));
            store.fail(&[fault]);
            let first = engine
                .guard("pay", ANYBODY, "k")
                .run(b"", counted(&runs, "ch_1"))
                .await
                .unwrap();
            assert_eq!(name(&first), "executed", "{fault:?}");
            let again = engine
                .guard("pay", ANYBODY, "k")
                .run(b"", counted(&runs, "ch_2"))
                .await
                .unwrap();
            assert_eq!(body(&again), b"ch_1");
            assert_eq!(runs.load(Ordering::SeqCst), 1);
        }
    }
}

/// The completion's acknowledgement was lost: it must not be taken for a failure, nor written
/// a second time.
#[tokio::test]
async fn a_completion_whose_acknowledgement_was_lost_is_recognised() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let (runs, script) = (Arc::new(AtomicUsize::new(0)), store.clone());
    let work = counted(&runs, "ch_1");
    let first = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", move |execution| {
            script.fail(&[Fault::WrittenUnacknowledged]);
            work(execution)
        });
    assert_eq!(name(&first.await.unwrap()), "executed");
    let again = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(body(&again), b"ch_1");
}

/// Without a durable claim nothing may run.
#[tokio::test]
async fn a_store_that_turns_claims_away_means_nothing_runs() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));
    store.fail(&[Fault::Unavailable]);
    let refused = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await;
    assert!(matches!(
        refused,
        Err(GuardError::Engine(EngineError::Store(_)))
    ));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// An answer that is not durable must not be shown: the retry could not repeat it.
#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_not_shown() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let (runs, script) = (Arc::new(AtomicUsize::new(0)), store.clone());
    let work = counted(&runs, "ch_1");
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", move |execution| {
            script.fail(&[Fault::Unavailable; 100]);
            work(execution)
        });
    assert_eq!(name(&reply.await.unwrap()), "unknown");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_short_outage_at_completion_is_outlasted() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let (runs, script) = (Arc::new(AtomicUsize::new(0)), store.clone());
    let work = counted(&runs, "ch_1");
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", move |execution| {
            script.fail(&[
                Fault::Unavailable,
                Fault::LostUnacknowledged,
                Fault::Unavailable,
            ]);
            work(execution)
        });
    assert_eq!(name(&reply.await.unwrap()), "executed");
    let again = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert_eq!(body(&again), b"ch_1");
}

/// Executed is executed: an answer too large for the store leaves a tombstone.
#[tokio::test]
async fn an_answer_too_large_for_the_store_becomes_a_tombstone() {
    let store = Faulty::default();
    let engine = faulty(&store).await;
    let (runs, script) = (Arc::new(AtomicUsize::new(0)), store.clone());
    let work = counted(&runs, "ch_1");
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", move |execution| {
            script.fail(&[Fault::TooLarge]);
            work(execution)
        });
    assert_eq!(name(&reply.await.unwrap()), "executed");
    let again = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_2"))
        .await
        .unwrap();
    assert!(matches!(
        again,
        Reply::NotReplayable(TombstoneReason::TooLarge)
    ));
}

/// A row that cannot be read may be a completed charge.
#[tokio::test]
async fn an_unreadable_row_is_unknown_not_absent() {
    let store = Faulty {
        cheap_reads: true,
        ..Faulty::default()
    };
    let engine = faulty(&store).await;
    let runs = Arc::new(AtomicUsize::new(0));
    *store.corrupt.lock().unwrap() = true;
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    assert!(matches!(reply, Reply::Unknown(None)));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// The executor lost the store, its lease ran out, the outcome became unknown; then it finished.
/// Its word is the truth.
#[tokio::test]
async fn a_late_completion_by_the_original_executor_is_accepted() {
    let (store, log) = (MemoryStore::new(), EventLog::default());
    let engine = Engine::builder(store.clone())
        .observer(log.clone())
        .open()
        .await
        .unwrap();
    let sweeper = Engine::builder(store.clone())
        .without_background()
        .open()
        .await
        .unwrap();
    let (begin, begun) = oneshot::channel();
    let (go, may_go) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let work = |execution: onlyonce_engine::Execution| async move {
            begin.send((*execution.id(), execution.fence())).unwrap();
            may_go.await.unwrap();
            Finished::completed(StoredResponse::from_bytes("late"), ())
        };
        engine
            .guard("pay", ANYBODY, "k")
            .run(b"", work)
            .await
            .unwrap()
    });
    let (id, fence) = begun.await.unwrap();
    // Somebody else finds the lease over. Time is an argument of the rules, so it is played here.
    let row = onlyonce_store::Store::load(&store, &id)
        .await
        .unwrap()
        .unwrap();
    let policy = onlyonce_core::Policy::default();
    let much_later = sweeper.now().after(Duration::from_secs(60));
    let swept = onlyonce_core::step(&policy, Some(&row.record), &Command::Sweep, much_later);
    let (_, onlyonce_core::Next::Put(unknown)) = swept else {
        panic!("the lease is over")
    };
    let swapped = onlyonce_store::Store::swap(&store, &id, Some(row.version), Some(&unknown)).await;
    assert!(matches!(swapped, Ok(onlyonce_store::Swap::Won(_))));
    assert_eq!(unknown.fence, fence);

    go.send(()).unwrap();
    assert_eq!(name(&running.await.unwrap()), "executed");
    assert_eq!(kinds(&store).await, [StateKind::Completed]);
}

/// A provider that can tell: it happened.
struct Provider;
impl Resolver for Provider {
    fn resolve<'a>(
        &'a self,
        _: &'a onlyonce_core::RecordId,
        _: &'a onlyonce_core::Record,
    ) -> std::pin::Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        let response = Response::Plain(StoredResponse::from_bytes("found"));
        Box::pin(async { Verdict::Completed(response) })
    }
}

/// A crashed process leaves `executing` behind; the sweep makes it unknown, and the resolver's
/// verdict settles it.
#[tokio::test]
async fn a_crashed_execution_becomes_unknown_and_is_reconciled() {
    for callers_work in [false, true] {
        let store = MemoryStore::new();
        let reconcile = onlyonce_core::Reconcile {
            delay: Duration::from_millis(20),
            ..onlyonce_core::Reconcile::default()
        };
        let policy = onlyonce_core::Policy::builder()
            .lease(Duration::from_millis(100))
            .reconcile(reconcile)
            .build()
            .unwrap();
        let policies = onlyonce_engine::Policies::new(policy);
        // The process that dies: its runtime is dropped in mid-work.
        let dying = store.clone();
        let doomed = policies.clone();
        let config = config_where(callers_work);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let engine = Engine::builder(dying)
                    .policies(doomed)
                    .config(config)
                    .open()
                    .await
                    .unwrap();
                let (begin, begun) = oneshot::channel();
                let work = |_| async move {
                    begin.send(()).unwrap();
                    std::future::pending::<Finished<()>>().await
                };
                let running =
                    tokio::spawn(
                        async move { engine.guard("pay", ANYBODY, "k").run(b"", work).await },
                    );
                begun.await.unwrap();
                drop(running);
            });
        })
        .join()
        .unwrap();
        assert_eq!(kinds(&store).await, [StateKind::Executing]);

        let config = EngineConfig {
            sweep_every: Duration::from_millis(10),
            ..EngineConfig::default()
        };
        let survivor = Engine::builder(store.clone())
            .policies(policies)
            .config(config)
            .resolver(Provider)
            .open()
            .await
            .unwrap();
        eventually("reconciled", async || {
            kinds(&store).await == [StateKind::Completed]
        })
        .await;
        let runs = Arc::new(AtomicUsize::new(0));
        let retry = survivor
            .guard("pay", ANYBODY, "k")
            .run(b"", counted(&runs, "twice"))
            .await
            .unwrap();
        assert_eq!(body(&retry), b"found");
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    }
}

/// After a lease has passed, a row with this claim's fence may have had a life that others dealt
/// with. Resuming would bring a used fence back.
#[tokio::test]
async fn a_claim_that_was_unsure_for_a_whole_lease_is_not_resumed() {
    let store = Faulty::default();
    let config = EngineConfig {
        store_timeout: Duration::from_millis(250),
        ..EngineConfig::default()
    };
    let builder = Engine::builder(store.clone())
        .config(config)
        .policies(short_lease());
    let engine = builder.without_background().open().await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    store.fail(&[Fault::Hangs]);
    let refused = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await;
    assert!(matches!(
        refused,
        Err(GuardError::Engine(EngineError::Store(_)))
    ));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "ch_1"))
        .await
        .unwrap();
    assert_eq!(name(&retry), "executed");
}
