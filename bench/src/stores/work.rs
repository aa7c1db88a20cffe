//! What callers do to a store: claim new keys, complete them, and ask again for completed ones.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{RecordId, State, Timestamp};
use onlyonce_store::{Row, Store, Swap, Version};
use sha2::{Digest, Sha256};

use crate::machine::now;
use crate::records::{body, claimed, completed};

/// How many ask at once.
pub(crate) const CALLERS: usize = 64;

/// How many write when rows are only to be there.
const FILLERS: usize = 256;

/// How many milliseconds apart they seem to have been written: two million in less than a day.
const FILL_STEP_MS: u64 = 40;

/// A claim that was won: the number of its key, and the version to complete it with.
pub(crate) type Claim = (u64, Version);

/// What one round came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) rate: f64,
    pub(crate) count: u64,
}

impl Done {
    fn new<T>((rate, done): (f64, Vec<T>)) -> Self {
        let count = u64::try_from(done.len()).unwrap();
        Self { rate, count }
    }
}

/// The id of a number; in SQL it is `sha256(int8send(n))`.
pub(crate) fn id(number: u64) -> RecordId {
    RecordId::from_bytes(Sha256::digest(number.to_be_bytes()).into())
}

/// A store with the numbers of its keys.
pub(crate) struct Work<S> {
    store: Arc<S>,
    callers: usize,
    next: Arc<AtomicU64>,
    time: Timestamp,
    body: Bytes,
}

impl<S: Store> Work<S> {
    /// Takes new keys from `first` on.
    pub(crate) async fn new(store: S, first: u64) -> Self {
        let time = store.now().await.unwrap();
        Self {
            store: Arc::new(store),
            callers: CALLERS,
            next: Arc::new(AtomicU64::new(first)),
            time,
            body: body(),
        }
    }

    /// The same by one caller alone.
    pub(crate) fn one_by_one(mut self) -> Self {
        self.callers = 1;
        self
    }

    /// Claims new keys until the time is over, or so many are claimed.
    pub(crate) async fn claims(&self, length: Duration, count_max: u64) -> (f64, Vec<Claim>) {
        let (store, next, record) = (
            Arc::clone(&self.store),
            Arc::clone(&self.next),
            Arc::new(claimed(self.time)),
        );
        let end = next.load(Ordering::Relaxed).saturating_add(count_max);
        many(self.callers, length, move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (store, record) = (Arc::clone(&store), Arc::clone(&record));
            async move {
                if number >= end {
                    return None;
                }
                let swap = store.swap(&id(number), None, Some(&record)).await;
                Some((number, won(&swap.unwrap()).expect("a new key")))
            }
        })
        .await
    }

    /// Completes what was claimed.
    pub(crate) async fn completions(&self, claims: Vec<Claim>) -> Done {
        let (store, record) = (
            Arc::clone(&self.store),
            Arc::new(completed(self.time, &self.body)),
        );
        let (claims, next) = (Arc::new(claims), AtomicU64::new(0));
        let done = many(self.callers, Duration::MAX, move || {
            let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
            let claim = claims.get(at).copied();
            let (store, record) = (Arc::clone(&store), Arc::clone(&record));
            async move {
                let (number, version) = claim?;
                let swap = store.swap(&id(number), Some(version), Some(&record)).await;
                won(&swap.unwrap()).expect("a key that is claimed");
                Some(())
            }
        })
        .await;
        Done::new(done)
    }

    /// Reads completed rows.
    pub(crate) async fn loads(&self, keys: Range<u64>, length: Duration) -> Done {
        let store = Arc::clone(&self.store);
        let numbers = scattered(keys);
        let done = many(self.callers, length, move || {
            let (store, number) = (Arc::clone(&store), numbers());
            async move {
                check(store.load(&id(number)).await.unwrap());
                Some(())
            }
        })
        .await;
        Done::new(done)
    }

    /// Claims completed keys, as a retry does: it loses, and is shown the row.
    pub(crate) async fn reclaims(&self, keys: Range<u64>, length: Duration) -> Done {
        let (store, record) = (Arc::clone(&self.store), Arc::new(claimed(self.time)));
        let numbers = scattered(keys);
        let done = many(self.callers, length, move || {
            let (store, record, number) = (Arc::clone(&store), Arc::clone(&record), numbers());
            async move {
                let swap = store.swap(&id(number), None, Some(&record)).await;
                check(lost(swap.unwrap()));
                Some(())
            }
        })
        .await;
        Done::new(done)
    }

    /// Puts completed rows there, with deadlines as if they had been written one after another.
    pub(crate) async fn fill(&self, keys: Range<u64>) {
        let (store, body, time) = (Arc::clone(&self.store), self.body.clone(), self.time);
        let next = AtomicU64::new(keys.start);
        many(FILLERS, Duration::MAX, move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let store = Arc::clone(&store);
            let before_ms = keys.end.saturating_sub(number) * FILL_STEP_MS;
            let written_at = Timestamp::from_millis(time.as_millis().saturating_sub(before_ms));
            let record = completed(written_at, &body);
            async move {
                if number >= keys.end {
                    return None;
                }
                let swap = store.swap(&id(number), None, Some(&record)).await;
                won(&swap.unwrap()).expect("a new key");
                Some(())
            }
        })
        .await;
    }
}

fn won(swap: &Swap) -> Option<Version> {
    match swap {
        Swap::Won(version) => Some(*version),
        Swap::Lost(_) => None,
    }
}

fn lost(swap: Swap) -> Option<Row> {
    match swap {
        Swap::Won(_) => None,
        Swap::Lost(row) => row,
    }
}

/// A replay needs the answer, not just any row.
fn check(row: Option<Row>) {
    let row = row.expect("a completed row");
    let is_completed = matches!(row.record.state, State::Completed { .. });
    assert!(is_completed, "{:?}", row.record.state.kind());
}

/// Numbers all over the range.
fn scattered(keys: Range<u64>) -> impl Fn() -> u64 + Send + Sync + 'static {
    let numbers = AtomicU64::new(0);
    move || keys.start + numbers.fetch_add(7919, Ordering::Relaxed) % (keys.end - keys.start)
}

/// Runs `operation` from many callers, each as fast as it can, until the time is over or it has
/// nothing more to do. What it did per second, and what came of it.
async fn many<T, F, Fut>(callers: usize, length: Duration, operation: F) -> (f64, Vec<T>)
where
    T: Send + 'static,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<T>> + Send,
{
    let operation = Arc::new(operation);
    let started = now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let operation = Arc::clone(&operation);
            tokio::spawn(async move {
                let mut done = Vec::new();
                while started.elapsed() < length {
                    match operation().await {
                        Some(one) => done.push(one),
                        None => break,
                    }
                }
                done
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    (all.len() as f64 / started.elapsed().as_secs_f64(), all)
}
