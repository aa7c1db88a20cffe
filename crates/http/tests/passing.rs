//! What the layer lets through, and what it must not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Mode, Pattern, Routes, Settle, Statuses};
use onlyonce_store::MemoryStore;
use tower::{Layer, ServiceExt, service_fn};

mod common;
use common::reports::reported;
use common::*;

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
        "/Payments",
        "/payments;v=1",
        "/payments%2F",
        "/\\payments",
    ] {
        let answer = raw("/payments", Method::POST, target).await;
        answer.assert_problem(400, "idempotency_key_required");
    }
    for target in ["/refunds", "/payments%20", "/payments%252F", "/payments/1"] {
        raw("/payments", Method::POST, target)
            .await
            .assert_is(201, "unguarded");
    }
}

/// The API does what it says it did not. That is known for the route, and must hold for every
/// spelling in which the API answers its path.
#[tokio::test]
async fn an_unusual_spelling_has_the_statuses_of_its_route() {
    for (pattern, target) in [
        ("/v1/charges:capture", "/v1/charges%3Acapture"),
        ("/payments", "/Payments"),
        ("/café", "/caf%C3%A9"),
    ] {
        let mut careful = config(|route| {
            route.pattern = Pattern::parse(pattern).unwrap();
            route.statuses = Statuses::default().set(503..=503, Settle::Unknown);
        });
        let rest = Routes::default();
        let routes = careful.routes.iter().chain(rest.iter()).cloned();
        careful.routes = Routes::new(routes.collect());
        let runs = Runs::default();
        let router = runs.router(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
        let router = guard(router, careful).await;
        for _ in 0..2 {
            let mut request = post("k");
            *request.uri_mut() = target.parse().unwrap();
            ask(&router, request).await;
        }
        assert_eq!(runs.count(), 1, "{target}");
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

/// A connection that is closed while its client still sends takes the refusal along.
#[tokio::test]
async fn a_small_request_that_is_refused_is_heard_out() {
    let router = guard(Runs::default().created(), config(|_| {})).await;
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let refused = without(post_body("k", Body::new(body)), "idempotency-key");
    let sending = async {
        for _ in 0..8 {
            sender.send_data(Bytes::from_static(b"{}")).await.unwrap();
        }
        drop(sender);
    };
    let (answer, ()) = tokio::join!(ask(&router, refused), sending);
    answer.assert_problem(400, "idempotency_key_required");
}

/// It is answered at once, and nobody listens to it for ever.
#[tokio::test(start_paused = true)]
async fn a_refused_request_that_does_not_end_is_not_waited_for() {
    let router = guard(Runs::default().created(), config(|_| {})).await;
    let (mut silent, body) = Channel::<Bytes, BoxError>::new(1);
    let refused = without(post_body("k", Body::new(body)), "idempotency-key");
    let began = tokio::time::Instant::now();
    let answer = ask(&router, refused).await;
    answer.assert_problem(400, "idempotency_key_required");
    assert_eq!(began.elapsed(), Duration::ZERO);
    // The clock goes on as soon as all there is to do is to wait.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(silent.send_data(Bytes::from_static(b"{}")).await.is_err());
}
