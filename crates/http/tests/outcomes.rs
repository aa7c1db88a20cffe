//! What an answer means for its key: by its status, by the handler's word, and when there is none.
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
use http::{HeaderMap, Response, StatusCode};
use onlyonce_core::{Policy, Upstream};
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Config, Execution, Settle, Statuses};
use onlyonce_store::MemoryStore;
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};

mod common;
use common::*;

/// What becomes of a key when the first answer is `first` and all others are 201.
async fn outcome_of(
    config: Config,
    first: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> &'static str {
    let runs = Runs::default();
    let router = runs.router(move |run| match run {
        1 => first(),
        _ => StatusCode::CREATED.into_response(),
    });
    let router = guard(router, config).await;
    ask(&router, post("k")).await;
    let retry = ask(&router, post("k")).await;
    let other = ask(&router, post_body("k", r#"{"amount":2}"#)).await;
    match (retry.problem(), other.problem().0, runs.count()) {
        ((409, code), 422, 1) if code == "idempotency_outcome_unknown" => "unknown",
        ((409, code), 422, 1) if code == "idempotency_response_not_replayable" => "not replayable",
        (_, 422, 1) if retry.is_replay() => "completed",
        // The retry ran, and its 201 belongs to its payload now.
        ((201, _), 422, 2) => "ran again",
        other => panic!("{other:?}"),
    }
}

/// Whether a key that ran again was evicted (free for any payload) or released (for its own).
async fn freed_for(status: u16) -> &'static str {
    let runs = Runs::default();
    let router = runs.router(move |run| match run {
        1 => StatusCode::from_u16(status).unwrap().into_response(),
        _ => StatusCode::CREATED.into_response(),
    });
    let router = guard(router, config(|_| {})).await;
    ask(&router, post("k")).await;
    match ask(&router, post_body("k", r#"{"amount":2}"#)).await.status {
        201 => "any payload",
        422 => "its own payload",
        other => panic!("{other}"),
    }
}

/// Every row of the documented table, by what a retry gets.
#[tokio::test]
async fn every_status_of_the_default_table_means_what_is_documented() {
    let evicting = [
        400, 401, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 422, 425, 426, 428, 429, 431,
    ];
    for status in 200..=599 {
        let expected = match status {
            206 | 304 => "not replayable",
            502 | 504 => "unknown",
            503 => "ran again",
            status if evicting.contains(&status) => "ran again",
            _ => "completed",
        };
        let answer = move || StatusCode::from_u16(status).unwrap().into_response();
        let outcome = outcome_of(config(|_| {}), answer).await;
        assert_eq!(outcome, expected, "{status}");
        if expected == "ran again" {
            let payload = if status == 503 {
                "its own payload"
            } else {
                "any payload"
            };
            assert_eq!(freed_for(status).await, payload, "{status}");
        }
    }
}

#[tokio::test]
async fn a_route_may_have_a_table_of_its_own() {
    let success_only = |config: &mut onlyonce_http::Route| {
        config.statuses = Statuses::default()
            .set(400..=599, Settle::Released)
            .set(418..=418, Settle::Completed);
    };
    let failed = || StatusCode::INTERNAL_SERVER_ERROR.into_response();
    assert_eq!(outcome_of(config(success_only), failed).await, "ran again");
    let teapot = || StatusCode::IM_A_TEAPOT.into_response();
    assert_eq!(outcome_of(config(success_only), teapot).await, "completed");
}

fn said(status: u16, header: Option<&'static str>, extension: Option<Settle>) -> Response<Body> {
    let mut response = StatusCode::from_u16(status).unwrap().into_response();
    if let Some(word) = header {
        let word = http::HeaderValue::from_static(word);
        response.headers_mut().insert("onlyonce-outcome", word);
    }
    if let Some(settle) = extension {
        response.extensions_mut().insert(settle);
    }
    response
}

/// The handler knows better than the table, and its extension better than a header that some
/// proxy behind it may have sent.
#[tokio::test]
async fn the_handlers_word_beats_the_header_and_the_header_beats_the_status() {
    let cases = [
        (400, Some("completed"), None, "completed"),
        (201, Some("released"), None, "ran again"),
        (201, Some("not-stored"), None, "ran again"),
        (201, Some("unknown"), None, "unknown"),
        (201, Some("complete"), None, "unknown"),
        (201, Some(""), None, "unknown"),
        (400, Some("unknown"), Some(Settle::Completed), "completed"),
        (201, Some("completed"), Some(Settle::Released), "ran again"),
        (201, None, Some(Settle::Unknown), "unknown"),
        (425, Some("completed"), None, "not replayable"),
    ];
    for (status, header, extension, expected) in cases {
        let answer = move || said(status, header, extension);
        let outcome = outcome_of(config(|_| {}), answer).await;
        assert_eq!(outcome, expected, "{status} {header:?} {extension:?}");
    }
}

/// Where the upstream is not trusted with its keys, its word counts for nothing and is hidden
/// all the same.
#[tokio::test]
async fn an_outcome_header_that_is_not_trusted_is_only_removed() {
    let distrusting = || Config {
        trust_outcome_header: false,
        ..config(|_| {})
    };
    let answer = || said(201, Some("released"), None);
    assert_eq!(outcome_of(distrusting(), answer).await, "completed");
    let router = guard(Runs::default().router(move |_| answer()), distrusting()).await;
    let answer = ask(&router, post("k")).await;
    assert_eq!(answer.header("onlyonce-outcome"), "");
}

/// A panic after the charge and before the receipt.
#[tokio::test]
async fn a_panic_is_unknown_and_never_run_again() {
    let runs = Runs::default();
    let router = guard(runs.router(|_| panic!("as planned")), config(|_| {})).await;
    let first = ask(&router, post("k")).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    for _ in 0..3 {
        let retry = ask(&router, post("k")).await;
        retry.assert_problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(runs.count(), 1);
}

/// Services other than axum's fail with errors.
#[tokio::test]
async fn an_error_of_the_service_is_unknown_and_never_run_again() {
    let layer = layer(MemoryStore::new(), EngineConfig::default(), config(|_| {})).await;
    let runs = Runs::default();
    let counted = runs.clone();
    let service = layer.layer(service_fn(move |_| {
        counted.next();
        async { Err::<Response<Body>, _>(std::io::Error::other("reset")) }
    }));
    for status in [502, 409] {
        let response = service.clone().oneshot(post("k")).await.unwrap();
        let answer = read(response).await;
        answer.assert_problem(status, "idempotency_outcome_unknown");
    }
    assert_eq!(runs.count(), 1);
}

/// The first 503 releases the key; the handler tells what it sees.
fn telling() -> Router {
    let runs = Runs::default();
    Router::new().fallback(move |execution: Execution| {
        let run = runs.next();
        async move {
            let told = json!({
                "key": execution.key().as_str(),
                "attempt": execution.attempt(),
                "held": execution.is_held(),
                "card": execution.child_key("card"),
                "mail": execution.child_key("mail"),
            });
            let status = match run {
                1 => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::CREATED,
            };
            (status, told.to_string())
        }
    })
}

/// A second attempt that sends another key downstream charges the card twice.
#[tokio::test]
async fn an_execution_keeps_its_child_keys_across_attempts() {
    let router = guard(telling(), config(|_| {})).await;
    let first = ask(&router, post("\"k-1\"")).await.json();
    let second = ask(&router, post("k-1")).await.json();
    assert_eq!(
        (&first["key"], &first["attempt"]),
        (&json!("k-1"), &json!(1))
    );
    assert_eq!(
        (&second["key"], &second["attempt"]),
        (&json!("k-1"), &json!(2))
    );
    assert_eq!(second["held"], true);
    for name in ["card", "mail"] {
        assert_eq!(first[name], second[name]);
    }
    assert_ne!(first["card"], first["mail"]);
    let other = ask(&router, post("k-2")).await.json();
    assert_ne!(other["card"], first["card"]);
}

#[tokio::test]
async fn an_execution_says_how_it_ended() {
    let runs = Runs::default();
    let counted = runs.clone();
    let handler = move |execution: Execution, body: String| {
        let run = counted.next();
        async move {
            let response = (StatusCode::BAD_REQUEST, format!("run {run}")).into_response();
            match body.as_str() {
                "completed" => execution.completed(response),
                "released" => execution.released(response),
                _ => execution.unknown(response),
            }
        }
    };
    let router = guard(Router::new().fallback(handler), config(|_| {})).await;
    for word in ["completed", "released", "unknown"] {
        let first = ask(&router, post_body(word, word)).await;
        let retry = ask(&router, post_body(word, word)).await;
        match word {
            "completed" => {
                first.assert_is(400, "run 1");
                retry.assert_is(400, "run 1");
                assert!(retry.is_replay());
            }
            "released" => {
                first.assert_is(400, "run 2");
                retry.assert_is(400, "run 3");
            }
            _ => {
                first.assert_problem(502, "idempotency_outcome_unknown");
                retry.assert_problem(409, "idempotency_outcome_unknown");
            }
        }
    }
    assert_eq!(runs.count(), 4);
}

/// A handler that asks for its key where nothing guards it is a mistake in the program; one that
/// can do without says so.
#[tokio::test]
async fn an_execution_is_only_there_for_a_guarded_request() {
    let strict = Router::new().fallback(|_: Execution| async { "ran" });
    let config = || config(|route| route.key.required = false);
    let keyless = || without(post("k"), "idempotency-key");
    let answer = ask(&guard(strict, config()).await, keyless()).await;
    assert_eq!(answer.status, 500);
    let lenient = Router::new()
        .fallback(|execution: Option<Execution>| async move { format!("{}", execution.is_some()) });
    let router = guard(lenient, config()).await;
    ask(&router, keyless()).await.assert_is(200, "false");
    ask(&router, post("k")).await.assert_is(200, "true");
}

/// The inner service's type of error does not matter to those who never see one.
#[tokio::test]
async fn the_layer_is_an_ordinary_tower_layer() {
    let layer = layer(MemoryStore::new(), EngineConfig::default(), config(|_| {})).await;
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::from("plain"))) });
    let service = tower::ServiceBuilder::new().layer(layer).service(inner);
    let response = service.clone().oneshot(post("k")).await.unwrap();
    read(response).await.assert_is(200, "plain");
    let retry = read(service.oneshot(post("k")).await.unwrap()).await;
    assert!(retry.is_replay());
}

/// A service that recognises the key answers 409 while the first attempt is still at work. Storing
/// that would hide the charge that follows from every retry.
#[tokio::test]
async fn a_conflict_of_a_repeated_attempt_is_not_its_outcome() {
    let runs = Runs::default();
    let router = runs.router(|run| match run {
        1 => StatusCode::GATEWAY_TIMEOUT.into_response(),
        2 => StatusCode::CONFLICT.into_response(),
        _ => StatusCode::CREATED.into_response(),
    });
    let dedupes = Upstream::Dedupes { reexecute: true };
    let config = config(|route| {
        route.policy = Policy::builder().upstream(dedupes).build().unwrap();
    });
    let router = guard(router, config).await;
    let codes = [504, 502, 201, 201];
    for (number, status) in codes.into_iter().enumerate() {
        let answer = ask(&router, post("k")).await;
        assert_eq!((number, answer.status), (number, status));
        assert_eq!(answer.is_replay(), number == 3);
    }
    assert_eq!(runs.count(), 3);
}

/// To the layer `"k"` and `k` are one key; a service that recognises keys may take them for two, and
/// charge again.
#[tokio::test]
async fn every_attempt_spells_the_key_alike() {
    let dedupes = Upstream::Dedupes { reexecute: true };
    for (spellings, sent) in [
        (["\"k\"", "k", "\"k\";x=1", "\"k\""], "k"),
        (["\"a,b\"", " \"a,b\" ", "\"a,b\"; y", "\"a,b\""], "\"a,b\""),
    ] {
        let runs = Runs::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counted, noted) = (runs.clone(), Arc::clone(&seen));
        let router = Router::new().fallback(async move |headers: HeaderMap| {
            noted
                .lock()
                .unwrap()
                .push(headers["idempotency-key"].clone());
            match counted.next() {
                3 => StatusCode::CREATED.into_response(),
                _ => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        });
        let config = config(|route| {
            route.policy = Policy::builder().upstream(dedupes).build().unwrap();
        });
        let router = guard(router, config).await;
        for (spelling, status) in spellings.into_iter().zip([504, 504, 201, 201]) {
            let answer = ask(&router, with(post("k"), "idempotency-key", spelling)).await;
            assert_eq!(answer.status, status, "{spelling}");
        }
        assert_eq!(*seen.lock().unwrap(), [sent; 3]);
    }
}

/// A service that knows nothing of keys gets what its client sent.
#[tokio::test]
async fn a_key_that_nobody_recognises_passes_as_it_is() {
    let router = Router::new().fallback(async |headers: HeaderMap| {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        (StatusCode::CREATED, key)
    });
    let router = guard(router, config(|_| {})).await;
    let answer = ask(&router, with(post("k"), "idempotency-key", "\"k\";x=1")).await;
    answer.assert_is(201, "\"k\";x=1");
}
