//! A key that comes with another request: what differed is named, wherever it was, and never what
//! it was.

use http::Method;
use serde_json::{Value, json};

use crate::kit::{Call, Stage};

const REUSED: &str = "idempotency_key_reused_with_different_payload";

/// What the refusal of `second` says after `first`.
async fn differs(stage: &Stage, first: &Call, second: &Call) -> Value {
    stage.send(first).await.assert_executed(201);
    let refused = stage.send(second).await;
    refused.assert_problem(422, REUSED);
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(!text.contains("secret"), "a value: {text}");
    refused.json()["differs"].clone()
}

fn text(key: &str) -> Call {
    Call::payment(key)
        .header("content-type", "text/plain")
        .body("secret one")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_outside_of_json_is_named() {
    let stage = Stage::with(
        "[[route]]\npath = \"/payments\"\nfingerprint_headers = [\"if-match\", \"x-mode\"]\n",
    )
    .await;
    let json = |key: &str| Call::payment(key).body(r#"{"note":"secret"}"#);
    let queried = |key: &str, query: &str| Call {
        target: format!("/payments?{query}"),
        ..json(key)
    };
    for (number, (first, second, changed)) in [
        (text("0"), text("0").body("secret two"), json!(["body"])),
        (
            text("1"),
            text("1").header("content-type", "text/secret"),
            json!(["content-type"]),
        ),
        (
            json("2"),
            json("2").header("content-type", "application/secret+json"),
            json!(["content-type"]),
        ),
        (
            json("3"),
            json("3").header("if-match", "secret"),
            json!(["if-match"]),
        ),
        (
            json("9").header("x-http-method-override", "PATCH"),
            json("9").header("x-http-method-override", "secret"),
            json!(["method"]),
        ),
        (
            json("10"),
            json("10").header("x-method-override", "DELETE"),
            json!(["method"]),
        ),
        (
            json("4").header("x-mode", "secret").header("if-match", "a"),
            json("4").header("if-match", "secret"),
            json!(["if-match", "x-mode"]),
        ),
        (
            queried("5", "a=secret"),
            queried("5", "a=1"),
            json!(["query"]),
        ),
        (
            json("6"),
            queried("6", "secret").body(r#"{"note":"other"}"#),
            json!(["query", "/note"]),
        ),
        (
            json("7"),
            json("7").body("{no json: secret"),
            json!(["body"]),
        ),
        (
            json("8"),
            json("8").header("content-encoding", "secret"),
            json!(["content-encoding", "body"]),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let differs = differs(&stage, &first, &second).await;
        assert_eq!(differs["changed"], changed, "{number}: {differs}");
        assert_eq!(differs["added"], json!([]), "{number}");
    }
    stage.finish();
}

/// Where neither method nor path tells keys apart, each can be what differs.
#[tokio::test(flavor = "multi_thread")]
async fn another_method_or_path_is_named() {
    let stage =
        Stage::with("[[route]]\npath = \"/{*rest}\"\nmethods = [\"POST\", \"PATCH\"]\nscope = [\"principal\"]\n").await;
    let first = Call::payment("k");
    let elsewhere = Call {
        target: "/refunds".into(),
        ..first.clone()
    };
    let otherwise = Call {
        method: Method::PATCH,
        ..first.clone()
    };
    let differs = differs(&stage, &first, &elsewhere).await;
    assert_eq!(differs["changed"], json!(["path"]));
    let refused = stage.send(&otherwise).await;
    assert_eq!(refused.json()["differs"]["changed"], json!(["method"]));
    stage.finish();
}
