//! Requests in unusual forms: what reaches the upstream has one reading only, and the client's
//! connection holds no second request. What has two readings is refused: `framing.rs`.

use crate::kit::{Scripted, Seen, Setup, Stage, Wire};
use crate::lost::OK;

async fn answering(mut wire: Wire, seen: Seen) {
    while seen.request(&mut wire).await.is_some() {
        wire.send(OK).await;
    }
}

/// The same operation, spelt as a proxy spells it: one effect, and the upstream gets a path.
#[tokio::test(flavor = "multi_thread")]
async fn an_absolute_target_is_the_same_operation() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    for target in [
        "/payments",
        "http://api.test/payments",
        "http://evil.test/payments",
    ] {
        let mut wire = Wire::connect(gateway.address).await;
        wire.send(format!(
            "POST {target} HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{{}}"
        ))
        .await;
        let answer = wire.message().await.expect("an answer");
        assert_eq!(answer.status(), 201, "{target}");
        let replayed = answer.header("idempotency-replayed");
        assert_eq!(replayed == "true", target != "/payments", "{target}");
    }
    let seen = upstream.seen.all();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].start.starts_with("POST /payments "), "{seen:?}");
}

/// HTTP/1.0 has no chunks and closes: it is served, guarded, and answered in its own terms.
#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_is_guarded_too() {
    let stage = Stage::start().await;
    for replayed in ["", "true"] {
        let mut wire = Wire::connect(stage.address()).await;
        wire.send(
            "POST /payments HTTP/1.0\r\nhost: api.test\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{}",
        )
        .await;
        let answer = wire.message().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.header("idempotency-replayed"), replayed);
        assert!(wire.rest().await.is_empty());
    }
    assert_eq!(stage.total(), 1);
    stage.finish();
}

fn put(target: &str, body: &str) -> String {
    let length = body.len();
    format!("PUT {target} HTTP/1.1\r\nhost: api.test\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The body of a request that was answered before it was read is not the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_read_is_never_a_request() {
    let upstream = Scripted::start(|mut wire, _| async move {
        let head = wire.bytes(20).await.expect("a request");
        assert!(!String::from_utf8_lossy(&head).contains("smuggled"));
        wire.send("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
        wire.finish().await;
        wire.rest().await;
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let smuggled = put("/smuggled", "");
    let padding = "x".repeat(3_000_000 / 100);
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(put("/large", &format!("{padding}{smuggled}")))
        .await;
    let answer = wire.message().await.expect("an answer");
    assert_eq!(answer.status(), 413);
    // The connection may be closed or go on; what is on it is not a request from the body.
    wire.send(put("/next", "")).await;
    let rest = wire.rest_or_message().await;
    assert!(rest.is_none_or(|answer| answer.status() == 413));
}

/// Requests sent without waiting are answered in their order, each for itself.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_get_their_own_answers() {
    let stage = Stage::start().await;
    let one = |key: &str| {
        format!(
            "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: {key}\r\n\
             content-length: 2\r\n\r\n{{}}"
        )
    };
    let mut wire = Wire::connect(stage.address()).await;
    let keys = ["a", "b", "a", "c", "b"];
    wire.send(keys.map(one).concat()).await;
    for (number, key) in keys.iter().enumerate() {
        let answer = wire.message().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        assert!(
            answer.text().contains(&format!("\"key\":\"{key}\"")),
            "{answer:?}"
        );
        let replayed = answer.header("idempotency-replayed") == "true";
        assert_eq!(replayed, number == 2 || number == 4);
    }
    assert_eq!(stage.total(), 3);
    stage.finish();
}
