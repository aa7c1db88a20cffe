//! HTTP/2 on either side, and what its errors prove.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_conformance::http_suite::{Answer, same};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::kit::{
    Act, Call, Frames, Gateway, IN_PROGRESS, Scripted, Setup, Stage, UNKNOWN, UNREACHABLE, Wire,
    send_to, soon, until,
};
use crate::lost::OK;

const REFUSED_STREAM: u32 = 7;

pub(crate) type Sender = http2::SendRequest<Full<Bytes>>;

/// A client that knows beforehand that the gateway speaks HTTP/2.
async fn client(stage: &Stage) -> Sender {
    let socket = TcpStream::connect(stage.address())
        .await
        .expect("connected");
    socket.set_nodelay(true).expect("an option");
    over(socket).await
}

/// The same over a connection that is there.
pub(crate) async fn over<I>(stream: I) -> Sender
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

pub(crate) async fn ask(sender: &Sender, call: &Call) -> Answer {
    let mut request = call.clone().without("host").request();
    let target = format!("http://api.test{}", call.target);
    *request.uri_mut() = target.parse().expect("a target");
    let answered = soon(sender.clone().send_request(request)).await;
    let (head, body) = answered.expect("an answer").into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        trailers: None,
        body: body.collect().await.expect("whole").to_bytes(),
    }
}

/// The protocol on the wire is no part of the operation: a retry over the other one is a retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_over_http_1_gets_the_answer_of_http_2() {
    let stage = Stage::start().await;
    let sender = client(&stage).await;
    let call = Call::payment("k");
    let first = ask(&sender, &call).await;
    first.assert_executed(201);
    let retry = ask(&sender, &call).await;
    assert!(retry.is_replay());
    same(&first, &retry);
    stage.assert_replays(&call, &first).await;
    assert_eq!(stage.total(), 1);
    stage.finish();
}

/// One connection, two hundred streams, one key.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_streams_with_one_key_one_executes() {
    let stage = Stage::start().await;
    let sender = client(&stage).await;
    let call = Call::payment("k");
    let mut streams = JoinSet::new();
    for _ in 0..200 {
        let (sender, call) = (sender.clone(), call.clone());
        streams.spawn(async move { ask(&sender, &call).await });
    }
    let mut executed = 0;
    while let Some(answer) = streams.join_next().await {
        let answer = answer.expect("a stream");
        if answer.code() != IN_PROGRESS {
            assert_eq!(answer.status.as_u16(), 201);
            executed += usize::from(!answer.is_replay());
        }
    }
    assert_eq!((executed, stage.total()), (1, 1));
    stage.finish();
}

/// Resetting a stream is how HTTP/2 clients leave. The work goes on, and the connection too.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_reset_cancels_nothing() {
    let stage = Stage::start().await;
    let sender = client(&stage).await;
    let call = Call::payment("k").header("x-test-hold", "gate");
    let (held, asking) = (call.clone(), sender.clone());
    let task = tokio::spawn(async move { ask(&asking, &held).await });
    stage.upstream.arrived("gate").await;
    task.abort();
    stage.upstream.open("gate");
    let retry = stage.settled(&Call::payment("k")).await;
    assert!(retry.is_replay(), "lost completion: {retry:?}");
    ask(&sender, &Call::payment("next"))
        .await
        .assert_executed(201);
    stage.finish();
}

/// Pings are answered by whoever has a socket. A connection that asks for nothing must not keep its
/// place for that, and one that waits for its answer must.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_requests_ends_however_well_it_answers_pings() {
    let stage = Stage::with("[limits]\nidle_timeout = \"300ms\"").await;
    let (waiting, idle) = (client(&stage).await, client(&stage).await);
    let held = Call::payment("held").header("x-test-hold", "gate");
    let asking = waiting.clone();
    let answer = tokio::spawn(async move { ask(&asking, &held).await });
    stage.upstream.arrived("gate").await;
    for key in ["a", "b"] {
        ask(&idle, &Call::payment(key)).await.assert_executed(201);
    }
    until(|| idle.is_closed().then_some(())).await;
    assert!(!waiting.is_closed());
    stage.upstream.open("gate");
    answer.await.expect("an answer").assert_executed(201);
    stage.finish();
}

type Flood = h2::client::SendRequest<Bytes>;

/// A connection for a flood of requests.
async fn flooding(address: SocketAddr) -> (Flood, JoinHandle<()>) {
    let socket = TcpStream::connect(address).await.expect("connected");
    socket.set_nodelay(true).expect("an option");
    let shaken = h2::client::handshake(socket).await;
    let (client, connection) = shaken.expect("HTTP/2");
    let ended = tokio::spawn(async move { drop(connection.await) });
    (client, ended)
}

/// Sends this many requests, waits for `between`, and takes all of them back. `None` when the
/// connection has ended.
async fn ask_and_take_back(
    client: Flood,
    first: usize,
    count: usize,
    between: impl Future<Output = ()>,
) -> Option<Flood> {
    let (mut client, mut open) = (client, Vec::new());
    for number in first..first + count {
        client = client.ready().await.ok()?;
        let request = http::Request::builder()
            .method("POST")
            .uri("http://api.test/payments")
            .header("idempotency-key", format!("flood{number}"))
            .header("x-test-hold", "flood")
            .body(())
            .expect("a request");
        open.push(client.send_request(request, true).ok()?);
    }
    between.await;
    for (answer, mut body) in open {
        body.send_reset(h2::Reason::CANCEL);
        drop(answer);
    }
    Some(client)
}

/// A flood of requests that are taken back at once: the connection is closed, and others are
/// served meanwhile and afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_that_are_taken_back_at_once_is_cut_off() {
    const FLOOD: usize = 50_000;
    let stage = Stage::start().await;
    let (mut client, ended) = flooding(stage.address()).await;
    let flood = tokio::spawn(async move {
        for number in 0..FLOOD {
            let yielded = tokio::task::yield_now();
            match ask_and_take_back(client, number, 1, yielded).await {
                Some(going_on) => client = going_on,
                None => return number,
            }
        }
        FLOOD
    });
    for number in 0..20 {
        let decent = Call::payment(&format!("decent{number}"));
        stage.send(&decent).await.assert_executed(201);
    }
    let sent = soon(flood).await.expect("the flood");
    assert!(sent < FLOOD, "the whole flood was taken");
    soon(ended).await.expect("the end");
    println!("cut off after {sent} requests");
    stage.upstream.open("flood");
    stage
        .send(&Call::payment("after"))
        .await
        .assert_executed(201);
    stage.finish();
}

/// The same where each request has reached the upstream before it is taken back. Each costs a
/// durable claim, so their number is limited: no more than were answered and 256, and what may be
/// open at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_that_are_taken_back_at_work_is_cut_off() {
    const WAVE: usize = 64;
    const WAVES: usize = 40;
    let upstream = Scripted::start(|mut wire, seen| async move {
        while let Some(request) = seen.request(&mut wire).await {
            if request.header("x-test-hold") == "flood" {
                // Not answered.
                wire.rest().await;
            }
            wire.send(OK).await;
        }
    })
    .await;
    let gateway = Setup::new(upstream.address).start().await;
    let (client, ended) = flooding(gateway.address).await;
    let (mut client, mut sent) = (Some(client), 0);
    while let Some(going_on) = client.take().filter(|_| sent < WAVE * WAVES) {
        let all_arrived = until(|| {
            let gone = ended.is_finished();
            (gone || upstream.seen.all().len() >= sent + WAVE).then_some(())
        });
        client = ask_and_take_back(going_on, sent, WAVE, all_arrived).await;
        sent += WAVE;
    }
    assert!(sent < WAVE * WAVES, "the whole flood was taken");
    soon(ended).await.expect("the end");
    println!("cut off after {sent} requests");
    assert!(sent <= 256 + 2 * 256, "only after {sent}");
    let decent = send_to(gateway.address, &Call::payment("decent")).await;
    assert_eq!((decent.status.as_u16(), decent.is_replay()), (201, false));
}

/// Taking requests back is no crime: a client that also lets requests come to their answers keeps
/// its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_some_requests_back_keeps_its_connection() {
    let stage = Stage::start().await;
    let sender = client(&stage).await;
    for number in 0..600 {
        let call = Call::payment(&format!("k{number}"));
        let answer = ask(&sender, &call).await;
        answer.assert_executed(201);
        let (asking, left) = (
            sender.clone(),
            call.header("idempotency-key", &format!("left{number}")),
        );
        let task = tokio::spawn(async move { ask(&asking, &left).await });
        tokio::task::yield_now().await;
        task.abort();
    }
    ask(&sender, &Call::payment("last"))
        .await
        .assert_executed(201);
    stage.finish();
}

/// A client that takes its request back in the middle of the body, with a code that libraries
/// take for an ordinary end. The body must not be taken for a whole one: it might lack a digit.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_reset_in_its_body_executes_nothing() {
    let stage = Stage::start().await;
    for (number, reason) in [0, 8, 2, 5].into_iter().cycle().take(40).enumerate() {
        let socket = TcpStream::connect(stage.address())
            .await
            .expect("connected");
        let (client, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        let mut client = client.ready().await.expect("ready");
        let method = if number % 8 < 4 { "POST" } else { "PUT" };
        let request = http::Request::builder()
            .method(method)
            .uri("http://api.test/payments")
            .header("idempotency-key", "k")
            .body(());
        let sent = client.send_request(request.expect("a request"), false);
        let (answer, mut body) = sent.expect("sent");
        body.send_data("{\"amount\":12".into(), false)
            .expect("sent");
        if number % 3 > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        body.send_reset(h2::Reason::from(reason));
        assert!(soon(answer).await.is_err(), "an answer to half a request");
        drop((client, body));
        connection.abort();
    }
    stage
        .send(&Call::payment("decent"))
        .await
        .assert_executed(201);
    assert_eq!(stage.total(), 1, "half a request was executed");
    stage.finish();
}

async fn in_front_of(acts: &[Act]) -> (Frames, Gateway) {
    let upstream = Frames::start(acts).await;
    let setup = Setup::new(upstream.address).config("[upstream]\nhttp2 = true");
    (upstream, setup.start().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_2_upstream_is_asked_once() {
    let (upstream, gateway) = in_front_of(&[]).await;
    for replayed in [false, true] {
        let answer = send_to(gateway.address, &Call::payment("k")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (201, &b"paid"[..])
        );
        assert_eq!(answer.is_replay(), replayed);
    }
    assert_eq!(upstream.requests(), 1);
}

/// `REFUSED_STREAM`, and a GOAWAY whose last stream is an earlier one, are the upstream's word that
/// it did nothing (RFC 9113, 8.7). The key is free at once, and the gateway does not retry alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_not_processed_releases_the_key() {
    for act in [Act::Reset(REFUSED_STREAM), Act::GoAway { below: 1 }] {
        let (upstream, gateway) = in_front_of(&[act]).await;
        let call = Call::payment("k");
        let first = send_to(gateway.address, &call).await;
        first.assert_problem(503, UNREACHABLE);
        assert_eq!(
            upstream.requests(),
            1,
            "{act:?}: no retry behind the client's back"
        );
        let retry = send_to(gateway.address, &call).await;
        assert_eq!(retry.status.as_u16(), 201, "{act:?}: {retry:?}");
        assert!(!retry.is_replay());
    }
}

/// Any other end says nothing about the charge.
#[tokio::test(flavor = "multi_thread")]
async fn any_other_end_of_a_stream_is_unknown() {
    let resets = [0, 1, 2, 3, 5, 8, 11, 13].map(Act::Reset);
    let others = [
        Act::HalfThenReset(0),
        Act::HalfThenReset(REFUSED_STREAM),
        Act::HalfThenReset(2),
        Act::GoAway { below: 0 },
        Act::Close,
    ];
    for act in resets.into_iter().chain(others) {
        let (upstream, gateway) = in_front_of(&[act]).await;
        let call = Call::payment("k");
        let first = send_to(gateway.address, &call).await;
        assert_eq!(
            (first.status.as_u16(), first.code().as_str()),
            (502, UNKNOWN),
            "{act:?}"
        );
        send_to(gateway.address, &call)
            .await
            .assert_problem(409, UNKNOWN);
        assert_eq!(upstream.requests(), 1, "{act:?} was asked again");
    }
}

/// An API that speaks HTTP/2 alone and allows a hundred streams. `/big` answers with more than any
/// window holds, `/drop` before the request is there, and everything else once `crowd` requests have
/// arrived.
struct Crowded {
    address: SocketAddr,
    arrived: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Crowded {
    async fn start(crowd: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let one = Self {
            address: listener.local_addr().expect("an address"),
            arrived: Arc::default(),
            connections: Arc::default(),
        };
        let (arrived, connections) = (Arc::clone(&one.arrived), Arc::clone(&one.connections));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let arrived = Arc::clone(&arrived);
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let arrived = Arc::clone(&arrived);
                    async move { Ok::<_, Infallible>(answer_crowd(request, &arrived, crowd).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(100)
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        one
    }

    /// A gateway with one worker before it.
    async fn gateway(&self) -> Gateway {
        let config = "[upstream]\nhttp2 = true\n[limits]\nworkers = 1";
        Setup::new(self.address).config(config).start().await
    }

    async fn has_seen(&self, count: usize) {
        until(|| (self.arrived.load(Ordering::SeqCst) >= count).then_some(())).await;
    }
}

async fn answer_crowd(
    request: http::Request<Incoming>,
    arrived: &AtomicUsize,
    crowd: usize,
) -> http::Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let reading = tokio::spawn(request.into_body().collect());
    if path == "/drop" {
        arrived.fetch_add(1, Ordering::SeqCst);
        let refused = http::Response::builder().status(413);
        return refused.body(Full::default()).expect("an answer");
    }
    drop(reading.await);
    arrived.fetch_add(1, Ordering::SeqCst);
    if path == "/big" {
        return http::Response::new(Full::from(vec![b'x'; 64 << 20]));
    }
    until(|| (arrived.load(Ordering::SeqCst) >= crowd).then_some(())).await;
    let paid = http::Response::builder().status(201);
    paid.body(Full::from("paid")).expect("an answer")
}

/// A request that passes, and one that executes.
async fn both_are_answered(gateway: &Gateway, number: usize) {
    let mut passing = Call::payment("none");
    passing.method = Method::PUT;
    for call in [passing, Call::payment(&format!("k{number}"))] {
        let answer = send_to(gateway.address, &call).await;
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    }
}

/// Requests of a worker share connections, and so their windows.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_client_does_not_read_keeps_no_other_answer_back() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway().await;
    both_are_answered(&gateway, 0).await;
    let mut silent = Vec::new();
    for count in 1..=3 {
        let mut wire = Wire::connect(gateway.address).await;
        wire.send("GET /big HTTP/1.1\r\nHost: api.test\r\n\r\n")
            .await;
        api.has_seen(2 + count).await;
        silent.push(wire);
    }
    for number in 1..=20 {
        both_are_answered(&gateway, number).await;
    }
}

/// An upload that its API has answered already takes its place on the connection until it ends. Others
/// would wait for it within the connection, and nobody would know that they were never sent.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_drip_after_their_answer_take_nobody_elses_place() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway().await;
    let mut dripping = Vec::new();
    for count in 1..=110 {
        let mut wire = Wire::connect(gateway.address).await;
        wire.send(
            "PUT /drop HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
        )
        .await;
        api.has_seen(count).await;
        dripping.push(wire);
    }
    for number in 0..3 {
        both_are_answered(&gateway, number).await;
    }
}

/// A request that waits within a connection for its turn is not known to be unsent when its time is
/// over. So it never waits there; and a crowd makes no more connections than it needs.
#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_a_connection_takes_have_another_one() {
    const CROWD: usize = 150;
    let api = Crowded::start(1 + CROWD).await;
    let gateway = api.gateway().await;
    let mut asking = JoinSet::new();
    for number in 0..=CROWD {
        let (address, call) = (gateway.address, Call::payment(&format!("k{number}")));
        asking.spawn(async move { send_to(address, &call).await });
        if number == 0 {
            api.has_seen(1).await;
        }
    }
    while let Some(answer) = asking.join_next().await {
        assert_eq!(answer.expect("an answer").status.as_u16(), 201);
    }
    assert_eq!(api.connections.load(Ordering::SeqCst), 2);
}

/// Clients may stall and take back what passes as often as they like. What they do to a connection must
/// not be done to one with executions.
#[tokio::test(flavor = "multi_thread")]
async fn what_passes_and_what_executes_have_connections_apart() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway().await;
    for number in 0..3 {
        both_are_answered(&gateway, number).await;
    }
    assert_eq!(api.connections.load(Ordering::SeqCst), 2);
}

/// Everybody who waits for one attempt to connect hears of its failure; nobody waits for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_told_together_that_there_is_no_connection() {
    // It takes connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let config = "[upstream]\nhttp2 = true\nconnect_timeout = \"2s\"\n[limits]\nworkers = 1";
    let gateway = Setup::to(&format!("https://{address}"))
        .config(config)
        .start()
        .await;
    let mut asking = JoinSet::new();
    for number in 0..20 {
        let (address, call) = (gateway.address, Call::payment(&format!("k{number}")));
        asking.spawn(async move { send_to(address, &call).await });
    }
    while let Some(answer) = asking.join_next().await {
        let answer = answer.expect("an answer");
        answer.assert_problem(503, UNREACHABLE);
    }
}
