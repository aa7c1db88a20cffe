//! Unknown outcomes: who may ask, how many at once, and what being told does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at once"
)]

mod common;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{ANYBODY, EventLog, Faulty, body, counted, kinds, name, rows};
use futures_util::future::Either;
use onlyonce_core::{
    Decision, Fence, Policy, Reconcile, Record, RecordId, Response, Secret, StateKind,
    StoredResponse, Timestamp, TombstoneReason, Upstream, Verdict,
};
use onlyonce_engine::{
    Engine, EngineConfig, Finished, Policies, REFERENCE_KEEP_MIN, Referred, Resolver,
};
use onlyonce_store::tiered::{MemoryCache, TieredOptions};
use onlyonce_store::{MemoryStore, Store, Tiered};

const DEDUPES: Upstream = Upstream::Dedupes { reexecute: false };

fn policies(upstream: Upstream, delay: Duration) -> Policies {
    let reconcile = Reconcile {
        delay,
        delay_max: delay,
        attempts_max: 1000,
    };
    let builder = Policy::builder().upstream(upstream).reconcile(reconcile);
    Policies::new(builder.build().unwrap())
}

/// Polls until the condition holds, for at most ten seconds.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    ended.unwrap_or_else(|_| panic!("not {what} after ten seconds"));
}

/// Leaves an unknown outcome under a key, and gives its record.
async fn lose<S: Store>(engine: &Engine<S>, key: &str) -> (RecordId, Record) {
    let seen = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&seen);
    let work = move |execution: onlyonce_engine::Execution| {
        *tell.lock().unwrap() = Some(*execution.id());
        std::future::ready(Finished::unknown(()))
    };
    let reply = engine.guard("pay", ANYBODY, key).run(b"", work).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    let id = seen.lock().unwrap().take().unwrap();
    (id, engine.inspect(&id).await.unwrap().unwrap())
}

/// Somebody who takes a while to answer, and notices who asks at the same time.
#[derive(Clone, Default)]
struct Slow {
    asking: Arc<Mutex<HashMap<RecordId, usize>>>,
    most_of_one: Arc<AtomicUsize>,
    most_in_all: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

/// Leaves also when it is dropped in mid-question.
struct Asking(Slow, RecordId);

impl Drop for Asking {
    fn drop(&mut self) {
        *self.0.asking.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl Resolver for Slow {
    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        _: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(async move {
            let asking = {
                let mut asking = self.asking.lock().unwrap();
                *asking.entry(*id).or_default() += 1;
                self.most_of_one.fetch_max(asking[id], Ordering::SeqCst);
                let all = asking.values().sum();
                self.most_in_all.fetch_max(all, Ordering::SeqCst);
                Asking(self.clone(), *id)
            };
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(asking);
            Verdict::Pending
        })
    }
}

async fn sweeping(store: &MemoryStore, slow: &Slow, probes_max: usize) -> Engine<MemoryStore> {
    let config = EngineConfig {
        sweep_every: Duration::from_millis(5),
        probes_max,
        ..EngineConfig::default()
    };
    Engine::builder(store.clone())
        .policies(policies(DEDUPES, Duration::from_millis(100)))
        .config(config)
        .resolver(slow.clone())
        .open()
        .await
        .unwrap()
}

/// Two answers to one question at two times contradict each other; whoever sweeps wins the right to
/// ask by its swap.
#[tokio::test(flavor = "multi_thread")]
async fn several_engines_ask_about_one_key_one_at_a_time() {
    let (store, slow) = (MemoryStore::new(), Slow::default());
    let engines = [
        sweeping(&store, &slow, 64).await,
        sweeping(&store, &slow, 64).await,
        sweeping(&store, &slow, 64).await,
    ];
    lose(&engines[0], "k").await;
    eventually("asked", || slow.asked.load(Ordering::SeqCst) >= 8).await;
    assert_eq!(slow.most_of_one.load(Ordering::SeqCst), 1);
}

/// An outage leaves thousands of unknown outcomes. Whoever is asked about them must not be the
/// next to fall.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_limit_is_asked_at_once() {
    let (store, slow) = (MemoryStore::new(), Slow::default());
    let engine = sweeping(&store, &slow, 2).await;
    for number in 0..12 {
        lose(&engine, &format!("k{number}")).await;
    }
    let asked_all = || slow.asking.lock().unwrap().len() == 12;
    eventually("asked about all", asked_all).await;
    assert_eq!(slow.most_in_all.load(Ordering::SeqCst), 2);
}

/// A key must not go to a person because nobody came to ask about it: each is asked about as often
/// as its policy says, however long that takes.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_nobody_had_time_for_does_not_count() {
    let (store, slow) = (MemoryStore::new(), Slow::default());
    let reconcile = Reconcile {
        delay: Duration::from_millis(50),
        delay_max: Duration::from_millis(50),
        attempts_max: 2,
    };
    let policy = Policy::builder().upstream(DEDUPES).reconcile(reconcile);
    let config = EngineConfig {
        sweep_every: Duration::from_millis(5),
        probes_max: 1,
        ..EngineConfig::default()
    };
    let engine = Engine::builder(store.clone())
        .policies(Policies::new(policy.build().unwrap()))
        .config(config)
        .resolver(slow.clone());
    let engine = engine.open().await.unwrap();
    for number in 0..12 {
        lose(&engine, &format!("k{number}")).await;
    }
    let ended = async {
        while kinds(&store).await != [StateKind::DeadLetter; 12] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    ended.expect("all given up");
    assert_eq!(slow.asked.load(Ordering::SeqCst), 24);
}

/// What one pass needs: a store whose time a test sets, and turns that never come free.
struct Crowded {
    clock: Arc<AtomicU64>,
    store: Faulty,
}

/// Nobody ever answers.
struct Silent(Arc<AtomicUsize>);

impl Resolver for Silent {
    fn resolve<'a>(
        &'a self,
        _: &'a RecordId,
        _: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

impl Crowded {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let reads = Arc::clone(&clock);
        let read = move || Timestamp::from_millis(reads.load(Ordering::SeqCst));
        let store = Faulty {
            store: MemoryStore::with_clock(read),
            ..Faulty::default()
        };
        Self { clock, store }
    }

    /// Small batches and one turn. An outcome is due after a minute, a lease ends after an hour,
    /// an answer is kept for a day.
    async fn open(&self, resolver: impl Resolver) -> Engine<Faulty> {
        let minute = Duration::from_secs(60);
        let reconcile = Reconcile {
            delay: minute,
            delay_max: minute,
            attempts_max: 1000,
        };
        let policy = Policy::builder().upstream(DEDUPES).reconcile(reconcile);
        let policy = policy.lease(60 * minute).build().unwrap();
        let config = EngineConfig {
            sweep_batch: 2,
            probes_max: 1,
            ..EngineConfig::default()
        };
        let builder = Engine::builder(self.store.clone()).config(config);
        let builder = builder.policies(Policies::new(policy)).resolver(resolver);
        builder.without_background().open().await.unwrap()
    }

    /// Everything is due, and most of all the unknown outcomes.
    fn pass_two_days(&self) {
        self.clock.fetch_add(2 * 86_400_000, Ordering::SeqCst);
    }
}

/// Outcomes that wait for a turn are the first that the store says are due. They must not keep
/// ended leases and old answers from being dealt with, nor be read at every pass.
#[tokio::test]
async fn outcomes_that_wait_for_a_turn_hide_nothing_and_are_not_read_again() {
    let (crowded, asked) = (Crowded::new(), Arc::new(AtomicUsize::new(0)));
    let before = crowded.open(Silent(Arc::clone(&asked))).await;
    for number in 0..9 {
        lose(&before, &format!("k{number}")).await;
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let done = before.guard("pay", ANYBODY, "done");
    done.run(b"", counted(&runs, "ch_1")).await.unwrap();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let work = |_| async move {
        begin.send(()).unwrap();
        std::future::pending::<Finished<()>>().await
    };
    let crashed = before.guard("pay", ANYBODY, "crashed");
    let crashed = Box::pin(crashed.run(b"", work));
    let begun = futures_util::future::select(crashed, begun).await;
    assert!(matches!(begun, Either::Right((Ok(()), _))));
    crowded.pass_two_days();
    let engine = crowded.open(Silent(Arc::clone(&asked))).await;
    let report = engine.sweep().await.unwrap();
    assert_eq!((report.probes, report.waiting), (1, 8));
    assert_eq!((report.leases_expired, report.purged), (1, 1));
    let loads = crowded.store.loads.load(Ordering::SeqCst);
    let report = engine.sweep().await.unwrap();
    assert_eq!((report.probes, report.waiting), (0, 8));
    assert_eq!(crowded.store.loads.load(Ordering::SeqCst), loads);
    eventually("asked", || asked.load(Ordering::SeqCst) == 1).await;
}

/// Passes are a second apart. If a turn waited for the next one, an outage would take hours to
/// clear up.
#[tokio::test]
async fn a_turn_that_comes_free_goes_to_whoever_waits_without_another_pass() {
    let (crowded, slow) = (Crowded::new(), Slow::default());
    let before = crowded.open(slow.clone()).await;
    for number in 0..9 {
        lose(&before, &format!("k{number}")).await;
    }
    crowded.pass_two_days();
    let engine = crowded.open(slow.clone()).await;
    assert_eq!(engine.sweep().await.unwrap().waiting, 8);
    let asked_all = || slow.asked.load(Ordering::SeqCst) == 9;
    eventually("asked about all", asked_all).await;
    assert_eq!(slow.most_in_all.load(Ordering::SeqCst), 1);
}

fn answer(text: &'static str) -> Verdict {
    Verdict::Completed(Response::Plain(StoredResponse::from_bytes(text)))
}

#[tokio::test]
async fn being_told_settles_once_and_only_by_the_right_fence() {
    let (store, log) = (MemoryStore::new(), EventLog::default());
    let engine = Engine::builder(store.clone())
        .policies(policies(Upstream::default(), Duration::from_secs(60)))
        .observer(log.clone())
        .open()
        .await
        .unwrap();
    let (id, record) = lose(&engine, "k").await;
    let now = engine.now();
    let told = |id, fence, verdict| {
        let engine = engine.clone();
        async move { engine.reconcile(&id, fence, now, verdict).await.unwrap() }
    };
    let strange = Fence::from_bytes([9; 16]);
    assert_eq!(told(id, strange, answer("wrong")).await, Decision::Fenced);
    let nobody = RecordId::from_bytes([9; 32]);
    assert_eq!(
        told(nobody, record.fence, answer("wrong")).await,
        Decision::Fenced
    );
    let pending = told(id, record.fence, Verdict::Pending).await;
    assert_eq!(pending, Decision::StillUnknown);
    assert_eq!(kinds(&store).await, [StateKind::Unknown]);
    assert_eq!(
        told(id, record.fence, answer("found")).await,
        Decision::Settled
    );
    assert!(log.contains("source: Told, verdict: \"completed\", decision: Settled"));
    for verdict in [answer("other"), Verdict::NotFound, Verdict::Pending] {
        assert_eq!(
            told(id, record.fence, verdict).await,
            Decision::AlreadySettled
        );
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "again"));
    assert_eq!(body(&retry.await.unwrap()), b"found");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// What is told without an answer to give is executed all the same.
#[tokio::test]
async fn not_found_becomes_what_the_upstream_allows() {
    for (upstream, expected, state) in [
        (DEDUPES, Decision::Settled, StateKind::Released),
        (
            Upstream::Transactional,
            Decision::Settled,
            StateKind::Released,
        ),
        (
            Upstream::default(),
            Decision::DeadLettered,
            StateKind::DeadLetter,
        ),
    ] {
        let store = MemoryStore::new();
        let engine = Engine::builder(store.clone())
            .policies(policies(upstream, Duration::from_secs(60)))
            .open()
            .await
            .unwrap();
        let (id, record) = lose(&engine, "k").await;
        let told = engine.reconcile(&id, record.fence, engine.now(), Verdict::NotFound);
        assert_eq!(told.await.unwrap(), expected);
        assert_eq!(kinds(&store).await, [state]);
        let tombstone = Response::Tombstone(TombstoneReason::ResolvedWithoutResponse);
        let late = Verdict::Completed(tombstone);
        let told = engine
            .reconcile(&id, record.fence, engine.now(), late)
            .await;
        assert_eq!(told.unwrap(), Decision::Settled, "the truth may come late");
    }
}

/// The executor is alive and knows better.
#[tokio::test]
async fn being_told_about_work_in_progress_changes_nothing() {
    let store = MemoryStore::new();
    let engine = Engine::builder(store.clone()).open().await.unwrap();
    let (told, seen) = (engine.clone(), Arc::new(Mutex::new(None)));
    let decided = Arc::clone(&seen);
    let work = move |execution: onlyonce_engine::Execution| async move {
        let (id, fence) = (*execution.id(), execution.fence());
        let decision = told
            .reconcile(&id, fence, told.now(), answer("early"))
            .await;
        *decided.lock().unwrap() = Some(decision.unwrap());
        Finished::completed(StoredResponse::from_bytes("own"), ())
    };
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    assert_eq!(*seen.lock().unwrap(), Some(Decision::InFlight));
    let runs = Arc::new(AtomicUsize::new(0));
    let retry = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(&runs, "again"));
    assert_eq!(body(&retry.await.unwrap()), b"own");
}

/// A question by a key that the downstream never saw finds nothing, and "nothing" would release.
#[tokio::test]
async fn a_child_key_is_found_again_by_the_record_unless_the_secret_is_rotated() {
    let store = MemoryStore::new();
    let engine = Engine::builder(store.clone()).open().await.unwrap();
    let given = Arc::new(Mutex::new(String::new()));
    let tell = Arc::clone(&given);
    let work = move |execution: onlyonce_engine::Execution| {
        *tell.lock().unwrap() = execution.child_key("card");
        std::future::ready(Finished::unknown(()))
    };
    engine
        .guard("pay", ANYBODY, "k")
        .run(b"", work)
        .await
        .unwrap();
    let id = rows(&store).await[0].0;
    let record = engine.inspect(&id).await.unwrap().unwrap();
    let given = given.lock().unwrap().clone();
    assert_eq!(engine.child_key(&id, &record, "card"), Some(given.clone()));
    assert_ne!(engine.child_key(&id, &record, "bank"), Some(given.clone()));
    let keys = engine.child_keys();
    assert_eq!(keys.of(&id, record.created_at, "card"), Some(given));
    let later = record.created_at.after(Duration::from_millis(1));
    assert_ne!(
        keys.of(&id, later, "card"),
        keys.of(&id, record.created_at, "card")
    );
    let own = store.secret([2; 32]).await.unwrap();
    let rotated = Engine::builder(store)
        .secret(Secret::new([1; 32]))
        .previous_secret(Secret::new(own))
        .open()
        .await
        .unwrap();
    assert_eq!(rotated.child_key(&id, &record, "card"), None);
}

/// One tenant's answer must never reach another: a name that two operations have had leads to
/// neither, for as long as anybody may still say it.
#[tokio::test]
async fn a_name_leads_to_one_operation_or_to_none() {
    let engine = Engine::builder(MemoryStore::new()).open().await.unwrap();
    let (alice, mallory) = (RecordId::from_bytes([1; 32]), RecordId::from_bytes([2; 32]));
    let (now, day) = (engine.now(), Duration::from_secs(86_400));
    let later = now.after(day);
    let refer = |kind, name, to, at| {
        let engine = engine.clone();
        async move { engine.refer(kind, name, &to, at, day).await.unwrap() }
    };
    assert_eq!(engine.referred("hook", "k").await.unwrap(), None);
    let to_alice = Referred::To(alice, now);
    assert_eq!(refer("hook", "k", alice, now).await, to_alice);
    assert_eq!(
        refer("hook", "k", alice, now).await,
        to_alice,
        "a second attempt"
    );
    assert_eq!(engine.referred("hook", "k").await.unwrap(), Some(to_alice));
    // Another webhook's names are others.
    let to_mallory = Referred::To(mallory, now);
    assert_eq!(refer("other", "k", mallory, now).await, to_mallory);
    assert_eq!(refer("hoo", "kk", mallory, now).await, to_mallory);
    // A key that was given up and used anew: a late word about the first use must not settle the
    // second, though both are one caller's.
    assert_eq!(refer("hook", "k", alice, later).await, Referred::Ambiguous);
    assert_eq!(refer("hook", "k2", alice, now).await, to_alice);
    assert_eq!(refer("hook", "k2", mallory, now).await, Referred::Ambiguous);
    for (to, at) in [(alice, later), (mallory, now), (alice, now)] {
        assert_eq!(refer("hook", "k", to, at).await, Referred::Ambiguous);
        let found = engine.referred("hook", "k").await.unwrap();
        assert_eq!(found, Some(Referred::Ambiguous));
    }
}

/// Another caller's use of a name is under the previous secret; it is no less another's.
#[tokio::test]
async fn a_name_that_was_shared_before_a_rotation_stays_so() {
    let store = MemoryStore::new();
    let (old, new) = (Secret::new([1; 32]), Secret::new([2; 32]));
    let (alice, mallory) = (RecordId::from_bytes([1; 32]), RecordId::from_bytes([2; 32]));
    let week = Duration::from_secs(7 * 86_400);
    let before = Engine::builder(store.clone()).secret(old.clone());
    let before = before.open().await.unwrap();
    let now = before.now();
    before.refer("hook", "k", &alice, now, week).await.unwrap();
    before
        .refer("hook", "own", &alice, now, week)
        .await
        .unwrap();
    let after = Engine::builder(store).secret(new).previous_secret(old);
    let after = after.open().await.unwrap();
    let refer = async |name, to| after.refer("hook", name, &to, now, week).await.unwrap();
    assert_eq!(refer("k", mallory).await, Referred::Ambiguous);
    assert_eq!(refer("own", alice).await, Referred::To(alice, now));
    let found = async |name| after.referred("hook", name).await.unwrap();
    assert_eq!(found("k").await, Some(Referred::Ambiguous));
    assert_eq!(found("own").await, Some(Referred::To(alice, now)));
}

/// Names are kept for longer than their operations: senders deliver again for days.
#[tokio::test]
async fn a_name_is_kept_for_days() {
    let store = MemoryStore::new();
    let engine = Engine::builder(store.clone()).open().await.unwrap();
    let (id, second) = (RecordId::from_bytes([1; 32]), Duration::from_secs(1));
    let now = engine.now();
    engine.refer("hook", "k", &id, now, second).await.unwrap();
    let (_, record) = rows(&store).await.remove(0);
    let expires_at = record.state.deadline().unwrap();
    assert!(expires_at.since(now) >= REFERENCE_KEEP_MIN);
}

/// A cache that still has the first meaning of a name would give one tenant's answer to another.
#[tokio::test]
async fn no_cache_keeps_a_name() {
    let store = MemoryStore::new();
    let cached = || {
        let cache = MemoryCache::new(1024 * 1024);
        Tiered::new(store.clone(), cache, TieredOptions::default())
    };
    let one = Engine::builder(cached()).open().await.unwrap();
    let two = Engine::builder(cached()).open().await.unwrap();
    let (alice, mallory) = (RecordId::from_bytes([1; 32]), RecordId::from_bytes([2; 32]));
    let (now, day) = (one.now(), Duration::from_secs(86_400));
    one.refer("hook", "k", &alice, now, day).await.unwrap();
    let found = one.referred("hook", "k").await.unwrap();
    assert_eq!(found, Some(Referred::To(alice, now)));
    let told = two.refer("hook", "k", &mallory, now, day).await.unwrap();
    assert_eq!(told, Referred::Ambiguous);
    let found = one.referred("hook", "k").await.unwrap();
    assert_eq!(found, Some(Referred::Ambiguous));
}
