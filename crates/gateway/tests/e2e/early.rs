//! Answers before their time: final ones before the request was read, and interim ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::kit::{Call, Gateway, Scripted, Setup, Stage, UNKNOWN, Wire, send_to, soon};
use crate::lost::OK;

const BODY: &str = r#"{"amount":1200}"#;

/// More than the socket buffers on both sides hold, so that the upstream's answer comes while
/// most of the request is unsent.
const LARGE_BYTES: usize = 12 * 1024 * 1024;

/// An upstream that turns a request away by its head, as servers do with large bodies. It is a
/// refusal, so the key is free; nothing was executed, and nothing is asked for again by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_refusal_is_passed_on_and_frees_the_key() {
    let upstream = Scripted::start(|mut wire, _| async move {
        wire.bytes(200).await;
        wire.send("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbig!")
            .await;
        wire.finish().await;
        wire.rest().await;
    })
    .await;
    let config = "[limits]\nrequest_body = \"16MiB\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let call = Call::payment("large").body(vec![b'x'; LARGE_BYTES]);
    let answer = send_to(gateway.address, &call).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..]),
        (413, &b"big!"[..])
    );
    let another = Call::payment("large").body("{}");
    let answer = send_to(gateway.address, &another).await;
    assert_eq!(answer.status.as_u16(), 413, "as if never used: {answer:?}");
}

/// The key is free then, and the rest of the request must not follow: the retry would be another one
/// beside it. So its caller hears of it when nothing more is sent, which is when all of it was read.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_early_is_not_sent_to_its_end() {
    let (tell, mut told) = tokio::sync::mpsc::channel(2);
    let going_on = Arc::new(Notify::new());
    let goes_on = Arc::clone(&going_on);
    let upstream = Scripted::start(move |mut wire, _| {
        let (tell, goes_on) = (tell.clone(), Arc::clone(&goes_on));
        async move {
            wire.bytes(200).await;
            wire.send("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nn")
                .await;
            let _ = tell.send(0).await;
            goes_on.notified().await;
            wire.send("o").await;
            goes_on.notified().await;
            let rest = wire.rest().await.len();
            let _ = tell.send(rest).await;
        }
    })
    .await;
    let config = "[limits]\nrequest_body = \"16MiB\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: large\r\n\
         content-length: {LARGE_BYTES}\r\n\r\n{}",
        "x".repeat(LARGE_BYTES)
    ))
    .await;
    assert_eq!(soon(told.recv()).await, Some(0));
    let early = wire.message_within(Duration::from_millis(300)).await;
    assert!(early.is_none(), "the key is free, and more may be sent");
    going_on.notify_one();
    assert_eq!(wire.message().await.expect("an answer").status(), 403);
    going_on.notify_one();
    let rest = soon(told.recv()).await.expect("the rest");
    assert!(rest < LARGE_BYTES, "all of it came");
}

/// An upstream that says yes before it has read a request, and a gateway in front of it.
async fn too_soon() -> (Scripted, Gateway) {
    let upstream = Scripted::start(|mut wire, _| async move {
        wire.bytes(200).await;
        wire.send(OK).await;
        // Reads nothing more, and does not close: the rest of the request is stuck. So is the
        // gateway's close behind it; the connection is held until the test ends.
        std::future::pending::<()>().await;
    })
    .await;
    let config = "[limits]\nrequest_body = \"16MiB\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    (upstream, gateway)
}

/// A success that comes before the request was read cannot be about this request. It must not be
/// given again as if the charge had been made, and the charge must not be tried again either.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_success_is_not_trusted() {
    let (_upstream, gateway) = too_soon().await;
    let call = Call::payment("large").body(vec![b'x'; LARGE_BYTES]);
    send_to(gateway.address, &call)
        .await
        .assert_problem(502, UNKNOWN);
    send_to(gateway.address, &call)
        .await
        .assert_problem(409, UNKNOWN);
}

/// The same where trailers follow: their request has no length that is told beforehand.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_success_is_not_trusted_before_the_trailers_either() {
    let (_upstream, gateway) = too_soon().await;
    let mut wire = Wire::connect(gateway.address).await;
    let large = "x".repeat(LARGE_BYTES);
    wire.send(format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: large\r\n\
         trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
         {LARGE_BYTES:x}\r\n{large}\r\n0\r\nx-sum: 1\r\n\r\n"
    ))
    .await;
    assert_eq!(wire.message().await.expect("an answer").status(), 502);
}

fn head(key: &str, more: &str) -> String {
    format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\ncontent-type: application/json\r\n\
         authorization: Bearer alice\r\nidempotency-key: {key}\r\n{more}content-length: {}\r\n\r\n",
        BODY.len()
    )
}

/// A client that asks before it sends is told to go on, and its request runs once.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_gets_it_and_then_its_answer() {
    let stage = Stage::start().await;
    let mut wire = Wire::connect(stage.address()).await;
    wire.send(head("k", "expect: 100-continue\r\n")).await;
    assert_eq!(wire.message().await.expect("100").status(), 100);
    assert_eq!(stage.total(), 0, "nothing runs before the body is there");
    wire.send(BODY).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// Whoever would be refused anyway is told so before the body is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_100_is_refused_without_it() {
    let stage = Stage::start().await;
    let mut wire = Wire::connect(stage.address()).await;
    wire.send(head("\"", "expect: 100-continue\r\n")).await;
    assert_eq!(wire.message().await.expect("a refusal").status(), 400);
    assert_eq!(stage.total(), 0);
    stage.finish();
}

/// Interim answers of the upstream are not the answer.
#[tokio::test(flavor = "multi_thread")]
async fn interim_answers_of_the_upstream_are_not_the_answer() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        if seen.request(&mut wire).await.is_some() {
            wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            wire.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n")
                .await;
            wire.send(OK).await;
        }
        wire.rest().await;
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let call = Call::payment("k").header("expect", "100-continue");
    for replayed in [false, true] {
        let answer = send_to(gateway.address, &call).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (201, &b"paid"[..])
        );
        assert_eq!(answer.is_replay(), replayed);
    }
    assert_eq!(upstream.seen.count("k"), 1);
}

/// Interim answers and then nothing: somebody was at work.
#[tokio::test(flavor = "multi_thread")]
async fn interim_answers_and_then_nothing_are_unknown() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        if seen.request(&mut wire).await.is_some() {
            wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            wire.finish().await;
            wire.rest().await;
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let call = Call::payment("k");
    send_to(gateway.address, &call)
        .await
        .assert_problem(502, UNKNOWN);
    send_to(gateway.address, &call)
        .await
        .assert_problem(409, UNKNOWN);
    assert_eq!(upstream.seen.count("k"), 1);
}
