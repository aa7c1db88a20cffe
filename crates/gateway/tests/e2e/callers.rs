//! Who the caller is: one tenant's answer is never shown to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onlyonce_conformance::http_suite::{Upstream, serve};
use serde_json::json;

use crate::kit::{Call, Scripted, Setup, Stage, send_to};
use crate::lost::OK;

const REQUIRED: &str = "idempotency_principal_required";
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// The witness names callers by `Authorization`, whatever the gateway goes by.
fn call(header: &'static str, value: &str, witnessed: &str) -> Call {
    let call = Call::payment("k").header("authorization", witnessed);
    call.header(header, value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_header_names_the_caller() {
    let stage = Stage::with("[principal]\nsource = \"header:x-tenant\"").await;
    let tenant = |name: &str| call("x-tenant", name, "gateway");
    let first = stage.send(&tenant("a")).await;
    first.assert_executed(201);
    stage.assert_replays(&tenant("a"), &first).await;
    let elsewhere = call("x-tenant", "b", "other");
    stage.send(&elsewhere).await.assert_executed(201);
    let refused = stage.send(&Call::payment("k")).await;
    refused.assert_problem(401, REQUIRED);
    assert_eq!(stage.total(), 2);
    stage.finish();
}

fn token(subject: &str, lasts_seconds: i64, secret: &[u8], algorithm: Algorithm) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let expires = i64::try_from(now.as_secs()).expect("a date") + lasts_seconds;
    let claims = json!({ "sub": subject, "exp": expires });
    let key = EncodingKey::from_secret(secret);
    let token = encode(&Header::new(algorithm), &claims, &key).expect("a token");
    format!("Bearer {token}")
}

/// A refreshed token is the same caller; a forged, expired or unsigned one is nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_verified_claim_names_the_caller_and_survives_a_new_token() {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await);
    let secret = setup.file("secret", SECRET);
    let config = format!(
        "[principal]\nsource = \"jwt:sub\"\njwt_key_file = {secret:?}\njwt_algorithms = [\"HS256\"]"
    );
    let stage = Stage::of(upstream, setup.config(&config)).await;
    let with = |token: &str| Call::payment("k").header("authorization", token);
    let good = |subject: &str, lasts| token(subject, lasts, SECRET, Algorithm::HS256);
    let first = stage.send(&with(&good("alice", 3600))).await;
    first.assert_executed(201);
    let retry = send_to(stage.address(), &with(&good("alice", 7200))).await;
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(retry.body, first.body);
    stage
        .send(&with(&good("bob", 3600)))
        .await
        .assert_executed(201);
    let unsigned = "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6OTk5OTk5OTk5OX0.";
    for bad in [
        token(
            "alice",
            3600,
            b"another secret, just as long as it",
            Algorithm::HS256,
        ),
        token("alice", 3600, SECRET, Algorithm::HS512),
        good("alice", -3600),
        unsigned.to_owned(),
        "Bearer nonsense".to_owned(),
        "Basic YWxpY2U6".to_owned(),
    ] {
        let refused = stage.send(&with(&bad)).await;
        refused.assert_problem(401, REQUIRED);
    }
    let nobody = Call::payment("k").without("authorization");
    stage.send(&nobody).await.assert_problem(401, REQUIRED);
    assert_eq!(stage.total(), 2);
    stage.finish();
}

/// With "none" everybody is the same caller: that is what was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn without_principals_everybody_is_the_same_caller() {
    let stage = Stage::with("[principal]\nsource = \"none\"").await;
    let first = stage.send(&Call::payment("k")).await;
    first.assert_executed(201);
    let other = Call::payment("k").header("authorization", "Bearer bob");
    let retry = send_to(stage.address(), &other).await;
    assert!(retry.is_replay());
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// A credential can be revoked between a request and its retry. The stored receipt is then no
/// longer the caller's to see.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_credential_gets_no_replay() {
    let revoked = Arc::new(AtomicBool::new(false));
    let is_revoked = Arc::clone(&revoked);
    let upstream = Scripted::start(move |mut wire, seen| {
        let revoked = Arc::clone(&is_revoked);
        async move {
            while let Some(request) = seen.request(&mut wire).await {
                if request.start.starts_with("GET /auth ") {
                    assert_eq!(request.header("authorization"), "Bearer alice");
                    let refused = revoked.load(Ordering::SeqCst);
                    let status = if refused { "401 No" } else { "204 Yes" };
                    wire.send(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"))
                        .await;
                } else {
                    wire.send(OK).await;
                }
            }
        }
    })
    .await;
    let config = "[principal]\nauth_check = \"/auth\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let call = Call::payment("k");
    let first = send_to(gateway.address, &call).await;
    assert_eq!(first.status.as_u16(), 201);
    let retry = send_to(gateway.address, &call).await;
    assert!(retry.is_replay(), "{retry:?}");
    revoked.store(true, Ordering::SeqCst);
    let refused = send_to(gateway.address, &call).await;
    assert_eq!((refused.status.as_u16(), refused.body.len()), (401, 0));
    let seen = upstream.seen.all();
    let posts = seen.iter().filter(|seen| seen.start.starts_with("POST "));
    assert_eq!(posts.count(), 1);
}

/// Observing must change nothing for anybody: not even what would be refused is refused. What
/// enforcing would have done is in the log.
#[tokio::test(flavor = "multi_thread")]
async fn observing_lets_everything_pass_and_says_what_it_saw() {
    let stage = Stage::with("mode = \"observe\"").await;
    let call = Call::payment("k");
    for seen in ["observed=\"execute\"", "observed=\"replay\""] {
        stage.send(&call).await.assert_executed(201);
        // Noted after the answer, so that nobody waits for it.
        stage.gateway.logged(seen).await;
    }
    let mismatch = call.clone().body("{}");
    stage.send(&mismatch).await.assert_executed(201);
    let keyless = call.clone().without("idempotency-key");
    stage.send(&keyless).await.assert_executed(201);
    assert_eq!(stage.effects(&call), 3, "observed, not guarded");
    for seen in [
        "idempotency_key_reused_with_different_payload",
        "idempotency_key_required",
    ] {
        stage.gateway.logged(seen).await;
    }
}
