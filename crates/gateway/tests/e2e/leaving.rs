//! Clients that leave, at every stage of their request.

use onlyonce_conformance::http_suite::same;

use crate::kit::{Call, Stage, Wire, until};

const BODY: &str = r#"{"amount":1200}"#;

fn head(key: &str, more: &str) -> String {
    format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\ncontent-type: application/json\r\n\
         authorization: Bearer alice\r\nidempotency-key: {key}\r\n{more}content-length: {}\r\n\r\n",
        BODY.len()
    )
}

/// How a client goes away: politely or not.
async fn leave(mut wire: Wire, politely: bool) {
    if politely {
        wire.finish().await;
        drop(wire);
    } else {
        wire.reset();
    }
}

/// Half a request is no request: it might lack a digit of the amount. The key is as if never
/// used, so even another payload may have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_its_request_is_whole_executes_nothing() {
    let stage = Stage::start().await;
    let request = format!("{}{BODY}", head("k", ""));
    let key_at = request.find("idempotency-key").expect("a key");
    for (number, cut) in (key_at..request.len()).step_by(7).enumerate() {
        let mut wire = Wire::connect(stage.address()).await;
        assert!(wire.send(&request.as_bytes()[..cut]).await);
        leave(wire, number % 2 == 0).await;
    }
    let other = Call::payment("k").body("{}");
    stage.settled(&other).await.assert_executed(201);
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// The request is whole and the client is gone before there is an answer. The charge must be
/// completed and kept all the same, or the retry finds an unknown outcome.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_the_answer_finds_it_on_its_retry() {
    let stage = Stage::start().await;
    for politely in [true, false] {
        let key = format!("left-{politely}");
        let mut wire = Wire::connect(stage.address()).await;
        let hold = format!("x-test-hold: {key}\r\n");
        assert!(wire.send(format!("{}{BODY}", head(&key, &hold))).await);
        stage.upstream.arrived(&key).await;
        leave(wire, politely).await;
        stage.upstream.open(&key);
        let call = Call::payment(&key);
        let retry = stage.settled(&call).await;
        assert!(retry.is_replay(), "lost completion: {retry:?}");
        assert_eq!(stage.effects(&call), 1);
    }
    stage.finish();
}

/// A client that sends everything and leaves at once: whatever the gateway was doing at that
/// moment, there is at most one effect and the retry settles.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_at_once_executes_at_most_once() {
    let stage = Stage::start().await;
    for number in 0..60 {
        let call = Call::payment(&format!("gone-{number}"));
        let mut wire = Wire::connect(stage.address()).await;
        assert!(
            wire.send(format!("{}{BODY}", head(&format!("gone-{number}"), "")))
                .await
        );
        leave(wire, number % 3 == 0).await;
        let retry = stage.settled(&call).await;
        assert_eq!(retry.status.as_u16(), 201, "{retry:?}");
        assert_eq!(stage.effects(&call), 1);
    }
    stage.finish();
}

/// A reset while the answer is on its way: the client has half a receipt, and must find the
/// whole of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_the_answer_finds_all_of_it_on_its_retry() {
    let stage = Stage::start().await;
    for read_bytes in [1, 20, 300, 100_000] {
        let key = format!("half-{read_bytes}");
        let call = Call::payment(&key).header("x-test-body-bytes", "1000000");
        let mut wire = Wire::connect(stage.address()).await;
        let large = "x-test-body-bytes: 1000000\r\n";
        assert!(wire.send(format!("{}{BODY}", head(&key, large))).await);
        wire.bytes(read_bytes).await.expect("a beginning");
        wire.reset();
        let retry = stage.settled(&call).await;
        assert!(retry.is_replay(), "lost completion: {:?}", retry.status);
        assert!(
            retry
                .body
                .iter()
                .copied()
                .eq((0..=u8::MAX).cycle().take(1_000_000))
        );
        same(&retry, &stage.send(&call).await);
        assert_eq!(stage.effects(&call), 1);
    }
    stage.finish();
}

/// A client that says it has nothing more to send still wants its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_its_half_gets_its_answer() {
    let stage = Stage::start().await;
    let mut wire = Wire::connect(stage.address()).await;
    let hold = "x-test-hold: gate\r\n";
    assert!(wire.send(format!("{}{BODY}", head("half", hold))).await);
    wire.finish().await;
    stage.upstream.arrived("gate").await;
    stage.upstream.open("gate");
    let answer = wire.message().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    until(|| (stage.total() == 1).then_some(())).await;
    stage.finish();
}
