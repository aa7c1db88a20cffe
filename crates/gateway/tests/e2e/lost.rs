//! Upstreams that cannot be reached, go away, or do not answer: what each of it proves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use onlyonce_conformance::http_suite::{Answer, Upstream};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket};

use crate::kit::{
    Call, Gateway, Message, Scripted, Setup, Stage, UNKNOWN, UNREACHABLE, Wire, send_to,
};

pub(crate) const OK: &str = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npaid";

/// A port that nobody listens on and nobody else can take.
fn nobody() -> (TcpSocket, std::net::SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseport(true).expect("an option");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

#[track_caller]
fn assert_released(answer: &Answer) {
    answer.assert_problem(503, UNREACHABLE);
    assert_eq!(answer.json()["retryable"], true);
    assert_ne!(answer.header("retry-after"), "");
}

async fn assert_unknown(gateway: &Gateway, call: &Call, status: u16) {
    send_to(gateway.address, call)
        .await
        .assert_problem(status, UNKNOWN);
    for _ in 0..2 {
        let retry = send_to(gateway.address, call).await;
        retry.assert_problem(409, UNKNOWN);
        assert_ne!(retry.header("retry-after"), "");
    }
}

/// A key that runs again in doubt. That the second attempt reached nobody says nothing about the
/// first, so the client must not hear "nothing was executed".
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_leaves_an_earlier_attempt_in_doubt() {
    let (socket, address) = nobody();
    let listener = socket.listen(64).expect("a port");
    let route = "[[route]]\npath = \"/payments\"\nupstream = \"dedupes\"\nreexecute = true\n";
    let gateway = Setup::new(address).config(route).start().await;
    let executes_and_dies = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let read = stream.read(&mut [0; 4096]).await.expect("a request");
        assert_ne!(read, 0);
    });
    let call = Call::payment("in-doubt");
    send_to(gateway.address, &call)
        .await
        .assert_problem(502, UNKNOWN);
    executes_and_dies.await.expect("one request");
    for _ in 0..2 {
        let again = send_to(gateway.address, &call).await;
        again.assert_problem(502, UNKNOWN);
    }
    // A key without a past is released, as ever.
    assert_released(&send_to(gateway.address, &Call::payment("new")).await);
}

/// Nothing was sent, so the key must not be stuck: once the upstream is there, the same request
/// runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_releases_the_key() {
    let (socket, address) = nobody();
    let gateway = Setup::new(address).start().await;
    let call = Call::payment("early-bird");
    for _ in 0..3 {
        assert_released(&send_to(gateway.address, &call).await);
    }
    let upstream = Scripted::on(socket.listen(64).expect("a port"), answering);
    let first = send_to(gateway.address, &call).await;
    assert_eq!(
        (first.status.as_u16(), &first.body[..]),
        (201, &b"paid"[..])
    );
    assert!(send_to(gateway.address, &call).await.is_replay());
    assert_eq!(upstream.seen.count("early-bird"), 1);
}

async fn answering(mut wire: Wire, seen: crate::kit::Seen) {
    while seen.request(&mut wire).await.is_some() {
        wire.send(OK).await;
    }
}

/// One instance down is no reason to refuse anybody, nor to ask anybody twice.
#[tokio::test(flavor = "multi_thread")]
async fn with_one_address_down_the_other_serves() {
    let (_socket, down) = nobody();
    let upstream = Scripted::start(answering).await;
    let gateway = Setup::new(down).also(upstream.address).start().await;
    for number in 0..20 {
        let call = Call::payment(&format!("k{number}"));
        let answer = send_to(gateway.address, &call).await;
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    }
    assert_eq!(upstream.seen.all().len(), 20);
}

/// A connection that is made and reset at once. Either nothing was written (released) or
/// something was (unknown); whichever the gateway says, it must stay with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_before_anything_was_read_is_never_called_executed() {
    let upstream = Scripted::start(|wire, _| async move { wire.reset() }).await;
    let gateway = Setup::new(upstream.address).start().await;
    for number in 0..20 {
        let call = Call::payment(&format!("k{number}"));
        let first = send_to(gateway.address, &call).await;
        match first.status.as_u16() {
            503 => assert_released(&first),
            502 => {
                first.assert_problem(502, UNKNOWN);
                let retry = send_to(gateway.address, &call).await;
                retry.assert_problem(409, UNKNOWN);
            }
            other => panic!("{other}: {first:?}"),
        }
    }
}

/// The request was read, then the connection broke: the charge may have been made.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_after_the_request_was_read_is_unknown_for_good() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        if let Some(request) = seen.request(&mut wire).await {
            match request.header("x-how") {
                "reset" => wire.reset(),
                "close" => drop(wire),
                other => panic!("{other}"),
            }
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    for how in ["reset", "close"] {
        let call = Call::payment(how).header("x-how", how);
        assert_unknown(&gateway, &call, 502).await;
        assert_eq!(upstream.seen.count(how), 1);
    }
    assert_no_answer(&gateway, 2).await;
}

/// Operators read that no answer came, not that the API said something.
async fn assert_no_answer(gateway: &Gateway, count: usize) {
    let call =
        Call::new(Method::GET, "/api/v1/keys?state=unknown").header("host", "127.0.0.1:8081");
    let list = send_to(gateway.admin, &call).await.json();
    let keys = list["keys"].as_array().expect("a list");
    assert_eq!(keys.len(), count, "{list}");
    for key in keys {
        assert_eq!(key["unknown"]["reason"], "no_complete_answer", "{list}");
    }
}

/// An upstream that takes too long may still be charging the card.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upstream_is_unknown_and_not_asked_again() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        let request = seen.request(&mut wire).await;
        if request.is_some_and(|request| request.header("x-how") == "half") {
            wire.send(&OK[..OK.len() - 2]).await;
        }
        wire.rest().await;
    })
    .await;
    let config = "[upstream]\nresponse_timeout = \"200ms\"\nidle_timeout = \"200ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    assert_unknown(&gateway, &Call::payment("silent"), 504).await;
    let half = Call::payment("half").header("x-how", "half");
    assert_unknown(&gateway, &half, 502).await;
    assert_eq!(upstream.seen.count("silent"), 1);
    assert_eq!(upstream.seen.count("half"), 1);
    assert_no_answer(&gateway, 2).await;
}

/// A dripping upstream keeps every pause short and never ends; `total_timeout` ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dripping_upstream_is_cut_off_by_the_total_timeout() {
    let upstream = Scripted::start(|mut wire, seen| async move {
        if seen.request(&mut wire).await.is_some() {
            wire.send("HTTP/1.1 201 Created\r\ncontent-length: 1000000\r\n\r\n")
                .await;
            while wire.send("x").await {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    })
    .await;
    let config = "[upstream]\nresponse_timeout = \"300ms\"\ntotal_timeout = \"500ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let call = Call::payment("drip");
    let first = send_to(gateway.address, &call).await;
    assert!([502, 504].contains(&first.status.as_u16()), "{first:?}");
    assert_eq!(first.code(), UNKNOWN);
    send_to(gateway.address, &call)
        .await
        .assert_problem(409, UNKNOWN);
    assert_eq!(upstream.seen.count("drip"), 1);
}

/// Each address has a name of its own, and a server of several hosts goes by it.
#[tokio::test(flavor = "multi_thread")]
async fn every_address_is_called_by_its_own_name() {
    let (_socket, down) = nobody();
    let upstream = Scripted::start(answering).await;
    let setup = Setup::new(down).also(upstream.address);
    let gateway = setup.config("[upstream]\nhost = \"rewrite\"").start().await;
    for number in 0..4 {
        send_to(gateway.address, &Call::payment(&format!("k{number}"))).await;
    }
    let own = upstream.address.to_string();
    let seen = upstream.seen.all();
    let hosts: Vec<_> = seen.iter().map(|request| request.header("host")).collect();
    assert_eq!(hosts, [&own; 4]);
}

/// Servers close idle connections all the time. A request that finds its pooled connection
/// closed has not been sent, and goes out on a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_was_closed_is_no_unknown_outcome() {
    let (closed, waiting) = tokio::sync::watch::channel(0);
    let closed = Arc::new(closed);
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, script_closed) = (Arc::clone(&connections), Arc::clone(&closed));
    let upstream = Scripted::start(move |mut wire, seen| {
        count.fetch_add(1, Ordering::SeqCst);
        let closed = Arc::clone(&script_closed);
        async move {
            let request = seen.request(&mut wire).await;
            let reset = request.is_some_and(|request| request.header("x-how") == "reset");
            wire.send(OK).await;
            // Given time to be read, or the reset could overtake the answer.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            if reset {
                wire.reset();
            } else {
                drop(wire);
            }
            closed.send_modify(|closed| *closed += 1);
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    for number in 0..10 {
        let how = if number % 2 == 0 { "reset" } else { "close" };
        let call = Call::payment(&format!("k{number}")).header("x-how", how);
        let answer = send_to(gateway.address, &call).await;
        assert_eq!(answer.status.as_u16(), 201, "{number}: {answer:?}");
        let mut waiting = waiting.clone();
        waiting
            .wait_for(|closed| *closed > number)
            .await
            .expect("open");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 10);
    assert_eq!(upstream.seen.all().len(), 10);
}

/// One connection serves many requests: that it is pooled must not mix up answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_serves_the_next_request() {
    let upstream = Upstream::new();
    let proxy = onlyonce_conformance::FaultProxy::start(upstream.serve().await).expect("a port");
    let setup = Setup::new(proxy.address()).config("[limits]\nworkers = 1");
    let gateway = setup.start().await;
    for number in 0..10 {
        let call = Call::payment(&format!("k{number}"));
        let answer = send_to(gateway.address, &call).await;
        answer.assert_executed(201);
        assert_eq!(answer.json()["key"], format!("k{number}"));
    }
    assert_eq!(proxy.counts().connections, 1);
}

/// Somebody who answers before being asked is not answering this request.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_after_an_answer_are_never_the_next_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let upstream = Scripted::on(listener, |mut wire, seen| async move {
        while let Some(request) = seen.request(&mut wire).await {
            let Message { body, .. } = request;
            let length = body.len();
            wire.send(format!(
                "HTTP/1.1 201 Created\r\ncontent-length: {length}\r\n\r\n"
            ))
            .await;
            wire.send(&body).await;
            wire.send("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nevil")
                .await;
        }
    });
    let gateway = Setup::new(upstream.address).start().await;
    for number in 0..20 {
        let mine = format!("{{\"n\":{number}}}");
        let call = Call::payment(&format!("k{number}")).body(mine.clone());
        let answer = send_to(gateway.address, &call).await;
        assert_ne!(&answer.body[..], b"evil", "wrong replay");
        if answer.status.as_u16() == 201 {
            assert_eq!(answer.body, mine);
        } else {
            answer.assert_problem(502, UNKNOWN);
        }
    }
}

/// A gateway that keeps no connections opens one for every request, and does not stumble over the
/// one that it would have kept: a panic there is an unknown outcome.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_pool_every_request_has_a_connection_of_its_own() {
    let stage = Stage::with("[upstream]\npool_idle_max = 0").await;
    for key in ["one", "two", "three"] {
        stage.send(&Call::payment(key)).await.assert_executed(201);
    }
    stage.finish();
}
