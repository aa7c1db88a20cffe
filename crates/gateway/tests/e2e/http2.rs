//! HTTP/2 on either side, and what its errors prove. `http2_sharing.rs` has many requests on one
//! connection to the API.

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_conformance::http_suite::{Answer, same};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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

/// How a client begins, by hand: its preface, and settings that change nothing.
pub(crate) const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A GET by hand, of a host `a`.
pub(crate) fn get_by_hand(stream: u32) -> Vec<u8> {
    let frame = [&[0, 0, 6, 1, 5], &stream.to_be_bytes()[..]].concat();
    [&frame[..], b"\x82\x86\x84\x01\x01a"].concat()
}

/// Waits for the head of an answer.
pub(crate) async fn head_of_answer(wire: &mut Wire) {
    loop {
        let frame = wire.bytes(9).await.expect("an answer");
        let length = usize::from(frame[1]) << 8 | usize::from(frame[2]);
        wire.bytes(length).await.expect("all of it");
        assert_ne!(frame[3], 7, "the connection ends");
        if frame[3] == 1 {
            return;
        }
    }
}

/// Many people's requests may go over one connection, and all of them be taken back at once.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_requests_as_may_be_open_are_taken_back_in_one_go() {
    const TAKEN_BACK: u32 = 200;
    let stage = Stage::start().await;
    let mut wire = Wire::connect(stage.address()).await;
    let mut flood = BEGINNING.to_vec();
    for stream in (1..).step_by(2).take(TAKEN_BACK as usize) {
        flood.extend(get_by_hand(stream));
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(stream.to_be_bytes());
        flood.extend([0, 0, 0, 8]);
    }
    flood.extend(get_by_hand(TAKEN_BACK * 2 + 1));
    wire.send(flood).await;
    head_of_answer(&mut wire).await;
    stage.finish();
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

/// An answer that is not stored goes to its client as it comes. Whoever leaves meanwhile takes nothing
/// back at the API: that could cost the connection on which others wait for what they executed.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_an_answer_to_an_execution_takes_nothing_back() {
    let (upstream, gateway) = in_front_of(&[Act::Begin]).await;
    let (client, _ended) = flooding(gateway.address).await;
    let mut client = client.ready().await.expect("ready");
    let mut send = |key: &str| {
        let request =
            http::Request::post("http://api.test/payments").header("idempotency-key", key);
        let sent = client.send_request(request.body(()).expect("a request"), true);
        sent.expect("sent")
    };
    let (answer, mut body) = send("left");
    assert_eq!(soon(answer).await.expect("an answer").status(), 206);
    body.send_reset(h2::Reason::CANCEL);
    drop(body);
    let (answer, _body) = send("next");
    assert_eq!(soon(answer).await.expect("an answer").status(), 201);
    assert_eq!((upstream.requests(), upstream.taken_back()), (2, 0));
}

/// What an API still sends for requests that were taken back is no attack: the connection stays, with
/// everybody else who waits there.
#[tokio::test(flavor = "multi_thread")]
async fn frames_for_requests_that_were_taken_back_end_no_connection() {
    const LEAVING: usize = 60;
    let mut acts = [Act::Hold; 1 + LEAVING];
    acts[0] = Act::Outlast {
        taken_back: LEAVING,
    };
    let upstream = Frames::start(&acts).await;
    let config = "[upstream]\nhttp2 = true\n[limits]\nworkers = 1";
    let setup = Setup::new(upstream.address).config(config);
    let gateway = setup.start().await;
    let address = gateway.address;
    let waiting = tokio::spawn(async move {
        let get = Call::new(Method::GET, "/");
        send_to(address, &get).await
    });
    until(|| (upstream.requests() == 1).then_some(())).await;
    let (client, _ended) = flooding(address).await;
    let mut client = client.ready().await.expect("ready");
    let mut leaving = Vec::new();
    for _ in 0..LEAVING {
        let request = http::Request::get("http://api.test/").body(());
        let sent = client.send_request(request.expect("a request"), true);
        leaving.push(sent.expect("sent"));
    }
    until(|| (upstream.requests() == 1 + LEAVING).then_some(())).await;
    for (_, body) in &mut leaving {
        body.send_reset(h2::Reason::CANCEL);
    }
    let answer = soon(waiting).await.expect("an answer");
    assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
}
