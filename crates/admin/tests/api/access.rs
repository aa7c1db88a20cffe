//! Who may: every address, for everybody.

use axum::body::Body;
use axum::http::Request;

use crate::document::{filled, operations};
use crate::kit::{CHANGER, READER, Stage, WRONG, request};
use crate::schema::document;

/// The status of a request with nothing in it, by who asks: nobody, somebody with a wrong token,
/// somebody who may read, somebody who may change. A body that is missing is a 400, which comes
/// after the question of who it is.
#[tokio::test]
async fn every_address_asks_who_it_is() {
    let (stage, document) = (Stage::start().await, document());
    let mut asked = 0;
    for (path, method, what) in operations(&document) {
        let path = filled(&path);
        let is_public = what["security"].as_array().is_some_and(Vec::is_empty);
        let changes = path.ends_with("/resolve");
        for token in [None, Some(WRONG), Some(""), Some(READER), Some(CHANGER)] {
            let answer = stage.ask(request(&method, &path, token, None)).await;
            let is_known = token == Some(READER) || token == Some(CHANGER);
            match (is_public, is_known, changes && token == Some(READER)) {
                (true, _, _) => assert_eq!(answer.status, 200, "{method} {path}"),
                (false, false, _) => {
                    answer.assert_problem(401, "unauthorized");
                    let scheme = answer.header("www-authenticate");
                    assert!(scheme.starts_with("Bearer"), "{scheme}");
                }
                (false, true, true) => answer.assert_problem(403, "forbidden"),
                (false, true, false) => {
                    let expected = match method.as_str() {
                        "POST" => 400,
                        _ if path.contains("abab") => 404,
                        _ => 200,
                    };
                    assert_eq!(answer.status, expected, "{method} {path}");
                }
            }
            asked += 1;
        }
    }
    assert_eq!(asked, 16 * 5);
}

/// Who does not say who they are learns nothing, not even which addresses there are.
#[tokio::test]
async fn unknown_methods_and_addresses_ask_too() {
    let stage = Stage::start().await;
    for path in ["/api/v1/keys", "/metrics", "/nowhere", "/api/v2/keys"] {
        for method in ["PUT", "DELETE", "PATCH", "BREW"] {
            let nobody = stage.ask(request(method, path, None, None)).await;
            nobody.assert_problem(401, "unauthorized");
            let wrong = stage.ask(request(method, path, Some(WRONG), None)).await;
            wrong.assert_problem(401, "unauthorized");
            let known = stage.ask(request(method, path, Some(CHANGER), None)).await;
            if path == "/api/v1/keys" || path == "/metrics" {
                known.assert_problem(405, "method_not_allowed");
            } else {
                known.assert_problem(404, "not_found");
            }
        }
    }
}

/// A token in another place, of another scheme, or twice, is no token; and none is repeated.
#[tokio::test]
async fn only_one_bearer_token_counts_and_it_is_never_shown() {
    let stage = Stage::start().await;
    let path = "/api/v1/whoami";
    for value in [
        format!("Basic {CHANGER}"),
        format!("Bearer{CHANGER}"),
        CHANGER.to_owned(),
        format!("Bearer {CHANGER}x"),
        format!("Bearer {CHANGER} {CHANGER}"),
    ] {
        let mut asked = request("GET", path, None, None);
        let headers = asked.headers_mut();
        headers.insert("authorization", value.parse().unwrap());
        let answer = stage.ask(asked).await;
        answer.assert_problem(401, "unauthorized");
        assert!(!answer.text().contains(CHANGER));
    }
    let mut twice = request("GET", path, Some(CHANGER), None);
    let same = format!("Bearer {CHANGER}").parse().unwrap();
    twice.headers_mut().append("authorization", same);
    stage.ask(twice).await.assert_problem(401, "unauthorized");
    let in_query = format!("{path}?token={CHANGER}");
    let answer = stage.ask(request("GET", &in_query, None, None)).await;
    answer.assert_problem(401, "unauthorized");
    let counted = stage.get("/api/v1/overview", READER).await.json();
    assert_eq!(counted["admin"]["refused_callers"], 7);
}

#[tokio::test]
async fn tokens_are_replaced_at_once_and_stay_when_the_new_ones_are_wrong() {
    let stage = Stage::start().await;
    assert_eq!(
        stage.get("/api/v1/whoami", CHANGER).await.json()["name"],
        "alice"
    );
    assert!(stage.operators.replace("alice read short").is_err());
    assert_eq!(stage.get("/api/v1/whoami", CHANGER).await.status, 200);
    let renewed = "carol read another-token-0123456789";
    stage.operators.replace(renewed).unwrap();
    stage
        .get("/api/v1/whoami", CHANGER)
        .await
        .assert_problem(401, "unauthorized");
    let carol = stage
        .get("/api/v1/whoami", "another-token-0123456789")
        .await;
    assert_eq!(carol.json()["name"], "carol");
}

fn from(host: Option<&str>, origin: Option<&str>, method: &str, path: &str) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some(host) = host {
        builder = builder.header("host", host);
    }
    if let Some(origin) = origin {
        builder = builder.header("origin", origin);
    }
    builder
        .header("content-type", "application/json")
        .body(Body::from("{}"))
        .unwrap()
}

/// A page whose name was pointed at this machine sends its own name as the host.
#[tokio::test]
async fn without_tokens_only_this_machine_may_ask() {
    let stage = Stage::local().await;
    for (host, status) in [
        (Some("127.0.0.1:8081"), 200),
        (Some("localhost:8081"), 200),
        (Some("[::1]:8081"), 200),
        (Some("evil.example:8081"), 403),
        (Some("127.0.0.1.evil.example"), 403),
        (Some("10.0.0.1:8081"), 403),
        (None, 403),
    ] {
        for path in ["/api/v1/overview", "/api/v1/keys", "/metrics"] {
            let answer = stage.ask(from(host, None, "GET", path)).await;
            assert_eq!(answer.status, status, "{host:?} {path}");
        }
        let open = stage.ask(from(host, None, "GET", "/livez")).await;
        assert_eq!(open.status, 200, "{host:?}");
    }
    let who = stage
        .ask(from(Some("localhost"), None, "GET", "/api/v1/whoami"))
        .await
        .json();
    assert_eq!(who["name"], "local");
    assert_eq!(who["rights"], serde_json::json!(["read", "change"]));
}

/// A page of another site can make a browser send a request here, without seeing the answer.
#[tokio::test]
async fn without_tokens_a_foreign_page_changes_nothing() {
    let stage = Stage::local().await;
    let path = format!("/api/v1/keys/{}/resolve", "ab".repeat(32));
    let host = Some("localhost:8081");
    for (origin, is_foreign) in [
        (None, false),
        (Some("http://localhost:8081"), false),
        (Some("http://evil.example"), true),
        (Some("http://localhost:9999"), true),
        (Some("null"), true),
    ] {
        let answer = stage.ask(from(host, origin, "POST", &path)).await;
        if is_foreign {
            answer.assert_problem(403, "forbidden");
        } else {
            answer.assert_problem(400, "invalid_request");
        }
    }
    let mut form = from(host, None, "POST", &path);
    let plain = "text/plain;application/json".parse().unwrap();
    form.headers_mut().insert("content-type", plain);
    let answer = stage.ask(form).await;
    answer.assert_problem(400, "invalid_request");
}

/// Nor does it make the gateway read its store for it, over and over, by a picture or a script that
/// is loaded from here.
#[tokio::test]
async fn without_tokens_a_foreign_page_reads_nothing() {
    let stage = Stage::local().await;
    let host = Some("localhost:8081");
    for (name, value, is_foreign) in [
        ("sec-fetch-site", "same-origin", false),
        ("sec-fetch-site", "none", false),
        ("sec-fetch-site", "cross-site", true),
        ("sec-fetch-site", "same-site", true),
        ("sec-fetch-site", "none, cross-site", true),
        ("origin", "http://localhost:8081", false),
        ("origin", "http://evil.example", true),
        ("origin", "null", true),
    ] {
        for path in ["/api/v1/keys?limit=500", "/metrics"] {
            let mut asked = from(host, None, "GET", path);
            asked.headers_mut().insert(name, value.parse().unwrap());
            let answer = stage.ask(asked).await;
            if is_foreign {
                answer.assert_problem(403, "forbidden");
            } else {
                assert_eq!(answer.status, 200, "{name}: {value}, {path}");
            }
        }
    }
}

/// Also on refusals: a page that frames the dashboard, or reads an answer as a script, gets
/// nowhere.
#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_it() {
    let stage = Stage::start().await;
    for (path, token) in [
        ("/", None),
        ("/assets/none.js", None),
        ("/livez", None),
        ("/api/v1/keys", None),
        ("/api/v1/keys", Some(READER)),
        ("/nowhere", Some(READER)),
    ] {
        let answer = stage.ask(request("GET", path, token, None)).await;
        let policy = answer.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        let kept = if path == "/" { "no-cache" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), kept, "{path}");
    }
}
