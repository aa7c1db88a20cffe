//! The service behind a guard: it does what a request's headers say, and witnesses every effect.
//!
//! Any path and any method are served. A POST, PATCH, PUT or DELETE has one effect, recorded in
//! the [`Witness`] before the answer begins, under [`Upstream::name`]: the caller, the method, the
//! path and the key, whether quoted or bare. The answer is 201 with a JSON body that no other
//! execution has: `execution` (a number), `principal`, `path`, `key` and `payload`, and the header
//! lines `x-execution` and twice `x-line`. Instructions, all optional:
//!
//! | request header | what it does |
//! |---|---|
//! | `x-test-hold: NAME` | waits, before the effect, until [`Upstream::open`] opens the gate |
//! | `x-test-effect: none` | has no effect, as a service that turns the request away |
//! | `x-test-status: N` | answers with this status |
//! | `x-test-outcome: WORD` | answers with `Onlyonce-Outcome: WORD` |
//! | `x-test-header: NAME=VALUE` | answers with this header, also several |
//! | `x-test-cookie: VALUE` | answers with `Set-Cookie: VALUE` |
//! | `x-test-body-bytes: N` | answers with N bytes, of every value |
//! | `x-test-trailers: VALUE` | ends the answer with the trailer `x-checksum: VALUE` |
//! | `x-test-break: panic` | panics after the effect; a socket is closed without an answer |
//! | `x-test-break: body` | breaks off in the middle of the answer's body |
//! | `x-test-break: short` | ends the body before its `Content-Length` |
//! | `x-test-stream: NAME` | answers with `text/event-stream`: an event, then, once the gate is open, another |

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, channel::Channel};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower_service::Service;

use super::gates::Gates;
use crate::Witness;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// The upstream. Clones share everything.
#[derive(Clone)]
pub struct Upstream {
    shared: Arc<Shared>,
}

struct Shared {
    witness: Witness,
    executions: AtomicU64,
    gates: Gates,
    // Removed with the last clone.
    _folder: TempDir,
}

impl Upstream {
    /// An upstream with a witness of its own.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let witness = Witness::open(folder.path().join("effects")).expect("a witness");
        Self {
            shared: Arc::new(Shared {
                witness,
                executions: AtomicU64::new(0),
                gates: Gates::default(),
                _folder: folder,
            }),
        }
    }

    /// Its log of effects.
    #[must_use]
    pub fn witness(&self) -> &Witness {
        &self.shared.witness
    }

    /// The name of an operation in the witness.
    #[must_use]
    pub fn name(principal: &str, method: &Method, path: &str, key: &str) -> String {
        let quoted = key
            .strip_prefix('"')
            .and_then(|rest| rest.split('"').next());
        format!("{principal}|{method}|{path}|{}", quoted.unwrap_or(key))
    }

    /// Opens a gate, for good.
    pub fn open(&self, gate: &str) {
        self.shared.gates.open(gate);
    }

    /// Waits until a request is held at a gate.
    pub async fn arrived(&self, gate: &str) {
        self.shared.gates.arrived(gate).await;
    }

    /// Serves it on a free port of the loopback interface.
    pub async fn serve(&self) -> SocketAddr {
        serve(self.clone()).await
    }

    async fn answer<B>(self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return plain(StatusCode::BAD_REQUEST, "torn"),
        };
        let order = Order(&parts);
        if let Some(gate) = order.get("hold") {
            self.shared.gates.pass(gate).await;
        }
        let execution = self.shared.executions.fetch_add(1, Ordering::SeqCst) + 1;
        let writes = parts.method != Method::GET && parts.method != Method::HEAD;
        if writes && order.get("effect") != Some("none") {
            let key = order.header("idempotency-key");
            let name = Self::name(order.principal(), &parts.method, parts.uri.path(), key);
            let recorded = self.witness().record(&name);
            recorded.expect("the witness writes");
        }
        let mut response = self.content(&order, execution, &body);
        order.dress(response.headers_mut(), execution);
        if let Some(status) = order.get("status") {
            *response.status_mut() = status.parse().expect("a status");
        }
        response
    }

    fn content(&self, order: &Order<'_>, execution: u64, body: &Bytes) -> Response<AnswerBody> {
        let about = json!({
            "execution": execution,
            "principal": order.principal(),
            "path": order.0.uri.path(),
            "key": order.header("idempotency-key"),
            "payload": String::from_utf8_lossy(body.get(..1024).unwrap_or(body)),
        });
        let text = about.to_string();
        match order.get("break") {
            Some("panic") => panic!("as x-test-break asked"),
            Some("body") => return broken(text),
            Some("short") => {
                let mut response = plain(StatusCode::CREATED, &text);
                let length = HeaderValue::from(text.len() + 100);
                response
                    .headers_mut()
                    .insert(header::CONTENT_LENGTH, length);
                return response;
            }
            Some(other) => panic!("x-test-break: {other}?"),
            None => {}
        }
        if let Some(gate) = order.get("stream") {
            return self.stream(gate.to_owned());
        }
        if let Some(bytes) = order.get("body-bytes") {
            let bytes = bytes.parse().expect("a number");
            let data: Vec<u8> = (0_u8..=u8::MAX).cycle().take(bytes).collect();
            return response(
                StatusCode::CREATED,
                "application/octet-stream",
                Full::from(data),
            );
        }
        if let Some(value) = order.get("trailers") {
            return trailing(text, value);
        }
        plain(StatusCode::CREATED, &text)
    }

    fn stream(&self, gate: String) -> Response<AnswerBody> {
        let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
        let upstream = self.clone();
        tokio::spawn(async move {
            let first = sender.send_data(Bytes::from_static(b"data: 1\n\n")).await;
            upstream.shared.gates.pass(&gate).await;
            let second = sender.send_data(Bytes::from_static(b"data: 2\n\n")).await;
            // Whoever listened may be gone.
            drop((first, second));
        });
        response(StatusCode::OK, "text/event-stream", body)
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({:?})", self.witness())
    }
}

impl<B> Service<Request<B>> for Upstream
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { Ok(upstream.answer(request).await) })
    }
}

/// What a request asks of the upstream.
struct Order<'a>(&'a Parts);

impl Order<'_> {
    fn get(&self, instruction: &str) -> Option<&str> {
        let value = self.0.headers.get(format!("x-test-{instruction}"))?;
        Some(value.to_str().expect("an instruction is text"))
    }

    fn header(&self, name: &str) -> &str {
        let value = self.0.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }

    fn principal(&self) -> &str {
        self.header("authorization")
    }

    /// Puts on the headers of an answer.
    fn dress(&self, headers: &mut HeaderMap, execution: u64) {
        headers.insert("x-execution", HeaderValue::from(execution));
        headers.append("x-line", HeaderValue::from_static("first"));
        headers.append("x-line", HeaderValue::from_static("second"));
        let given = self.0.headers.get_all("x-test-header").iter();
        let given = given.filter_map(|line| line.to_str().ok()?.split_once('='));
        let cookie = self.get("cookie").map(|value| ("set-cookie", value));
        let outcome = self.get("outcome").map(|value| ("onlyonce-outcome", value));
        for (name, value) in given.chain(cookie).chain(outcome) {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
    }
}

fn response<B>(status: StatusCode, content_type: &'static str, body: B) -> Response<AnswerBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

fn plain(status: StatusCode, text: &str) -> Response<AnswerBody> {
    response(status, "application/json", Full::from(text.to_owned()))
}

fn broken(text: String) -> Response<AnswerBody> {
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(1);
    let begun = sender.try_send(Frame::data(Bytes::from(text)));
    assert!(begun.is_ok(), "the channel has room");
    sender.abort("broken off".into());
    response(StatusCode::CREATED, "application/json", body)
}

/// Without a known length, because HTTP/1.1 has no trailers after such a body.
fn trailing(text: String, value: &str) -> Response<AnswerBody> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", value.parse().expect("a value"));
    let (mut sender, body) = Channel::<Bytes, BoxError>::new(2);
    for frame in [Frame::data(Bytes::from(text)), Frame::trailers(trailers)] {
        assert!(sender.try_send(frame).is_ok(), "the channel has room");
    }
    let mut response = response(StatusCode::CREATED, "application/json", body);
    let names = HeaderValue::from_static("x-checksum");
    response.headers_mut().insert(header::TRAILER, names);
    response
}

/// Serves any service on a free port of the loopback interface, until the runtime ends.
pub async fn serve<S, B>(service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                // A connection that a test breaks is none of the server's business.
                let _ = connection.await;
            });
        }
    });
    address
}
