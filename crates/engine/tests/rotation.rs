//! While the hashing secret changes one key has two ids, and one life at a time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "tests stop at the first surprise"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{ANYBODY, Fault, Faulty, Timed, body, counted, kinds, name};
use onlyonce_core::{
    Expiry, Policy, Record, RecordId, Secret, StateKind, StoredResponse, Timestamp,
};
use onlyonce_engine::{
    Engine, EngineConfig, EngineError, Finished, GuardError, Outcome, Policies, Reply,
};
use onlyonce_store::{MemoryStore, Row, Store, StoreError, StoreProfile, Swap, Version};
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What becomes of a row whose time is over: it is deleted, or kept for audit.
const EXPIRIES: [Expiry; 2] = [Expiry::Delete, Expiry::Keep(DAY)];

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// An engine after the change from the first secret to the second. Its time is that of its opening.
async fn changed<S: Store>(store: S, expiry: Expiry) -> Engine<S> {
    let policy = Policy::builder().retention(DAY).expiry(expiry).build();
    let config = EngineConfig {
        store_timeout: Duration::from_millis(500),
        ..EngineConfig::default()
    };
    let builder = Engine::builder(store)
        .secret(secret(2))
        .previous_secret(secret(1))
        .config(config)
        .policies(Policies::new(policy.unwrap()));
    builder.without_background().open().await.unwrap()
}

/// Leaves a key under the first secret, to expire in an hour, and gives its id.
async fn leave(timed: &Timed, outcome: Outcome) -> RecordId {
    let engine = Engine::builder(timed.store.clone()).secret(secret(1));
    let engine = engine.without_background().open().await.unwrap();
    let work = move |_| std::future::ready(Finished { outcome, value: () });
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    timed.pass(DAY.saturating_sub(HOUR));
    common::rows(&timed.store).await.swap_remove(0).0
}

async fn charge<S: Store>(
    engine: Engine<S>,
    runs: &Arc<AtomicUsize>,
    answer: &'static str,
) -> Result<Reply<&'static str>, GuardError> {
    let guard = engine.guard("pay", ANYBODY, "k");
    guard.run(b"", counted(runs, answer)).await
}

/// The same, in a task of its own.
fn charging<S: Store>(
    engine: Engine<S>,
    runs: &Arc<AtomicUsize>,
    answer: &'static str,
) -> tokio::task::JoinHandle<Result<Reply<&'static str>, GuardError>> {
    let runs = Arc::clone(runs);
    tokio::spawn(async move { charge(engine, &runs, answer).await })
}

/// The way to a store on which the first write to one id takes as long as a test wants.
#[derive(Clone)]
struct Slow {
    store: MemoryStore,
    id: RecordId,
    had_one: Arc<AtomicBool>,
    is_there: Arc<Notify>,
    may_go: Arc<Notify>,
}

impl Slow {
    fn new(timed: &Timed, id: RecordId) -> Self {
        Self {
            store: timed.store.clone(),
            id,
            had_one: Arc::default(),
            is_there: Arc::default(),
            may_go: Arc::default(),
        }
    }

    /// Waits for that write.
    async fn has_one(&self) {
        let waiting = self.is_there.notified();
        let waited = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        waited.expect("a write to the id");
    }
}

impl Store for Slow {
    fn profile(&self) -> StoreProfile {
        self.store.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.store.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        if *id == self.id && !self.had_one.swap(true, Ordering::SeqCst) {
            self.is_there.notify_one();
            self.may_go.notified().await;
        }
        self.store.swap(id, expected, next).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.store.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.store.secret(candidate).await
    }
}

/// One retry is on its way to the old id when the key expires, and the next one finds it forgotten
/// there and uses the new id. Nothing but the row under the old id can keep them apart.
#[tokio::test]
async fn a_slow_retry_under_the_old_id_does_not_run_beside_a_new_life() {
    for expiry in EXPIRIES {
        let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
        let slow = Slow::new(&timed, leave(&timed, Outcome::Released).await);
        let late = charging(changed(slow.clone(), expiry).await, &runs, "ch_1");
        slow.has_one().await;
        timed.pass(2 * HOUR);
        let engine = changed(timed.store.clone(), expiry).await;
        let reply = charge(engine.clone(), &runs, "ch_2").await;
        assert_eq!(name(&reply.unwrap()), "executed");
        slow.may_go.notify_one();
        let refused = late.await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{expiry:?}");
        assert!(matches!(
            refused,
            Err(GuardError::Engine(EngineError::Contended))
        ));
        let again = charge(engine, &runs, "ch_3").await;
        assert_eq!(body(&again.unwrap()), b"ch_2");
    }
}

/// The other way round: the one that finds the key forgotten is slow, and by the clock of another
/// instance it still lived.
#[tokio::test]
async fn whoever_finds_the_old_id_in_use_after_all_uses_it() {
    for expiry in EXPIRIES {
        let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
        let slow = Slow::new(&timed, leave(&timed, Outcome::Released).await);
        let behind = changed(timed.store.clone(), expiry).await;
        timed.pass(2 * HOUR);
        let ahead = charging(changed(slow.clone(), expiry).await, &runs, "ch_2");
        slow.has_one().await;
        let reply = charge(behind, &runs, "ch_1").await;
        assert_eq!(name(&reply.unwrap()), "executed");
        slow.may_go.notify_one();
        assert_eq!(body(&ahead.await.unwrap().unwrap()), b"ch_1");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{expiry:?}");
    }
}

/// An answer of the life before is wrong once the next one has begun, also from an instance whose
/// clock is behind. What is to be kept for audit is kept.
#[tokio::test]
async fn the_life_before_is_not_replayed_once_a_new_one_has_begun() {
    for expiry in EXPIRIES {
        let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
        let answer = StoredResponse::from_bytes("ch_1");
        let old = leave(&timed, Outcome::Completed(answer)).await;
        let behind = changed(timed.store.clone(), expiry).await;
        timed.pass(2 * HOUR);
        let ahead = changed(timed.store.clone(), expiry).await;
        let reply = charge(ahead, &runs, "ch_2").await;
        assert_eq!(name(&reply.unwrap()), "executed");
        let again = charge(behind, &runs, "ch_3").await;
        assert_eq!(body(&again.unwrap()), b"ch_2", "{expiry:?}");
        let kept = timed.store.load(&old).await.unwrap();
        let kept = kept.map(|row| row.record.state.kind());
        let is_kept = expiry != Expiry::Delete;
        assert_eq!(kept, is_kept.then_some(StateKind::Expired));
    }
}

/// Nothing begins under the new id before the old one is known to be out of use.
#[tokio::test]
async fn an_old_id_that_cannot_be_put_out_of_use_keeps_its_key_from_running() {
    let unsure = Fault::LostUnacknowledged;
    for (faults, executes) in [
        (vec![unsure], true),
        (vec![Fault::WrittenUnacknowledged], true),
        (vec![Fault::Hangs], true),
        (vec![unsure; 100], false),
        (vec![Fault::Unavailable], false),
        (vec![unsure, Fault::Unavailable], false),
    ] {
        let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
        let old = leave(&timed, Outcome::Released).await;
        timed.pass(2 * HOUR);
        let store = Faulty {
            store: timed.store.clone(),
            ..Faulty::default()
        };
        let engine = changed(store.clone(), Expiry::Delete).await;
        store.fail(&faults);
        let reply = charge(engine, &runs, "ch_1").await;
        assert_eq!(reply.is_ok(), executes, "{faults:?}");
        let count = usize::from(executes);
        assert_eq!(runs.load(Ordering::SeqCst), count, "{faults:?}");
        let is_gone = timed.store.load(&old).await.unwrap().is_none();
        assert_eq!(is_gone, executes, "{faults:?}");
    }
}

/// It may be a completed charge.
#[tokio::test]
async fn a_row_under_the_old_id_that_cannot_be_read_is_not_passed_over() {
    let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
    leave(&timed, Outcome::Released).await;
    timed.pass(2 * HOUR);
    let store = Faulty {
        store: timed.store.clone(),
        ..Faulty::default()
    };
    let engine = changed(store.clone(), Expiry::Delete).await;
    *store.corrupt.lock().unwrap() = true;
    let reply = charge(engine, &runs, "ch_1").await;
    assert!(matches!(reply, Ok(Reply::Unknown(None))));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!(kinds(&timed.store).await, [StateKind::Released]);
}

/// A claim from before the change may be written long after it, by a server that stalled. Its key lives
/// under the new id by then, and what has come under the old one must not take it over.
#[tokio::test]
async fn what_is_written_late_under_the_old_id_takes_nothing_from_the_new_one() {
    let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
    let store = Faulty {
        store: timed.store.clone(),
        ..Faulty::default()
    };
    let before = Engine::builder(store.clone()).secret(secret(1));
    let config = EngineConfig {
        settle_patience: Duration::ZERO,
        ..EngineConfig::default()
    };
    let before = before.config(config).without_background().open();
    let before = before.await.unwrap();
    store.fail(&[Fault::WrittenLate, Fault::Unavailable]);
    let given_up = charge(before, &runs, "ch_0").await;
    assert!(given_up.is_err(), "nobody knows whether it was written");
    let engine = changed(timed.store.clone(), Expiry::Delete).await;
    let reply = charge(engine.clone(), &runs, "ch_1").await;
    assert_eq!(name(&reply.unwrap()), "executed");
    store.arrive().await;
    assert_eq!(kinds(&timed.store).await.len(), 2, "it has come");
    let again = charge(engine, &runs, "ch_2").await;
    assert_eq!(body(&again.unwrap()), b"ch_1");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
