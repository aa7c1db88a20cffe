//! What the layer lets through, and what it must not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Config, Mode, Observation, Observations, Pattern};
use onlyonce_store::MemoryStore;
use tower::{Layer, ServiceExt, service_fn};

mod common;
use common::*;

/// What was reported, as text.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Observations for Reports {
    fn observe(&self, observation: &Observation<'_>) {
        self.0.lock().unwrap().push(match observation {
            Observation::Unprotected { .. } => "unprotected".into(),
            Observation::WouldExecute { .. } => "would execute".into(),
            Observation::WouldReplay { .. } => "would replay".into(),
            Observation::WouldRefuse { code, .. } => format!("would refuse: {}", code.as_str()),
        });
    }
}

impl Reports {
    async fn next(&self) -> String {
        until(|| !self.0.lock().unwrap().is_empty()).await;
        self.0.lock().unwrap().remove(0)
    }
}

fn reported(config: Config) -> (Config, Reports) {
    let reports = Reports::default();
    let observations = Box::new(reports.clone());
    (
        Config {
            observations,
            ..config
        },
        reports,
    )
}

/// Answers with the first frame of the request, without waiting for its end.
fn first_frame() -> Router {
    Router::new().fallback(|request: Request<Body>| async move {
        let frame = request.into_body().frame().await;
        frame.unwrap().unwrap().into_data().unwrap()
    })
}

async fn answers_before_the_end(router: &Router, mut request: Request<Body>) {
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    sender
        .send_data(Bytes::from_static(b"begun"))
        .await
        .unwrap();
    *request.body_mut() = Body::new(body);
    ask(router, request).await.assert_is(200, "begun");
    drop(sender);
}

/// A layer that collects what it does not guard makes uploads and streams impossible.
#[tokio::test]
async fn what_is_not_guarded_streams_through() {
    let router = guard(first_frame(), config(|_| {})).await;
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let mut request = post("k");
        *request.method_mut() = method;
        answers_before_the_end(&router, request).await;
    }
    let elsewhere = config(|route| route.pattern = Pattern::parse("/other").unwrap());
    answers_before_the_end(&guard(first_frame(), elsewhere).await, post("k")).await;
    let off = config(|route| route.mode = Mode::Off);
    answers_before_the_end(&guard(first_frame(), off).await, post("k")).await;
}

/// Where keys are optional, a write without one is as it always was, and is counted.
#[tokio::test]
async fn a_write_without_an_optional_key_streams_through_and_is_reported() {
    let (config, reports) = reported(config(|route| route.key.required = false));
    let router = guard(first_frame(), config).await;
    answers_before_the_end(&router, without(post("k"), "idempotency-key")).await;
    assert_eq!(reports.next().await, "unprotected");
    let malformed = ask(&router, post("a b")).await;
    malformed.assert_problem(400, "idempotency_key_invalid");
}

/// How a service talks to its guard is nobody else's business, whatever the guard has to do with
/// a request.
#[tokio::test]
async fn the_outcome_header_is_hidden_everywhere() {
    for (path, mode) in [
        ("/payments", Mode::Enforce),
        ("/payments", Mode::Observe),
        ("/payments", Mode::Off),
        ("/elsewhere", Mode::Enforce),
        ("/elsewhere", Mode::Observe),
    ] {
        let runs = Runs::default();
        let router = runs.router(|_| [("onlyonce-outcome", "completed")].into_response());
        let config = config(|route| {
            route.pattern = Pattern::parse(path).unwrap();
            route.key.required = false;
            route.mode = mode;
        });
        let router = guard(router, config).await;
        for request in [post("k"), without(post("k"), "idempotency-key")] {
            let answer = ask(&router, request).await;
            let hidden = answer.header("onlyonce-outcome");
            assert_eq!((answer.status, hidden), (200, ""), "{path} {mode:?}");
        }
    }
}

#[tokio::test]
async fn a_route_that_is_off_executes_every_time() {
    let runs = Runs::default();
    let router = guard(runs.created(), config(|route| route.mode = Mode::Off)).await;
    for run in 1..=3 {
        ask(&router, post("k"))
            .await
            .assert_is(201, &format!("run {run}"));
    }
}

/// Watching live traffic is what people do before they trust a guard with it.
#[tokio::test]
async fn observing_passes_everything_and_says_what_enforcing_would_do() {
    let runs = Runs::default();
    let (config, reports) = reported(config(|route| {
        route.mode = Mode::Observe;
        route.body_bytes_max = 100;
    }));
    let router = guard(runs.created(), config).await;
    let expected = [
        (post("k"), "would execute"),
        (post("k"), "would replay"),
        (
            post_body("k", "{}"),
            "would refuse: idempotency_key_reused_with_different_payload",
        ),
        (
            without(post("k"), "idempotency-key"),
            "would refuse: idempotency_key_required",
        ),
        (post("a b"), "would refuse: idempotency_key_invalid"),
        (
            post_body("k", "x".repeat(101)),
            "would refuse: idempotency_payload_too_large",
        ),
    ];
    for (run, (request, report)) in expected.into_iter().enumerate() {
        let answer = ask(&router, request).await;
        answer.assert_is(201, &format!("run {}", run + 1));
        assert_eq!(reports.next().await, report);
    }
}

/// Traffic that is only watched must not take all memory, and is not held up for want of it.
#[tokio::test]
async fn observing_keeps_no_body_beyond_the_room_for_bodies() {
    let runs = Runs::default();
    let (config, reports) = reported(Config {
        bodies_bytes_max: 4 * 1024,
        ..config(|route| route.mode = Mode::Observe)
    });
    let router = runs.router(|_| [("onlyonce-outcome", "completed")].into_response());
    let router = guard(router, config).await;
    let large = "x".repeat(5 * 1024);
    for (body, report) in [
        (large.as_str(), "would refuse: idempotency_overloaded"),
        ("{}", "would execute"),
    ] {
        let answer = ask(&router, post_body("k", body.to_owned())).await;
        let hidden = answer.header("onlyonce-outcome");
        assert_eq!((answer.status, hidden), (200, ""), "{report}");
        assert_eq!(reports.next().await, report);
    }
    assert_eq!(runs.count(), 2);
}

/// The store is not in the way of traffic that is only watched.
#[tokio::test]
async fn observing_survives_a_failing_store() {
    let (runs, store) = (Runs::default(), Moody::default());
    let (config, reports) = reported(config(|route| route.mode = Mode::Observe));
    let limits = EngineConfig::default();
    let router = guard_with(store.clone(), limits, runs.created(), config).await;
    store.fail(true);
    ask(&router, post("k")).await.assert_is(201, "run 1");
    let report = reports.next().await;
    assert_eq!(report, "would refuse: idempotency_store_unavailable");
}

/// Half a request that looks whole could be a payment of 12 instead of 1200.
#[tokio::test]
async fn observing_never_passes_half_a_request_as_a_whole_one() {
    let runs = Runs::default();
    let (config, reports) = reported(config(|route| route.mode = Mode::Observe));
    let router = guard(runs.created(), config).await;
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    sender
        .send_data(Bytes::from_static(b"{\"amount\":12"))
        .await
        .unwrap();
    sender.abort("reset".into());
    let answer = ask(&router, post_body("k", Body::new(body))).await;
    answer.assert_problem(400, "idempotency_payload_incomplete");
    assert_eq!(runs.count(), 0);
    let report = reports.next().await;
    assert_eq!(report, "would refuse: idempotency_payload_incomplete");
}

async fn raw(pattern: &str, method: Method, target: &str) -> Answer {
    let config = config(|route| {
        route.methods = vec![Method::POST];
        route.pattern = Pattern::parse(pattern).unwrap();
    });
    let layer = layer(MemoryStore::new(), EngineConfig::default(), config).await;
    let inner = service_fn(|_| async {
        let mut response = Response::new(Body::from("unguarded"));
        *response.status_mut() = StatusCode::CREATED;
        Ok::<_, Infallible>(response)
    });
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().unwrap();
    read(layer.layer(inner).oneshot(request).await.unwrap()).await
}

/// A client whose base URL ends in a slash sends `//payments`, many services answer it, and
/// nobody would notice that its retries are not guarded.
#[tokio::test]
async fn an_unusual_spelling_of_a_guarded_path_is_guarded() {
    for target in [
        "/payments",
        "//payments",
        "/payments/",
        "/./payments",
        "/x/../payments",
        "/%70ayments",
        "/%2e/payments",
        "http://api.test/payments",
        "/payments?a=1",
    ] {
        let answer = raw("/payments", Method::POST, target).await;
        answer.assert_problem(400, "idempotency_key_required");
    }
    for target in ["/refunds", "/Payments", "/payments%2F", "/payments/1"] {
        raw("/payments", Method::POST, target)
            .await
            .assert_is(201, "unguarded");
    }
}

/// A request target that is no path must not slip past a guard of everything.
#[tokio::test]
async fn a_write_to_no_path_is_guarded_where_everything_is() {
    for target in ["*", "api.test:80", "http://api.test", "/"] {
        let answer = raw("/{*all}", Method::POST, target).await;
        answer.assert_problem(400, "idempotency_key_required");
    }
    for method in [Method::OPTIONS, Method::CONNECT, Method::HEAD] {
        let answer = raw("/{*all}", method, "api.test:80").await;
        answer.assert_is(201, "unguarded");
    }
}
