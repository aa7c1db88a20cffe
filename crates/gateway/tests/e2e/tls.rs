//! TLS on either side.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_conformance::fault_proxy::{Fault, FaultProxy, Plan};
use onlyonce_conformance::http_suite::{Answer, Upstream, serve};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::framing::{AMBIGUOUS, ambiguous};
use crate::http2;
use crate::kit::{
    Authority, Call, Gateway, Setup, Stage, UNKNOWN, UNREACHABLE, call_over, send_to, soon,
};
use crate::lost::OK;

async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    soon(TlsConnector::from(Arc::new(config)).connect(name, socket)).await
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates().expect("a certificate");
    chain[0].clone().into_owned()
}

async fn ask(stage: &Stage, config: ClientConfig, call: &Call) -> Answer {
    let stream = connect(stage.address(), config).await.expect("TLS");
    let answer = soon(call_over(stream, call)).await.expect("an answer");
    stage.check(call, &answer);
    answer
}

/// A gateway that is `localhost`, with more in its configuration.
async fn stage(authority: &Authority, more: impl FnOnce(&Setup) -> String) -> Stage {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await);
    let own = authority.issue("localhost");
    let (chain, key) = (
        setup.file("own.pem", own.chain),
        setup.file("own.key", own.key),
    );
    let config = format!(
        "[tls]\ncert_file = {chain:?}\nkey_file = {key:?}\n{}",
        more(&setup)
    );
    Stage::of(upstream, setup.config(&config)).await
}

/// As without TLS: what merely waits for its next request does not hold up the end.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_over_tls_ends_with_the_gateway() {
    let authority = Authority::new("ca");
    let grace = "[drain]\ngrace = \"10m\"";
    let mut stage = stage(&authority, |_| grace.to_owned()).await;
    let stream = connect(stage.address(), authority.client(None)).await;
    let sender = http2::over(stream.expect("TLS")).await;
    http2::ask(&sender, &Call::payment("k"))
        .await
        .assert_executed(201);
    stage.gateway.signal("TERM").await;
    assert_eq!(soon(stage.gateway.ended()).await.code(), Some(0));
    stage.finish();
}

/// Certificates are renewed without dropping anybody: old connections go on, new ones see the
/// new certificate, and a broken file changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_changes_the_certificate_and_keeps_connections() {
    let authority = Authority::new("ca");
    let stage = stage(&authority, |_| String::new()).await;
    let call = Call::payment("k");
    ask(&stage, authority.client(None), &call)
        .await
        .assert_executed(201);
    let old = connect(stage.address(), authority.client(None))
        .await
        .expect("TLS");
    let old_certificate = shown(&old);

    let renewed = authority.issue("localhost");
    stage.setup.file("own.pem", renewed.chain);
    stage.setup.file("own.key", renewed.key);
    stage.gateway.signal("HUP").await;
    stage.gateway.logged("certificates reloaded").await;
    let new = connect(stage.address(), authority.client(None))
        .await
        .expect("TLS");
    let new_certificate = shown(&new);
    assert_ne!(old_certificate, new_certificate);
    let answer = soon(call_over(old, &call)).await.expect("an answer");
    assert!(answer.is_replay(), "the old connection still serves");

    stage.setup.file("own.pem", "no certificate");
    stage.gateway.signal("HUP").await;
    stage.gateway.logged("certificates not reloaded").await;
    let still = connect(stage.address(), authority.client(None))
        .await
        .expect("TLS");
    assert_eq!(shown(&still), new_certificate);
    stage.finish();
}

/// A client certificate is who the caller is: renewed it is the same caller, another one is
/// another, and nobody gets in without.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_the_caller() {
    let authority = Authority::new("ca");
    let stage = stage(&authority, |setup| {
        let clients = setup.file("clients.pem", authority.pem());
        format!("client_ca_file = {clients:?}\n[principal]\nsource = \"mtls\"")
    })
    .await;
    // The witness tells callers apart by a header, the gateway by the certificate alone.
    let call = |name: &str| Call::payment("k").header("authorization", name);
    let (alice, renewed) = (authority.issue("alice.test"), authority.issue("alice.test"));
    let first = ask(&stage, authority.client(Some(&alice)), &call("alice")).await;
    first.assert_executed(201);
    let retry = ask(&stage, authority.client(Some(&renewed)), &call("alice")).await;
    assert!(
        retry.is_replay(),
        "a renewed certificate is the same caller"
    );
    let bob = authority.issue("bob.test");
    let other = ask(&stage, authority.client(Some(&bob)), &call("bob")).await;
    other.assert_executed(201);
    for stranger in [None, Some(Authority::new("other").issue("alice.test"))] {
        let config = authority.client(stranger.as_ref());
        let refused = match connect(stage.address(), config).await {
            Err(_) => true,
            // TLS 1.3 refuses after the client believes itself connected.
            Ok(stream) => soon(call_over(stream, &call("alice"))).await.is_err(),
        };
        assert!(refused);
    }
    assert_eq!(stage.total(), 2);
    stage.finish();
}

/// An upstream over TLS that answers, then closes the connection with or without saying so.
async fn upstream(
    authority: &Authority,
    name: &str,
    answer: &'static str,
    politely: bool,
) -> (String, Arc<AtomicUsize>) {
    let acceptor = TlsAcceptor::from(authority.issue(name).server());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().expect("an address").port()
    );
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else {
                continue;
            };
            let mut read = vec![0; 4096];
            if stream.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                count.fetch_add(1, Ordering::SeqCst);
                stream.write_all(answer.as_bytes()).await.expect("written");
                stream.flush().await.expect("written");
                if politely {
                    stream.shutdown().await.expect("closed");
                }
                let (mut socket, _) = stream.into_inner();
                // Both: what was sent is read before the end, and the end is no reset.
                let _ = socket.shutdown().await;
            }
        }
    });
    (url, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_over_tls_is_trusted_by_its_authority() {
    let authority = Authority::new("ca");
    let (url, requests) = upstream(&authority, "localhost", OK, true).await;
    let setup = Setup::to(&url);
    let trusted = setup.file("ca.pem", authority.pem());
    let config = format!("[upstream]\nca_file = {trusted:?}");
    let gateway = setup.config(&config).start().await;
    for replayed in [false, true] {
        let answer = send_to(gateway.address, &Call::payment("k")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.is_replay()),
            (201, replayed),
            "{answer:?}"
        );
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

/// Somebody else's certificate: nothing is sent to them, so nothing was executed.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_with_a_wrong_certificate_gets_nothing() {
    let authority = Authority::new("ca");
    let stranger = Authority::new("stranger");
    for (issuer, name) in [(&stranger, "localhost"), (&authority, "elsewhere.test")] {
        let (url, requests) = upstream(issuer, name, OK, true).await;
        let setup = Setup::to(&url);
        let trusted = setup.file("ca.pem", authority.pem());
        let config = format!("[upstream]\nca_file = {trusted:?}");
        let gateway = setup.config(&config).start().await;
        for _ in 0..2 {
            let answer = send_to(gateway.address, &Call::payment("k")).await;
            answer.assert_problem(503, UNREACHABLE);
        }
        assert_eq!(requests.load(Ordering::SeqCst), 0, "{name}");
    }
}

/// An answer that ends with the connection, and a connection that ends without `close_notify`:
/// anybody on the way could have cut it there. It is not the whole answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_without_close_notify_is_unknown() {
    const UNTIL_CLOSE: &str = "HTTP/1.1 201 Created\r\nconnection: close\r\n\r\npaid";
    let authority = Authority::new("ca");
    for politely in [true, false] {
        let (url, requests) = upstream(&authority, "localhost", UNTIL_CLOSE, politely).await;
        let setup = Setup::to(&url);
        let trusted = setup.file("ca.pem", authority.pem());
        let config = format!("[upstream]\nca_file = {trusted:?}");
        let gateway = setup.config(&config).start().await;
        let answer = send_to(gateway.address, &Call::payment("k")).await;
        let retry = send_to(gateway.address, &Call::payment("k")).await;
        if politely {
            assert_eq!((answer.status.as_u16(), retry.is_replay()), (201, true));
        } else {
            answer.assert_problem(502, UNKNOWN);
            retry.assert_problem(409, UNKNOWN);
        }
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }
}

/// A gateway whose upstream makes it wait for TLS: what it sends is not read.
async fn kept_waiting(times: &str, config: &str) -> (Gateway, FaultProxy, Arc<AtomicUsize>) {
    let authority = Authority::new("ca");
    let (url, requests) = upstream(&authority, "localhost", OK, true).await;
    let port: u16 = url
        .rsplit(':')
        .next()
        .expect("a port")
        .parse()
        .expect("one");
    let proxy = FaultProxy::start(([127, 0, 0, 1], port).into()).expect("a proxy");
    proxy.set(Plan::to_server(Fault::Pause)).await;
    let setup = Setup::to(&format!("https://localhost:{}", proxy.address().port()));
    let trusted = setup.file("ca.pem", authority.pem());
    let config = format!("{config}\n[upstream]\nca_file = {trusted:?}\n{times}");
    (setup.config(&config).start().await, proxy, requests)
}

/// A process that is stopped while it connects, for longer than its lease: others may have decided
/// about the key meanwhile, even that it may run again. It must not be sent any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_lease_ends_while_connecting_is_not_sent() {
    let lease = "lease = \"1s\"\n[engine]\nstore_timeout = \"300ms\"";
    let (gateway, proxy, requests) = kept_waiting("connect_timeout = \"30s\"", lease).await;
    let address = gateway.address;
    let running = tokio::spawn(async move { send_to(address, &Call::payment("k")).await });
    proxy.until(|counts| counts.connections == 1).await;
    gateway.signal("STOP").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    proxy.mend().await;
    gateway.signal("CONT").await;
    let answer = soon(running).await.expect("a client");
    assert_ne!(answer.status.as_u16(), 201, "{answer:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 0, "sent after its lease");
}

/// The time for a request is over before there is a connection: nothing was sent, so the key is
/// free, and its retry executes.
#[tokio::test(flavor = "multi_thread")]
async fn time_that_runs_out_while_connecting_leaves_the_key_free() {
    let times = "connect_timeout = \"30s\"\ntotal_timeout = \"300ms\"";
    let (gateway, proxy, requests) = kept_waiting(times, "").await;
    let call = Call::payment("k");
    let answer = send_to(gateway.address, &call).await;
    answer.assert_problem(503, UNREACHABLE);
    proxy.mend().await;
    let answer = send_to(gateway.address, &call).await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

fn speaking(authority: &Authority, protocols: &[&str]) -> ClientConfig {
    let mut config = authority.client(None);
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    config
}

/// Whoever offers both gets HTTP/2; whoever offers the old one gets that. The key is the same.
#[tokio::test(flavor = "multi_thread")]
async fn clients_agree_on_http_2_or_http_1_1() {
    let authority = Authority::new("ca");
    let stage = stage(&authority, |_| String::new()).await;
    let call = Call::payment("k");
    let mut answers = Vec::new();
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some(&b"h2"[..])),
        (&["http/1.1"], Some(b"http/1.1")),
        (&["h2"], Some(b"h2")),
        (&[], None),
    ] {
        let stream = connect(stage.address(), speaking(&authority, offered))
            .await
            .expect("TLS");
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        let answer = if agreed == Some(b"h2") {
            let sender = http2::over(stream).await;
            http2::ask(&sender, &call).await
        } else {
            soon(call_over(stream, &call)).await.expect("an answer")
        };
        stage.check(&call, &answer);
        assert_eq!(answer.is_replay(), !answers.is_empty(), "{offered:?}");
        answers.push(answer.body);
    }
    assert!(answers.iter().all(|body| *body == answers[0]));
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// Encryption hides an ambiguous request from everybody but the two ends.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_over_tls_get_400() {
    let authority = Authority::new("ca");
    let stage = stage(&authority, |_| String::new()).await;
    for offered in [&["http/1.1"][..], &["h2", "http/1.1"], &[]] {
        for lines in AMBIGUOUS {
            let config = speaking(&authority, offered);
            let mut stream = connect(stage.address(), config).await.expect("TLS");
            let request = ambiguous("POST /payments HTTP/1.1", lines, 1);
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = Vec::new();
            // The end may come without `close_notify`.
            let _ = soon(stream.read_to_end(&mut answer)).await;
            let answer = String::from_utf8_lossy(&answer);
            // Also where HTTP/2 was agreed on: what is sent decides.
            assert!(answer.starts_with("HTTP/1.1 400 "), "{lines:?}: {answer}");
            let answers = answer.matches("HTTP/1.1 ").count();
            assert_eq!(answers, 1, "{lines:?}: {answer}");
        }
    }
    assert_eq!(stage.total(), 0);
    stage.finish();
}

/// An upstream that speaks HTTP/2 over TLS, if that is what was agreed on.
async fn http2_upstream(authority: &Authority, protocols: &[&str]) -> (String, Arc<AtomicUsize>) {
    let mut config = Arc::unwrap_or_clone(authority.issue("localhost").server());
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else {
                    return;
                };
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    assert_eq!(request.uri().scheme_str(), Some("https"));
                    assert_eq!(request.uri().host(), Some("api.test"));
                    count.fetch_add(1, Ordering::SeqCst);
                    let created = http::Response::builder().status(201).body(());
                    let sent = respond.send_response(created.expect("an answer"), false);
                    let paid = sent.and_then(|mut body| body.send_data("paid".into(), true));
                    paid.expect("sent");
                }
            });
        }
    });
    (format!("https://localhost:{port}"), requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_over_tls_is_asked_over_http_2() {
    let authority = Authority::new("ca");
    let (url, requests) = http2_upstream(&authority, &["h2", "http/1.1"]).await;
    let setup = Setup::to(&url);
    let trusted = setup.file("ca.pem", authority.pem());
    let config = format!("[upstream]\nhttp2 = true\nca_file = {trusted:?}");
    let gateway = setup.config(&config).start().await;
    for (key, replayed) in [("a", false), ("a", true), ("b", false)] {
        let answer = send_to(gateway.address, &Call::payment(key)).await;
        let seen = (answer.status.as_u16(), &answer.body[..]);
        assert_eq!(seen, (201, &b"paid"[..]), "{answer:?}");
        assert_eq!(answer.is_replay(), replayed);
    }
    let unguarded = Call::new(http::Method::GET, "/");
    let answer = send_to(gateway.address, &unguarded).await;
    assert_eq!(&answer.body[..], b"paid");
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

/// An upstream that does not agree to HTTP/2 is told nothing, so nothing was executed.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_does_not_agree_to_http_2_gets_nothing() {
    let authority = Authority::new("ca");
    for protocols in [&["http/1.1"][..], &[]] {
        let (url, requests) = http2_upstream(&authority, protocols).await;
        let setup = Setup::to(&url);
        let trusted = setup.file("ca.pem", authority.pem());
        let config = format!("[upstream]\nhttp2 = true\nca_file = {trusted:?}");
        let gateway = setup.config(&config).start().await;
        for _ in 0..2 {
            let answer = send_to(gateway.address, &Call::payment("k")).await;
            answer.assert_problem(503, UNREACHABLE);
        }
        assert_eq!(requests.load(Ordering::SeqCst), 0);
    }
}
