//! The admin listener of the binary: who may, what they see, and what their changes do to clients.

use std::net::SocketAddr;

use http::Method;
use onlyonce_conformance::http_suite::Answer;
use serde_json::{Value, json};

use crate::kit::{Call, Setup, Stage, UNKNOWN, UNREACHABLE, binary, send_to, soon};

const ALICE: &str = "alice-token-0123456789";
const CAROL: &str = "carol-token-0123456789";

/// A request to the admin listener from this machine.
fn ask(method: Method, path: &str) -> Call {
    Call::new(method, path).header("host", "127.0.0.1:8081")
}

async fn get(admin: SocketAddr, path: &str) -> Answer {
    send_to(admin, &ask(Method::GET, path)).await
}

async fn get_as(admin: SocketAddr, path: &str, token: &str) -> Answer {
    let call = ask(Method::GET, path).header("authorization", &format!("Bearer {token}"));
    send_to(admin, &call).await
}

async fn post(admin: SocketAddr, path: &str, body: &Value) -> Answer {
    let call = ask(Method::POST, path)
        .header("content-type", "application/json")
        .body(body.to_string());
    send_to(admin, &call).await
}

/// The key of a payment, as operators find it.
async fn found(stage: &Stage, key: &str) -> Value {
    let query = json!({
        "key": key, "method": "POST", "path": "/payments", "caller": "Bearer alice",
    });
    let found = post(stage.gateway.admin, "/api/v1/keys/search", &query).await;
    assert_eq!(found.status.as_u16(), 200, "{found:?}");
    found.json()["keys"][0].clone()
}

/// A payment whose answer is lost, and its key.
async fn lost(stage: &Stage, key: &str) -> (Call, Value) {
    let call = Call::payment(key);
    let broken = call.clone().header("x-test-break", "panic");
    stage.send(&broken).await.assert_problem(502, UNKNOWN);
    let key = found(stage, key).await;
    assert_eq!(key["state"], "unknown", "{key}");
    (call, key)
}

async fn resolve(stage: &Stage, key: &Value, mut body: Value) -> Answer {
    body["execution"] = key["execution"].clone();
    let path = format!("/api/v1/keys/{}/resolve", key["id"].as_str().expect("text"));
    post(stage.gateway.admin, &path, &body).await
}

/// The journal is written beside the requests, so it comes a moment later.
async fn entries(stage: &Stage, key: &Value, count: usize) -> Vec<Value> {
    let path = format!("/api/v1/audit?key={}", key["id"].as_str().expect("text"));
    soon(async {
        loop {
            let page = get(stage.gateway.admin, &path).await.json();
            let entries = page["entries"].as_array().expect("entries").clone();
            if entries.len() >= count {
                return entries;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

/// On the loopback interface nobody needs a token; a page of another name gets nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_this_machine_may_read_and_change() {
    let stage = Stage::start().await;
    let admin = stage.gateway.admin;
    let who = get(admin, "/api/v1/whoami").await.json();
    assert_eq!(who["name"], "local");
    assert_eq!(who["rights"], json!(["read", "change"]));
    let elsewhere = Call::new(Method::GET, "/api/v1/whoami");
    let answer = send_to(admin, &elsewhere).await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.code()),
        (403, "forbidden")
    );
    for path in [
        "/",
        "/livez",
        "/readyz",
        "/metrics",
        "/api/openapi.json",
        "/api/v1/overview",
    ] {
        assert_eq!(get(admin, path).await.status.as_u16(), 200, "{path}");
    }
    let front = stage.send(&ask(Method::GET, "/api/v1/keys")).await;
    assert_eq!(
        front.header("x-execution").len(),
        1,
        "the upstream's, there"
    );
    stage.finish();
}

/// An admin listener that others reach and that asks nobody is refused, with what to change.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_admin_listener_needs_tokens() {
    let flags = [
        "serve",
        "--store",
        "memory:",
        "--upstream",
        "http://127.0.0.1:9",
    ];
    let output = binary(&[&flags[..], &["--admin", "0.0.0.0:0"]].concat()).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    for words in ["admin", "tokens_file", "127.0.0.1"] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    assert!(output.stdout.is_empty());
}

/// A token that leaked is taken back without a restart; a broken file changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_tokens_again() {
    let setup = Setup::to("http://127.0.0.1:9");
    let file = setup.file("tokens", format!("alice read {ALICE}\n"));
    let setup = setup.config(&format!("[operators]\ntokens_file = \"{file}\""));
    let gateway = setup.start().await;
    let status = async |token: &str| {
        let answer = get_as(gateway.admin, "/api/v1/whoami", token).await;
        answer.status.as_u16()
    };
    assert_eq!((status(ALICE).await, status(CAROL).await), (200, 401));
    let nobody = get(gateway.admin, "/api/v1/whoami").await;
    assert_eq!(nobody.status.as_u16(), 401);
    setup.file("tokens", "alice read short");
    gateway.signal("HUP").await;
    gateway.logged("operators' tokens not reloaded").await;
    assert_eq!((status(ALICE).await, status(CAROL).await), (200, 401));
    setup.file("tokens", format!("carol read,bodies {CAROL}\n"));
    gateway.signal("HUP").await;
    gateway.logged("operators' tokens reloaded").await;
    assert_eq!((status(ALICE).await, status(CAROL).await), (401, 200));
    let config = get_as(gateway.admin, "/api/v1/config", CAROL).await;
    let toml = config.json()["toml"].as_str().expect("text").to_owned();
    assert!(
        toml.contains("tokens_file") && !toml.contains(CAROL),
        "{toml}"
    );
    assert!(!gateway.log().contains(CAROL) && !gateway.log().contains(ALICE));
}

/// An answer that an operator gives is what the client's retry gets, from the binary's own socket,
/// and nothing is executed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_given_by_an_operator_and_replayed() {
    let mut stage = Stage::start().await;
    let (call, key) = lost(&stage, "k").await;
    let before = stage.total();
    let given = json!({ "action": "completed", "reason": "seen at the provider", "response": {
        "status": 202, "headers": [["x-charge", "ch_1"]], "body": "paid",
    }});
    let done = resolve(&stage, &key, given.clone()).await;
    assert_eq!(done.status.as_u16(), 200, "{done:?}");
    let retry = stage.send(&call).await;
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(
        (retry.status.as_u16(), &retry.body[..]),
        (202, &b"paid"[..])
    );
    assert_eq!(retry.header("x-charge"), "ch_1");
    assert_eq!(stage.total(), before);
    let again = resolve(&stage, &key, given).await;
    assert_eq!(
        (again.status.as_u16(), &*again.code()),
        (409, "not_allowed")
    );
    // Who did it is known also after a crash.
    entries(&stage, &key, 2).await;
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    stage.restart().await;
    let entries = entries(&stage, &key, 2).await;
    assert_eq!(entries[0]["who"], "operator:local");
    assert_eq!(entries[0]["outcome"], "settled");
    assert_eq!(entries[1]["action"], "unknown");
    let keys = get(stage.gateway.admin, "/api/v1/keys").await.json();
    assert_eq!(keys["keys"].as_array().expect("keys").len(), 1, "{keys}");
    stage.finish();
}

/// While it runs it is nobody's to decide: "it never arrived" would let a second one run beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_payment_cannot_be_released() {
    let stage = Stage::start().await;
    let call = Call::payment("k");
    let held = stage.hold(&call, "gate").await;
    let key = found(&stage, "k").await;
    assert_eq!(key["state"], "executing");
    for action in ["released", "forget", "ask_again", "completed"] {
        let early = resolve(&stage, &key, json!({ "action": action, "reason": "why" })).await;
        assert_eq!((early.status.as_u16(), &*early.code()), (409, "in_flight"));
    }
    stage.upstream.open("gate");
    let first = held.await.expect("a client").expect("an answer");
    first.assert_executed(201);
    stage.assert_replays(&call, &first).await;
    stage.finish();
}

/// Whoever balances load must hear it before the listener is gone.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_ends_when_draining_begins() {
    let mut stage = Stage::start().await;
    let running = stage.hold(&Call::payment("k"), "gate").await;
    let admin = stage.gateway.admin;
    assert_eq!(get(admin, "/readyz").await.status.as_u16(), 200);
    stage.gateway.signal("TERM").await;
    let drained = soon(async {
        loop {
            let answer = get(admin, "/readyz").await;
            if answer.status.as_u16() != 200 {
                return answer;
            }
        }
    })
    .await;
    let said = (drained.status.as_u16(), &drained.body[..]);
    assert_eq!(said, (503, &b"draining\n"[..]));
    assert_eq!(get(admin, "/livez").await.status.as_u16(), 200);
    stage.upstream.open("gate");
    let answer = running.await.expect("a client").expect("an answer");
    answer.assert_executed(201);
    assert_eq!(stage.gateway.ended().await.code(), Some(0));
    stage.finish();
}

/// An upstream that is gone is told of, and is no reason to send nobody here.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_gone_shows_in_the_overview() {
    let gateway = Setup::to("http://127.0.0.1:9").start().await;
    let overview = async || get(gateway.admin, "/api/v1/overview").await.json();
    let before = overview().await;
    assert_eq!(before["upstreams"][0]["healthy"], true, "not tried yet");
    let call = Call::payment("k");
    let answer = send_to(gateway.address, &call).await;
    answer.assert_problem(503, UNREACHABLE);
    let after = overview().await;
    assert_eq!(after["upstreams"][0]["url"], "http://127.0.0.1:9");
    assert_eq!(after["upstreams"][0]["healthy"], false);
    assert!(after["upstreams"][0]["error"].is_string(), "{after}");
    assert_eq!(after["store"]["name"], "embedded");
    assert_eq!(get(gateway.admin, "/readyz").await.status.as_u16(), 200);
}

/// The configuration is shown to whoever may read; a password in it is nobody's to see.
#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_shows_no_password() {
    let url = "postgres://app:hunter2@db.example/keys";
    let flags = [
        "serve",
        "--print-config",
        "--upstream",
        "http://127.0.0.1:9",
    ];
    let output = binary(&[&flags[..], &["--store", url]].concat()).await;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(printed.contains("db.example"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}
