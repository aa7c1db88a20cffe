//! Requests that are malformed, oversized or strange. None of them has an effect, and the gateway
//! goes on serving.

use serde_json::Value;

use crate::kit::{Call, Stage, Wire};

/// A guarded request as text, with these lines besides the necessary ones.
fn payment(lines: &str, body: &str) -> String {
    format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\ncontent-type: application/json\r\n\
         authorization: Bearer alice\r\n{lines}\r\n{body}"
    )
}

/// Sends bytes and gives the status of the answer; 0 when the connection was closed without one.
/// `closes` tells whether it must be closed after the answer.
async fn status_of(stage: &Stage, bytes: &[u8], closes: bool) -> u16 {
    let mut wire = Wire::connect(stage.address()).await;
    wire.send(bytes).await;
    let Some(answer) = wire.message().await else {
        return 0;
    };
    if closes {
        let rest = wire.rest().await;
        assert!(
            rest.is_empty(),
            "a second answer: {:?}",
            String::from_utf8_lossy(&rest)
        );
    }
    answer.status()
}

/// Whatever came before, a decent request is served, and nothing else was executed.
async fn assert_unharmed(stage: &Stage) {
    assert_eq!(stage.total(), 0, "a hostile request was executed");
    stage
        .send(&Call::payment("decent"))
        .await
        .assert_executed(201);
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// Two readings of one request are how one client's bytes become another's request.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_heads_are_refused_and_the_connection_closed() {
    let stage = Stage::start().await;
    let key = "idempotency-key: k\r\n";
    for lines in [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: 2, 3\r\n",
        "content-length: +2\r\n",
        "content-length: -2\r\n",
        "content-length: 0x2\r\n",
        "content-length: 99999999999999999999999\r\n",
        "content-length : 2\r\n",
        "x-folded: one\r\n two\r\ncontent-length: 2\r\n",
        "x-null: a\0b\r\ncontent-length: 2\r\n",
        "x-return: a\rb\r\ncontent-length: 2\r\n",
        "x bad name: a\r\ncontent-length: 2\r\n",
        ": nameless\r\ncontent-length: 2\r\n",
        "no colon\r\ncontent-length: 2\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: gzip\r\n",
    ] {
        let request = payment(&format!("{key}{lines}"), "{}");
        let status = status_of(&stage, request.as_bytes(), true).await;
        assert_eq!(status, 400, "{lines:?}");
    }
    assert_unharmed(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_first_lines_are_refused() {
    let stage = Stage::start().await;
    let rest = "host: api.test\r\nidempotency-key: k\r\ncontent-length: 2\r\n\r\n{}";
    for line in [
        "POST /payments",
        "POST  /payments HTTP/1.1",
        "POST /pay ments HTTP/1.1",
        "POST /pay\0ments HTTP/1.1",
        "POST /payments HTTP/1.1 ",
        "POST /payments HTTP/3.7",
        "POST /payments FTP/1.1",
        "PO\x01ST /payments HTTP/1.1",
        "\x16\x03\x01\x02 a TLS hello",
    ] {
        let status = status_of(&stage, format!("{line}\r\n{rest}").as_bytes(), true).await;
        assert!([0, 400, 505].contains(&status), "{line:?}: {status}");
    }
    assert_unharmed(&stage).await;
}

/// Limits hold before anything is kept: a giant costs a client more than it costs the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn giant_heads_are_refused() {
    let stage = Stage::start().await;
    let large = "x".repeat(40_000);
    let many: String = "x-many: 1\r\n".repeat(300);
    let key = "idempotency-key: k\r\ncontent-length: 2\r\n";
    for request in [
        payment(&format!("x-large: {large}\r\n{key}"), "{}"),
        payment(&format!("{large}: 1\r\n{key}"), "{}"),
        payment(&format!("{many}{key}"), "{}"),
        payment(
            &format!("idempotency-key: {large}\r\ncontent-length: 2\r\n"),
            "{}",
        ),
        format!("POST /{large} HTTP/1.1\r\nhost: api.test\r\n{key}\r\n{{}}"),
    ] {
        let status = status_of(&stage, request.as_bytes(), true).await;
        assert!([431, 414].contains(&status), "{status}: {request:.60}");
    }
    assert_unharmed(&stage).await;
}

/// Ignoring a bad key would run the write unprotected, so every one of them is refused.
#[tokio::test(flavor = "multi_thread")]
async fn bad_keys_are_refused() {
    let stage = Stage::start().await;
    let long = "k".repeat(256);
    for key in [
        "",
        "\"\"",
        "\"",
        "\"open",
        "\"a\"b",
        "a b",
        "a,b",
        "\"a\", \"b\"",
        "\"a\\b\"",
        "\"\u{e9}\"",
        "ünïcode",
        "\"tab\there\"",
        ";q=1",
        &long,
        &format!("\"{long}\""),
    ] {
        let request = payment(
            &format!("idempotency-key: {key}\r\ncontent-length: 2\r\n"),
            "{}",
        );
        let status = status_of(&stage, request.as_bytes(), false).await;
        assert_eq!(status, 400, "{key:?}");
    }
    for lines in [
        "idempotency-key: a\r\nidempotency-key: b\r\n",
        "idempotency-key: a\r\nIdempotency-Key: a\r\n",
        "",
    ] {
        let request = payment(&format!("{lines}content-length: 2\r\n"), "{}");
        assert_eq!(
            status_of(&stage, request.as_bytes(), false).await,
            400,
            "{lines:?}"
        );
    }
    assert_unharmed(&stage).await;
}

/// The published vectors of RFC 9651: what must fail to parse as a string must not be a key. A
/// value that begins with no quote is a bare key, which other rules judge.
#[tokio::test(flavor = "multi_thread")]
async fn the_published_vectors_that_must_fail_are_refused() {
    let stage = Stage::start().await;
    let mut refused = 0;
    for text in [
        include_str!("../../../core/tests/vectors/structured-fields/string.json"),
        include_str!("../../../core/tests/vectors/structured-fields/string-generated.json"),
    ] {
        let vectors: Vec<Value> = serde_json::from_str(text).expect("vectors");
        for vector in vectors.iter().filter(|vector| vector["must_fail"] == true) {
            let raw = vector["raw"].as_array().expect("lines");
            if !raw[0].as_str().expect("text").starts_with('"') {
                continue;
            }
            let lines = raw.iter().map(|line| line.as_str().expect("text"));
            let lines: Vec<_> = lines
                .map(|line| format!("idempotency-key: {line}\r\n"))
                .collect();
            let lines = lines.concat();
            let request = payment(&format!("{lines}content-length: 2\r\n"), "{}");
            let status = status_of(&stage, request.as_bytes(), false).await;
            assert_eq!(status, 400, "{}", vector["name"]);
            refused += 1;
        }
    }
    assert!(refused > 50, "vacuous: {refused}");
    assert_unharmed(&stage).await;
}

/// Half a body that looks like an end.
#[tokio::test(flavor = "multi_thread")]
async fn broken_chunks_are_refused_and_free_the_key() {
    let stage = Stage::start().await;
    let head = "idempotency-key: decent\r\ntransfer-encoding: chunked\r\n";
    for body in [
        "zz\r\n{}\r\n0\r\n\r\n",
        "-2\r\n{}\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "10000000000000002\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx0\r\n\r\n",
        "2\r\n{}\r\n0\r\nbad trailer\r\n\r\n",
        "2 \0\r\n{}\r\n0\r\n\r\n",
    ] {
        let request = payment(head, body);
        let status = status_of(&stage, request.as_bytes(), true).await;
        assert!([0, 400].contains(&status), "{body:?}: {status}");
    }
    assert_unharmed(&stage).await;
}

/// An API gateway is no tunnel and no open proxy.
#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_refused() {
    let stage = Stage::start().await;
    for target in ["evil.test:443", "127.0.0.1:22"] {
        let request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n");
        let status = status_of(&stage, request.as_bytes(), false).await;
        assert!((400..=501).contains(&status), "{target}: {status}");
    }
    assert_unharmed(&stage).await;
}

/// Two names for the service asked for: a gateway and its upstream may each believe another one.
#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_are_refused() {
    let stage = Stage::with("[log]\nlevel = \"debug\"").await;
    for method in ["GET", "PUT"] {
        let request = format!(
            "{method} /payments HTTP/1.1\r\nhost: a.test\r\nhost: b.test\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(status_of(&stage, request.as_bytes(), false).await, 400);
    }
    let key = "host: b.test\r\nidempotency-key: k\r\ncontent-length: 2\r\n";
    let status = status_of(&stage, payment(key, "{}").as_bytes(), false).await;
    assert_eq!(status, 400);
    // Nor is anybody given a stored answer for it.
    let one_host = key.replace("host: b.test\r\n", "");
    let status = status_of(&stage, payment(&one_host, "{}").as_bytes(), false).await;
    assert_eq!(status, 201);
    let status = status_of(&stage, payment(key, "{}").as_bytes(), false).await;
    assert_eq!(status, 400);
    assert!(
        !stage.gateway.log().contains("rejected"),
        "a key was claimed"
    );
    assert_eq!(stage.total(), 1);
    stage.finish();
}
