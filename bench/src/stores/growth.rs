//! What an operation costs when many rows are stored, beside what it costs with few.
//!
//! Two servers, one with few rows and one with many, take turns. A column shows what the same
//! costs the engine's own benchmark, for what grows there is the engine's.

use std::ops::Range;
use std::time::Duration;

use onlyonce_store::Store;

use super::limit::{Amount, Limit};
use super::work::Work;
use super::{FIRST_NEW, FIRST_STORED, postgres, redis};
use crate::machine::median;

/// How many rows are few.
const FEW: u64 = 10_000;

/// Keys that are written in one round: few, so that what is few stays so.
const WRITES: u64 = 3_000;

/// What may be added to the cost.
const TARGET: f64 = 1.2;

/// A store with rows in it.
struct Stored<'a, S> {
    work: Work<S>,
    limit: &'a dyn Limit,
    keys: Range<u64>,
}

/// Rates, one per round.
#[derive(Default)]
struct Rates {
    pairs: Vec<f64>,
    replays: Vec<f64>,
    limit: Vec<f64>,
}

pub(crate) async fn run(rows: u64, rounds: u64, length: Duration) {
    println!("\ncost with {FEW} and {rows} completed rows of 1 KB; target ≤ {TARGET}");
    println!(
        "{:>10} {:>18} {:>12} {:>12} {:>8} {:>24}",
        "", "per second", "few", "many", "cost", "the engine's own claims"
    );
    let (few, many) = (range(FEW), range(rows));
    {
        let few_server = postgres::Server::start(few.clone()).await;
        let many_server = postgres::Server::start(many.clone()).await;
        let few_store = few_server.store(few_server.address()).await;
        let many_store = many_server.store(many_server.address()).await;
        let few = stored(few_store, &few_server, few.clone()).await;
        let many = stored(many_store, &many_server, many.clone()).await;
        compare("postgres", few, many, rounds, length).await;
    }
    let few_server = redis::Server::start();
    let many_server = redis::Server::start();
    let few_store = redis::Server::store(few_server.address()).await;
    let many_store = redis::Server::store(many_server.address()).await;
    let few = stored(few_store, &few_server, few).await;
    let many = stored(many_store, &many_server, many).await;
    few.work.fill(few.keys.clone()).await;
    many.work.fill(many.keys.clone()).await;
    compare("redis", few, many, rounds, length).await;
}

fn range(rows: u64) -> Range<u64> {
    FIRST_STORED..FIRST_STORED + rows
}

async fn stored<S: Store>(store: S, limit: &dyn Limit, keys: Range<u64>) -> Stored<'_, S> {
    Stored {
        work: Work::new(store, FIRST_NEW).await,
        limit,
        keys,
    }
}

async fn compare<S: Store>(
    name: &str,
    few: Stored<'_, S>,
    many: Stored<'_, S>,
    rounds: u64,
    length: Duration,
) {
    let (mut of_few, mut of_many) = (Rates::default(), Rates::default());
    for _ in 0..rounds {
        for (stored, rates) in [(&few, &mut of_few), (&many, &mut of_many)] {
            rates.limit.push(stored.limit.claims(Amount::Count(WRITES)));
            let (claims, claimed) = stored.work.claims(Duration::MAX, WRITES).await;
            let completions = stored.work.completions(claimed).await.rate;
            rates.pairs.push(1.0 / (1.0 / claims + 1.0 / completions));
            let replays = stored.work.reclaims(stored.keys.clone(), length).await;
            rates.replays.push(replays.rate);
        }
    }
    let own = median(of_few.limit) / median(of_many.limit);
    for (what, few, many) in [
        ("claim+complete", of_few.pairs, of_many.pairs),
        ("replay", of_few.replays, of_many.replays),
    ] {
        let (few, many) = (median(few), median(many));
        let own = if what == "replay" {
            String::new()
        } else {
            format!("{own:.2}")
        };
        println!(
            "{name:>10} {what:>18} {few:>12.0} {many:>12.0} {:>8.2} {own:>24}",
            few / many
        );
    }
}
