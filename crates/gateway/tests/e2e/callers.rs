//! Who the caller is: one tenant's answer is never shown to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onlyonce_conformance::http_suite::{Upstream, serve};
use serde_json::json;

use tokio::net::TcpStream;

use crate::http2;
use crate::kit::{Call, Gateway, Scripted, Setup, Stage, send_to, try_send_to, until};
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

/// Two APIs behind one gateway, told apart by their names alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_on_two_hosts_is_two_operations_where_the_host_counts() {
    let scope =
        "[[route]]\npath = \"/{*rest}\"\nscope = [\"principal\", \"method\", \"path\", \"host\"]";
    for (config, executed) in [("", 1), (scope, 2)] {
        let api = Scripted::start(|mut wire, seen| async move {
            while seen.request(&mut wire).await.is_some() {
                wire.send(OK).await;
            }
        })
        .await;
        let gateway = Setup::new(api.address).config(config).start().await;
        for host in ["a.example", "A.example:80", "b.example"] {
            let call = Call::payment("k").header("host", host);
            let answer = send_to(gateway.address, &call).await;
            assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
        }
        assert_eq!(api.seen.count("k"), executed, "{config}");
    }
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

/// Two numbers that are written differently may be one when they are read: one tenant would get
/// the other's answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_was_rounded_names_nobody() {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await);
    let secret = setup.file("secret", SECRET);
    let config = format!(
        "[principal]\nsource = \"jwt:tenant\"\njwt_key_file = {secret:?}\n\
         jwt_algorithms = [\"HS256\"]"
    );
    let stage = Stage::of(upstream, setup.config(&config)).await;
    let with = |tenant: &str| {
        // By hand: a library would round the number, too.
        let claims = format!("{{\"tenant\":{tenant},\"exp\":9999999999}}");
        let parts = ["{\"alg\":\"HS256\"}", &claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let (message, key) = (parts.join("."), EncodingKey::from_secret(SECRET));
        let signed = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
        let token = format!("Bearer {message}.{}", signed.expect("a signature"));
        Call::payment("k").header("authorization", &token)
    };
    for tenant in ["18446744073709551614", "18446744073709551615", "-7"] {
        stage.send(&with(tenant)).await.assert_executed(201);
    }
    for tenant in [
        "112233445566778899001",
        "112233445566778899002",
        "1.5",
        "1e3",
    ] {
        let refused = stage.send(&with(tenant)).await;
        refused.assert_problem(401, REQUIRED);
    }
    assert_eq!(stage.total(), 3);
    stage.finish();
}

fn key_set(secrets: &[(&str, &[u8])]) -> String {
    let keys = secrets.iter().map(|(kid, secret)| {
        let k = URL_SAFE_NO_PAD.encode(secret);
        json!({ "kty": "oct", "alg": "HS256", "kid": kid, "k": k })
    });
    json!({ "keys": keys.collect::<Vec<_>>() }).to_string()
}

fn signed(subject: &str, kid: &str, secret: &[u8]) -> String {
    let claims = json!({ "sub": subject, "exp": 9_999_999_999_u64 });
    let header = Header {
        kid: Some(kid.to_owned()),
        ..Header::new(Algorithm::HS256)
    };
    let token = encode(&header, &claims, &EncodingKey::from_secret(secret)).expect("a token");
    format!("Bearer {token}")
}

/// Issuers change their keys while gateways run. A new set is taken over on SIGHUP; one that cannot
/// be read changes nothing, and the log says why. The caller stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_keys_of_tokens_again() {
    const NEXT: &[u8] = b"fedcba9876543210fedcba9876543210";
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await);
    let file = setup.file("jwks.json", key_set(&[("old", SECRET)]));
    let config = format!(
        "[principal]\nsource = \"jwt:sub\"\njwks_file = {file:?}\njwt_algorithms = [\"HS256\"]"
    );
    let stage = Stage::of(upstream, setup.config(&config)).await;
    // The witness goes by `Authorization`, so retries are compared by hand.
    let with = |token: String| Call::payment("k").header("authorization", &token);
    let (old, next) = (
        with(signed("alice", "old", SECRET)),
        with(signed("alice", "next", NEXT)),
    );
    let first = send_to(stage.address(), &old).await;
    first.assert_executed(201);
    let unknown = send_to(stage.address(), &next).await;
    unknown.assert_problem(401, REQUIRED);

    stage.setup.file("jwks.json", "{\"keys\": [");
    stage.gateway.signal("HUP").await;
    stage.gateway.logged("keys of tokens not reloaded").await;
    stage.gateway.logged("no JSON Web Key Set").await;
    assert!(send_to(stage.address(), &old).await.is_replay());

    stage.setup.file("jwks.json", key_set(&[("next", NEXT)]));
    stage.gateway.signal("HUP").await;
    stage.gateway.logged("keys of tokens reloaded").await;
    let retry = send_to(stage.address(), &next).await;
    assert!(retry.is_replay(), "the same caller: {retry:?}");
    assert_eq!(retry.body, first.body);
    let revoked = send_to(stage.address(), &old).await;
    revoked.assert_problem(401, REQUIRED);
    assert_eq!(stage.total(), 1);
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
                    assert!(!request.header("x-request-id").is_empty());
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

/// An answer that is left unread ends its connection, or resets its stream: APIs count those.
#[tokio::test(flavor = "multi_thread")]
async fn questions_about_credentials_share_a_connection() {
    const REPLAYS: usize = 20;
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let upstream = Scripted::start(move |mut wire, seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            while seen.request(&mut wire).await.is_some() {
                wire.send(OK).await;
            }
        }
    })
    .await;
    let config = "[limits]\nworkers = 1\n[principal]\nauth_check = \"/auth\"\n\
                  [upstream]\npool_idle_timeout = \"10s\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let call = Call::payment("k");
    for number in 0..=REPLAYS {
        let answer = send_to(gateway.address, &call).await;
        assert_eq!(answer.is_replay(), number > 0, "{answer:?}");
    }
    // The next question may come before the end of the last answer was read.
    assert!(connections.load(Ordering::SeqCst) < REPLAYS / 2);
}

/// The question is a request of the gateway's own: it names a host also when the client spoke
/// HTTP/2, and it says where the client is, as any other request does.
#[tokio::test(flavor = "multi_thread")]
async fn the_question_about_a_credential_is_a_whole_request() {
    for (rule, expected) in [("preserve", "api.test"), ("rewrite", "127.0.0.1")] {
        let upstream = Scripted::start(|mut wire, seen| async move {
            while seen.request(&mut wire).await.is_some() {
                wire.send(OK).await;
            }
        })
        .await;
        let config = format!("[principal]\nauth_check = \"/auth\"\n[upstream]\nhost = \"{rule}\"");
        let gateway = Setup::new(upstream.address).config(&config).start().await;
        let stream = TcpStream::connect(gateway.address)
            .await
            .expect("connected");
        let client = http2::over(stream).await;
        // What the write wants to meet is no business of the question's.
        let call = Call::payment("k").header("if-match", "\"v7\"");
        for replayed in [false, true] {
            let answer = http2::ask(&client, &call).await;
            assert_eq!(
                (answer.status.as_u16(), answer.is_replay()),
                (201, replayed)
            );
        }
        let call = call.header("connection", "x-hop").header("x-hop", "1");
        let over_http_1 = send_to(gateway.address, &call).await;
        assert!(over_http_1.is_replay(), "{over_http_1:?}");
        let seen = upstream.seen.all();
        let questions: Vec<_> = seen
            .iter()
            .filter(|request| request.start.starts_with("GET /auth "))
            .collect();
        assert_eq!(questions.len(), 2);
        for question in questions {
            assert!(
                question.header("host").starts_with(expected),
                "{question:?}"
            );
            assert_eq!(question.header("x-forwarded-for"), "127.0.0.1");
            for name in ["x-hop", "if-match"] {
                assert!(question.lines(name).is_empty(), "{question:?}");
            }
        }
    }
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

/// Waits until a gateway has logged this so often, and no more.
async fn logged_times(gateway: &Gateway, text: &str, times: usize) {
    let count = || gateway.log().matches(text).count();
    until(|| Some(()).filter(|()| count() >= times)).await;
    assert_eq!(count(), times, "{text}");
}

const OBSERVED_LOST: &str = "observed=\"unknown\" reason=\"no_complete_answer\"";
const OBSERVED_LEFT: &str = "observed=\"unknown\" reason=\"caller_left\"";
const OBSERVED_RETRY: &str = "observed=\"refuse\" code=\"idempotency_outcome_unknown\"";

/// Whoever decides by what observing saw whether to enforce must see the lost answers. They are
/// nobody's work: nobody guards their keys, so nobody is asked, warned or waited for.
#[tokio::test(flavor = "multi_thread")]
async fn observing_says_what_nobody_would_know_and_troubles_nobody() {
    let stage = Stage::with("mode = \"observe\"").await;
    let call = Call::payment("lost");
    let lost = call.clone().header("x-test-break", "panic");
    stage
        .send(&lost)
        .await
        .assert_problem(502, "upstream_no_answer");
    logged_times(&stage.gateway, OBSERVED_LOST, 1).await;
    stage.send(&call).await.assert_executed(201);
    logged_times(&stage.gateway, OBSERVED_RETRY, 1).await;
    let left = Call::payment("left").header("x-test-hold", "gate");
    let client = http2::over(
        TcpStream::connect(stage.address())
            .await
            .expect("connected"),
    )
    .await;
    let leaving = tokio::spawn(async move { http2::ask(&client, &left).await });
    stage.upstream.arrived("gate").await;
    leaving.abort();
    logged_times(&stage.gateway, OBSERVED_LEFT, 1).await;
    stage.upstream.open("gate");
    let admin = stage.gateway.admin;
    let call = Call::new(Method::GET, "/metrics").header("host", &admin.to_string());
    let metrics = send_to(admin, &call).await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let labels = "route=\"default\",store=\"embedded\"";
    for line in [
        format!("api_idempotency_observed_total{{{labels},would=\"unknown\"}} 2"),
        format!("api_idempotency_reconcile_scheduled_total{{{labels}}} 0"),
        format!("api_idempotency_reserve_unknown_total{{{labels}}} 0"),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    let log = stage.gateway.log();
    assert!(!log.contains("outcome unknown"), "{log}");
}

/// An answer that is cut within its body was reported as if it were whole. It reaches its caller
/// as it came.
#[tokio::test(flavor = "multi_thread")]
async fn observing_takes_no_torn_answer_for_a_whole_one() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        while let Some(request) = seen.request(&mut wire).await {
            wire.send(match request.header("idempotency-key") {
                "length" => "HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\npaid",
                "chunks" => {
                    "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n4\r\npaid\r\n"
                }
                _ => OK,
            })
            .await;
            if request.header("idempotency-key") != "whole" {
                return;
            }
        }
    })
    .await;
    let config = "mode = \"observe\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    for (number, key) in (1..).zip(["length", "chunks"]) {
        for (word, times) in [(OBSERVED_LOST, number), (OBSERVED_RETRY, number)] {
            let torn = try_send_to(gateway.address, &Call::payment(key)).await;
            assert!(torn.is_err(), "{torn:?}");
            logged_times(&gateway, word, times).await;
        }
    }
    let whole = Call::payment("whole");
    for word in ["observed=\"execute\"", "observed=\"replay\""] {
        assert_eq!(send_to(gateway.address, &whole).await.status.as_u16(), 201);
        logged_times(&gateway, word, 1).await;
    }
}
