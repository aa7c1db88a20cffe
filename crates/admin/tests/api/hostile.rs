//! Whatever is sent, the answer is a problem, and nothing has changed.

use axum::body::Body;
use serde_json::{Value, json};

use crate::kit::{CHANGER, READER, Stage, request};

#[tokio::test]
async fn a_body_that_is_not_understood_changes_nothing() {
    let stage = Stage::start().await;
    let id = stage.unknown("a").await;
    let fence = stage.record(&id).await.unwrap().fence.to_string();
    let good = |change: Value| {
        let mut body = json!({ "execution": fence, "action": "released", "reason": "why" });
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        body.to_string()
    };
    let with = |response: Value| good(json!({ "action": "completed", "response": response }));
    let bodies = [
        String::new(),
        "{".into(),
        "null".into(),
        "[]".into(),
        "\u{0}".into(),
        "[".repeat(100_000),
        r#"{"execution":"","action":"released","reason":"x"}"#.into(),
        good(json!({ "execution": "00" })),
        good(json!({ "execution": "zz".repeat(16) })),
        good(json!({ "execution": 7 })),
        good(json!({ "action": "explode" })),
        good(json!({ "action": "Released" })),
        good(json!({ "reason": "" })),
        good(json!({ "reason": " \n\t " })),
        good(json!({ "reason": "x".repeat(501) })),
        good(json!({ "reason": null })),
        good(json!({ "unknown_field": 1 })),
        good(json!({ "response": { "status": 200 } })),
        with(json!({ "status": 99 })),
        with(json!({ "status": 100 })),
        with(json!({ "status": 600 })),
        with(json!({ "status": "200" })),
        with(json!({ "status": 200, "headers": [["a b", "c"]] })),
        with(json!({ "status": 200, "headers": [["a", "b\r\nset-cookie: c"]] })),
        with(json!({ "status": 200, "headers": [["a"]] })),
        with(json!({ "status": 200, "headers": [["content-length", "5"]] })),
        with(json!({ "status": 200, "headers": [["Transfer-Encoding", "chunked"]] })),
        with(json!({ "status": 200, "body": "a", "body_base64": "YQ==" })),
        with(json!({ "status": 200, "body_base64": "not base64!" })),
        with(json!({ "status": 200, "body": 7 })),
        with(json!({ "status": 200, "extra": 7 })),
        format!("{}{}", good(json!({})), "x"),
        r#"{"action":"released","action":"forget","execution":"","reason":"x"}"#.into(),
    ];
    let before = stage.record(&id).await;
    for body in &bodies {
        let path = format!("/api/v1/keys/{id}/resolve");
        let answer = stage
            .ask(request("POST", &path, Some(CHANGER), Some(body.clone())))
            .await;
        assert_eq!(answer.status, 400, "{body:.100}: {}", answer.text());
        answer.assert_problem(400, "invalid_request");
    }
    assert_eq!(stage.record(&id).await, before);
    let path = format!("/api/v1/keys/{id}/resolve");
    let right = request("POST", &path, Some(CHANGER), Some(good(json!({}))));
    assert_eq!(
        stage.ask(right).await.status,
        200,
        "the rest was wrong, not this"
    );
}

#[tokio::test]
async fn a_huge_body_is_too_large_and_read_no_further() {
    let stage = Stage::start().await;
    let path = format!("/api/v1/keys/{}/resolve", "ab".repeat(32));
    for bytes in [2 * 1024 * 1024 + 1, 8 * 1024 * 1024] {
        let mut asked = request("POST", &path, Some(CHANGER), Some(String::new()));
        *asked.body_mut() = Body::from(vec![b' '; bytes]);
        stage.ask(asked).await.assert_problem(413, "too_large");
    }
}

#[tokio::test]
async fn parameters_are_read_strictly() {
    let stage = Stage::start().await;
    for path in [
        "/api/v1/keys?limit=0",
        "/api/v1/keys?limit=501",
        "/api/v1/keys?limit=-1",
        "/api/v1/keys?limit=+1",
        "/api/v1/keys?limit=1e3",
        "/api/v1/keys?limit=99999999999999999999999",
        "/api/v1/keys?state=UNKNOWN",
        "/api/v1/keys?stat=unknown",
        "/api/v1/keys?state=unknown&state=completed",
        "/api/v1/keys?after=zz",
        "/api/v1/keys?principal=1",
        "/api/v1/keys?updated_from_ms=yesterday",
        "/api/v1/series?seconds=0",
        "/api/v1/series?seconds=3601",
        "/api/v1/audit?key=abc",
        "/api/v1/audit?source=everybody",
        "/api/v1/whoami?x",
        "/api/v1/overview?pretty=1",
        "/api/v1/config?secrets=1",
    ] {
        let answer = stage.get(path, READER).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        answer.assert_problem(400, "invalid_request");
    }
    let long = format!("/api/v1/keys?route={}", "x".repeat(256));
    let answer = stage.get(&long, READER).await;
    answer.assert_problem(400, "invalid_request");
}

/// Names and reasons come from outside. The answer is JSON, never a page, whatever is in them.
#[tokio::test]
async fn markup_is_data() {
    const MARKUP: &str = "</script><script>alert(1)</script>\"'\u{2028}";
    let stage = Stage::start().await;
    let guard = stage.engine.guard(MARKUP, b"shop", "a");
    let work = |_| async { onlyonce_engine::Finished::unknown(()) };
    guard.run(b"1", work).await.unwrap();
    let page = stage.get("/api/v1/keys", READER).await;
    assert_eq!(page.header("content-type"), "application/json");
    let key = page.json()["keys"][0].clone();
    assert_eq!(key["route"], MARKUP);
    let body = json!({
        "execution": key["execution"], "action": "completed", "reason": MARKUP,
        "response": { "status": 200, "headers": [["x-a", "<b>"]], "body": MARKUP },
    });
    let id = key["id"].as_str().unwrap();
    let path = format!("/api/v1/keys/{id}/resolve");
    stage.post(&path, CHANGER, &body).await.json();
    for path in [format!("/api/v1/keys/{id}"), "/api/v1/audit".into()] {
        let answer = stage.get(&path, READER).await;
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.json().to_string().contains("alert(1)"));
    }
    let wrong = stage.get("/api/v1/keys?%3Cscript%3E=1", READER).await;
    wrong.assert_problem(400, "invalid_request");
}
