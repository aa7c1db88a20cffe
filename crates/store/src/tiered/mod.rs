//! A durable store with a cache of its completed rows in front.
//!
//! The durable store decides everything. The cache only saves a round trip when the same
//! completed key is asked for again, and a cold, full or dead cache changes
//! no answer. What makes that safe is that a completed row never changes before it expires:
//!
//! - only completed rows are kept, only until a margin before their own expiry, and never for
//!   longer than [`TieredOptions::age_max`];
//! - every write goes to the durable store. A claim that expects no row, while a completed one
//!   is known, is told that row, as a read would be: it loses, and nothing is written;
//! - what a write learned, won, lost or failed, takes the row out of the cache or renews it
//!   before the write is answered;
//! - a row that was read while somebody here wrote is not kept.
//!
//! What is left is an operator who makes another instance forget a completed key: here it may be
//! replayed for up to `age_max` more. It is never executed twice, because a claim that decides
//! from a stale row still has to win its write in the durable store.
//!
//! Reads of one id share one read of the durable store. Whoever comes while a read is under way
//! takes its row only if that is completed; for anything else all who came wait for the next
//! read, which began after they asked.

mod cache;
mod clock;
mod lanes;
mod memory;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use onlyonce_core::{Record, RecordId, State, Timestamp};

pub use cache::{Cache, Cached};
use clock::StoreTime;
use lanes::{Answer, Lanes, Leading, Turn};
pub use memory::MemoryCache;

use crate::{Cursor, Filter, ListStore, Page, Row, Store, StoreError, StoreProfile, Swap, Version};

/// How far the cache is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TieredOptions {
    /// How long a row is used after the durable store was last asked for it: the longest time
    /// for which this instance can miss that an operator made another one forget a key.
    /// Default: 60 seconds.
    pub age_max: Duration,
    /// How long before its own expiry a row is no longer used. More than the store's clock can
    /// be misjudged by. Default: 5 seconds.
    pub expiry_margin: Duration,
    /// How long the cache may take to answer before the durable store is asked instead.
    /// Default: 20 milliseconds.
    pub cache_patience: Duration,
    /// How long a cache that took longer is left alone. Default: 1 second.
    pub cache_rest: Duration,
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self {
            age_max: Duration::from_secs(60),
            expiry_margin: Duration::from_secs(5),
            cache_patience: Duration::from_millis(20),
            cache_rest: Duration::from_secs(1),
        }
    }
}

/// A durable store behind a cache of its completed rows.
///
/// The cache is used once the store has been asked for its time, which an engine does when it
/// starts and every few seconds from then on: what has expired is for the store's clock to say.
pub struct Tiered<S, C = MemoryCache> {
    store: S,
    cache: C,
    options: TieredOptions,
    time: StoreTime,
    lanes: Lanes,
    /// Local time until which the cache is left alone, in milliseconds.
    resting_until: AtomicU64,
}

impl<S: Store> Tiered<S> {
    /// A store behind a cache of at most so many bytes in this process.
    #[must_use]
    pub fn in_process(store: S, bytes_max: usize) -> Self {
        Self::new(store, MemoryCache::new(bytes_max), TieredOptions::default())
    }
}

impl<S: Store, C: Cache> Tiered<S, C> {
    /// A store behind a cache.
    #[must_use]
    pub fn new(store: S, cache: C, options: TieredOptions) -> Self {
        Self {
            store,
            cache,
            options,
            time: StoreTime::new(),
            lanes: Lanes::default(),
            resting_until: AtomicU64::new(0),
        }
    }

    /// The cache.
    #[must_use]
    pub const fn cache(&self) -> &C {
        &self.cache
    }

    /// The completed row under `id`, if the cache has one that may be used.
    async fn cached(&self, id: &RecordId) -> Option<Row> {
        let now = self.time.now()?;
        let cached = self.patiently(self.cache.get(id)).await?;
        self.is_usable(&cached, now).then_some(cached.row)
    }

    /// What the cache says, unless it takes too long.
    async fn patiently(&self, get: impl Future<Output = Option<Cached>>) -> Option<Cached> {
        if self.time.local_ms() < self.resting_until.load(Ordering::Relaxed) {
            return None;
        }
        let mut get = pin!(get);
        // A cache in this process answers at once, and needs no timer.
        let first = poll_fn(|context| Poll::Ready(get.as_mut().poll(context))).await;
        if let Poll::Ready(cached) = first {
            return cached;
        }
        let answer = tokio::time::timeout(self.options.cache_patience, get).await;
        if answer.is_err() {
            let rest = u64::try_from(self.options.cache_rest.as_millis()).unwrap_or(u64::MAX);
            let until = self.time.local_ms().saturating_add(rest);
            self.resting_until.store(until, Ordering::Relaxed);
        }
        answer.ok().flatten()
    }

    /// Whether a row can be used at `now`: completed, not near its expiry, and seen lately.
    fn is_usable(&self, cached: &Cached, now: Timestamp) -> bool {
        let Cached { row, seen_at } = cached;
        let seen_lately = *seen_at <= now.after(self.options.expiry_margin)
            && now < seen_at.after(self.options.age_max);
        seen_lately && self.is_lasting(row, now)
    }

    /// Whether a row stays as it is for a while yet.
    fn is_lasting(&self, row: &Row, now: Timestamp) -> bool {
        match row.record.state {
            State::Completed { expires_at, .. } => {
                expires_at > now.after(self.options.expiry_margin)
            }
            State::Executing { .. }
            | State::Unknown { .. }
            | State::DeadLetter { .. }
            | State::Released { .. }
            | State::Expired { .. } => false,
        }
    }

    /// Keeps a row that was there at `seen_at`, if it lasts. Takes the old one out if not.
    fn keep(&self, id: &RecordId, row: Option<&Row>, seen_at: Option<Timestamp>) {
        let lasting = row.zip(seen_at);
        match lasting.filter(|(row, seen_at)| self.is_lasting(row, *seen_at)) {
            Some((row, seen_at)) => {
                let row = row.clone();
                self.cache.put(id, Cached { row, seen_at });
            }
            None => self.cache.remove(id),
        }
    }

    /// Reads the durable store for everybody who asks for `id` meanwhile.
    async fn lead(&self, leading: Leading<'_>) -> Answer {
        let seen_at = self.time.now();
        let answer = self.store.load(leading.id()).await;
        let row = answer.as_ref().ok().and_then(Option::as_ref);
        leading.finish(&answer, |id| self.keep(id, row, seen_at));
        answer
    }

    /// Whether a row may be given to callers who came while it was being read.
    fn may_be_shared(&self, answer: &Answer) -> bool {
        let now = self.time.now();
        matches!((answer, now), (Ok(Some(row)), Some(now)) if self.is_lasting(row, now))
    }
}

impl<S: Store, C> fmt::Debug for Tiered<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tiered({})", self.store.profile().name)
    }
}

impl<S: Store, C: Cache> Store for Tiered<S, C> {
    /// That of the durable store.
    fn profile(&self) -> StoreProfile {
        self.store.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        // Whether the read that is waited for began after this call.
        let mut is_later = false;
        loop {
            if let Some(row) = self.cached(id).await {
                return Ok(Some(row));
            }
            match self.lanes.turn(id) {
                Turn::Lead(leading) => return self.lead(leading).await,
                Turn::Join(mut joined) => {
                    if let Some(answer) = joined.answer().await
                        && (is_later || self.may_be_shared(&answer))
                    {
                        return answer;
                    }
                    is_later = true;
                }
            }
        }
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        // A claim on a key that is known to be completed: a read, by another name.
        if expected.is_none()
            && next.is_some()
            && let Some(row) = self.cached(id).await
        {
            return Ok(Swap::Lost(Some(row)));
        }
        let seen_at = self.time.now();
        let writing = self.lanes.write(id, |id| self.cache.remove(id));
        let swap = self.store.swap(id, expected, next).await?;
        if let Swap::Lost(row) = &swap {
            writing.lost(|id| self.keep(id, row.as_ref(), seen_at));
        }
        Ok(swap)
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.store.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.store.now().await?;
        self.time.sample(now);
        Ok(now)
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.store.secret(candidate).await
    }
}

impl<S: Store + ListStore, C: Cache> ListStore for Tiered<S, C> {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, after, limit).await
    }
}
