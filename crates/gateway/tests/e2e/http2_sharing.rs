//! Many requests on one HTTP/2 connection to the API: who has a place, and for how long.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::kit::{
    Act, Authority, Call, Frames, Gateway, Setup, UNKNOWN, UNREACHABLE, Wire, send_to, soon, until,
};

/// What one connection takes.
const STREAMS: usize = 100;

/// An API that speaks HTTP/2 alone and allows a hundred streams. `/big` answers with more than any
/// window holds, `/drop` before the request is there, `/stuck` too, and never reads it, `/held` when it
/// is told to, and everything else once `crowd` requests have arrived.
struct Crowded {
    address: SocketAddr,
    seen: Arc<Seen>,
}

struct Seen {
    crowd: usize,
    arrived: AtomicUsize,
    connections: AtomicUsize,
    /// Of the connections.
    open: AtomicUsize,
    /// How many that are held may be answered.
    released: Semaphore,
}

impl Crowded {
    async fn start(crowd: usize) -> Self {
        let (one, listener) = Self::bind(crowd).await;
        let seen = Arc::clone(&one.seen);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(socket, Arc::clone(&seen)));
            }
        });
        one
    }

    /// The same over TLS, for one connection. To others it says nothing.
    async fn start_for_one(authority: &Authority) -> Self {
        let (one, listener) = Self::bind(0).await;
        let mut config = authority.issue("localhost").server();
        let protocols = &mut Arc::get_mut(&mut config)
            .expect("nobody else's")
            .alpn_protocols;
        protocols.push(b"h2".to_vec());
        let (seen, acceptor) = (Arc::clone(&one.seen), TlsAcceptor::from(config));
        tokio::spawn(async move {
            let mut ignored = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                if seen.connections.fetch_add(1, Ordering::SeqCst) > 0 {
                    ignored.push(socket);
                    continue;
                }
                let stream = acceptor.accept(socket).await.expect("TLS");
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        one
    }

    async fn bind(crowd: usize) -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let seen = Seen {
            crowd,
            arrived: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            released: Semaphore::new(0),
        };
        let one = Self {
            address: listener.local_addr().expect("an address"),
            seen: Arc::new(seen),
        };
        (one, listener)
    }

    /// A gateway with one worker before it.
    async fn gateway(&self) -> Gateway {
        // Longer than a pause of the machine.
        self.gateway_with("pool_idle_timeout = \"10s\"").await
    }

    async fn gateway_with(&self, upstream: &str) -> Gateway {
        let config = format!("[limits]\nworkers = 1\n[upstream]\nhttp2 = true\n{upstream}");
        Setup::new(self.address).config(&config).start().await
    }

    /// The same over TLS.
    async fn gateway_over_tls(&self, authority: &Authority, upstream: &str) -> Gateway {
        let setup = Setup::to(&format!("https://localhost:{}", self.address.port()));
        let trusted = setup.file("ca.pem", authority.pem());
        let config = format!(
            "[limits]\nworkers = 1\n[upstream]\nhttp2 = true\nca_file = {trusted:?}\n{upstream}"
        );
        setup.config(&config).start().await
    }

    fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    async fn has_seen(&self, count: usize) {
        until(|| (self.seen.arrived.load(Ordering::SeqCst) >= count).then_some(())).await;
    }

    /// Waits until it has this many open connections.
    async fn has_open(&self, count: usize) {
        until(|| (self.seen.open.load(Ordering::SeqCst) == count).then_some(())).await;
    }

    /// Has all places of a connection taken by these calls.
    async fn fill(&self, gateway: &Gateway, call: impl Fn(usize) -> Call) -> JoinSet<u16> {
        let mut held = JoinSet::new();
        for number in 0..STREAMS {
            let (address, call) = (gateway.address, call(number));
            held.spawn(async move { send_to(address, &call).await.status.as_u16() });
        }
        self.has_seen(STREAMS).await;
        held
    }
}

async fn serve<I>(stream: I, seen: Arc<Seen>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let asked = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = Arc::clone(&asked);
        async move { Ok::<_, Infallible>(answer(request, &seen).await) }
    });
    seen.open.fetch_add(1, Ordering::SeqCst);
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(u32::try_from(STREAMS).expect("few"))
        .initial_stream_window_size(65_535)
        .serve_connection(TokioIo::new(stream), service);
    // However it ends.
    let _ = connection.await;
    seen.open.fetch_sub(1, Ordering::SeqCst);
}

async fn answer(request: Request<Incoming>, seen: &Seen) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let reading = tokio::spawn(async move {
        if request.uri().path() == "/stuck" {
            std::future::pending::<()>().await;
        }
        drop(request.into_body().collect().await);
    });
    if path == "/drop" || path == "/stuck" {
        seen.arrived.fetch_add(1, Ordering::SeqCst);
        let refused = Response::builder().status(413);
        return refused.body(Full::default()).expect("an answer");
    }
    drop(reading.await);
    seen.arrived.fetch_add(1, Ordering::SeqCst);
    if path == "/big" {
        return Response::new(Full::from(vec![b'x'; 64 << 20]));
    }
    if path == "/held" {
        seen.released.acquire().await.expect("open").forget();
    }
    until(|| (seen.arrived.load(Ordering::SeqCst) >= seen.crowd).then_some(())).await;
    let paid = Response::builder().status(201);
    paid.body(Full::from("paid")).expect("an answer")
}

/// A request that nobody guards.
fn passing(target: &str) -> Call {
    Call::new(Method::PUT, target).body("{}")
}

/// A request that passes, and one that executes.
async fn both_are_answered(gateway: &Gateway, number: usize) {
    for call in [passing("/"), Call::payment(&format!("k{number}"))] {
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
    assert_eq!(api.connections(), 2);
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
    assert_eq!(api.connections(), 2);
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

/// At a load of about a hundred there is a second connection now and again. It is kept for the next
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_is_not_made_again_for_every_request() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway().await;
    let held = api.fill(&gateway, |_| passing("/held")).await;
    for _ in 0..5 {
        let answer = send_to(gateway.address, &passing("/")).await;
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    }
    assert_eq!(api.connections(), 2);
    drop(held);
}

/// One that died while nobody used it would take a request with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_to_the_api_is_closed() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway_with("pool_idle_timeout = \"300ms\"").await;
    for number in 0..2 {
        both_are_answered(&gateway, number).await;
        api.has_open(0).await;
    }
}

/// What others send, and what is sent to see whether the API lives, is no progress of this request.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_is_given_up_however_busy_its_connection() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway_with("response_timeout = \"1s\"").await;
    let address = gateway.address;
    let busy = tokio::spawn(async move {
        loop {
            send_to(address, &passing("/")).await;
        }
    });
    api.has_seen(1).await;
    let answer = send_to(address, &passing("/held")).await;
    assert_eq!(answer.status.as_u16(), 504, "{answer:?}");
    busy.abort();
}

/// An upload may take longer than an answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_goes_on_is_waited_for() {
    const PIECES: usize = 20;
    let api = Crowded::start(0).await;
    let gateway = api.gateway_with("response_timeout = \"1s\"").await;
    let mut wire = Wire::connect(gateway.address).await;
    let head = format!("PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: {PIECES}\r\n\r\n");
    wire.send(head).await;
    for _ in 0..PIECES {
        // All together take twice the time for an answer.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        wire.send("x").await;
    }
    assert_eq!(wire.message().await.expect("an answer").status(), 201);
}

/// An upload that its API has answered and does not take waits for nothing. With its client gone it
/// would hold its place for as long as the API lives.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_takes_does_not_outlive_its_client() {
    let api = Crowded::start(0).await;
    let gateway = api.gateway_with("idle_timeout = \"300ms\"").await;
    let mut wire = Wire::connect(gateway.address).await;
    let head = "PUT /stuck HTTP/1.1\r\nHost: api.test\r\nContent-Length: 1000000\r\n\r\n";
    wire.send(head).await;
    wire.send(vec![b'x'; 400_000]).await;
    assert_eq!(wire.message().await.expect("an answer").status(), 413);
    drop(wire);
    api.has_open(0).await;
}

/// Within a connection a request waits for an API that takes fewer at once. When nobody waits for it any
/// more, a person may find that nothing was charged, and let the retry run: it must not be sent then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_within_a_connection_is_not_sent_later() {
    let upstream = Frames::start(&[Act::Shut]).await;
    let config = "[limits]\nworkers = 1\n[upstream]\nhttp2 = true\nresponse_timeout = \"300ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let first = send_to(gateway.address, &Call::payment("k0")).await;
    assert_eq!(first.status.as_u16(), 201, "{first:?}");
    let late = send_to(gateway.address, &Call::payment("k1")).await;
    late.assert_problem(504, UNKNOWN);
    assert_eq!(upstream.requests(), 1);
    upstream.open();
    until(|| (upstream.taken_back() + upstream.requests() > 1).then_some(())).await;
    assert_eq!((upstream.requests(), upstream.taken_back()), (1, 1));
}

/// More than a stream's first window.
const LARGE_BYTES: usize = 300_000;

/// The same for what the API has not given room for. It gets less than the request, whenever it gives
/// room.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_in_mid_body_is_not_completed_later() {
    let upstream = Frames::start(&[]).await;
    let config = "[limits]\nworkers = 1\n[upstream]\nhttp2 = true\nresponse_timeout = \"300ms\"";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let large = Call::payment("large").body(vec![b'x'; LARGE_BYTES]);
    let late = send_to(gateway.address, &large).await;
    late.assert_problem(504, UNKNOWN);
    until(|| (upstream.taken_back() == 1).then_some(())).await;
    upstream.open();
    let next = send_to(gateway.address, &Call::payment("next")).await;
    assert_eq!(next.status.as_u16(), 201, "{next:?}");
    assert_eq!(upstream.requests(), 1, "the next one alone");
}

/// A success that comes before the request has left cannot be about this request, also where others go
/// over the same connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_success_is_not_trusted() {
    let upstream = Frames::start(&[Act::Haste]).await;
    let config = "[limits]\nworkers = 1\n[upstream]\nhttp2 = true";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    let first = send_to(gateway.address, &Call::payment("k0")).await;
    assert_eq!(first.status.as_u16(), 201, "{first:?}");
    let large = Call::payment("large").body(vec![b'x'; LARGE_BYTES]);
    for status in [502, 409] {
        let answer = send_to(gateway.address, &large).await;
        answer.assert_problem(status, UNKNOWN);
    }
}

/// A refusal that comes so early frees the key. The rest of the request must not follow: the retry would
/// be another one beside it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_early_is_not_sent_to_its_end() {
    let upstream = Frames::start(&[Act::HastyRefusal]).await;
    let config = "[limits]\nworkers = 1\n[upstream]\nhttp2 = true";
    let gateway = Setup::new(upstream.address).config(config).start().await;
    for body in [b"x".to_vec(), vec![b'x'; LARGE_BYTES]] {
        let call = Call::payment("k").body(body);
        let refused = send_to(gateway.address, &call).await;
        assert_eq!(refused.status.as_u16(), 400, "{refused:?}");
    }
    upstream.open();
    until(|| (upstream.taken_back() + upstream.requests() > 1).then_some(())).await;
    assert_eq!((upstream.requests(), upstream.taken_back()), (1, 1));
}

/// How many keys a gateway has executed.
async fn executions(gateway: &Gateway) -> usize {
    const NAME: &str = "api_idempotency_reserve_created_total";
    let metrics = Call::new(Method::GET, "/metrics").header("host", "127.0.0.1");
    let metrics = send_to(gateway.admin, &metrics).await;
    let text = String::from_utf8(metrics.body.to_vec()).expect("text");
    let lines = text.lines().filter(|line| line.starts_with(NAME));
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    counts.sum()
}

/// Requests that find no room wait for one of them to make a connection. That there is none is no reason
/// to refuse them if a place has become free meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_becomes_free_is_taken_by_who_waits_for_a_connection() {
    const LATE: usize = 5;
    let authority = Authority::new("ca");
    let api = Crowded::start_for_one(&authority).await;
    let config = "pool_idle_timeout = \"10s\"\nconnect_timeout = \"2s\"";
    let gateway = api.gateway_over_tls(&authority, config).await;
    let held = |number| Call {
        target: "/held".into(),
        ..Call::payment(&format!("held{number}"))
    };
    let held = api.fill(&gateway, held).await;
    let mut late = JoinSet::new();
    for number in 0..LATE {
        let (address, call) = (gateway.address, Call::payment(&format!("late{number}")));
        late.spawn(async move { send_to(address, &call).await });
    }
    soon(async { while executions(&gateway).await < STREAMS + LATE {} }).await;
    until(|| (api.connections() == 2).then_some(())).await;
    api.seen.released.add_permits(LATE);
    while let Some(answer) = soon(late.join_next()).await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.status.as_u16(), 201, "{answer:?}");
    }
    drop(held);
}

/// One connection more could not be made. That is over when the API answers on the one that is there.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_answers_is_well_again() {
    let authority = Authority::new("ca");
    let api = Crowded::start_for_one(&authority).await;
    let config =
        "connect_timeout = \"1s\"\nhealth_interval = \"100ms\"\npool_idle_timeout = \"10s\"";
    let gateway = api.gateway_over_tls(&authority, config).await;
    let is_well = async || {
        let overview = Call::new(Method::GET, "/api/v1/overview").header("host", "127.0.0.1");
        let overview = send_to(gateway.admin, &overview).await.json();
        overview["upstreams"][0]["healthy"] == true
    };
    let mut held = api.fill(&gateway, |_| passing("/held")).await;
    let answer = send_to(gateway.address, &passing("/")).await;
    answer.assert_problem(503, UNREACHABLE);
    assert!(!is_well().await);
    api.seen.released.add_permits(1);
    let answered = soon(held.join_next()).await.expect("one of them");
    assert_eq!(answered.expect("an answer"), 201);
    soon(async {
        while !is_well().await {
            send_to(gateway.address, &passing("/")).await;
        }
    })
    .await;
    assert_eq!(api.connections(), 2, "it was well for another reason");
    drop(held);
}
