//! Requests with two readings: each is answered with 400, its connection is closed, and nothing of
//! it reaches the upstream.

use crate::kit::{Call, Scripted, Seen, Setup, Wire, send_to};
use crate::lost::OK;

const GET: &str = "GET /decent HTTP/1.1\r\nhost: api.test\r\n\r\n";
const SMUGGLED: &str = "PUT /smuggled HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";

/// Lines of a head that leave its body, or its own end, open to two readings.
pub(crate) const AMBIGUOUS: [&str; 24] = [
    "content-length: 5\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    "content-length: 5\r\ncontent-length: 6\r\n",
    "content-length: 5\r\ncontent-length: 5\r\n",
    "content-length: 5, 5\r\n",
    "content-length: +5\r\n",
    "content-length: 0x5\r\n",
    "content-length:\r\n",
    "content-length : 5\r\n",
    "content-length\t: 5\r\n",
    "transfer-encoding: chunked, identity\r\n",
    "transfer-encoding: identity, chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: xchunked\r\n",
    "transfer-encoding : chunked\r\n",
    "transfer-encoding: \x0bchunked\r\n",
    "x-folded: a\r\n transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "x-bare: a\ncontent-length: 5\r\n",
    "x-bare: a\rcontent-length: 5\r\n",
    "x-nul: a\0b\r\ncontent-length: 5\r\n",
    "content-length: 5\n",
    "\ncontent-length: 5\r\n",
];

/// A request with these lines, a body for each reading of it, and another request behind it.
pub(crate) fn ambiguous(first_line: &str, lines: &str, number: usize) -> String {
    format!(
        "{first_line}\r\nhost: api.test\r\nidempotency-key: k{number}\r\n{lines}\r\n\
         0\r\n\r\n{SMUGGLED}"
    )
}

async fn answering(mut wire: Wire, seen: Seen) {
    while seen.request(&mut wire).await.is_some() {
        wire.send(OK).await;
    }
}

/// Every ambiguity, guarded and not, as the first request of a connection and as a later one.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_get_400_and_reach_nobody() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let (mut number, mut decent) = (0, 0);
    for first_line in ["POST /payments HTTP/1.1", "PUT /files HTTP/1.1"] {
        for lines in AMBIGUOUS {
            for before in ["", GET] {
                number += 1;
                let mut wire = Wire::connect(gateway.address).await;
                let request = ambiguous(first_line, lines, number);
                wire.send(format!("{before}{request}")).await;
                if !before.is_empty() {
                    decent += 1;
                    assert_eq!(wire.message().await.expect("an answer").status(), 201);
                }
                let refusal = wire.message().await.expect("an answer");
                assert_eq!(refusal.status(), 400, "{lines:?}");
                let rest = wire.rest().await;
                assert!(rest.is_empty(), "{lines:?}: a second answer: {rest:?}");
            }
        }
    }
    // Anything smuggled would have come before this.
    send_to(gateway.address, &Call::payment("last")).await;
    assert_eq!(upstream.seen.all().len(), decent + 1);
}

/// HTTP/1.0 has no chunks: whoever does not know them reads another request there.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_in_http_1_0_are_refused() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let request = ambiguous(
        "POST /payments HTTP/1.0",
        "connection: keep-alive\r\ntransfer-encoding: chunked\r\n",
        1,
    );
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(request).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 400);
    assert!(wire.rest().await.is_empty());
    assert!(upstream.seen.all().is_empty());
}

/// The same request, byte by byte: where it is cut does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn an_ambiguous_request_in_single_bytes_is_refused_too() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let request = ambiguous("POST /payments HTTP/1.1", AMBIGUOUS[0], 1);
    let mut wire = Wire::connect(gateway.address).await;
    for byte in request.bytes() {
        if !wire.send([byte]).await {
            break;
        }
        tokio::task::yield_now().await;
    }
    // A reset may overtake the answer, because more was sent than anybody wanted to read.
    let status = wire.message().await.map_or(400, |answer| answer.status());
    assert_eq!(status, 400);
    send_to(gateway.address, &Call::payment("last")).await;
    assert_eq!(upstream.seen.all().len(), 1);
}

/// Bodies that nobody can read in two ways go on as before: sized, in chunks, with extensions and
/// trailers, one after the other on one connection.
#[tokio::test(flavor = "multi_thread")]
async fn unambiguous_bodies_pass_whole() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let line_feeds = "\n\r\n\ncontent-length: 5\n\n";
    let length = line_feeds.len();
    let mut wire = Wire::connect(gateway.address).await;
    let bodies = [
        format!("Content-Length: {length}\r\n\r\n{line_feeds}"),
        format!(
            "Transfer-Encoding: Chunked\r\n\r\n{length:X};a=\"b\"\r\n{line_feeds}\r\n0\r\n\r\n"
        ),
        format!(
            "transfer-encoding: chunked\r\n\r\n{length:x} \r\n{line_feeds}\r\n\
             0\r\nx-sum: 1\r\n\r\n"
        ),
    ];
    for body in bodies.iter().cycle().take(6) {
        wire.send(format!("PUT /files HTTP/1.1\r\nhost: api.test\r\n{body}"))
            .await;
        assert_eq!(wire.message().await.expect("an answer").status(), 201);
    }
    let seen = upstream.seen.all();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|request| request.text() == line_feeds));
}

/// Asking for another protocol and not getting it opens no door: the requests that follow are
/// looked at as before. After a switch nothing is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_switch_that_was_granted_ends_the_looking() {
    const RAW: &str = "a\nb\n\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n\0";
    let upstream = Scripted::start(|mut wire, seen| async move {
        while let Some(request) = seen.request(&mut wire).await {
            if request.start.contains("/granted") {
                wire.send("HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n")
                    .await;
                let echo = wire.bytes(RAW.len()).await.expect("raw bytes");
                wire.send(echo).await;
                return;
            }
            wire.send(OK).await;
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let switch = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: api.test\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n"
        )
    };
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(switch("/refused")).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
    wire.send(ambiguous("PUT /files HTTP/1.1", AMBIGUOUS[0], 1))
        .await;
    assert_eq!(wire.message().await.expect("an answer").status(), 400);
    assert!(wire.rest().await.is_empty());

    let mut wire = Wire::connect(gateway.address).await;
    wire.send(switch("/granted")).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 101);
    wire.send(RAW).await;
    assert_eq!(
        wire.bytes(RAW.len()).await.expect("an echo"),
        RAW.as_bytes()
    );
    assert_eq!(upstream.seen.all().len(), 2);
}
