//! Clients that take their time: every wait has an end, and nothing runs on half a request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::kit::{Call, Scripted, Setup, Stage, Wire, send_to, soon, until};
use crate::lost::OK;

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
        let answer = wire.message().await.expect("an answer");
        assert_eq!(answer.status(), 408, "{framing}");
        assert!(answer.text().contains("idempotency_payload_incomplete"));
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

/// Nor for ever: with the connection goes its place, which others wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_loses_its_place() {
    let stage = Stage::with("[limits]\nconnections = 1\nanswer_timeout = \"300ms\"").await;
    let large = "GET /large HTTP/1.1\r\nhost: api.test\r\nx-test-body-bytes: 4000000\r\n\r\n";
    let mut silent = Wire::connect(stage.address()).await;
    silent.send(large.repeat(8)).await;
    let mut other = Wire::connect(stage.address()).await;
    other.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
    assert!(other.message().await.is_some());
    drop(silent);
    stage.finish();
}

async fn large_answer(
    stage: &Stage,
    window: u32,
) -> (
    impl Future<Output = Result<(), h2::Error>> + use<>,
    Response<h2::RecvStream>,
) {
    let stream = TcpStream::connect(stage.address()).await;
    let mut client = h2::client::Builder::new();
    let client = client.initial_window_size(window);
    let handshake = client.handshake::<_, Bytes>(stream.expect("connected"));
    let (mut sender, mut connection) = handshake.await.expect("HTTP/2");
    let request = Request::get("http://api.test/large").header("x-test-body-bytes", "400000");
    let request = request.body(()).expect("a request");
    let (mut answer, _) = sender.send_request(request, true).expect("sent");
    let head = poll_fn(|context| {
        // The connection moves only while it is looked at.
        let _ = Pin::new(&mut connection).poll(context);
        Pin::new(&mut answer).poll(context)
    });
    let head = soon(head).await.expect("an answer");
    (connection, head)
}

/// An HTTP/2 client can keep every answer in the gateway's memory by opening no window for it, or
/// hardly any, while its connection looks alive.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_an_http2_client_does_not_take_ends_its_connection() {
    let stage = Stage::with("[limits]\nanswer_timeout = \"300ms\"").await;
    for window in [0, 1, 65_535] {
        let (connection, answer) = large_answer(&stage, window).await;
        assert!(answer.status().is_success());
        let _ended = soon(connection).await;
        drop(answer);
    }
    stage.finish();
}

/// Slow is not stuck: what a client takes now and then, it gets to its end.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_client_that_takes_its_answer_slowly_gets_all_of_it() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let stage = Stage::with("[limits]\nanswer_timeout = \"3s\"").await;
    let (connection, answer) = large_answer(&stage, 65_535).await;
    tokio::spawn(connection);
    let (started, mut body, mut bytes) = (Instant::now(), answer.into_body(), 0);
    while let Some(piece) = soon(body.data()).await {
        let piece = piece.expect("a piece");
        bytes += piece.len();
        if started.elapsed() < TIMEOUT + TIMEOUT / 2 {
            tokio::time::sleep(TIMEOUT / 16).await;
        }
        let released = body.flow_control().release_capacity(piece.len());
        released.expect("a window");
    }
    assert_eq!(bytes, 400_000);
    assert!(started.elapsed() > TIMEOUT, "vacuous");
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

/// One HTTP/2 client may have hundreds of requests open, and each may take a connection to the API: all
/// file handles would go, and those of the store with them. Executions have a limit of their own.
#[tokio::test(flavor = "multi_thread")]
async fn what_merely_passes_has_a_limit() {
    let released = Arc::new(Notify::new());
    let held = Arc::clone(&released);
    let upstream = Scripted::start(move |mut wire, seen| {
        let held = Arc::clone(&held);
        async move {
            while let Some(request) = seen.request(&mut wire).await {
                if request.start.starts_with("GET /held ") {
                    held.notified().await;
                }
                wire.send(OK).await;
            }
        }
    })
    .await;
    let config = "[limits]\npassing = 2";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut held = Vec::new();
    for count in 1..=2 {
        let mut wire = Wire::connect(gateway.address).await;
        wire.send("GET /held HTTP/1.1\r\nhost: api.test\r\n\r\n")
            .await;
        until(|| (upstream.seen.all().len() == count).then_some(())).await;
        held.push(wire);
    }
    let get = Call::new(Method::GET, "/");
    let refused = send_to(gateway.address, &get).await;
    refused.assert_problem(503, "idempotency_overloaded");
    let paid = send_to(gateway.address, &Call::payment("k")).await;
    assert_eq!(paid.status.as_u16(), 201, "{paid:?}");
    released.notify_one();
    soon(async { while send_to(gateway.address, &get).await.status != 201 {} }).await;
}

/// Its answer has ended, and its connection to the API goes on for as long as the client likes.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_goes_on_after_its_answer_takes_its_room() {
    let closing = Arc::new(Notify::new());
    let closes = Arc::clone(&closing);
    let upstream = Scripted::start(move |mut wire, _| {
        let closes = Arc::clone(&closes);
        async move {
            wire.bytes(20).await;
            wire.send("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                .await;
            closes.notified().await;
        }
    })
    .await;
    let config = "[limits]\npassing = 1";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send("PUT / HTTP/1.1\r\nhost: api.test\r\ncontent-length: 2\r\n\r\nx")
        .await;
    assert_eq!(wire.message().await.expect("an answer").status(), 404);
    let get = Call::new(Method::GET, "/");
    let refused = send_to(gateway.address, &get).await;
    refused.assert_problem(503, "idempotency_overloaded");
    closing.notify_one();
    soon(async { while send_to(gateway.address, &get).await.status != 404 {} }).await;
}

/// The API has answered it and does not read on; nothing would ever end it.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_takes_does_not_outlive_its_client() {
    let upstream = Scripted::start(|mut wire, _| async move {
        wire.bytes(20).await;
        wire.send("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
            .await;
        std::future::pending::<()>().await;
    })
    .await;
    let config = "[limits]\npassing = 1\n[upstream]\nidle_timeout = \"300ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    let head = "PUT / HTTP/1.1\r\nhost: api.test\r\ncontent-length: 99000000\r\n\r\n";
    wire.send(head).await;
    let stuck = tokio::time::timeout(
        Duration::from_millis(500),
        wire.send(vec![b'x'; 32 * 1024 * 1024]),
    );
    assert!(stuck.await.is_err(), "the API reads");
    assert_eq!(wire.message().await.expect("an answer").status(), 413);
    drop(wire);
    let get = Call::new(Method::GET, "/");
    soon(async { while send_to(gateway.address, &get).await.status != 413 {} }).await;
}

/// A shell commonly allows 1,024 file handles. Clients could take them all, and the store would have
/// none for its next file.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_file_handles_are_asked_for_as_the_limits_need() {
    const FEW: &str = "ulimit -Sn 256; exec \"$0\" \"$@\"";
    let upstream = Scripted::start(|_, _| async {}).await;
    let setup = Setup::new(upstream.address)
        .config("[limits]\nconnections = 500\nexecutions = 300\npassing = 200");
    let gateway = setup.under(&["sh", "-c", FEW]).start().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid()));
    let limits = limits.expect("Linux");
    let mut lines = limits.lines();
    let handles = lines.find(|line| line.starts_with("Max open files"));
    let columns: Vec<_> = handles.expect("a limit").split_whitespace().collect();
    let [soft, hard] = [3, 4].map(|at| columns[at].parse::<u64>().unwrap_or(u64::MAX));
    assert_eq!(soft, hard.min(2024), "{columns:?}");
}

/// A body that trickles keeps every pause short and never ends. Its whole time is limited: nothing
/// is executed, and the key is as if never used.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_for_ever_is_given_up_and_frees_the_key() {
    let stage = Stage::with("[limits]\nbody_total_timeout = \"600ms\"").await;
    for framing in ["content-length: 100000", "transfer-encoding: chunked"] {
        let mut wire = Wire::connect(stage.address()).await;
        wire.send(format!(
            "POST /payments HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer alice\r\n\
             idempotency-key: k\r\n{framing}\r\n\r\n"
        ))
        .await;
        let (started, mut answer) = (Instant::now(), None);
        while answer.is_none() {
            assert!(started.elapsed() < CLOSED_WITHIN, "{framing}: still read");
            wire.send("1\r\nx\r\n").await;
            answer = wire.message_within(Duration::from_millis(30)).await;
        }
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 408, "{framing}");
        assert!(answer.text().contains("idempotency_payload_incomplete"));
        wire.rest().await;
    }
    assert_eq!(stage.total(), 0);
    // No row: another payload would be refused under a key that was used.
    let other = Call::payment("k").body("{}");
    stage.send(&other).await.assert_executed(201);
    stage.finish();
}

/// A client keeps its connection for the next request. The limit on heads is none on the silence
/// before them.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_outlives_the_limit_of_a_head() {
    let stage = Stage::with(IMPATIENT).await;
    let mut wire = Wire::connect(stage.address()).await;
    for _ in 0..3 {
        wire.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
        assert!(wire.message().await.is_some(), "closed while idle");
        // Three times the limit of a head, far below that of an idle connection.
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    stage.finish();
}

/// It does not outlive its own limit, or idle connections would be all there are.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_in_the_end() {
    let stage = Stage::with("[limits]\nidle_timeout = \"400ms\"").await;
    let mut wire = Wire::connect(stage.address()).await;
    for _ in 0..2 {
        wire.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
        assert!(wire.message().await.is_some());
    }
    let started = Instant::now();
    assert!(wire.rest().await.is_empty());
    assert!(started.elapsed() < CLOSED_WITHIN, "still open");
    // Empty lines are no request.
    let mut wire = Wire::connect(stage.address()).await;
    wire.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
    assert!(wire.message().await.is_some());
    let started = Instant::now();
    while wire.send("\r\n").await {
        assert!(started.elapsed() < CLOSED_WITHIN, "still open");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    stage.finish();
}

/// A later head is under the same limit as the first one: all at once, or dripping.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_head_that_does_not_come_closes_the_connection() {
    let stage = Stage::with(IMPATIENT).await;
    for drip in ["", "x: 1\r\n"] {
        let mut wire = Wire::connect(stage.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
        assert!(wire.message().await.is_some());
        let started = Instant::now();
        wire.send("GET / HTTP/1.1\r\n").await;
        while !drip.is_empty() && wire.send(drip).await {
            assert!(started.elapsed() < CLOSED_WITHIN, "still open");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        assert!(wire.rest().await.is_empty());
        assert!(started.elapsed() < CLOSED_WITHIN, "{drip:?}");
    }
    stage.finish();
}

/// A request at work is not idle, however long it takes, and whatever its client sends meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_work_is_not_idle() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        while seen.request(&mut wire).await.is_some() {
            tokio::time::sleep(Duration::from_millis(900)).await;
            wire.send(OK).await;
        }
    })
    .await;
    let config = "[limits]\nidle_timeout = \"200ms\"\nheader_timeout = \"300ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    let (first, second) = (
        "GET / HTTP/1.1\r\nhost: api.test\r\n\r\nGE",
        "T / HTTP/1.1\r\nhost: api.test\r\n\r\n",
    );
    wire.send(first).await;
    until(|| (!upstream.seen.all().is_empty()).then_some(())).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
    wire.send(second).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
}
