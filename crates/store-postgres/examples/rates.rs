//! Claims, completions and replays per second on a server: `rates URL [CALLERS] [SECONDS] [POOL]`.
//!
//! For choosing the number of connections and the size of a batch; the schema is migrated first.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement ends where it fails"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_conformance::suite::samples::{at, body, completed, executing, id};
use onlyonce_store::{Store, Swap};
use onlyonce_store_postgres::{PostgresOptions, PostgresStore, migrate};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap();
    let mut number = |default: u64| args.next().map_or(default, |text| text.parse().unwrap());
    let (callers, seconds, pool) = (number(64), number(3), number(4));
    let mut options = PostgresOptions::from_url(&url).unwrap();
    options.pool = usize::try_from(pool).unwrap();
    if let Ok(text) = std::env::var("BATCH") {
        options.batch_swaps_max = text.parse().unwrap();
    }
    migrate(&options).await.unwrap();
    // Lives as long as the program does.
    let store: &PostgresStore = Box::leak(Box::new(PostgresStore::open(&options).await.unwrap()));
    let start = store.now().await.unwrap().as_millis() << 20;
    let next: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(start)));
    let patience = Duration::from_secs(seconds);
    let claims = measure(callers, patience, move || async move {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let claim = executing(number, at(u64::MAX / 4));
        let swap = store.swap(&id(number), None, Some(&claim)).await.unwrap();
        assert!(matches!(swap, Swap::Won(_)));
    })
    .await;
    let pairs = measure(callers, patience, move || async move {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let claim = executing(number, at(u64::MAX / 4));
        let Swap::Won(version) = store.swap(&id(number), None, Some(&claim)).await.unwrap() else {
            panic!("the key is free");
        };
        let done = completed(number, body(1000));
        let swap = store.swap(&id(number), Some(version), Some(&done)).await;
        assert!(matches!(swap, Ok(Swap::Won(_))));
    })
    .await;
    let last = next.load(Ordering::Relaxed);
    let replays = measure(callers, patience, move || async move {
        let number = last - 1 - next.fetch_add(1, Ordering::Relaxed) % 1000;
        let claim = executing(number, at(u64::MAX / 4));
        let swap = store.swap(&id(number), None, Some(&claim)).await.unwrap();
        assert!(matches!(swap, Swap::Lost(Some(_))));
    })
    .await;
    println!(
        "pool {pool} callers {callers}: claims/s {claims} pairs/s {pairs} replays/s {replays}"
    );
}

async fn measure<Call: Future<Output = ()> + Send>(
    callers: u64,
    patience: Duration,
    call: impl Fn() -> Call + Clone + Send + 'static,
) -> u64 {
    let until = Instant::now() + patience;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let call = call.clone();
        tasks.spawn(async move {
            let mut calls = 0;
            while Instant::now() < until {
                call().await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u64 = tasks.join_all().await.iter().sum();
    calls / patience.as_secs()
}
