//! The status of an operation whose outcome is open, and what is noted to find it out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at once"
)]

mod common;

use axum::response::IntoResponse;
use common::*;
use http::StatusCode;
use onlyonce_core::{Record, RecordId, State, StateKind, UnknownReason};
use onlyonce_engine::EngineConfig;
use onlyonce_http::reconcile::{Memo, Noted, Notes, Template};
use onlyonce_http::{Pattern, Settle};
use onlyonce_store::{Filter, ListStore, MemoryStore};

/// The row of the only key.
async fn row(store: &MemoryStore) -> (RecordId, Record) {
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    let rows = page.entries.into_iter();
    let mut keys = rows
        .map(|entry| (entry.id, *entry.row.unwrap().record))
        .filter(|(_, record)| !record.route.is_reserved());
    keys.next().unwrap()
}

fn lost(_: usize) -> axum::response::Response {
    let outcome = [("onlyonce-outcome", "unknown")];
    (StatusCode::CREATED, outcome, "never seen").into_response()
}

/// A client that is told to come back too early comes back for nothing, a thousand times.
#[tokio::test]
async fn an_unknown_outcome_has_an_honest_retry_after_and_shows_no_reason() {
    let runs = Runs::default();
    let router = guard(runs.router(lost), config(|_| {})).await;
    let first = ask(&router, post("k")).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    let retry = ask(&router, post("k")).await;
    retry.assert_problem(409, "idempotency_outcome_unknown");
    let path = retry.json()["operation"].as_str().unwrap().to_owned();
    let status = ask(&router, get(&path)).await;
    // The first look is five to six and a quarter seconds away; up to three are added for spread.
    for answer in [&first, &retry, &status] {
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!((4..=10).contains(&seconds), "{seconds}");
    }
    for answer in [&first, &retry] {
        let link = format!("<{path}>; rel=\"status\"");
        assert_eq!(answer.header("link"), link);
    }
    let status = status.json();
    assert_eq!(status["state"], "unknown");
    assert_eq!(status["settled"], false);
    assert_eq!(status["unknown"]["attempts"], 0);
    assert!(status["unknown"]["since_ms"].as_u64().unwrap() > 0);
    assert!(!status.to_string().contains("handler_said_so"));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_settled_operation_needs_no_retry() {
    let store = MemoryStore::new();
    let limits = EngineConfig::default();
    let router = Runs::default().created();
    let router = guard_with(store.clone(), limits, router, config(|_| {})).await;
    ask(&router, post("k")).await.assert_is(201, "run 1");
    let (id, _) = row(&store).await;
    let path = format!("/.onlyonce/operations/{id}");
    let status = ask(&router, get(&path)).await;
    assert_eq!(status.json()["state"], "completed");
    assert_eq!(status.header("retry-after"), "");
    assert_eq!(status.json().get("unknown"), None);
}

/// What is no name of an operation is a question about one all the same: the service behind must
/// not be the one to answer it.
#[tokio::test]
async fn a_name_that_no_operation_has_is_not_passed_on() {
    let runs = Runs::default();
    let limits = EngineConfig::default();
    let router = guard_with(MemoryStore::new(), limits, runs.created(), config(|_| {})).await;
    for name in ["", "00", "0123456789ab", "not-hex", &"0".repeat(65)] {
        let answer = ask(&router, get(&format!("/.onlyonce/operations/{name}"))).await;
        answer.assert_problem(404, "idempotency_operation_not_found");
    }
    assert_eq!(runs.count(), 0);
}

/// A proxy that got no answer says so in the same way as a handler that knows of no outcome.
/// Operators must be able to tell the two apart.
#[tokio::test]
async fn an_outcome_that_nobody_told_is_not_called_the_handlers_word() {
    for (why, reason) in [
        (None, UnknownReason::HandlerSaidSo),
        (
            Some(UnknownReason::NoCompleteAnswer),
            UnknownReason::NoCompleteAnswer,
        ),
    ] {
        let store = MemoryStore::new();
        let router = Runs::default().router(move |_| {
            let mut response = StatusCode::BAD_GATEWAY.into_response();
            response.extensions_mut().insert(Settle::Unknown);
            if let Some(why) = why {
                response.extensions_mut().insert(why);
            }
            response
        });
        let limits = EngineConfig::default();
        let router = guard_with(store.clone(), limits, router, config(|_| {})).await;
        ask(&router, post("k")).await;
        let (_, record) = row(&store).await;
        let State::Unknown { reason: noted, .. } = record.state else {
            panic!("{record:?}");
        };
        assert_eq!(noted, reason);
    }
}

/// What a question needs is noted while the outcome is open, and gone when it is known.
#[tokio::test]
async fn what_is_noted_lasts_as_long_as_the_outcome_is_open() {
    let url = Template::url("https://p.example/{path:kind}?key={key}&n={body:/amount}").unwrap();
    let notes = Notes::of([&url]);
    for (outcome, kind, noted) in [
        ("unknown", StateKind::Unknown, true),
        ("completed", StateKind::Completed, false),
    ] {
        let store = MemoryStore::new();
        let settings = config(|route| {
            route.notes = notes.clone();
            route.pattern = Pattern::parse("/{kind}").unwrap();
        });
        let answer =
            move |_| (StatusCode::CREATED, [("onlyonce-outcome", outcome)]).into_response();
        let limits = EngineConfig::default();
        let router = Runs::default().router(answer);
        let router = guard_with(store.clone(), limits, router, settings).await;
        ask(&router, post("k")).await;
        let (_, record) = row(&store).await;
        assert_eq!(State::kind(&record.state), kind);
        let memo = Memo::parse(&record.memo);
        for (name, value) in [
            ("key", "k"),
            ("path:kind", "payments"),
            ("body:/amount", "1"),
        ] {
            assert_eq!(
                memo.get(name),
                noted.then_some(Noted::Value(value)),
                "{name}"
            );
        }
    }
}
