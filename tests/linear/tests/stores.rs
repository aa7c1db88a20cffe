//! Every store, under what can go wrong with it: each row's history has an order.
#![allow(clippy::unwrap_used, reason = "a panic is how a test speaks")]

use std::time::Duration;

use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_conformance::servers::postgres::{
    Postgres, PostgresOptions as PostgresServerOptions, url_at,
};
use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_linear::recorder::{HANDLES, Tally};
use onlyonce_linear::trouble::{Kind, Trouble, calm};
use onlyonce_linear::{Run, Summary};
use onlyonce_store::{BoxStore, MemoryStore};
use onlyonce_store_dynamodb::{DynamoCredentials, DynamoOptions, DynamoStore};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};
use onlyonce_store_postgres::{PostgresOptions, PostgresStore};
use onlyonce_store_redis::{RedisOptions, RedisStore};

/// How long a store waits for an answer: short, because every fault waits for that.
const TIMEOUT: Duration = Duration::from_millis(700);

fn both<S: onlyonce_store::Store + onlyonce_store::ListStore + Clone>(
    store: &S,
) -> [BoxStore; HANDLES] {
    [store, store].map(|store| BoxStore::new(store.clone()))
}

/// A run shows its counts, and must have seen something.
fn report(name: &str, summary: &Summary, fired: &str) {
    eprintln!("{name}, {summary}; {fired}");
    summary.assert_mostly_answered();
}

/// Runs a store whose handles go through the proxies, and asserts that all of it happened.
async fn run_in_trouble(name: &str, stores: [BoxStore; HANDLES], mut trouble: Trouble<'_>) {
    let mut run = Run::new();
    let (recorder, mut rng) = (run.recorder.clone(), run.rng.fork());
    let making = trouble.make(&recorder, &mut rng);
    run.work(stores.clone(), making).await;
    let summary = run.verdict(stores).await.unwrap();
    report(name, &summary, &format!("{:?}", trouble.fired));
    summary.assert_doubts();
    let fired: Vec<Kind> = trouble.fired.into_keys().collect();
    let mut kinds = Kind::NETWORK.to_vec();
    kinds.extend(Kind::SERVER.iter().filter(|_| trouble.server.is_some()));
    assert_eq!(fired, kinds);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_is_linearizable() {
    let mut run = Run::new();
    let (store, recorder) = (MemoryStore::new(), run.recorder.clone());
    run.work(both(&store), async {
        for _ in 0..5 {
            calm(&recorder).await;
        }
    })
    .await;
    let summary = run.verdict(both(&store)).await.unwrap();
    report("memory", &summary, "no faults");
    assert_eq!(summary.total().failed(), 0);
}

/// Callers go away, and the store is closed and opened again between its writes.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_is_linearizable_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let open = || EmbeddedStore::open(&EmbeddedOptions::new(folder.path())).unwrap();
    let mut run = Run::new();
    let recorder = run.recorder.clone();
    for _ in 0..8 {
        let stores = both(&open());
        let meanwhile = async {
            calm(&recorder).await;
            let went_away = |tallies: &[Tally; HANDLES]| tallies.iter().any(|t| t.abandoned > 0);
            recorder.until("a caller goes away", went_away).await;
        };
        run.work(stores, meanwhile).await;
    }
    let summary = run.verdict(both(&open())).await.unwrap();
    report("embedded", &summary, "8 restarts");
    assert_eq!(summary.total().failed(), 0);
    assert!(summary.total().abandoned > 0, "nobody went away: {summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_linearizable_under_faults() {
    let mut server = Postgres::with(&PostgresServerOptions {
        fsync: true,
        ..PostgresServerOptions::default()
    });
    let options = |address| {
        let mut options = PostgresOptions::from_url(&url_at(address)).unwrap();
        options.statement_timeout = TIMEOUT;
        options.connect_timeout = TIMEOUT;
        options
    };
    onlyonce_store_postgres::migrate(&options(server.address()))
        .await
        .unwrap();
    let proxies = [(); HANDLES].map(|()| FaultProxy::start(server.address()).unwrap());
    let mut stores = Vec::new();
    for proxy in &proxies {
        let store = PostgresStore::open(&options(proxy.address())).await;
        stores.push(BoxStore::new(store.unwrap()));
    }
    let stores = stores.try_into().unwrap();
    let trouble = Trouble::new(proxies, Some(&mut server));
    run_in_trouble("postgres", stores, trouble).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_linearizable_under_faults() {
    let mut server = RedisServer::start();
    let proxies = [(); HANDLES].map(|()| FaultProxy::start(server.address()).unwrap());
    let mut stores = Vec::new();
    for proxy in &proxies {
        let url = format!("redis://{}", proxy.address());
        let mut options = RedisOptions::from_url(&url).unwrap();
        options.timeout = TIMEOUT;
        options.connect_timeout = TIMEOUT;
        let store = RedisStore::open(&options).await;
        stores.push(BoxStore::new(store.unwrap()));
    }
    let stores = stores.try_into().unwrap();
    let trouble = Trouble::new(proxies, Some(&mut server));
    run_in_trouble("redis", stores, trouble).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_is_linearizable_under_faults() {
    let server = DynamoDb::start();
    let options = |address| {
        let url = format!("dynamodb://keys?region=eu-central-1&endpoint=http://{address}");
        let mut options = DynamoOptions::from_url(&url).unwrap();
        options.credentials = Some(DynamoCredentials {
            access_key_id: "test".into(),
            secret_access_key: "test".into(),
        });
        options.deadline = 2 * TIMEOUT;
        options.request_timeout = TIMEOUT;
        options.connect_timeout = TIMEOUT;
        options
    };
    onlyonce_store_dynamodb::migrate(&options(server.address()))
        .await
        .unwrap();
    let proxies = [(); HANDLES].map(|()| FaultProxy::start(server.address()).unwrap());
    let mut stores = Vec::new();
    for proxy in &proxies {
        let store = DynamoStore::open(&options(proxy.address())).await;
        stores.push(BoxStore::new(store.unwrap()));
    }
    let stores = stores.try_into().unwrap();
    run_in_trouble("dynamodb", stores, Trouble::new(proxies, None)).await;
}
