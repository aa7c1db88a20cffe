//! Stores and caches to test with.

use std::future::{Future, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_conformance::suite::samples;
use onlyonce_core::{Record, RecordId, State, Timestamp};
use onlyonce_store::tiered::{Cache, Cached, MemoryCache, Tiered, TieredOptions};
use onlyonce_store::{
    Cursor, Filter, ListStore, MemoryStore, Page, Row, Store, StoreClock, StoreError, StoreProfile,
    Swap, Version,
};
use tokio::sync::{Semaphore, watch};

/// What the durable store was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    loads: Arc<watch::Sender<u64>>,
    swaps: Arc<AtomicU64>,
}

impl Asked {
    pub fn loads(&self) -> u64 {
        *self.loads.borrow()
    }

    pub fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::SeqCst)
    }

    /// Waits until so many loads have begun.
    pub async fn until_loads(&self, loads: u64) {
        let mut begun = self.loads.subscribe();
        let begun = begun.wait_for(|begun| *begun >= loads);
        let begun = tokio::time::timeout(Duration::from_secs(30), begun).await;
        begun.expect("a load begins").unwrap();
    }
}

/// A memory store that counts, can be held up, and can lose answers.
#[derive(Debug, Clone)]
pub struct Durable {
    pub store: MemoryStore,
    pub asked: Asked,
    /// A load takes one on its way back, after it has read.
    pub answers: Arc<Semaphore>,
    /// Writes happen, and their answers are lost.
    pub cuts_answers: Arc<AtomicBool>,
    pub is_down: Arc<AtomicBool>,
}

impl Durable {
    /// On a clock that stands at 1,000 seconds.
    pub fn new() -> Self {
        Self::over(MemoryStore::with_clock(|| NOW))
    }

    pub fn over(store: MemoryStore) -> Self {
        Self {
            store,
            asked: Asked {
                loads: Arc::new(watch::Sender::new(0)),
                swaps: Arc::default(),
            },
            answers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            cuts_answers: Arc::default(),
            is_down: Arc::default(),
        }
    }

    /// From now on loads read, and wait for [`let_answer`](Self::let_answer).
    pub fn hold_answers(&self) {
        self.answers.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub fn let_answer(&self, loads: usize) {
        self.answers.add_permits(loads);
    }
}

/// The time of [`Durable::new`].
pub const NOW: Timestamp = Timestamp::from_millis(1_000_000);

impl Store for Durable {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "counted",
            durable: true,
            shared: true,
            cheap_reads: false,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.asked.loads.send_modify(|loads| *loads += 1);
        if self.is_down.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("down"));
        }
        let row = self.store.load(id).await;
        self.answers.acquire().await.unwrap().forget();
        row
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.asked.swaps.fetch_add(1, Ordering::SeqCst);
        let swap = self.store.swap(id, expected, next).await;
        if self.cuts_answers.load(Ordering::SeqCst) {
            return Err(StoreError::ambiguous("cut"));
        }
        swap
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

impl ListStore for Durable {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, after, limit).await
    }
}

/// A tier over a durable store that has been told the time.
pub async fn tiered<C: Cache>(durable: &Durable, cache: C) -> Arc<Tiered<Durable, C>> {
    let tiered = Tiered::new(durable.clone(), cache, TieredOptions::default());
    tiered.now().await.unwrap();
    Arc::new(tiered)
}

/// The same with a cache in this process.
pub async fn in_process(durable: &Durable) -> Arc<Tiered<Durable>> {
    tiered(durable, MemoryCache::new(1 << 20)).await
}

/// A completion that is kept for an hour after [`NOW`].
pub fn completed(number: u64, body: &'static str) -> Record {
    expiring(number, body, Duration::from_secs(3_600))
}

/// A completion that expires so long after [`NOW`].
pub fn expiring(number: u64, body: &'static str, after: Duration) -> Record {
    let mut record = samples::completed(number, body);
    if let State::Completed { expires_at, .. } = &mut record.state {
        *expires_at = NOW.after(after);
    }
    record
}

/// A cache that is gone.
#[derive(Debug, Clone, Copy)]
pub struct Dead;

impl Cache for Dead {
    fn get(&self, _: &RecordId) -> impl Future<Output = Option<Cached>> + Send {
        ready(None)
    }

    fn put(&self, _: &RecordId, _: Cached) {}

    fn remove(&self, _: &RecordId) {}
}

/// A cache that takes everything and never answers.
#[derive(Debug, Clone, Copy)]
pub struct Hanging;

impl Cache for Hanging {
    fn get(&self, _: &RecordId) -> impl Future<Output = Option<Cached>> + Send {
        pending()
    }

    fn put(&self, _: &RecordId, _: Cached) {}

    fn remove(&self, _: &RecordId) {}
}

/// A cache that gives the same entry for every id, and forgets nothing.
#[derive(Debug, Clone)]
pub struct Poisoned(pub Cached);

impl Cache for Poisoned {
    fn get(&self, _: &RecordId) -> impl Future<Output = Option<Cached>> + Send {
        ready(Some(self.0.clone()))
    }

    fn put(&self, _: &RecordId, _: Cached) {}

    fn remove(&self, _: &RecordId) {}
}

/// How far the suite's times, in 1970, are from the wall clock's. A tier under the suite lives in
/// 1970, so that the suite's completed rows have not expired there and its cache is in use.
fn shift() -> Duration {
    static SHIFT: OnceLock<Timestamp> = OnceLock::new();
    let start = SHIFT.get_or_init(|| StoreClock::start(Timestamp::ZERO).now());
    start.since(Timestamp::ZERO)
}

/// A durable store, as its tier under the suite sees it.
#[derive(Debug)]
pub struct Early<S>(pub S);

/// A tier under the suite.
#[derive(Debug)]
pub struct Warm<S: Store, C: Cache>(pub Tiered<Early<S>, C>);

impl<S: Store, C: Cache> Warm<S, C> {
    pub fn new(store: S, cache: C) -> Self {
        let _ = shift();
        Self(Tiered::new(Early(store), cache, TieredOptions::default()))
    }
}

impl<S: Store> Store for Early<S> {
    fn profile(&self) -> StoreProfile {
        self.0.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.0.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.0.swap(id, expected, next).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.0.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.0.now().await?;
        let early = now.since(Timestamp::ZERO).saturating_sub(shift());
        Ok(Timestamp::ZERO.after(early))
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.0.secret(candidate).await
    }
}

impl<S: Store, C: Cache> Store for Warm<S, C> {
    fn profile(&self) -> StoreProfile {
        self.0.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        // An engine asks for the time when it starts. The suite does not.
        self.0.now().await?;
        self.0.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.0.now().await?;
        self.0.swap(id, expected, next).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.0.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.0.now().await?.after(shift()))
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.0.secret(candidate).await
    }
}

impl<S: Store + ListStore> ListStore for Early<S> {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, after, limit).await
    }
}

impl<S: Store + ListStore, C: Cache> ListStore for Warm<S, C> {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, after, limit).await
    }
}
