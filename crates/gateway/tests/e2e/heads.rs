//! What the upstream is told about a request, and the client about an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::http2;
use crate::kit::{Call, Message, Scripted, Seen, Setup, Wire, send_to, soon, until};
use crate::lost::OK;

async fn answering(mut wire: Wire, seen: Seen) {
    while seen.request(&mut wire).await.is_some() {
        wire.send(
            "HTTP/1.1 201 Created\r\nconnection: x-hop, keep-alive\r\nkeep-alive: timeout=5\r\n\
             x-hop: 1\r\nproxy-authenticate: Basic\r\nx-kept: 1\r\nonlyonce-outcome: completed\r\n\
             content-length: 4\r\n\r\npaid",
        )
        .await;
    }
}

/// What the upstream sees of a guarded and of an unguarded request.
async fn seen_with(config: &str, change: impl Fn(Call) -> Call) -> Vec<Message> {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).config(config).start().await;
    for call in [
        Call::payment("k"),
        Call::new(http::Method::PUT, "/payments"),
    ] {
        send_to(gateway.address, &change(call)).await;
    }
    let seen = upstream.seen.all();
    assert_eq!(seen.len(), 2);
    seen
}

/// Fields of the client's connection say nothing about the upstream's.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_one_connection_end_at_the_gateway() {
    let seen = seen_with("", |call| {
        call.header("connection", "x-hop, close")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("proxy-connection", "close")
            .header("proxy-authorization", "Basic x")
            .header("te", "gzip")
            .header("x-kept", "1")
    })
    .await;
    for request in &seen {
        for name in [
            "x-hop",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "te",
        ] {
            assert_eq!(request.header(name), "", "{name}");
        }
        assert!(!request.header("connection").contains("x-hop"));
        assert_eq!(request.header("x-kept"), "1");
    }
}

/// A key or a credential that only the gateway sees would decide about a request that the upstream
/// gets from nobody, without a key.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_keeps_from_the_upstream_counts_for_nobody() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let hidden = |name: &str| Call::payment("k").header("connection", name);
    for name in ["idempotency-key", "close, Idempotency-Key"] {
        let refused = send_to(gateway.address, &hidden(name)).await;
        refused.assert_problem(400, "idempotency_key_required");
    }
    assert_eq!(upstream.seen.all().len(), 0);
    let mallory = hidden("authorization").header("authorization", "Bearer mallory");
    let first = send_to(gateway.address, &mallory).await;
    assert_eq!(first.status.as_u16(), 201);
    assert!(!first.is_replay());
    let nobody = send_to(
        gateway.address,
        &Call::payment("k").without("authorization"),
    )
    .await;
    assert!(nobody.is_replay(), "{nobody:?}");
    let seen = upstream.seen.all();
    assert_eq!((seen.len(), seen[0].header("authorization")), (1, ""));
}

/// The key that the gateway adds is not the client's to keep back: an API that recognises
/// repetitions by it would not.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_keep_the_forwarded_key_from_the_upstream() {
    let config = "[[route]]\npath = \"/payments\"\nforward_key = { header = \"X-Key\" }";
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let call = Call::payment("k").header("connection", "x-key, close");
    send_to(gateway.address, &call).await;
    let seen = upstream.seen.all();
    assert_eq!((seen.len(), seen[0].header("x-key")), (1, "k"));
}

/// An id that the gateway made would pass for a key, another one for every retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_of_the_gateways_own_is_never_a_key() {
    let upstream = Scripted::start(answering).await;
    let setup = Setup::new(upstream.address);
    let setup = setup.config("key_header = \"X-Request-Id\"\n[log]\nlevel = \"debug\"");
    let gateway = setup.start().await;
    let call = Call::payment("ignored");
    let refused = send_to(gateway.address, &call).await;
    refused.assert_problem(400, "idempotency_key_required");
    let long = "k".repeat(200);
    for key in ["order-42", long.as_str()] {
        let call = call.clone().header("x-request-id", key);
        let first = send_to(gateway.address, &call).await;
        assert_eq!(first.status.as_u16(), 201);
        assert!(!first.is_replay());
        assert!(send_to(gateway.address, &call).await.is_replay(), "{key}");
        let last = upstream.seen.all().pop().unwrap();
        assert_eq!(last.header("x-request-id"), key);
    }
    assert_eq!(upstream.seen.all().len(), 2);
    gateway.logged("answered").await;
    assert!(!gateway.log().contains("order-42"), "{}", gateway.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_is_told_the_requests_id() {
    for request in seen_with("", |call| call).await {
        assert!(request.header("x-request-id").len() > 32, "{request:?}");
    }
    for request in seen_with("", |call| call.header("x-request-id", "mine")).await {
        assert_eq!(request.lines("x-request-id"), ["mine"]);
    }
}

/// With such a credential the connection itself belongs to its client.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_one_client_was_named_on_is_for_no_other() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let upstream = Scripted::start(move |wire, seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        answering(wire, seen)
    })
    .await;
    let gateway = Setup::new(upstream.address).config("[limits]\nworkers = 1");
    let gateway = gateway.start().await;
    let get = Call::new(http::Method::GET, "/payments");
    for (number, credential) in [
        (1, "Bearer a"),
        (1, "ntlm TlRMTVNTUAAB"),
        (2, "Bearer b"),
        (2, "Negotiate YIIJ"),
        (3, "Bearer c"),
    ] {
        let call = get.clone().header("authorization", credential);
        assert_eq!(send_to(gateway.address, &call).await.status.as_u16(), 201);
        assert_eq!(connections.load(Ordering::SeqCst), number, "{credential}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_upstreams_connection_end_there_too() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let unguarded = Call::new(http::Method::PUT, "/payments");
    for call in [Call::payment("k"), Call::payment("k"), unguarded] {
        let answer = send_to(gateway.address, &call).await;
        for name in [
            "x-hop",
            "keep-alive",
            "proxy-authenticate",
            "onlyonce-outcome",
        ] {
            assert_eq!(answer.header(name), "", "{name} of {}", call.method);
        }
        assert_eq!(answer.header("x-kept"), "1");
    }
}

/// A client that could speak for the gateway could settle its own key.
#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_speak_for_the_gateway() {
    let seen = seen_with("", |call| {
        call.header("onlyonce-outcome", "released")
            .header("onlyonce-attempt", "7")
    })
    .await;
    for request in &seen {
        let own = request.headers.iter();
        let mut own = own.filter(|(name, _)| name.starts_with("onlyonce-"));
        assert_eq!(own.next(), None);
    }
}

fn forwarded(call: Call) -> Call {
    call.header("x-forwarded-for", "203.0.113.9")
        .header("forwarded", "for=203.0.113.9")
        .header("x-forwarded-proto", "https")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peer_is_appended_to_what_proxies_said() {
    for request in seen_with("", forwarded).await {
        assert_eq!(request.header("x-forwarded-for"), "203.0.113.9, 127.0.0.1");
        let told = "for=203.0.113.9, for=127.0.0.1;proto=http";
        assert_eq!(request.header("forwarded"), told);
        assert_eq!(request.header("x-forwarded-proto"), "https");
        assert_eq!(request.header("x-forwarded-host"), "api.test");
    }
}

/// Whoever is not a known proxy could claim any address.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_not_believed_about_addresses() {
    let replace = "forwarded = \"replace\"";
    let strangers = "trusted_proxies = [\"10.0.0.0/8\"]";
    for config in [replace, strangers] {
        for request in seen_with(config, forwarded).await {
            assert_eq!(request.header("x-forwarded-for"), "127.0.0.1");
            assert_eq!(request.header("forwarded"), "for=127.0.0.1;proto=http");
            assert_eq!(request.header("x-forwarded-proto"), "http");
        }
    }
    let trusted = "trusted_proxies = [\"127.0.0.0/8\"]";
    for request in seen_with(trusted, forwarded).await {
        assert_eq!(request.header("x-forwarded-for"), "203.0.113.9, 127.0.0.1");
    }
    for request in seen_with("forwarded = \"off\"", forwarded).await {
        assert_eq!(request.header("x-forwarded-for"), "203.0.113.9");
        assert_eq!(request.header("forwarded"), "for=203.0.113.9");
    }
}

/// Signed requests need the host that was signed; virtual hosts need their own.
#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_kept_or_rewritten() {
    for request in seen_with("", |call| call).await {
        assert_eq!(request.header("host"), "api.test");
    }
    for request in seen_with("[upstream]\nhost = \"rewrite\"", |call| call).await {
        assert!(request.header("host").starts_with("127.0.0.1:"));
        assert_eq!(request.header("x-forwarded-host"), "api.test");
    }
}

/// The key is forwarded as it came, so that the upstream can honour it too.
#[tokio::test(flavor = "multi_thread")]
async fn the_body_and_the_key_arrive_as_they_were_sent() {
    let body = "{ \"b\" : 1,\r\n \"a\" : 2 }";
    let seen = seen_with("", |call| call.body(body)).await;
    assert_eq!(seen[0].header("idempotency-key"), "k");
    assert_eq!(seen[0].start, "POST /payments HTTP/1.1");
    for request in &seen {
        assert_eq!(request.text(), body);
        assert_eq!(request.header("content-length"), body.len().to_string());
    }
}

/// The version is of one connection: what an old upstream speaks is no business of the client.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_in_the_clients_own_version() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        let request = seen.request(&mut wire).await.expect("a request");
        assert!(request.start.ends_with(" HTTP/1.1"), "{request:?}");
        wire.send("HTTP/1.0 201 Created\r\ncontent-length: 4\r\n\r\npaid")
            .await;
        wire.finish().await;
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut kept = Wire::connect(gateway.address).await;
    for (method, replayed) in [("POST", false), ("POST", true), ("PUT", false)] {
        kept.send(format!(
            "{method} /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\n\
             content-length: 2\r\n\r\n{{}}"
        ))
        .await;
        let answer = kept.message().await.expect("an answer");
        assert_eq!(answer.start, "HTTP/1.1 201 Created", "{method}");
        assert_eq!(answer.header("idempotency-replayed") == "true", replayed);
    }
    for (key, method) in [("k", "POST"), ("new", "POST"), ("new", "PUT")] {
        let mut old = Wire::connect(gateway.address).await;
        old.send(format!(
            "{method} /payments HTTP/1.0\r\nhost: api.test\r\nidempotency-key: {key}\r\n\
             content-length: 2\r\n\r\n{{}}"
        ))
        .await;
        let answer = old.message().await.expect("an answer");
        assert_eq!(answer.start, "HTTP/1.0 201 Created", "{key} {method}");
        assert!(old.rest().await.is_empty());
    }
}

/// An HTTP/2 client may send its cookies one by one. A server of HTTP/1.1 knows of one line, and may
/// take several for one value with commas.
#[tokio::test(flavor = "multi_thread")]
async fn cookies_of_http2_become_one_line() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let stream = TcpStream::connect(gateway.address).await;
    let client = http2::over(stream.expect("connected")).await;
    for mut call in [Call::payment("k"), Call::new(http::Method::GET, "/")] {
        for cookie in ["a=1", "b=2"] {
            let cookie = http::HeaderValue::from_static(cookie);
            call.headers.append("cookie", cookie);
        }
        http2::ask(&client, &call).await;
    }
    let seen = upstream.seen.all();
    assert_eq!(seen.len(), 2);
    for request in seen {
        assert_eq!(request.lines("cookie"), ["a=1; b=2"]);
    }
}

/// Who asks is no part of the name of whom is asked, and a wish for another protocol that is not
/// about this connection is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_in_the_target_and_a_stray_upgrade_end_at_the_gateway() {
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut wire = Wire::connect(gateway.address).await;
    wire.send(
        "GET http://user:password@api.test/ HTTP/1.1\r\nhost: api.test\r\n\
         upgrade: websocket\r\n\r\n",
    )
    .await;
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
    let seen = upstream.seen.all();
    assert_eq!(seen[0].header("host"), "api.test");
    assert_eq!(seen[0].header("x-forwarded-host"), "api.test");
    assert_eq!(seen[0].header("upgrade"), "");
}

/// Connections that nobody uses are closed here, and not by the upstream while a request is on its
/// way: then nobody would know what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_upstream_that_are_idle_for_long_are_closed() {
    const AT_ONCE: usize = 4;
    let (all_here, ended) = (
        Arc::new(Barrier::new(AT_ONCE)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (here, end) = (Arc::clone(&all_here), Arc::clone(&ended));
    let upstream = Scripted::start(move |mut wire, seen| {
        let (here, end) = (Arc::clone(&here), Arc::clone(&end));
        async move {
            while seen.request(&mut wire).await.is_some() {
                here.wait().await;
                wire.send(OK).await;
            }
            end.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let config = "[upstream]\npool_idle_timeout = \"300ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        let address = gateway.address;
        calls.spawn(async move { send_to(address, &Call::new(http::Method::GET, "/")).await });
    }
    assert_eq!(soon(calls.join_all()).await.len(), AT_ONCE);
    until(|| (ended.load(Ordering::SeqCst) == AT_ONCE).then_some(())).await;
}
