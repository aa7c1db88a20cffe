//! What only one API does.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use onlyonce_core::{Policy, RouteName};
use onlyonce_engine::{Engine, EngineConfig};
use onlyonce_http::{
    Config, ForwardKey, IdempotencyLayer, KeyPlace, KeySource, Pattern, Profile, ReplayOlder,
    Route, Routes,
};
use onlyonce_store::MemoryStore;
use serde_json::Value;

use super::common::*;
use super::stage::{KEY, Stage, imf, request};

/// Stripe: the same key on another path is an error, not a new operation.
#[tokio::test]
async fn a_stripe_key_on_another_path_is_an_error() {
    let stage = Stage::new("stripe", 200).await;
    stage.ask(Some(KEY), 1).await;
    let mut other = stage.request(Some(KEY), 1);
    *other.uri_mut() = "/refunds".parse().unwrap();
    let answer = ask(&stage.router, other).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["type"], "idempotency_error");
    assert_eq!(answer.json()["error"]["differs"]["changed"][0], "path");
    assert_eq!(answer.header("stripe-should-retry"), "false");
    assert_eq!(stage.runs.count(), 1);
}

/// Stripe: a platform asks for many accounts with one credential, and the charge of one must not be
/// shown to another.
#[tokio::test]
async fn a_stripe_key_of_one_account_is_none_of_another() {
    for profile in ["stripe", "stripe-v2"] {
        for header in ["stripe-account", "stripe-context"] {
            let stage = Stage::new(profile, 200).await;
            let of = |account: &'static str| {
                let mut request = stage.request(Some(KEY), 1);
                let account = HeaderValue::from_static(account);
                request.headers_mut().insert(header, account);
                request
            };
            for account in ["acct_a", "acct_b"] {
                let first = ask(&stage.router, of(account)).await;
                assert_eq!(first.header("idempotent-replayed"), "", "{account}");
                let again = ask(&stage.router, of(account)).await;
                assert_eq!(again.header("idempotent-replayed"), "true", "{account}");
            }
            let platform = ask(&stage.router, stage.request(Some(KEY), 1)).await;
            assert_eq!(platform.header("idempotent-replayed"), "");
            assert_eq!(stage.runs.count(), 3);
        }
    }
}

/// A partner asks for many merchants.
#[tokio::test]
async fn a_paypal_key_for_another_merchant_is_refused() {
    let stage = Stage::new("paypal", 200).await;
    let of = |merchant: &'static str| {
        let mut request = stage.request(Some(KEY), 1);
        let merchant = HeaderValue::from_static(merchant);
        request
            .headers_mut()
            .insert("paypal-auth-assertion", merchant);
        request
    };
    ask(&stage.router, of("a")).await;
    let other = ask(&stage.router, of("b")).await;
    assert_eq!(other.status, 422);
    assert_eq!(stage.runs.count(), 1);
}

/// A replay has an id of its own, and names the first one.
#[tokio::test]
async fn stripe_answers_have_ids_and_name_the_original() {
    let stage = Stage::new("stripe", 200).await;
    let first = stage.ask(Some(KEY), 1).await;
    let id = first.header("request-id");
    assert!(id.starts_with("req_") && id.len() > 20, "{id}");
    assert_eq!(first.header("original-request"), id);
    assert_eq!(first.header("idempotency-key"), KEY);
    assert_eq!(first.header("idempotent-replayed"), "");
    let again = stage.ask(Some(KEY), 1).await;
    assert_eq!(again.header("original-request"), id);
    assert_ne!(again.header("request-id"), id);
    let refused = stage.ask(Some(KEY), 2).await;
    assert!(refused.header("request-id").starts_with("req_"));
}

/// What differs is named, never shown.
#[tokio::test]
async fn a_mismatch_names_fields_and_no_values() {
    let stage = Stage::new("square", 200).await;
    stage.ask(Some("k"), 111).await;
    let answer = stage.ask(Some("k"), 222).await;
    assert_eq!(answer.json()["errors"][0]["field"], "/amount");
    let body = String::from_utf8_lossy(&answer.body);
    assert!(!body.contains("111") && !body.contains("222"), "{body}");
}

/// With `gocardless` any reuse is refused with the id of what the first request made.
#[tokio::test]
async fn a_gocardless_reuse_names_the_resource() {
    let stage = Stage::new("gocardless", 201).await;
    stage.ask(Some(KEY), 1).await;
    for payload in [1, 2] {
        let answer = stage.ask(Some(KEY), payload).await;
        assert_eq!(answer.status, 409);
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&"invalid_state".into(), &409.into())
        );
        let reason = &error["errors"][0];
        assert_eq!(reason["reason"], "idempotent_creation_conflict");
        assert_eq!(reason["links"]["conflicting_resource_id"], "PM1");
    }
    assert_eq!(stage.runs.count(), 1);
}

/// Azure: 412 when first sent more than 5 minutes ago, 400 when the date is missing or malformed.
#[tokio::test]
async fn azure_asks_when_a_request_was_first_sent() {
    let stage = Stage::new("azure", 201).await;
    let sent = |date: &str| {
        with(
            stage.request(Some(KEY), 1),
            "repeatability-first-sent",
            date,
        )
    };
    for (request, status) in [
        (sent(&imf(310)), 412),
        (sent("yesterday"), 400),
        (without(sent("x"), "repeatability-first-sent"), 400),
    ] {
        let answer = ask(&stage.router, request).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("repeatability-result"), "rejected");
    }
    let not_a_guid = stage.ask(Some("order-42"), 1).await;
    assert_eq!(not_a_guid.status, 400);
    assert_eq!(stage.runs.count(), 0);
    let accepted = ask(&stage.router, sent(&imf(200))).await;
    assert_eq!(
        (accepted.status, accepted.header("repeatability-result")),
        (201, "accepted")
    );
}

/// AWS: every retry is signed anew. The operation is in a header, and counts.
#[tokio::test]
async fn an_aws_retry_with_a_new_signature_is_a_retry() {
    let stage = Stage::new("aws-dynamodb", 200).await;
    let signed = |signature: &str, target: &str| {
        let line = format!(
            "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/dynamodb/aws4_request, \
             SignedHeaders=host, Signature={signature}"
        );
        let request = with(stage.request(Some(KEY), 1), "authorization", &line);
        with(request, "x-amz-target", target)
    };
    let first = ask(
        &stage.router,
        signed("1", "DynamoDB_20120810.TransactWriteItems"),
    )
    .await;
    let again = ask(
        &stage.router,
        signed("2", "DynamoDB_20120810.TransactWriteItems"),
    )
    .await;
    assert_eq!(first.body, again.body);
    let other = ask(&stage.router, signed("3", "DynamoDB_20120810.PutItem")).await;
    assert_eq!(other.status, 400);
    assert_eq!(
        other.header("x-amzn-errortype"),
        "IdempotentParameterMismatchException"
    );
    assert_eq!(stage.runs.count(), 1);
}

/// Adyen's callers differ by their API key, not by `Authorization` alone.
#[tokio::test]
async fn adyen_callers_differ_by_their_api_key() {
    let stage = Stage::new("adyen", 200).await;
    for key in ["a", "b", "a"] {
        let request = without(stage.request(Some(KEY), 1), "authorization");
        let answer = ask(&stage.router, with(request, "x-api-key", key)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(stage.runs.count(), 2);
}

/// A key in two places is one key or a contradiction; a place that cannot be read is refused.
#[tokio::test]
async fn a_key_that_is_unclear_is_refused_with_a_reason() {
    let places = ["header:x-key", "json:/key", "query:key"];
    let sources = places.map(|place| KeySource::at(place.parse::<KeyPlace>().unwrap()));
    let change = |route: &mut Route| route.key.sources = sources.to_vec();
    let stage = Stage::with(Profile::preset("ietf").unwrap(), 201, change).await;
    let post = |header: Option<&str>, query: &str, body: &'static str| {
        let mut request = http::Request::post(format!("/payments{query}"));
        if let Some(key) = header {
            request = request.header("x-key", key);
        }
        request.body(axum::body::Body::from(body)).unwrap()
    };
    for (request, status, reason) in [
        (
            post(Some("a"), "", r#"{"key":"b"}"#),
            400,
            "name different keys",
        ),
        (post(Some("a"), "?key=b", ""), 400, "name different keys"),
        (post(None, "", "key=a"), 400, "cannot be read"),
        (post(None, "", r#"{"key":7}"#), 400, "is a number"),
        (
            post(None, "", r#"{"key":"a","key":"b"}"#),
            400,
            "repeats a member name",
        ),
        (post(None, "?key=a&key=a", ""), 400, "more than once"),
        (post(None, "", r#"{"key":""}"#), 400, "empty"),
        (
            post(None, "", r#"{"key":null}"#),
            400,
            "Send the header `x-key` or the JSON member",
        ),
        (post(None, "", ""), 400, "Send the header"),
    ] {
        let answer = ask(&stage.router, request).await;
        let body = String::from_utf8_lossy(&answer.body);
        assert!(
            answer.status == status && body.contains(reason),
            "{reason}: {body}"
        );
    }
    assert_eq!(stage.runs.count(), 0);
    let agreed = ask(
        &stage.router,
        post(Some("\"a\""), "?key=%61", r#"{"key":"a"}"#),
    )
    .await;
    assert_eq!(agreed.status, 201);
    let form = ask(&stage.router, post(Some("c"), "", "not JSON")).await;
    assert_eq!(form.status, 201, "the header has it");
}

/// A stored answer of an older shape is given again or refused; it is never executed again.
#[tokio::test]
async fn an_older_response_is_replayed_or_refused() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let on = async |schema: u32, older: ReplayOlder| {
        let config = config(|route| {
            route.policy = Policy::builder().response_schema(schema).build().unwrap();
            route.replay_older = older;
        });
        guard_with(
            store.clone(),
            EngineConfig::default(),
            runs.created(),
            config,
        )
        .await
    };
    ask(&on(1, ReplayOlder::Refuse).await, post("k"))
        .await
        .assert_is(201, "run 1");
    let same = ask(&on(1, ReplayOlder::Refuse).await, post("k")).await;
    same.assert_is(201, "run 1");
    let replayed = ask(&on(2, ReplayOlder::Replay).await, post("k")).await;
    replayed.assert_is(201, "run 1");
    let refused = ask(&on(2, ReplayOlder::Refuse).await, post("k")).await;
    refused.assert_problem(409, "idempotency_response_not_replayable");
    assert_eq!(refused.json()["reason"], "older_response_schema");
    assert_eq!(runs.count(), 1);
}

/// The service behind gets the key where and how it wants it, the same on every attempt.
#[tokio::test]
async fn a_key_is_forwarded_by_template() {
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let router = Router::new().fallback(move |headers: HeaderMap| {
        let noted = Arc::clone(&noted);
        async move {
            noted.lock().unwrap().push(headers);
            (StatusCode::SERVICE_UNAVAILABLE, "not now").into_response()
        }
    });
    let forward = ForwardKey::new(
        "stripe-idempotency".parse().unwrap(),
        "{key}:{child:charge}",
    );
    let config = config(|route| route.forward_key = Some(forward.unwrap()));
    let router = guard(router, config).await;
    ask(&router, post("k")).await;
    ask(&router, post("k")).await;
    let seen = seen.lock().unwrap();
    let sent: Vec<_> = seen
        .iter()
        .map(|headers| headers["stripe-idempotency"].clone())
        .collect();
    assert_eq!(sent.len(), 2, "503 releases");
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].to_str().unwrap().starts_with("k:") && sent[0].len() > 10);
    assert_eq!(
        seen[0]["idempotency-key"], "k",
        "the client's own goes on too"
    );
    let header = || "x-key".parse().unwrap();
    assert!(ForwardKey::new(header(), "constant").is_err());
    assert!(ForwardKey::new(header(), "{kye}").is_err());
}

/// One layer, two APIs: each route speaks its own dialect.
#[tokio::test]
async fn routes_speak_their_own_dialects() {
    let runs = Runs::default();
    let route = |path: &str, name: &str| {
        let pattern = Pattern::parse(path).unwrap();
        let route = Route::new(RouteName::new(path).unwrap(), [Method::POST], pattern);
        route.profile(&Profile::preset(name).unwrap()).unwrap()
    };
    let routes = vec![
        route("/v1/{*rest}", "stripe"),
        route("/v2/{*rest}", "square"),
    ];
    let config = Config {
        routes: Routes::new(routes),
        ..Config::default()
    };
    let engine = Engine::builder(MemoryStore::new()).policies(config.routes.policies());
    let layer = IdempotencyLayer::new(engine.open().await.unwrap(), config);
    let router = runs.created().layer(layer);
    let bare = |path: &str| {
        let mut request = request(&Profile::preset("ietf").unwrap(), None, 1);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let stripe: Value = ask(&router, bare("/v1/charges")).await.json();
    assert_eq!(stripe["error"]["code"], "idempotency_key_required");
    let square: Value = ask(&router, bare("/v2/payments")).await.json();
    assert_eq!(square["errors"][0]["code"], "idempotency_key_required");
    assert_eq!(runs.count(), 0);
}
