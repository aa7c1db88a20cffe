//! What the tests of this store share.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "helpers of tests, of which each uses some"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_conformance::Harness;
use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_core::{RecordId, State};
use onlyonce_store::{Row, Store, StoreError, Swap, Version};
use onlyonce_store_redis::{OpenError, RedisOptions, RedisStore};

/// Opens a store by its URL.
pub async fn open(url: &str) -> RedisStore {
    try_open(url).await.expect("the store opens")
}

/// The same, where a refusal is expected.
pub async fn try_open(url: &str) -> Result<RedisStore, OpenError> {
    RedisStore::open(&RedisOptions::from_url(url)?).await
}

/// A server for the conformance suite: each case has a prefix of its own.
#[derive(Debug)]
pub struct Server<T> {
    /// Kept alive.
    pub servers: Arc<T>,
    /// Ends where the prefix follows.
    pub url: String,
    cases: Arc<AtomicU32>,
}

impl Server<RedisServer> {
    /// One server.
    pub fn start() -> Self {
        let server = RedisServer::start();
        let url = format!("{}?prefix=", server.url());
        Self::new(server, url)
    }
}

impl<T> Server<T> {
    /// Servers, and the URL that leads to them.
    pub fn new(servers: T, url: String) -> Self {
        Self {
            servers: Arc::new(servers),
            url,
            cases: Arc::default(),
        }
    }
}

impl<T> Clone for Server<T> {
    fn clone(&self) -> Self {
        Self {
            servers: Arc::clone(&self.servers),
            url: self.url.clone(),
            cases: Arc::clone(&self.cases),
        }
    }
}

impl<T: Send + Sync + 'static> Harness for Server<T> {
    type Place = String;
    type Store = RedisStore;
    const DURABLE: bool = true;
    const SHARED: bool = true;

    async fn place(&self) -> String {
        let case = self.cases.fetch_add(1, Ordering::Relaxed);
        format!("{}case{case}", self.url)
    }

    async fn open(&self, place: &String) -> RedisStore {
        open(place).await
    }
}

/// The milliseconds until which a row's lease runs; counts how often it was renewed.
pub fn lease_ms(row: &Row) -> u64 {
    let State::Executing { lease_until, .. } = row.record.state else {
        panic!("a row that only this test writes");
    };
    lease_until.as_millis()
}

/// What the writers of a race saw.
#[derive(Debug, Default)]
pub struct Tally {
    /// The versions that a swap was won from, each with its id.
    pub won: Vec<(RecordId, Option<Version>)>,
    /// Swaps that may have been written.
    pub ambiguous: Vec<RecordId>,
    /// Swaps that were not written.
    pub refused: usize,
    /// The last reason of each kind.
    pub reasons: Vec<String>,
}

impl Tally {
    /// Adds another writer's.
    pub fn add(&mut self, other: Self) {
        self.won.extend(other.won);
        self.ambiguous.extend(other.ambiguous);
        self.refused += other.refused;
        self.reasons.extend(other.reasons);
    }

    fn note(&mut self, id: &RecordId, error: &StoreError) {
        if error.may_have_written() {
            self.ambiguous.push(*id);
        } else {
            self.refused += 1;
        }
        let reason = error.to_string();
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Adds one to each row in turn, until told to stop.
    pub async fn increment(store: RedisStore, ids: Vec<RecordId>, stop: Arc<AtomicBool>) -> Self {
        let mut tally = Self::default();
        for id in ids.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            tally.increment_once(&store, id).await;
            tokio::task::yield_now().await;
        }
        tally
    }

    async fn increment_once(&mut self, store: &RedisStore, id: &RecordId) {
        let row = match store.load(id).await {
            Ok(row) => row,
            Err(error) => return self.note_read(&error),
        };
        let count = row.as_ref().map_or(0, lease_ms);
        let expected = row.map(|row| row.version);
        let next = executing(1, at(count + 1));
        match store.swap(id, expected, Some(&next)).await {
            Ok(Swap::Won(_)) => self.won.push((*id, expected)),
            Ok(Swap::Lost(_)) => {}
            Err(error) => self.note(id, &error),
        }
    }

    fn note_read(&mut self, error: &StoreError) {
        assert!(!error.may_have_written(), "a read wrote: {error}");
        self.refused += 1;
    }

    /// No version was won twice, and every acknowledged increment is in the rows.
    pub async fn check(&self, store: &RedisStore, ids: &[RecordId]) {
        let distinct: HashSet<_> = self.won.iter().collect();
        assert_eq!(distinct.len(), self.won.len(), "a version was won twice");
        for id in ids {
            let row = patiently(|| store.load(id)).await;
            let found = row.as_ref().map_or(0, lease_ms);
            let count = |ids: &mut dyn Iterator<Item = &RecordId>| {
                u64::try_from(ids.filter(|other| *other == id).count()).expect("small")
            };
            let won = count(&mut self.won.iter().map(|(id, _)| id));
            let maybe = count(&mut self.ambiguous.iter());
            assert!(
                (won..=won + maybe).contains(&found),
                "{found} increments found, {won} acknowledged and {maybe} not answered"
            );
        }
    }
}

/// Tries again until the servers have recovered.
pub async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    const PATIENCE: Duration = Duration::from_secs(90);
    let trying = async {
        loop {
            match attempt().await {
                Ok(value) => return value,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, trying).await;
    ended.unwrap_or_else(|_| panic!("no success within {PATIENCE:?}"))
}

/// The row under a number's id, once the servers have recovered.
pub async fn found(store: &RedisStore, number: u64) -> Option<Row> {
    let id = id(number);
    patiently(|| store.load(&id)).await
}

/// Writes a claim where there must be none.
pub async fn claim(store: &RedisStore, number: u64) -> Result<Version, StoreError> {
    let claim = executing(number, at(5_000));
    match store.swap(&id(number), None, Some(&claim)).await? {
        Swap::Won(version) => Ok(version),
        Swap::Lost(row) => panic!("{number} is taken by {row:?}"),
    }
}

/// What the ACL user of a store needs, as documented.
pub const PERMISSIONS: &[&str] = &[
    "+evalsha",
    "+eval",
    "+get",
    "+getex",
    "+getrange",
    "+set",
    "+del",
    "+exists",
    "+pexpire",
    "+pttl",
    "+zadd",
    "+zrem",
    "+zrangebyscore",
    "+zrangebylex",
    "+hmget",
    "+hset",
    "+time",
    "+wait",
    "+select",
    "+info",
    "+config|get",
];
