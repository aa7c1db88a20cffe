//! The stores that are servers, each beside the limit of its engine.
//!
//! The limit is what the engine's own benchmark (`pgbench`, `redis-benchmark`) does from as many
//! clients, on the same server and with the same statements or script. `DynamoDB` has no such tool,
//! and the server here only speaks its protocol: its figures show what the store itself costs.

mod growth;
mod limit;
mod postgres;
mod redis;
mod turns;
mod work;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_store::Store;
use onlyonce_store_dynamodb::{DynamoCredentials, DynamoOptions, DynamoStore, migrate};

use self::limit::{Amount, Limit};
use self::turns::Turns;
use self::work::{CALLERS, Work};
use crate::machine::median;

/// Where new keys begin, and where those that are there before.
const FIRST_NEW: u64 = 0;
const FIRST_STORED: u64 = 1 << 40;

/// The completed keys that are asked for again.
const REPLAYED: Range<u64> = FIRST_STORED..FIRST_STORED + 20_000;

/// What a store should reach of its engine's limit.
const TARGET: f64 = 0.8;

/// How many claims and completions the round trips are counted over, and how long replays.
const COUNTED: u64 = 500;
const LOOK: Duration = Duration::from_millis(500);

/// How long the test server for `DynamoDB` may take, which 256 callers fill at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured, and how long.
pub(crate) struct Options {
    pub(crate) rounds: u64,
    pub(crate) seconds: u64,
    /// Stored rows when they are many.
    pub(crate) rows: u64,
}

/// Rates of one contestant: claims, completions, loads, claims of completed keys.
type Rates = [Vec<f64>; 4];

/// A store, and the limit of its engine if that has one.
struct Contestant<'a, S> {
    name: &'static str,
    work: Work<S>,
    limit: Option<&'a dyn Limit>,
    ours: Rates,
    theirs: Rates,
}

pub(crate) fn run(options: &Options) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let length = Duration::from_secs(options.seconds);
        rates(options, length).await;
        growth::run(options.rows, options.rounds, length).await;
    });
}

async fn rates(options: &Options, length: Duration) {
    let postgres = postgres::Server::start(REPLAYED).await;
    let redis = redis::Server::start();
    let dynamodb = DynamoDb::start();
    let store = postgres.store(postgres.address()).await;
    let mut on_postgres = contestant("postgres", store, Some(&postgres as &dyn Limit)).await;
    let store = redis::Server::store(redis.address()).await;
    let mut on_redis = contestant("redis", store, Some(&redis as &dyn Limit)).await;
    redis.fill();
    on_redis.work.fill(REPLAYED).await;
    let store = dynamodb_store(dynamodb.address()).await;
    let mut on_dynamodb = contestant("dynamodb", store, None).await;
    on_dynamodb.work.fill(REPLAYED).await;
    let Options {
        rounds, seconds, ..
    } = options;
    println!("{rounds} rounds of {seconds} s each, interleaved; medians; {CALLERS} callers");
    for _ in 0..*rounds {
        on_postgres.round(length).await;
        on_redis.round(length).await;
        on_dynamodb.round(length).await;
    }
    println!("\nper second; a store's limit is its engine's own benchmark, target ≥ {TARGET}");
    println!(
        "{:>10} {:>24} {:>12} {:>12} {:>8}  limit by",
        "", "", "store", "limit", "÷ limit"
    );
    on_postgres.print();
    on_redis.print();
    on_dynamodb.print();
    println!("\nround trips of one caller, counted by a proxy; target 1");
    println!(
        "{:>10} {:>12} {:>12} {:>20} {:>20}",
        "", "claim", "completion", "load of completed", "claim of completed"
    );
    let turns = Turns::before(postgres.address()).await;
    let store = postgres.store(turns.address).await;
    count("postgres", &turns, store).await;
    let turns = Turns::before(redis.address()).await;
    let store = redis::Server::store(turns.address).await;
    count("redis", &turns, store).await;
    let turns = Turns::before(dynamodb.address()).await;
    let store = dynamodb_store(turns.address).await;
    count("dynamodb", &turns, store).await;
}

async fn contestant<'a, S: Store>(
    name: &'static str,
    store: S,
    limit: Option<&'a dyn Limit>,
) -> Contestant<'a, S> {
    Contestant {
        name,
        work: Work::new(store, FIRST_NEW).await,
        limit,
        ours: Rates::default(),
        theirs: Rates::default(),
    }
}

async fn dynamodb_store(address: SocketAddr) -> DynamoStore {
    let mut options = DynamoOptions::new("onlyonce");
    options.region = Some("eu-central-1".into());
    options.endpoint = Some(format!("http://{address}"));
    // A slow machine makes small figures, and ends no benchmark.
    options.deadline = PATIENCE;
    options.request_timeout = PATIENCE;
    // The server takes any.
    options.credentials = Some(DynamoCredentials {
        access_key_id: "any".into(),
        secret_access_key: "any".into(),
    });
    migrate(&options).await.unwrap();
    DynamoStore::open(&options).await.unwrap()
}

impl<S: Store> Contestant<'_, S> {
    /// Each operation of the limit, and then of the store.
    async fn round(&mut self, length: Duration) {
        let [claims, completions, loads, reclaims] = &mut self.theirs;
        let limit = self.limit;
        claims.extend(limit.map(|limit| limit.claims(Amount::For(length))));
        let (rate, claimed) = self.work.claims(length, u64::MAX).await;
        let count = u64::try_from(claimed.len()).unwrap();
        completions.extend(limit.map(|limit| limit.completions(count)));
        let completed = self.work.completions(claimed).await.rate;
        loads.extend(limit.map(|limit| limit.loads(length)));
        let loaded = self.work.loads(REPLAYED, length).await.rate;
        reclaims.extend(limit.map(|limit| limit.reclaims(length)));
        let reclaimed = self.work.reclaims(REPLAYED, length).await.rate;
        for (rates, rate) in self
            .ours
            .iter_mut()
            .zip([rate, completed, loaded, reclaimed])
        {
            rates.push(rate);
        }
    }

    fn print(self) {
        let names = [
            "claims",
            "completions",
            "loads of completed",
            "claims of completed",
        ];
        let rates = self.ours.into_iter().zip(self.theirs);
        for (name, (ours, theirs)) in names.iter().zip(rates) {
            let (ours, theirs) = (median(ours), median(theirs));
            let (limit, by) = match self.limit {
                Some(limit) => (format!("{theirs:.0} {:>8.2}", ours / theirs), limit.name()),
                None => (format!("- {:>8}", "-"), "(a test server)"),
            };
            println!(
                "{:>10} {name:>24} {ours:>12.0} {limit:>21}  {by}",
                self.name
            );
        }
    }
}

/// Round trips per operation, one after another.
async fn count<S: Store>(name: &str, turns: &Turns, store: S) {
    /// New keys that no round has reached.
    const FIRST: u64 = 1 << 45;
    let work = Work::new(store, FIRST).await;
    // Every connection is made by now.
    let (_, claimed) = work.claims(Duration::MAX, COUNTED * 5).await;
    work.completions(claimed).await;
    work.loads(REPLAYED, LOOK).await;
    let work = work.one_by_one();
    turns.take();
    let (_, claimed) = work.claims(Duration::MAX, COUNTED).await;
    let claims = turns.take() as f64 / claimed.len() as f64;
    let done = work.completions(claimed).await;
    let completions = turns.take() as f64 / done.count as f64;
    let done = work.loads(REPLAYED, LOOK).await;
    let loads = turns.take() as f64 / done.count as f64;
    let done = work.reclaims(REPLAYED, LOOK).await;
    let reclaims = turns.take() as f64 / done.count as f64;
    println!("{name:>10} {claims:>12.2} {completions:>12.2} {loads:>20.2} {reclaims:>20.2}");
}
