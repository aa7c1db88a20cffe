//! A Redis server as the cache: shared, cold, dead, frozen, cut off, and full of nonsense.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::servers::free_port;
use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_conformance::suite::{self, Outcome, samples};
use onlyonce_conformance::{Harness, volatile};
use onlyonce_core::RecordId;
use onlyonce_store::tiered::{Cache, Cached};
use onlyonce_store::{MemoryStore, Row, Store, Swap, Version};
use onlyonce_store_redis::{RedisCache, RedisOptions};

use crate::kit::{Durable, NOW, Warm, completed, tiered};

const SECRET: [u8; 32] = [7; 32];

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn cache_at(address: SocketAddr, age_max: Duration) -> RedisCache {
    let options = RedisOptions::from_url(&format!("redis://{address}")).unwrap();
    RedisCache::new(&options, &SECRET, age_max).unwrap()
}

fn cache(server: &RedisServer) -> RedisCache {
    cache_at(server.address(), Duration::from_secs(60))
}

/// The suite behind a cache on this server, where each case has a store of its own.
fn holds_at(address: SocketAddr) {
    static CASES: AtomicU32 = AtomicU32::new(0);
    let harness = volatile(move || {
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let url = format!("redis://{address}?prefix=case{case}");
        let options = RedisOptions::from_url(&url).unwrap();
        // A secret of its own, as every store has: one case's rows are nonsense to another.
        let mut secret = SECRET;
        secret[..4].copy_from_slice(&case.to_be_bytes());
        let cache = RedisCache::new(&options, &secret, Duration::from_secs(60)).unwrap();
        Warm::new(MemoryStore::new(), cache)
    });
    holds(&harness);
}

fn holds<H: Harness>(harness: &H) {
    for case in suite::all::<H>() {
        let outcome = case.check(harness.clone());
        assert!(
            !matches!(outcome, Outcome::Broken(_)),
            "{case:?}: {outcome:?}"
        );
    }
}

/// Runs the suite while somebody meddles with the server, again and again.
fn holds_while(server: &RedisServer, meddle: impl Fn() + Sync) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                meddle();
            }
        });
        let _ends = Ends(&is_over);
        holds_at(server.address());
    });
}

/// Also when the suite fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn has_been_asked(server: &RedisServer, command: &str) -> bool {
    server.info(&format!("cmdstat_{command}")).is_some()
}

#[test]
fn a_redis_cache_changes_no_answer() {
    let server = RedisServer::start();
    holds_at(server.address());
    for command in ["get", "set", "del"] {
        assert!(has_been_asked(&server, command), "{command}");
    }
}

#[test]
fn a_dead_redis_cache_changes_no_answer() {
    holds_at(([127, 0, 0, 1], free_port()).into());
}

#[test]
fn a_frozen_redis_cache_changes_no_answer() {
    let server = RedisServer::start();
    server.freeze();
    holds_at(server.address());
    server.thaw();
}

#[test]
fn a_redis_cache_that_freezes_now_and_then_changes_no_answer() {
    let server = RedisServer::start();
    holds_while(&server, || {
        server.freeze();
        std::thread::sleep(Duration::from_millis(30));
        server.thaw();
        std::thread::sleep(Duration::from_millis(30));
    });
}

/// Every row becomes nonsense, another key's row, or something that is no string at all.
#[test]
fn a_redis_cache_full_of_nonsense_changes_no_answer() {
    let server = RedisServer::start();
    let nonsense = "local keys = redis.call('KEYS', '*:cache:*') \
                    for i, key in ipairs(keys) do \
                    if i % 3 == 0 then redis.call('SET', key, 'nonsense') \
                    elseif i % 3 == 1 and redis.call('TYPE', keys[1]).ok == 'string' \
                    then redis.call('SET', key, redis.call('GET', keys[1])) \
                    else redis.call('DEL', key) redis.call('RPUSH', key, 'a', 'list') end end \
                    return #keys";
    let spoiled = AtomicU32::new(0);
    holds_while(&server, || {
        let count = server.cli(&["EVAL", nonsense, "0"]).parse().unwrap_or(0);
        spoiled.fetch_max(count, Ordering::Relaxed);
    });
    assert!(spoiled.into_inner() > 0, "there was nothing to spoil");
}

/// What one gateway read, another need not read again.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_share_what_is_in_redis() {
    let server = RedisServer::start();
    let durable = Durable::new();
    let record = completed(1, "done");
    let id = samples::id(1);
    let swap = durable.swap(&id, None, Some(&record)).await.unwrap();
    let Swap::Won(version) = swap else {
        panic!("{swap:?}");
    };
    let first = tiered(&durable, cache(&server)).await;
    let row = first.load(&id).await.unwrap().unwrap();
    assert_eq!((&*row.record, row.version), (&record, version));
    // Its put was sent by then, or the second one asks again.
    let shared = async {
        loop {
            let second = tiered(&durable, cache(&server)).await;
            let before = durable.asked.loads();
            assert_eq!(second.load(&id).await.unwrap().unwrap(), row);
            if durable.asked.loads() == before {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shared).await.unwrap();
}

fn cached(number: u64) -> Cached {
    let row = Row {
        record: Box::new(completed(number, "done")),
        version: Version(3),
    };
    Cached { row, seen_at: NOW }
}

async fn until_kept(cache: &RedisCache, id: &RecordId, row: &Cached) {
    let kept = async {
        loop {
            cache.put(id, row.clone());
            if cache.get(id).await.as_ref() == Some(row) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, kept).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_removed_is_not_given_again() {
    let server = RedisServer::start();
    let cache = cache(&server);
    let (id, row) = (samples::id(1), cached(1));
    for _ in 0..50 {
        until_kept(&cache, &id, &row).await;
        cache.remove(&id);
        assert_eq!(cache.get(&id).await, None);
    }
}

/// A removal that is lost on its way must not bring the row back when the line is mended.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_was_lost_counts() {
    const AGE_MAX: Duration = Duration::from_secs(20);
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let cache = cache_at(proxy.address(), AGE_MAX);
    let (id, row) = (samples::id(1), cached(1));
    until_kept(&cache, &id, &row).await;
    proxy.set(Plan::to_server(Fault::Blackhole)).await;
    cache.remove(&id);
    assert_eq!(cache.get(&id).await, None);
    proxy.mend().await;
    // The connection was given up, and the next one is made after a rest.
    let kept = server.cli(&["KEYS", "onlyonce:cache:*"]);
    assert_ne!(kept, "", "the row is still there");
    for _ in 0..200 {
        assert_eq!(cache.get(&id).await, None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// After the longest time that a row may be used, the cache is of use again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_was_away_is_used_again() {
    let mut server = RedisServer::start();
    let cache = cache_at(server.address(), Duration::from_secs(1));
    let (id, row) = (samples::id(1), cached(1));
    until_kept(&cache, &id, &row).await;
    server.kill();
    cache.remove(&id);
    assert_eq!(cache.get(&id).await, None);
    server.restart();
    until_kept(&cache, &id, &row).await;
}

/// Sentinel and clusters are for stores.
#[tokio::test]
async fn a_cluster_is_no_cache() {
    let options = RedisOptions::from_url("redis-cluster://a,b").unwrap();
    let refused = RedisCache::new(&options, &SECRET, PATIENCE).unwrap_err();
    assert!(refused.to_string().contains("a cache is one server"));
}
