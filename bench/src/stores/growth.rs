//! What an operation costs when many rows are stored, beside what it costs with few.
//!
//! Two servers, one with few rows and one with many, take turns, and each turn is compared with the
//! one beside it: a machine's speed changes within minutes. A column shows what the same costs the
//! engine's own benchmark, for what grows there is the engine's. (`redis-benchmark` cannot ask for
//! the store's keys: its replays are of the same 20,000 keys on both servers.)
//!
//! Both servers are as they are in use, not as a bulk load leaves them: vacuumed, with the memory
//! that the manual advises; with a rewritten log, and started anew.

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

/// What was done per second, one figure per round: by the store, and by the engine's own benchmark.
#[derive(Default)]
struct Rates {
    pairs: Vec<f64>,
    replays: Vec<f64>,
    own_pairs: Vec<f64>,
    own_replays: Vec<f64>,
}

pub(crate) async fn run(rows: u64, rounds: u64, length: Duration) {
    println!("\ncost with {FEW} and {rows} completed rows of 1 KB, few ÷ many; target ≤ {TARGET}");
    println!(
        "{:>10} {:>18} {:>12} {:>12} {:>8} {:>14} {:>14}",
        "", "per second", "few", "many", "cost", "engine's own", "beyond its own"
    );
    let (few, many) = (range(FEW), range(rows));
    {
        let few_server = postgres::Server::with_memory(few.clone()).await;
        let many_server = postgres::Server::with_memory(many.clone()).await;
        let few_store = few_server.store(few_server.address()).await;
        let many_store = many_server.store(many_server.address()).await;
        let few = stored(few_store, &few_server, few.clone()).await;
        let many = stored(many_store, &many_server, many.clone()).await;
        compare("postgres", few, many, rounds, length).await;
    }
    let few_server = redis::Server::with(few.clone()).await;
    let many_server = redis::Server::with(many.clone()).await;
    let few_store = redis::Server::store(few_server.address()).await;
    let many_store = redis::Server::store(many_server.address()).await;
    let few = stored(few_store, &few_server, few).await;
    let many = stored(many_store, &many_server, many).await;
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
    for round in 0..rounds {
        let mut turns = [(&few, &mut of_few), (&many, &mut of_many)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (stored, rates) in turns {
            rates.take(stored, length).await;
        }
    }
    print(
        [name, "claim+complete"],
        [&of_few.pairs, &of_many.pairs],
        [&of_few.own_pairs, &of_many.own_pairs],
    );
    print(
        [name, "replay"],
        [&of_few.replays, &of_many.replays],
        [&of_few.own_replays, &of_many.own_replays],
    );
}

impl Rates {
    /// One turn of a server.
    async fn take<S: Store>(&mut self, stored: &Stored<'_, S>, length: Duration) {
        let claims = stored.limit.claims(Amount::Count(WRITES));
        let completions = stored.limit.completions(WRITES);
        self.own_pairs.push(pair(claims, completions));
        let (claims, claimed) = stored.work.claims(Duration::MAX, WRITES).await;
        let completions = stored.work.completions(claimed).await.rate;
        self.pairs.push(pair(claims, completions));
        self.own_replays.push(stored.limit.reclaims(length));
        let replays = stored.work.reclaims(stored.keys.clone(), length).await;
        self.replays.push(replays.rate);
    }
}

/// How many of both are done per second, one after the other.
fn pair(claims: f64, completions: f64) -> f64 {
    1.0 / (1.0 / claims + 1.0 / completions)
}

/// The median of how much more the second server's operations cost, each turn beside its neighbour.
fn cost([few, many]: [&Vec<f64>; 2]) -> f64 {
    median(few.iter().zip(many).map(|(few, many)| few / many).collect())
}

fn print([name, what]: [&str; 2], ours: [&Vec<f64>; 2], own: [&Vec<f64>; 2]) {
    let [few, many] = ours.map(|rates| median(rates.clone()));
    let (ours, own) = (cost(ours), cost(own));
    println!(
        "{name:>10} {what:>18} {few:>12.0} {many:>12.0} {ours:>8.2} {own:>14.2} {:>14.2}",
        ours / own
    );
}
