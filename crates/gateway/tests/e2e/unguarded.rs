//! What is not guarded streams through: both ways, at once, in any size.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::kit::{Call, Gateway, Scripted, Setup, Stage, Wire, soon};
use crate::lost::OK;

const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS: usize = 2048;

/// Far above what a gateway needs, far below what passes through it here.
const MEMORY_BYTES_MAX: usize = 80 * 1024 * 1024;

/// The most memory that the gateway ever had.
fn peak_bytes(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.expect("a peak").split_whitespace().nth(1);
    kilobytes
        .expect("a number")
        .parse::<usize>()
        .expect("a number")
        * 1024
}

/// An upload that is collected first makes the client wait and the gateway grow. The upstream
/// sees the first bytes while the last are not written, and the gateway stays small.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_streams_through() {
    let arrived = Arc::new(Notify::new());
    let begun = Arc::clone(&arrived);
    let upstream = Scripted::start(move |mut wire, _| {
        let begun = Arc::clone(&begun);
        async move {
            wire.bytes(CHUNK_BYTES / 2).await.expect("the beginning");
            begun.notify_one();
            let mut stream = wire.into_inner();
            let (mut buffer, mut tail) = (vec![0; CHUNK_BYTES], Vec::new());
            while !tail.ends_with(b"\r\n0\r\n\r\n") {
                let read = stream.read(&mut buffer).await.expect("more");
                assert!(read > 0, "ended before its end");
                tail.extend(&buffer[..read]);
                tail.drain(..tail.len().saturating_sub(7));
            }
            stream
                .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
                .await
                .expect("written");
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send("PUT /upload HTTP/1.1\r\nhost: api.test\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    let mut chunk = format!("{CHUNK_BYTES:x}\r\n").into_bytes();
    chunk.extend(vec![b'x'; CHUNK_BYTES]);
    chunk.extend(b"\r\n");
    wire.send(&chunk).await;
    soon(arrived.notified()).await;
    for _ in 1..=CHUNKS {
        assert!(wire.send(&chunk).await);
    }
    wire.send("0\r\n\r\n").await;
    assert_eq!(wire.message().await.expect("an answer").status(), 204);
    let peak = peak_bytes(&gateway);
    assert!(
        peak < MEMORY_BYTES_MAX,
        "{peak} bytes for {} MiB",
        CHUNKS / 16
    );
}

/// The same on the way back.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_streams_through() {
    let read = Arc::new(Notify::new());
    let go_on = Arc::clone(&read);
    let upstream = Scripted::start(move |mut wire, seen| {
        let go_on = Arc::clone(&go_on);
        async move {
            seen.request(&mut wire).await.expect("a request");
            let length = CHUNKS * CHUNK_BYTES;
            wire.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"
            ))
            .await;
            wire.send(vec![b'x'; CHUNK_BYTES]).await;
            go_on.notified().await;
            for _ in 1..CHUNKS {
                assert!(wire.send(vec![b'x'; CHUNK_BYTES]).await);
            }
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send("GET /download HTTP/1.1\r\nhost: api.test\r\n\r\n")
        .await;
    wire.bytes(CHUNK_BYTES).await.expect("the beginning");
    read.notify_one();
    for _ in 1..CHUNKS {
        wire.bytes(CHUNK_BYTES).await.expect("more");
    }
    let peak = peak_bytes(&gateway);
    assert!(
        peak < MEMORY_BYTES_MAX,
        "{peak} bytes for {} MiB",
        CHUNKS / 16
    );
}

/// A download that breaks off must look broken to the client, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_is_not_a_short_one() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await.expect("a request");
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegun\r\n")
            .await;
        wire.finish().await;
        wire.rest().await;
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send("GET /download HTTP/1.1\r\nhost: api.test\r\n\r\n")
        .await;
    assert_eq!(
        wire.message().await,
        None,
        "half an answer that looks whole"
    );
}

/// Web sockets and whatever else switches protocols: after 101 the bytes are theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_switched_protocol_passes_both_ways() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        let request = seen.request(&mut wire).await.expect("a request");
        assert_eq!(request.header("upgrade"), "websocket");
        assert_eq!(request.header("connection"), "upgrade");
        assert_eq!(request.header("sec-websocket-key"), "abc");
        wire.send("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello")
            .await;
        while let Some(bytes) = wire.bytes(4).await {
            wire.send(bytes.iter().rev().copied().collect::<Vec<_>>()).await;
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(
        "GET /socket HTTP/1.1\r\nhost: api.test\r\nconnection: Upgrade, keep-alive\r\n\
         upgrade: websocket\r\nsec-websocket-key: abc\r\n\r\n",
    )
    .await;
    let answer = wire.message().await.expect("an answer");
    assert_eq!(
        (answer.status(), answer.header("upgrade")),
        (101, "websocket")
    );
    assert_eq!(wire.bytes(5).await.expect("a greeting"), b"hello");
    for _ in 0..3 {
        wire.send("ping").await;
        assert_eq!(wire.bytes(4).await.expect("an echo"), b"gnip");
    }
}

/// A connection that speaks another protocol is still one of those that are allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_switched_connection_keeps_its_place() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        while let Some(request) = seen.request(&mut wire).await {
            if request.header("upgrade").is_empty() {
                wire.send("HTTP/1.1 204 No Content\r\n\r\n").await;
                continue;
            }
            wire.send(
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            )
            .await;
            wire.rest().await;
            return;
        }
    })
    .await;
    let setup = Setup::new(upstream.address).config("[limits]\nconnections = 1");
    let gateway = setup.start().await;
    let mut switched = Wire::connect(gateway.address).await;
    let wish = "GET / HTTP/1.1\r\nhost: api.test\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    switched.send(wish).await;
    let answer = switched.message().await.expect("an answer");
    assert_eq!(answer.status(), 101);
    let mut other = Wire::connect(gateway.address).await;
    other.send("GET / HTTP/1.1\r\nhost: api.test\r\n\r\n").await;
    let answer = other.message_within(Duration::from_millis(300)).await;
    assert_eq!(answer, None, "served beyond the limit");
    drop(switched);
    assert!(other.message().await.is_some());
}

/// An upgrade that the upstream turns down is an ordinary answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_refused_is_an_ordinary_answer() {
    let stage = Stage::start().await;
    let call = Call::new(http::Method::GET, "/socket")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    let answer = stage.send(&call).await;
    assert_eq!(answer.status.as_u16(), 201);
    assert_eq!(answer.header("x-execution"), "1");
    stage.finish();
}

/// A connection that is switched to another kind of HTTP would carry writes past the guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_to_another_http_is_not_passed_on() {
    for protocol in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2"] {
        let upstream = Scripted::start(|mut wire, seen| async move {
            if seen.request(&mut wire).await.is_some() {
                wire.send(OK).await;
            }
        })
        .await;
        let gateway = Setup::new(upstream.address).start().await;
        let mut wire = Wire::connect(gateway.address).await;
        wire.send(format!(
            "GET /socket HTTP/1.1\r\nhost: api.test\r\nconnection: upgrade\r\n\
             upgrade: {protocol}\r\nhttp2-settings: AAMAAABk\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.message().await.expect("an answer").status(), 201);
        let [request] = &upstream.seen.all()[..] else {
            panic!("one request was sent");
        };
        for name in ["connection", "upgrade", "http2-settings"] {
            assert!(request.lines(name).is_empty(), "{protocol}: {request:?}");
        }
    }
}

/// The time for an answer begins when the request has ended: an upload that goes on is not cut.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_may_take_longer_than_the_time_for_an_answer() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        if seen.request(&mut wire).await.is_some() {
            wire.send(OK).await;
        }
    })
    .await;
    let setup = Setup::new(upstream.address).config("[upstream]\nresponse_timeout = \"400ms\"");
    let gateway = setup.start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send("PUT /upload HTTP/1.1\r\nhost: api.test\r\ncontent-length: 12\r\n\r\n")
        .await;
    for _ in 0..12 {
        // The work of a slow client: a second and more in all, in steps well within the limit.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(wire.send("x").await);
    }
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
}
