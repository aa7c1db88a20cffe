//! Every refusal has every member, its documented status, and a page that agrees with it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use std::collections::HashSet;
use std::path::PathBuf;

use http_body_util::Full;
use onlyonce_http::{Code, Problem};
use serde_json::Value;

mod common;
use common::*;

const INSTANCE: uuid::Uuid = uuid::Uuid::from_u128(7);

/// As in the table of the design.
const STATUSES: [(&str, u16); 16] = [
    ("idempotency_key_required", 400),
    ("idempotency_key_invalid", 400),
    ("idempotency_key_reused_with_different_payload", 422),
    ("idempotency_key_in_progress", 409),
    ("idempotency_outcome_unknown", 409),
    ("idempotency_response_not_replayable", 409),
    ("idempotency_key_already_used", 409),
    ("idempotency_store_unavailable", 503),
    ("upstream_unreachable", 503),
    ("upstream_no_answer", 502),
    ("idempotency_payload_too_large", 413),
    ("idempotency_overloaded", 503),
    ("idempotency_principal_required", 401),
    ("idempotency_payload_incomplete", 400),
    ("idempotency_operation_not_found", 404),
    ("idempotency_request_too_old", 412),
];

fn page(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/problems");
    let path = folder.join(format!("{name}.md"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_code_has_its_documented_status() {
    let codes: Vec<_> = Code::ALL
        .iter()
        .map(|code| (code.as_str(), code.status().as_u16()))
        .collect();
    assert_eq!(codes, STATUSES);
    let titles: HashSet<_> = Code::ALL.iter().map(|code| code.title()).collect();
    assert_eq!(titles.len(), STATUSES.len(), "each has a title of its own");
}

/// Clients branch on these members.
#[tokio::test]
async fn every_problem_has_every_member() {
    for code in Code::ALL {
        let problem = Problem::new(code, "what to do", INSTANCE);
        let answer = read(problem.into_response("https://pages.test/").map(Full::new)).await;
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.status, code.status().as_u16());
        let expected = serde_json::json!({
            "type": format!("https://pages.test/{}.md", code.as_str()),
            "title": code.title(),
            "status": code.status().as_u16(),
            "detail": "what to do",
            "instance": "urn:uuid:00000000-0000-0000-0000-000000000007",
            "code": code.as_str(),
            "retryable": code.is_retryable(),
        });
        assert_eq!(answer.json(), expected);
    }
}

/// A member of one occurrence must not replace one that every problem has.
#[tokio::test]
async fn members_headers_and_the_status_can_be_added() {
    let problem = Problem::new(Code::OutcomeUnknown, "d", INSTANCE)
        .status(http::StatusCode::GATEWAY_TIMEOUT)
        .retry_after(7)
        .operation(Some("/operations/1".into()))
        .with("reason", "late".into())
        .with("code", "mine".into());
    let answer = read(problem.into_response("").map(Full::new)).await;
    answer.assert_problem(504, "idempotency_outcome_unknown");
    assert_eq!(answer.header("retry-after"), "7");
    assert_eq!(answer.header("link"), "</operations/1>; rel=\"status\"");
    let members = answer.json();
    assert_eq!(members["operation"], "/operations/1");
    assert_eq!(
        (&members["reason"], &members["status"]),
        (&"late".into(), &504.into())
    );
}

/// A `type` that leads to nothing, or to something else, is worse than none.
#[test]
fn every_code_has_a_page_that_agrees_with_it() {
    for code in Code::ALL {
        let (name, status) = (code.as_str(), code.status().as_u16());
        let page = page(name);
        assert!(
            page.starts_with(&format!("# {}\n", code.title())),
            "{name}: title"
        );
        assert!(
            page.contains(&format!("| code | `{name}` |")),
            "{name}: code"
        );
        assert!(
            page.contains(&format!("| status | {status}")),
            "{name}: status"
        );
        let retryable = if code.is_retryable() { "yes" } else { "no" };
        let line = format!("| retryable | {retryable} |");
        assert!(page.contains(&line), "{name}: retryable");
        for heading in [
            "What happened",
            "Was anything executed?",
            "What the client should do",
            "What the operator can do",
            "Example",
        ] {
            assert!(
                page.contains(&format!("\n## {heading}\n")),
                "{name}: {heading}"
            );
        }
        assert!(
            page.contains(&format!("HTTP/1.1 {status} ")),
            "{name}: example"
        );
        let example = page
            .split("```json\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let example: Value = serde_json::from_str(example.unwrap()).unwrap();
        assert_eq!(example["code"], name);
        assert_eq!(example["title"], code.title());
        assert_eq!(example["status"], status);
        assert_eq!(example["retryable"], code.is_retryable());
        assert!(
            example["type"]
                .as_str()
                .unwrap()
                .ends_with(&format!("/{name}.md"))
        );
    }
}

#[test]
fn the_index_lists_every_page_and_nothing_else() {
    let index = page("README");
    for code in Code::ALL {
        let name = code.as_str();
        let row = format!("| [`{name}`]({name}.md) | {} |", code.status().as_u16());
        assert!(index.contains(&row), "{row}");
    }
    assert_eq!(index.matches(".md)").count(), Code::ALL.len());
}
