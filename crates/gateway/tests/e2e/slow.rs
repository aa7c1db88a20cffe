//! Clients that take their time: every wait has an end, and nothing runs on half a request.

use std::time::{Duration, Instant};

use crate::kit::{Call, Stage, Wire};

const IMPATIENT: &str = "[limits]\nheader_timeout = \"300ms\"\nbody_timeout = \"300ms\"";

/// Far more than the timeout, far less than the defaults.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// Ten thousand connections that say nothing would otherwise be all there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_come_closes_the_connection() {
    let stage = Stage::with(IMPATIENT).await;
    for beginning in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /payments",
        "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\n",
    ] {
        let started = Instant::now();
        let mut wire = Wire::connect(stage.address()).await;
        wire.send(beginning).await;
        wire.rest().await;
        let took = started.elapsed();
        assert!(took < CLOSED_WITHIN, "{beginning:?} held it for {took:?}");
    }
    assert_eq!(stage.total(), 0);
    stage.finish();
}

/// A drip of header bytes is no progress: the limit is on the whole head.
#[tokio::test(flavor = "multi_thread")]
async fn a_dripping_head_closes_the_connection() {
    let stage = Stage::with(IMPATIENT).await;
    let started = Instant::now();
    let mut wire = Wire::connect(stage.address()).await;
    wire.send("GET / HTTP/1.1\r\n").await;
    while wire.send("x: 1\r\n").await {
        assert!(started.elapsed() < CLOSED_WITHIN, "still open");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    stage.finish();
}

/// Half a body, then silence: nothing is executed, and the key is as if never used.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_given_up_and_frees_the_key() {
    let stage = Stage::with(IMPATIENT).await;
    for framing in ["content-length: 100", "transfer-encoding: chunked"] {
        let started = Instant::now();
        let mut wire = Wire::connect(stage.address()).await;
        wire.send(format!(
            "POST /payments HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer alice\r\n\
             idempotency-key: k\r\n{framing}\r\n\r\n5\r\n{{\"a\":"
        ))
        .await;
        let status = wire.message().await.map_or(0, |answer| answer.status());
        assert!([0, 400, 408].contains(&status), "{status}");
        wire.rest().await;
        assert!(started.elapsed() < CLOSED_WITHIN, "{framing}");
    }
    assert_eq!(stage.total(), 0);
    stage.send(&Call::payment("k")).await.assert_executed(201);
    stage.finish();
}

/// A slow upload that keeps coming is served: slow is not silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_that_keeps_coming_is_served() {
    let stage = Stage::with(IMPATIENT).await;
    let mut wire = Wire::connect(stage.address()).await;
    wire.send(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\n",
    )
    .await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(wire.send("x").await);
    }
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// A client that does not read its answer holds its own connection, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let stage = Stage::start().await;
    let mut silent = Vec::new();
    for number in 0..8 {
        let mut wire = Wire::connect(stage.address()).await;
        wire.send(format!(
            "GET /large HTTP/1.1\r\nhost: api.test\r\nx-test-body-bytes: 4000000\r\nx-n: {number}\r\n\r\n"
        ))
        .await;
        silent.push(wire);
    }
    let call = Call::payment("k");
    let first = stage.send(&call).await;
    first.assert_executed(201);
    stage.assert_replays(&call, &first).await;
    drop(silent);
    stage.finish();
}

/// At the limit of connections others wait for a place; when one is free they are served.
#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let stage = Stage::with("[limits]\nconnections = 4").await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::connect(stage.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
        assert!(wire.message().await.is_some());
        held.push(wire);
    }
    let mut fifth = Wire::connect(stage.address()).await;
    fifth.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
    let waited = tokio::time::timeout(Duration::from_millis(100), fifth.message()).await;
    assert!(waited.is_err(), "served beyond the limit");
    drop(held);
    assert!(fifth.message().await.is_some());
    stage.finish();
}
