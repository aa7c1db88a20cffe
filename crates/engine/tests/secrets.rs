//! A store whose keys were made with another secret is not opened: its keys would not be found.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at once"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{ANYBODY, EventLog, Fault, Faulty, Timed, counted, faulty, name};
use onlyonce_core::{
    Decision, Policy, Record, RecordId, Resolution, Response, Secret, StateKind, StoredResponse,
    UnknownReason, Verdict,
};
use onlyonce_engine::{
    Engine, EngineBuilder, EngineConfig, EngineError, Finished, MARKS_ROUTE, Outcome, Policies,
    Reply, SecretError,
};
use onlyonce_store::{Filter, ListStore, MemoryStore, Store};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// `None` is the store's own secret.
fn with(
    store: &MemoryStore,
    current: Option<u8>,
    previous: Option<u8>,
) -> EngineBuilder<MemoryStore> {
    let mut builder = Engine::builder(store.clone());
    if let Some(byte) = current {
        builder = builder.secret(secret(byte));
    }
    if let Some(byte) = previous {
        builder = builder.previous_secret(secret(byte));
    }
    builder.without_background()
}

async fn open(
    store: &MemoryStore,
    current: Option<u8>,
    previous: Option<u8>,
) -> Result<Engine<MemoryStore>, SecretError> {
    match with(store, current, previous).open().await {
        Ok(engine) => Ok(engine),
        Err(EngineError::Secret(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

/// A key that was made under a secret, so that the store is not empty.
async fn charge(engine: &Engine<MemoryStore>, runs: &Arc<AtomicUsize>) -> &'static str {
    let reply = engine
        .guard("pay", ANYBODY, "k")
        .run(b"", counted(runs, "ch_1"))
        .await;
    name(&reply.unwrap())
}

#[tokio::test]
async fn a_store_opens_again_with_the_same_secret() {
    for current in [None, Some(1)] {
        let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
        let first = open(&store, current, None).await.unwrap();
        assert_eq!(charge(&first, &runs).await, "executed");
        let again = open(&store, current, None).await.unwrap();
        assert_eq!(charge(&again, &runs).await, "replayed");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

/// Without this, a retry of every stored key would be a second charge.
#[tokio::test]
async fn another_secret_is_refused_whichever_way_it_changes() {
    for (before, after) in [(None, Some(1)), (Some(1), None), (Some(1), Some(2))] {
        let store = MemoryStore::new();
        open(&store, before, None).await.unwrap();
        for _ in 0..2 {
            let refused = open(&store, after, None).await.err();
            assert_eq!(refused, Some(SecretError::Other), "{before:?} {after:?}");
        }
        let unrelated = open(&store, Some(3), Some(4)).await.err();
        assert_eq!(unrelated, Some(SecretError::Other));
        open(&store, before, None).await.unwrap();
    }
}

#[tokio::test]
async fn with_the_previous_secret_the_store_opens_and_its_keys_are_found() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let own = store.secret([9; 32]).await.unwrap();
    let first = open(&store, None, None).await.unwrap();
    assert_eq!(charge(&first, &runs).await, "executed");
    let second = open(&store, Some(1), Some(own[0])).await.unwrap();
    assert_eq!(charge(&second, &runs).await, "replayed");
    // Going back is a change like any other: keys may have been made since.
    assert_eq!(
        open(&store, None, None).await.err(),
        Some(SecretError::Other)
    );
    let back = open(&store, None, Some(1)).await.unwrap();
    assert_eq!(charge(&back, &runs).await, "replayed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The other way to hide keys: taking the previous secret out while they are still stored.
#[tokio::test]
async fn the_previous_secret_is_needed_until_its_keys_have_expired() {
    let store = MemoryStore::new();
    open(&store, Some(1), None).await.unwrap();
    let retention = Policy::builder().retention(7 * DAY).build().unwrap();
    let rotating = with(&store, Some(2), Some(1)).policies(Policies::new(retention));
    rotating.open().await.unwrap();
    open(&store, Some(2), Some(1)).await.unwrap();
    for (current, previous) in [(2, None), (2, Some(3)), (3, Some(2))] {
        let refused = open(&store, Some(current), previous).await.err();
        let Some(SecretError::Dropped { left }) = refused else {
            panic!("{current} {previous:?}: {refused:?}");
        };
        assert!(left <= 7 * DAY && left > 6 * DAY, "{left:?}");
    }
}

impl Timed {
    /// After the change from the first secret to the second.
    async fn open(&self) -> Engine<MemoryStore> {
        open(&self.store, Some(2), Some(1)).await.unwrap()
    }

    /// For how much longer the first secret may not be left out.
    async fn needed_for(&self) -> Option<Duration> {
        match open(&self.store, Some(2), None).await {
            Ok(_) => None,
            Err(SecretError::Dropped { left }) => Some(left),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn once_its_keys_have_expired_the_previous_secret_may_go() {
    let timed = Timed::new();
    open(&timed.store, Some(1), None).await.unwrap();
    timed.open().await;
    let left = Duration::from_millis(1);
    timed.pass(Policy::default().retention().saturating_sub(left));
    assert_eq!(timed.needed_for().await, Some(left));
    timed.pass(left);
    assert_eq!(timed.needed_for().await, None);
    open(&timed.store, Some(3), Some(2)).await.unwrap();
}

/// Leaves a key under the first secret whose work said this, and gives its record.
async fn leave(timed: &Timed, outcome: Outcome) -> (RecordId, Record) {
    let engine = open(&timed.store, Some(1), None).await.unwrap();
    let work = move |_| std::future::ready(Finished { outcome, value: () });
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    assert_eq!(name(&reply.unwrap()), "executed");
    common::rows(&timed.store).await.swap_remove(0)
}

const LOST: Outcome = Outcome::Unknown(UnknownReason::NoCompleteAnswer);

/// An outcome that became known late is kept for a whole retention from then on. Without the secret
/// that its key was made with, a retry would not find it, and charge again.
#[tokio::test]
async fn a_key_that_was_settled_late_needs_its_secret_until_it_expires() {
    let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
    let (id, record) = leave(&timed, LOST).await;
    timed.pass(HOUR);
    timed.open().await;
    timed.pass(23 * HOUR);
    let engine = timed.open().await;
    let found = Response::Plain(StoredResponse::from_bytes("ch_1"));
    let told = engine.reconcile(&id, record.fence, engine.now(), Verdict::Completed(found));
    assert_eq!(told.await.unwrap(), Decision::Settled);
    timed.pass(7 * HOUR);
    let left = timed.needed_for().await.expect("the key is still stored");
    assert!(left >= 17 * HOUR && left < 18 * HOUR, "{left:?}");
    assert_eq!(charge(&timed.open().await, &runs).await, "replayed");
    timed.pass(left);
    assert_eq!(timed.needed_for().await, None);
    assert_eq!(charge(&timed.open().await, &runs).await, "executed");
}

/// The work may outlast the time at which the secret could have gone, so it is asked for before the
/// work begins: what a crash leaves must be found too.
#[tokio::test]
async fn a_key_that_runs_again_needs_its_secret_before_it_runs() {
    let timed = Timed::new();
    leave(&timed, Outcome::Released).await;
    timed.open().await;
    timed.pass(23 * HOUR);
    let engine = timed.open().await;
    let seen = timed.clone();
    let work = move |_| async move {
        seen.pass(2 * HOUR);
        let left = seen.needed_for().await;
        Finished::completed(StoredResponse::from_bytes("ch_1"), left)
    };
    let reply = engine.guard("pay", ANYBODY, "k").run(b"", work).await;
    let Reply::Executed { value, .. } = reply.unwrap() else {
        panic!("not executed");
    };
    assert!(value.expect("the key is stored") > 21 * HOUR);
}

/// While an outcome is open its key never expires. Whoever asks about it keeps its secret.
#[tokio::test]
async fn a_key_that_is_still_asked_about_needs_its_secret() {
    let timed = Timed::new();
    leave(&timed, LOST).await;
    timed.open().await;
    timed.pass(23 * HOUR);
    assert_eq!(timed.open().await.sweep().await.unwrap().probes, 1);
    timed.pass(2 * HOUR);
    assert!(timed.needed_for().await.expect("unknown") > 21 * HOUR);
}

/// A key whose outcome was lost before the secret changed, an hour before the old one may go; and its
/// store, which can fail.
async fn left_late(timed: &Timed) -> (RecordId, Record, Faulty) {
    let (id, record) = leave(timed, LOST).await;
    timed.open().await;
    timed.pass(23 * HOUR);
    let store = Faulty {
        store: timed.store.clone(),
        ..Faulty::default()
    };
    (id, record, store)
}

/// An engine with both secrets over a store that fails as scripted.
async fn scripted(store: &Faulty) -> Engine<Faulty> {
    let config = EngineConfig {
        store_timeout: Duration::from_millis(50),
        ..EngineConfig::default()
    };
    let builder = Engine::builder(store.clone()).config(config);
    let builder = builder.secret(secret(2)).previous_secret(secret(1));
    builder.without_background().open().await.unwrap()
}

/// If it cannot be written down for how long the secret is needed, the key must not live longer.
#[tokio::test]
async fn nothing_is_settled_late_unless_it_is_known_that_the_secret_is_kept() {
    for (fault, is_settled) in [
        (Fault::Unavailable, false),
        (Fault::Hangs, false),
        (Fault::LostUnacknowledged, true),
        (Fault::WrittenUnacknowledged, true),
    ] {
        let timed = Timed::new();
        let (id, record, store) = left_late(&timed).await;
        let engine = scripted(&store).await;
        store.fail(&[fault]);
        let released = engine.resolve(&id, record.fence, Resolution::Released);
        assert_eq!(released.await.is_ok(), is_settled, "{fault:?}");
        let row = timed.store.load(&id).await.unwrap().unwrap();
        let is_unknown = row.record.state.kind() == StateKind::Unknown;
        assert_eq!(is_unknown, !is_settled, "{fault:?}");
        timed.pass(2 * HOUR);
        let is_needed = timed.needed_for().await.is_some();
        assert_eq!(is_needed, is_settled, "{fault:?}");
    }
}

/// Late keys must not make one row the bottleneck: what is written down for one covers the next.
#[tokio::test]
async fn late_keys_share_a_write() {
    let (timed, runs) = (Timed::new(), Arc::new(AtomicUsize::new(0)));
    let (id, record, store) = left_late(&timed).await;
    let engine = scripted(&store).await;
    let before = store.swaps.load(Ordering::SeqCst);
    let swaps = || store.swaps.load(Ordering::SeqCst) - before;
    let released = engine.resolve(&id, record.fence, Resolution::Released);
    assert_eq!(released.await.unwrap(), Decision::Settled);
    assert_eq!(swaps(), 2, "the secrets' row, and the key's");
    let again = engine.guard("pay", ANYBODY, "k");
    again.run(b"", counted(&runs, "ch_1")).await.unwrap();
    assert_eq!(swaps(), 4, "a claim and a completion");
}

/// A change of the secret must not cost every later request a write.
#[tokio::test]
async fn keys_of_the_new_secret_write_nothing_for_the_old_one() {
    let timed = Timed::new();
    open(&timed.store, Some(1), None).await.unwrap();
    timed.open().await;
    timed.pass(HOUR);
    let store = Faulty {
        store: timed.store.clone(),
        ..Faulty::default()
    };
    let engine = scripted(&store).await;
    let before = store.swaps.load(Ordering::SeqCst);
    let runs = Arc::new(AtomicUsize::new(0));
    let charged = engine.guard("pay", ANYBODY, "new");
    charged.run(b"", counted(&runs, "ch_1")).await.unwrap();
    assert_eq!(store.swaps.load(Ordering::SeqCst) - before, 2);
    assert_eq!(timed.needed_for().await, Some(23 * HOUR));
}

/// A store of an earlier version: keys, and nothing that tells what they were made with.
#[tokio::test]
async fn keys_of_an_unnamed_secret_need_somebody_who_names_it() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let first = open(&store, Some(1), None).await.unwrap();
    assert_eq!(charge(&first, &runs).await, "executed");
    take_out(&store, &marks(&store).await).await;
    for current in [1, 2] {
        let refused = open(&store, Some(current), None).await.err();
        assert_eq!(refused, Some(SecretError::Unmarked));
    }
    let named = open(&store, Some(1), Some(1)).await.unwrap();
    assert_eq!(charge(&named, &runs).await, "replayed");
    open(&store, Some(1), None).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    waited.expect(what);
}

async fn take_out(store: &MemoryStore, id: &RecordId) {
    let version = store.load(id).await.unwrap().unwrap().version;
    let _ = store.swap(id, Some(version), None).await.unwrap();
}

/// Evicted, or not there after a failover: its keys are, and no new secret finds them.
#[tokio::test]
async fn a_store_that_lost_its_own_secret_and_not_its_keys_stays_closed() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let first = open(&store, None, None).await.unwrap();
    assert_eq!(charge(&first, &runs).await, "executed");
    take_out(&store, &marks(&store).await).await;
    let forgetful = MemoryStore::new();
    for (id, record) in common::rows(&store).await {
        let _ = forgetful.swap(&id, None, Some(&record)).await.unwrap();
    }
    // Nor when it is tried again, though the store has kept the new secret of the first try.
    for _ in 0..2 {
        let refused = open(&forgetful, None, None).await.err();
        assert_eq!(refused, Some(SecretError::Lost));
    }
    let own = store.secret([9; 32]).await.unwrap();
    let builder = Engine::builder(forgetful.clone()).secret(Secret::new(own));
    let brought = builder.without_background().open().await.unwrap();
    assert_eq!(charge(&brought, &runs).await, "replayed");
    // With the secret, and without what tells of it, it opens as ever.
    let again = open(&store, None, None).await.unwrap();
    assert_eq!(charge(&again, &runs).await, "replayed");
}

/// The store is emptied or opened with another secret under a running engine: whatever it executed
/// from then on, others would execute too.
#[tokio::test]
async fn an_engine_that_its_store_no_longer_knows_executes_nothing() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let events = EventLog::default();
    let running = Engine::builder(store.clone())
        .secret(secret(1))
        .observer(events.clone())
        .config(EngineConfig {
            clock_refresh: Duration::ZERO,
            sweep_every: Duration::from_millis(1),
            ..EngineConfig::default()
        });
    let running = running.open().await.unwrap();
    assert_eq!(charge(&running, &runs).await, "executed");
    let id = marks(&store).await;
    let own = store.load(&id).await.unwrap().unwrap().record;
    take_out(&store, &id).await;
    for other in [None, Some(2)] {
        if let Some(other) = other {
            open(&store, Some(other), Some(other)).await.unwrap();
        }
        // Once more from now on: a look that had begun before may have been the last one.
        let told = events.count("no longer says");
        eventually("it notices", || events.count("no longer says") > told + 1).await;
        let new = running.guard("pay", ANYBODY, "new");
        let refused = new.run(b"", counted(&runs, "ch_2")).await.unwrap_err();
        assert!(
            refused.to_string().contains("no longer says"),
            "{other:?}: {refused}"
        );
        assert_eq!(charge(&running, &runs).await, "replayed", "{other:?}");
    }
    // The right ones are back.
    take_out(&store, &id).await;
    let _ = store.swap(&id, None, Some(&own)).await.unwrap();
    let new = async || {
        let new = running.guard("pay", ANYBODY, "new");
        new.run(b"", counted(&runs, "ch_2")).await
    };
    while new().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(name(&new().await.unwrap()), "replayed");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_row_that_makes_no_sense_keeps_the_store_closed() {
    let store = MemoryStore::new();
    open(&store, Some(1), None).await.unwrap();
    let id = marks(&store).await;
    let row = store.load(&id).await.unwrap().unwrap();
    for bytes in [0, 15, 17, 39, 41] {
        let version = store.load(&id).await.unwrap().unwrap().version;
        let mut record = row.record.clone();
        record.memo = vec![1; bytes].into();
        let _ = store.swap(&id, Some(version), Some(&record)).await.unwrap();
        let refused = with(&store, Some(1), None).open().await;
        assert!(matches!(refused, Err(EngineError::Store(_))), "{bytes}");
    }
}

#[tokio::test]
async fn the_secret_cannot_be_read_from_the_store() {
    let store = MemoryStore::new();
    open(&store, Some(0xab), None).await.unwrap();
    open(&store, Some(0xcd), Some(0xab)).await.unwrap();
    let row = store.load(&marks(&store).await).await.unwrap().unwrap();
    let memo = row.record.memo;
    assert_eq!(memo.len(), 40);
    assert!(
        !memo
            .windows(4)
            .any(|part| part == [0xab; 4] || part == [0xcd; 4])
    );
}

/// Gateways that start together, on a store that nobody has used or while the secret changes.
#[tokio::test]
async fn engines_that_open_a_store_at_once_all_succeed() {
    let store = MemoryStore::new();
    for (current, previous) in [(Some(1), None), (Some(2), Some(1))] {
        let opening = (0..8).map(|_| open(&store, current, previous));
        for opened in futures_util::future::join_all(opening).await {
            opened.unwrap();
        }
    }
}

#[tokio::test]
async fn a_write_that_was_not_acknowledged_is_looked_for() {
    for fault in [Fault::WrittenUnacknowledged, Fault::LostUnacknowledged] {
        let store = Faulty::default();
        store.fail(&[fault]);
        faulty(&store).await;
        faulty(&store).await;
    }
}

/// Where the engine notes its secrets.
async fn marks(store: &MemoryStore) -> RecordId {
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    let mut ids = page.entries.iter().filter(|entry| {
        let record = &entry.row.as_ref().unwrap().record;
        record.route.as_str() == MARKS_ROUTE
    });
    ids.next().unwrap().id
}
