//! Retries while the first request is at work, and where its status is found.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http::Method;
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Config, InFlight, Mode};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

mod common;
use common::*;

/// A handler that waits until it is let go.
struct Held {
    router: Router,
    runs: Runs,
    gate: Arc<Semaphore>,
}

impl Held {
    async fn new(config: Config, limits: EngineConfig) -> Self {
        let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
        let (counted, waited) = (runs.clone(), Arc::clone(&gate));
        let router = Router::new().fallback(move || {
            let (runs, gate) = (counted.clone(), Arc::clone(&waited));
            async move {
                let run = runs.next();
                gate.acquire().await.unwrap().forget();
                (StatusCode::CREATED, format!("run {run}"))
            }
        });
        Self {
            router: guard_with(Moody::default(), limits, router, config).await,
            runs,
            gate,
        }
    }

    /// Starts a request and waits until it is at work.
    async fn start(&self, key: &'static str) -> JoinHandle<Answer> {
        let (router, before) = (self.router.clone(), self.runs.count());
        let task = tokio::spawn(async move { ask(&router, post(key)).await });
        until(|| self.runs.count() > before).await;
        task
    }

    fn let_go(&self) {
        self.gate.add_permits(1);
    }
}

async fn held(in_flight: InFlight) -> Held {
    let config = config(|route| route.in_flight = in_flight);
    Held::new(config, EngineConfig::default()).await
}

/// Told apart, so that a crowd does not come back in the same second.
#[tokio::test]
async fn rejecting_answers_409_with_a_spread_retry_after_and_a_link() {
    let held = held(InFlight::Reject).await;
    let first = held.start("k").await;
    let mut told = HashSet::new();
    for _ in 0..64 {
        let answer = ask(&held.router, post("k")).await;
        answer.assert_problem(409, "idempotency_key_in_progress");
        let path = answer.json()["operation"].as_str().unwrap().to_owned();
        assert_eq!(answer.header("link"), format!("<{path}>; rel=\"status\""));
        told.insert(answer.header("retry-after").parse::<u64>().unwrap());
    }
    assert!(told.len() > 1 && told.iter().all(|seconds| (1..=4).contains(seconds)));
    held.let_go();
    first.await.unwrap().assert_is(201, "run 1");
}

/// Clients that give up after a second need an answer, not a 409.
#[tokio::test]
async fn waiting_gives_everybody_the_first_answer() {
    let held = held(InFlight::Wait(Duration::from_secs(15))).await;
    let first = held.start("k").await;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let router = held.router.clone();
            tokio::spawn(async move { ask(&router, post("k")).await })
        })
        .collect();
    held.let_go();
    first.await.unwrap().assert_is(201, "run 1");
    for answer in waiting {
        let answer = answer.await.unwrap();
        answer.assert_is(201, "run 1");
        assert!(answer.is_replay());
    }
    assert_eq!(held.runs.count(), 1);
}

#[tokio::test]
async fn waiting_ends_with_409() {
    let held = held(InFlight::Wait(Duration::from_millis(30))).await;
    let first = held.start("k").await;
    let answer = ask(&held.router, post("k")).await;
    answer.assert_problem(409, "idempotency_key_in_progress");
    held.let_go();
    first.await.unwrap().assert_is(201, "run 1");
}

#[tokio::test]
async fn accepting_answers_202_with_the_operation_and_then_the_first_answer() {
    let held = held(InFlight::Accepted).await;
    let first = held.start("k").await;
    let accepted = ask(&held.router, post("k")).await;
    assert_eq!((accepted.status, accepted.is_replay()), (202, false));
    assert_ne!(accepted.header("retry-after"), "");
    let path = accepted.header("location").to_owned();
    assert_eq!(accepted.json()["operation"], path.as_str());
    let operation = ask(&held.router, get(&path)).await;
    assert_eq!(operation.json()["state"], "executing");
    held.let_go();
    first.await.unwrap();
    let operation = ask(&held.router, get(&path)).await;
    assert_eq!(operation.json()["state"], "completed");
    let answer = ask(&held.router, post("k")).await;
    answer.assert_is(201, "run 1");
    assert!(answer.is_replay());
}

/// Not even the existence of an operation is a stranger's to know.
#[tokio::test]
async fn a_strangers_operation_looks_like_none() {
    let held = held(InFlight::Accepted).await;
    let first = held.start("k").await;
    let accepted = ask(&held.router, post("k")).await;
    let path = accepted.header("location").to_owned();
    let none = format!("{}{}", &path[..path.len() - 64], "0".repeat(64));
    let stranger = ask(&held.router, with(get(&path), "authorization", "Bearer x")).await;
    let absent = ask(&held.router, with(get(&none), "authorization", "Bearer x")).await;
    let told = |answer: &Answer| (answer.problem(), answer.json()["detail"].clone());
    assert_eq!(told(&stranger), told(&absent));
    stranger.assert_problem(404, "idempotency_operation_not_found");
    held.let_go();
    first.await.unwrap();
}

/// The limit protects the service; replays cost it nothing and are answered all the same.
#[tokio::test]
async fn at_the_limit_of_executions_new_keys_are_refused_and_replays_are_not() {
    let limits = EngineConfig {
        executions_max: 1,
        ..EngineConfig::default()
    };
    let held = Held::new(config(|_| {}), limits).await;
    held.let_go();
    held.start("done").await.await.unwrap();
    let first = held.start("k").await;
    let refused = ask(&held.router, post("other")).await;
    refused.assert_problem(503, "idempotency_overloaded");
    assert_ne!(refused.header("retry-after"), "");
    assert!(ask(&held.router, post("done")).await.is_replay());
    held.let_go();
    first.await.unwrap();
    assert_eq!(held.runs.count(), 2);
}

/// Uploads of many clients must not take all memory. What does not fit is refused, and the room is
/// there again when a request is done.
#[tokio::test]
async fn bodies_that_do_not_fit_together_are_refused() {
    let mut config = config(|_| {});
    config.bodies_bytes_max = 2 * 1024;
    let held = Held::new(config, EngineConfig::default()).await;
    let one = held.start("one").await;
    let two = held.start("two").await;
    let refused = ask(&held.router, post("three")).await;
    refused.assert_problem(503, "idempotency_overloaded");
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(held.runs.count(), 2, "the third was executed");
    held.let_go();
    held.let_go();
    one.await.unwrap();
    two.await.unwrap();
    held.let_go();
    assert_eq!(ask(&held.router, post("three")).await.status, 201);
}

/// A body that has only been announced takes no room: with a few heads and not one byte anybody
/// could have every other write refused.
#[tokio::test]
async fn bodies_that_do_not_come_take_no_room() {
    let runs = Runs::default();
    let mut config = config(|route| route.body_bytes_max = 1024);
    config.bodies_bytes_max = 2 * 1024;
    let router = guard(runs.created(), config).await;
    let mut silent = Vec::new();
    for number in 0..8 {
        let (sender, body) = Channel::<Bytes, BoxError>::new(1);
        let request = post_body(&format!("silent-{number}"), Body::new(body));
        let router = router.clone();
        silent.push((
            sender,
            tokio::spawn(async move { ask(&router, request).await }),
        ));
    }
    tokio::task::yield_now().await;
    ask(&router, post("k")).await.assert_is(201, "run 1");
    for (_, asking) in silent {
        asking.abort();
    }
}

/// Routes for all methods must not swallow the status of operations, nor may a route that is off
/// be enforced because its path looks like one.
#[tokio::test]
async fn operations_are_found_whatever_the_routes_say() {
    let path = format!("/.onlyonce/operations/{}", "0".repeat(64));
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let runs = Runs::default();
        let config = config(|route| {
            route.methods = Vec::new();
            route.mode = mode;
        });
        let router = guard(runs.created(), config).await;
        let answer = ask(&router, get(&path)).await;
        answer.assert_problem(404, "idempotency_operation_not_found");
        let mut write = without(post("k"), "idempotency-key");
        *write.uri_mut() = path.parse().unwrap();
        let answer = ask(&router, write).await;
        match mode {
            Mode::Enforce => answer.assert_problem(400, "idempotency_key_required"),
            Mode::Observe | Mode::Off => answer.assert_is(201, "run 1"),
        }
    }
}

/// "Not found" would make a client believe that nothing happened.
#[tokio::test]
async fn an_operation_that_cannot_be_read_is_not_reported_as_absent() {
    let store = Moody::default();
    let limits = EngineConfig::default();
    let router = Runs::default().created();
    let router = guard_with(store.clone(), limits, router, config(|_| {})).await;
    store.fail(true);
    let path = format!("/.onlyonce/operations/{}", "0".repeat(64));
    let answer = ask(&router, get(&path)).await;
    answer.assert_problem(503, "idempotency_store_unavailable");
}

#[tokio::test]
async fn without_a_place_for_operations_there_are_no_links() {
    let config = Config {
        operations_path: None,
        ..config(|_| {})
    };
    let held = Held::new(config, EngineConfig::default()).await;
    let first = held.start("k").await;
    let answer = ask(&held.router, post("k")).await;
    answer.assert_problem(409, "idempotency_key_in_progress");
    assert_eq!(answer.json().get("operation"), None);
    assert_eq!(answer.header("link"), "");
    let mut request = get(&format!("/.onlyonce/operations/{}", "0".repeat(64)));
    *request.method_mut() = Method::GET;
    held.let_go();
    first.await.unwrap();
    held.let_go();
    ask(&held.router, request).await.assert_is(201, "run 2");
}
