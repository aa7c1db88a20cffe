//! What the engine's tests share: short policies, an event log, and stores that misbehave.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "each test file uses a part"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Policy, Record, RecordId, StateKind, StoredResponse, Timestamp};
use onlyonce_engine::{
    Engine, EngineConfig, Event, Finished, MARKS_ROUTE, Observer, Policies, Reply,
};
use onlyonce_store::{
    Filter, ListStore, MemoryStore, Row, Store, StoreError, StoreProfile, Swap, Version,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A caller whose name does not matter.
pub(crate) const ANYBODY: &[u8] = b"anybody";

/// A policy whose lease is short enough to run out in a test.
pub(crate) fn short_lease() -> Policies {
    Policies::new(
        Policy::builder()
            .lease(Duration::from_millis(200))
            .build()
            .unwrap(),
    )
}

pub(crate) async fn engine() -> Engine<MemoryStore> {
    engine_where(false).await
}

/// The same with work in the tasks of its callers, or in tasks of its own.
pub(crate) async fn engine_where(callers_work: bool) -> Engine<MemoryStore> {
    let engine = Engine::builder(MemoryStore::new()).config(config_where(callers_work));
    engine.open().await.unwrap()
}

pub(crate) fn config_where(callers_work: bool) -> EngineConfig {
    EngineConfig {
        callers_work,
        ..EngineConfig::default()
    }
}

/// A caller whose work has begun, and ends like this when it is told to go on.
pub(crate) async fn begun<S: Store>(
    engine: &Engine<S>,
    key: &'static str,
    end: Finished<()>,
) -> (JoinHandle<Reply<()>>, oneshot::Sender<()>) {
    let (begin, has_begun) = oneshot::channel();
    let (go, may_go) = oneshot::channel::<()>();
    let engine = engine.clone();
    let caller = tokio::spawn(async move {
        let work = |_| async move {
            begin.send(()).unwrap();
            may_go.await.unwrap();
            end
        };
        let guard = engine.guard("pay", ANYBODY, key);
        guard.run(b"", work).await.unwrap()
    });
    has_begun.await.unwrap();
    (caller, go)
}

/// Polls until the condition holds, for at most ten seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert!(waited.is_ok(), "{what}");
}

/// Work that succeeds with `body`, counting how often it ran.
pub(crate) fn counted(
    runs: &Arc<AtomicUsize>,
    body: &'static str,
) -> impl FnOnce(onlyonce_engine::Execution) -> std::future::Ready<Finished<&'static str>> + Send + 'static
{
    let runs = Arc::clone(runs);
    move |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Finished::completed(StoredResponse::from_bytes(body), body))
    }
}

/// The reply's name, for assertions that read well.
pub(crate) fn name<T>(reply: &Reply<T>) -> &'static str {
    match reply {
        Reply::Executed { .. } => "executed",
        Reply::Replayed(_) => "replayed",
        Reply::NotReplayable(_) => "not replayable",
        Reply::AlreadyUsed => "already used",
        Reply::InFlight(_) => "in flight",
        Reply::Mismatch(_) => "mismatch",
        Reply::Unknown(_) => "unknown",
    }
}

/// The replayed body.
pub(crate) fn body<T>(reply: &Reply<T>) -> &[u8] {
    match reply {
        Reply::Replayed(replay) => &replay.response.body,
        _ => panic!("expected a replay, got {}", name(reply)),
    }
}

/// Keeps every event as text.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    pub(crate) fn count(&self, part: &str) -> usize {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| event.contains(part)).count()
    }

    pub(crate) fn contains(&self, part: &str) -> bool {
        self.0
            .lock()
            .unwrap()
            .iter()
            .any(|event| event.contains(part))
    }
}

impl Observer for EventLog {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

/// A store whose time a test sets. Engines see it when they open.
#[derive(Clone)]
pub(crate) struct Timed {
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) store: MemoryStore,
}

impl Timed {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let reads = Arc::clone(&clock);
        let read = move || Timestamp::from_millis(reads.load(Ordering::SeqCst));
        let store = MemoryStore::with_clock(read);
        Self { clock, store }
    }

    pub(crate) fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.clock.fetch_add(millis, Ordering::SeqCst);
    }
}

/// What the next swaps do instead of working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Written, and the acknowledgement is lost.
    WrittenUnacknowledged,
    /// Written, and then the driver panics.
    WrittenThenPanics,
    /// Written, and then somebody else removes the row.
    WrittenThenGone,
    /// Nobody can tell; it is written later, when [`Faulty::arrive`] says so.
    WrittenLate,
    /// Not written, and nobody can tell.
    LostUnacknowledged,
    /// Turned away.
    Unavailable,
    /// Never answers.
    Hangs,
    /// The record is too large.
    TooLarge,
}

/// A memory store whose swaps fail as scripted, one fault per swap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faulty {
    pub(crate) store: MemoryStore,
    pub(crate) script: Arc<Mutex<Vec<Fault>>>,
    pub(crate) corrupt: Arc<Mutex<bool>>,
    pub(crate) cheap_reads: bool,
    pub(crate) late: Arc<Mutex<Vec<Late>>>,
    pub(crate) swaps: Arc<AtomicUsize>,
    pub(crate) loads: Arc<AtomicUsize>,
}

/// A swap that is on its way.
pub(crate) type Late = (RecordId, Option<Version>, Option<Record>);

impl Faulty {
    /// What was on its way is written now.
    pub(crate) async fn arrive(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        for (id, expected, next) in late {
            let _ = self.store.swap(&id, expected, next.as_ref()).await.unwrap();
        }
    }

    /// The next swaps fail like this.
    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.script.lock().unwrap().extend(faults.iter().rev());
    }
}

impl Store for Faulty {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            cheap_reads: self.cheap_reads,
            ..self.store.profile()
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        if *self.corrupt.lock().unwrap() {
            return Err(StoreError::Corrupt {
                version: Version(1),
                reason: "flipped".into(),
            });
        }
        self.store.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.swaps.fetch_add(1, Ordering::SeqCst);
        let fault = self.script.lock().unwrap().pop();
        match fault {
            None => self.store.swap(id, expected, next).await,
            Some(Fault::WrittenUnacknowledged) => {
                let _ = self.store.swap(id, expected, next).await?;
                Err(StoreError::ambiguous("the connection was cut"))
            }
            Some(Fault::WrittenLate) => {
                let late = (*id, expected, next.cloned());
                self.late.lock().unwrap().push(late);
                Err(StoreError::ambiguous("the connection was cut"))
            }
            Some(Fault::WrittenThenPanics) => {
                let _ = self.store.swap(id, expected, next).await?;
                panic!("planted")
            }
            Some(Fault::WrittenThenGone) => {
                if let Swap::Won(version) = self.store.swap(id, expected, next).await? {
                    let _ = self.store.swap(id, Some(version), None).await?;
                }
                Err(StoreError::ambiguous("the connection was cut"))
            }
            Some(Fault::LostUnacknowledged) => Err(StoreError::ambiguous("the connection was cut")),
            Some(Fault::Unavailable) => Err(StoreError::unavailable("connection refused")),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::TooLarge) => Err(StoreError::TooLarge {
                bytes: 2,
                bytes_max: 1,
            }),
        }
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

/// All rows but the engine's own note of its secrets.
pub(crate) async fn rows(store: &MemoryStore) -> Vec<(RecordId, Record)> {
    let page = store.list(&Filter::default(), None, 100).await.unwrap();
    page.entries
        .into_iter()
        .map(|entry| (entry.id, *entry.row.unwrap().record))
        .filter(|(_, record)| record.route.as_str() != MARKS_ROUTE)
        .collect()
}

/// Their states.
pub(crate) async fn kinds(store: &MemoryStore) -> Vec<StateKind> {
    let rows = rows(store).await.into_iter();
    rows.map(|(_, record)| record.state.kind()).collect()
}

/// A quick engine over a store that fails as scripted.
pub(crate) async fn faulty(store: &Faulty) -> Engine<Faulty> {
    let config = EngineConfig {
        store_timeout: Duration::from_millis(50),
        settle_patience: Duration::from_millis(300),
        ..EngineConfig::default()
    };
    Engine::builder(store.clone())
        .config(config)
        .without_background()
        .open()
        .await
        .unwrap()
}
