//! The embedded store under concurrent callers, beside the raw disk and Redis.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::codec;
use onlyonce_store::{Store, Swap};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

use crate::machine::{median, now, processor_time};
use crate::raw::RawLog;
use crate::records::{body, claimed, completed, id};
use crate::redis::Redis;

const CALLERS: [usize; 3] = [1, 64, 256];

/// Rates of one contestant, one value per round.
#[derive(Default)]
struct Rounds {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, measured: Measured) {
        self.rate.push(measured.rate);
        self.cpu_us.push(measured.cpu_us);
    }
}

/// One round.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    cpu_us: f64,
}

pub(crate) fn run(rounds: u64, seconds: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let folder = tempfile::tempdir_in(".").unwrap();
    let redis_folder = folder.path().join("redis");
    std::fs::create_dir(&redis_folder).unwrap();
    let redis = Redis::start(&redis_folder)
        .inspect_err(|why| println!("without Redis: {why}"))
        .ok();
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder.path().join("store"))).unwrap();
    let raw = RawLog::open(folder.path());
    let length = Duration::from_secs(seconds);
    let numbers = Arc::new(AtomicU64::new(0));
    println!("{rounds} rounds of {seconds} s each, interleaved; medians\n");
    println!("durable claim+complete pairs per second");
    println!(
        "{:>8} {:>12} {:>12} {:>8} {:>12} {:>12} {:>12} {:>9}",
        "callers", "raw limit", "embedded", "÷ raw", "redis", "÷ redis", "CPU µs/pair", "raw CPU"
    );
    for callers in CALLERS {
        let (mut limit, mut ours, mut theirs) = (Rounds::default(), Rounds::default(), Vec::new());
        for _ in 0..rounds {
            limit.add(runtime.block_on(raw_pairs(&raw, &numbers, callers, length)));
            ours.add(runtime.block_on(store_pairs(&store, &numbers, callers, length)));
            theirs.extend(redis.as_ref().map(|redis| redis.pairs_per_second(callers)));
        }
        let (limit_rate, rate) = (median(limit.rate), median(ours.rate));
        let redis_rate = median(theirs);
        println!(
            "{callers:>8} {limit_rate:>12.0} {rate:>12.0} {:>8.2} {redis_rate:>12.0} {:>12.2} {:>12.1} {:>9.1}",
            rate / limit_rate,
            rate / redis_rate,
            median(ours.cpu_us),
            median(limit.cpu_us)
        );
    }
    replays(&runtime, &store, rounds, length);
}

/// Reads of completed rows, which wait for no writer.
fn replays(
    runtime: &tokio::runtime::Runtime,
    store: &EmbeddedStore,
    rounds: u64,
    length: Duration,
) {
    const KEYS: u64 = 20_000;
    const FIRST: u64 = 1 << 40;
    let body = body();
    runtime.block_on(async {
        let numbers = Arc::new(AtomicU64::new(FIRST));
        let (store, body) = (store.clone(), body.clone());
        many(64, Duration::MAX, move || {
            let (store, body, number) = (
                store.clone(),
                body.clone(),
                numbers.fetch_add(1, Ordering::Relaxed),
            );
            async move { number < FIRST + KEYS && pair(&store, number, &body).await }
        })
        .await;
    });
    println!("\nreplay reads per second ({KEYS} keys, 1 KB each)");
    println!("{:>8} {:>12} {:>12}", "callers", "reads", "CPU µs/read");
    for callers in CALLERS {
        let mut read = Rounds::default();
        for _ in 0..rounds {
            let (store, numbers) = (store.clone(), Arc::new(AtomicU64::new(0)));
            read.add(runtime.block_on(many(callers, length, move || {
                let store = store.clone();
                let number = FIRST + numbers.fetch_add(7919, Ordering::Relaxed) % KEYS;
                async move { store.load(&id(number)).await.unwrap().is_some() }
            })));
        }
        println!(
            "{callers:>8} {:>12.0} {:>12.2}",
            median(read.rate),
            median(read.cpu_us)
        );
    }
}

async fn store_pairs(
    store: &EmbeddedStore,
    numbers: &Arc<AtomicU64>,
    callers: usize,
    length: Duration,
) -> Measured {
    let (store, numbers, body) = (store.clone(), Arc::clone(numbers), body());
    many(callers, length, move || {
        let (store, body, number) = (
            store.clone(),
            body.clone(),
            numbers.fetch_add(1, Ordering::Relaxed),
        );
        async move { pair(&store, number, &body).await }
    })
    .await
}

async fn pair(store: &EmbeddedStore, number: u64, body: &Bytes) -> bool {
    let (id, time) = (id(number), store.now().await.unwrap());
    let Swap::Won(version) = store.swap(&id, None, Some(&claimed(time))).await.unwrap() else {
        return false;
    };
    let done = completed(time, body);
    matches!(
        store.swap(&id, Some(version), Some(&done)).await.unwrap(),
        Swap::Won(_)
    )
}

async fn raw_pairs(
    raw: &RawLog,
    numbers: &Arc<AtomicU64>,
    callers: usize,
    length: Duration,
) -> Measured {
    let (raw, numbers, body) = (raw.clone(), Arc::clone(numbers), body());
    many(callers, length, move || {
        let (raw, body, number) = (
            raw.clone(),
            body.clone(),
            numbers.fetch_add(1, Ordering::Relaxed),
        );
        async move {
            let (id, time) = (id(number), onlyonce_core::Timestamp::ZERO);
            raw.append(id, codec::encode(&id, &claimed(time)).unwrap())
                .await;
            raw.append(id, codec::encode(&id, &completed(time, &body)).unwrap())
                .await;
            true
        }
    })
    .await
}

/// Runs `operation` from many callers, each as fast as it can, until the time is over or it
/// says that it is done.
async fn many<F, Fut>(callers: usize, length: Duration, operation: F) -> Measured
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = bool> + Send,
{
    let (operation, done) = (Arc::new(operation), Arc::new(AtomicU64::new(0)));
    let (started, cpu) = (now(), processor_time());
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (operation, done) = (Arc::clone(&operation), Arc::clone(&done));
            tokio::spawn(async move {
                while started.elapsed() < length && operation().await {
                    // Reads are ready at once; without this one caller would keep the thread.
                    if done.fetch_add(1, Ordering::Relaxed) % 64 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let count = done.load(Ordering::Relaxed) as f64;
    let cpu_us = processor_time().saturating_sub(cpu).as_micros() as f64 / count;
    Measured {
        rate: count / started.elapsed().as_secs_f64(),
        cpu_us,
    }
}
