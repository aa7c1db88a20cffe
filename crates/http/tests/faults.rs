//! Callers that leave, bodies that end early, stores that fail.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::{Frame, SizeHint};
use http_body_util::channel::Channel;
use onlyonce_conformance::http_suite::upstream::BoxError;
use onlyonce_core::{Keyring, Policy, Reuse};
use onlyonce_engine::{Engine, EngineConfig};
use onlyonce_http::{Config, IdempotencyLayer, ReplayCheck, TrustedHeader};
use onlyonce_store::MemoryStore;
use tower::ServiceExt;

mod common;
use common::*;

/// A handler with await points of its own.
fn unhurried(runs: &Runs) -> Router {
    let runs = runs.clone();
    Router::new().fallback(move || {
        let runs = runs.clone();
        async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            (StatusCode::CREATED, format!("run {}", runs.next()))
        }
    })
}

/// Wherever a caller leaves, the payment happens once: by its own request, which nobody cancels,
/// or by the retry.
#[tokio::test]
async fn a_caller_may_leave_at_any_await() {
    let (mut left, mut replayed) = (0, 0);
    for polls in 1.. {
        let runs = Runs::default();
        let limits = EngineConfig::default();
        let router = guard_with(Moody::default(), limits, unhurried(&runs), config(|_| {})).await;
        let mut asking = Box::pin(router.clone().oneshot(post("k")));
        let mut context = Context::from_waker(Waker::noop());
        let mut finished = false;
        for _ in 0..polls {
            finished = asking.as_mut().poll(&mut context).is_ready();
            if finished {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asking);
        let answer = ask_until_settled(&router, || post("k")).await;
        answer.assert_is(201, "run 1");
        assert_eq!(runs.count(), 1, "left after {polls} polls");
        if finished {
            break;
        }
        left += 1;
        replayed += usize::from(answer.is_replay());
    }
    assert!(left >= 5, "there are awaits to leave at: {left}");
    assert!(replayed >= 2, "some left while it was at work: {replayed}");
}

/// Nothing runs without a durable claim, and a client is told so without being told where the
/// database is.
#[tokio::test]
async fn a_failing_store_refuses_and_nothing_runs() {
    let (runs, store) = (Runs::default(), Moody::default());
    let limits = EngineConfig::default();
    let router = guard_with(store.clone(), limits, runs.created(), config(|_| {})).await;
    store.fail(true);
    let refused = ask(&router, post("k")).await;
    refused.assert_problem(503, "idempotency_store_unavailable");
    assert_ne!(refused.header("retry-after"), "");
    assert!(!refused.json().to_string().contains("db-7"));
    assert_eq!(runs.count(), 0);
    let read = ask(&router, get("/payments")).await;
    read.assert_is(201, "run 1");
    store.fail(false);
    ask(&router, post("k")).await.assert_is(201, "run 2");
}

/// An answer that could not be stored could differ on the next retry: it is not shown.
#[tokio::test]
async fn an_answer_that_is_not_durable_is_not_shown() {
    let (runs, store) = (Runs::default(), Moody::default());
    let limits = EngineConfig {
        settle_patience: Duration::from_millis(20),
        ..EngineConfig::default()
    };
    let (counted, failing) = (runs.clone(), store.clone());
    let router = Router::new().fallback(move || {
        counted.next();
        failing.fail(true);
        async { StatusCode::CREATED }
    });
    let router = guard_with(store.clone(), limits, router, config(|_| {})).await;
    let first = ask(&router, post("k")).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    store.fail(false);
    assert_eq!(ask(&router, post("k")).await.status, 409);
    assert_eq!(runs.count(), 1);
}

/// "Nothing was executed" about a payment that was would be paid again under a new key.
#[tokio::test]
async fn an_answer_that_cannot_be_decrypted_is_not_called_unexecuted() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let mut answers = Vec::new();
    for key_id in [1, 2] {
        let engine = Engine::builder(store.clone())
            .keyring(Keyring::new(key_id, [7; 32]))
            .open()
            .await
            .unwrap();
        let layer = IdempotencyLayer::new(engine, config(|_| {}));
        answers.push(ask(&runs.created().layer(layer), post("k")).await);
    }
    answers[0].assert_is(201, "run 1");
    answers[1].assert_problem(503, "idempotency_store_unavailable");
    let detail = answers[1].json()["detail"].to_string();
    assert!(detail.contains("was executed once"), "{detail}");
    assert_eq!(runs.count(), 1);
}

/// A body that says how long it is and must not be touched.
struct Untouched(u64);

impl http_body::Body for Untouched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        panic!("the body was read");
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

/// A gigabyte that is announced is refused from the announcement, and one that is not is refused
/// at the limit.
#[tokio::test]
async fn a_request_above_the_limit_is_refused_and_held_by_nobody() {
    let runs = Runs::default();
    let limited = config(|route| route.body_bytes_max = 1_000);
    let router = guard(runs.created(), limited).await;
    let announced = Body::new(Untouched(1_001));
    let refused = ask(&router, post_body("k", announced)).await;
    refused.assert_problem(413, "idempotency_payload_too_large");
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let endless = tokio::spawn(async move {
        let mut sent = 0;
        while sender.send_data(Bytes::from(vec![b'x'; 100])).await.is_ok() {
            sent += 100;
        }
        sent
    });
    let refused = ask(&router, post_body("k", Body::new(body))).await;
    refused.assert_problem(413, "idempotency_payload_too_large");
    assert!(endless.await.unwrap() <= 1_300, "no more was taken");
    assert_eq!(runs.count(), 0);
    ask(&router, post_body("k", vec![b'x'; 1_000]))
        .await
        .assert_is(201, "run 1");
}

/// A refusal that needs only the head does not wait for the body.
#[tokio::test]
async fn a_request_is_refused_for_its_key_before_its_body_is_read() {
    let router = guard(Runs::default().created(), config(|_| {})).await;
    // What is small is read while its sender is answered; of this nothing is.
    let large = || Body::new(Untouched(100_000));
    let keyless = without(post_body("k", large()), "idempotency-key");
    ask(&router, keyless)
        .await
        .assert_problem(400, "idempotency_key_required");
    let malformed = post_body("a b", large());
    ask(&router, malformed)
        .await
        .assert_problem(400, "idempotency_key_invalid");
}

/// Half a request is none.
#[tokio::test]
async fn a_torn_request_is_refused_and_its_key_is_free() {
    let runs = Runs::default();
    let router = guard(runs.created(), config(|_| {})).await;
    let refused = ask(&router, post_body("k", torn_body().await)).await;
    refused.assert_problem(400, "idempotency_payload_incomplete");
    assert_eq!(runs.count(), 0);
    ask(&router, post_body("k", "{}"))
        .await
        .assert_is(201, "run 1");
}

/// Where callers must be known, nobody is anybody.
#[tokio::test]
async fn a_caller_who_must_be_known_and_is_not_is_refused() {
    let runs = Runs::default();
    let config = Config {
        principals: Box::new(TrustedHeader(http::HeaderName::from_static("x-tenant"))),
        ..config(|_| {})
    };
    let router = guard(runs.created(), config).await;
    for request in [post("k"), with(post("k"), "x-tenant", "")] {
        let refused = ask(&router, request).await;
        refused.assert_problem(401, "idempotency_principal_required");
    }
    let tenant = |name: &str| with(post("k"), "x-tenant", name);
    ask(&router, tenant("a")).await.assert_is(201, "run 1");
    ask(&router, tenant("b")).await.assert_is(201, "run 2");
    assert!(ask(&router, tenant("a")).await.is_replay());
}

/// Refuses whoever was revoked.
struct Revoked;

impl ReplayCheck for Revoked {
    fn check<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Bytes>>> + Send + 'a>> {
        Box::pin(async {
            if !request.headers.contains_key("x-revoked") {
                return Ok(());
            }
            let mut refusal = Response::new(Bytes::from_static(b"revoked"));
            *refusal.status_mut() = StatusCode::UNAUTHORIZED;
            Err(refusal)
        })
    }
}

/// A token that was revoked since must not fetch what it once paid for.
#[tokio::test]
async fn a_replay_can_be_refused() {
    let runs = Runs::default();
    let config = Config {
        replay_check: Some(Box::new(Revoked)),
        ..config(|_| {})
    };
    let router = guard(runs.created(), config).await;
    ask(&router, post("k")).await.assert_is(201, "run 1");
    assert!(ask(&router, post("k")).await.is_replay());
    let revoked = with(post("k"), "x-revoked", "1");
    ask(&router, revoked).await.assert_is(401, "revoked");
    assert_eq!(runs.count(), 1);
}

/// A token for one payment is not good for its receipt either.
#[tokio::test]
async fn a_single_use_key_is_refused_the_second_time() {
    let policy = Policy::builder().reuse(Reuse::SingleUse).build().unwrap();
    let single = config(|route| route.policy = policy);
    let router = guard(Runs::default().created(), single).await;
    ask(&router, post("k")).await.assert_is(201, "run 1");
    for body in [r#"{"amount":1}"#, "{}"] {
        let refused = ask(&router, post_body("k", body)).await;
        refused.assert_problem(409, "idempotency_key_already_used");
    }
}
