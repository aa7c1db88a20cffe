//! A server in front of the server: counts requests by operation, and fails some on command.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::kit::PATIENCE;

/// What happens to a request instead of being passed on.
#[derive(Debug, Clone)]
pub enum Act {
    /// It is answered so, and not passed on.
    Answer(u16, String),
    /// It is passed on, and the connection is closed instead of an answer.
    Lose,
    /// It is passed on, and answered with an error of the server.
    Fail,
    /// It is neither passed on nor answered.
    Hang,
    /// It is passed on when there is a permit.
    Hold(Arc<Semaphore>),
    /// It is passed on, and its answer is dated so.
    Date(Option<&'static str>),
}

struct Rule {
    operation: &'static str,
    /// Text that the request has.
    part: String,
    times: usize,
    act: Act,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    seen: Vec<String>,
}

/// A running front. Stops when dropped.
pub struct Front {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    acceptor: JoinHandle<()>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Front({})", self.address)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

impl Front {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let acceptor = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| pass(request, target, Arc::clone(&state)));
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            state,
            acceptor,
        }
    }

    /// The next `times` requests of an operation.
    pub fn on(&self, operation: &'static str, times: usize, act: Act) {
        self.on_those_with(operation, "", times, act);
    }

    /// The next `times` requests of an operation that have this text in them.
    pub fn on_those_with(&self, operation: &'static str, part: &str, times: usize, act: Act) {
        self.state.lock().unwrap().rules.push(Rule {
            operation,
            part: part.into(),
            times,
            act,
        });
    }

    pub fn forget_rules(&self) {
        self.state.lock().unwrap().rules.clear();
    }

    /// The operations asked for since the last call.
    pub fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }

    /// How many were asked for and not yet looked at.
    pub fn count(&self) -> usize {
        self.state.lock().unwrap().seen.len()
    }

    pub async fn until_count(&self, count: usize) {
        let reached = async {
            while self.count() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "never {count} requests");
    }
}

/// The error that closes a connection.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "closed")
    }
}

impl std::error::Error for Closed {}

async fn pass(
    request: Request<Incoming>,
    target: SocketAddr,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, Closed> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    let operation = head.headers["x-amz-target"].to_str().unwrap();
    let operation = operation.rsplit('.').next().unwrap().to_owned();
    let act = act_for(&state, &operation, &body);
    let request = Request::from_parts(head, Full::new(body));
    match act {
        None => Ok(forward(request, target).await),
        Some(Act::Answer(status, text)) => Ok(answer(status, text)),
        Some(Act::Lose) => {
            forward(request, target).await;
            Err(Closed)
        }
        Some(Act::Fail) => {
            forward(request, target).await;
            Ok(answer(500, error("InternalServerError")))
        }
        Some(Act::Hang) => std::future::pending().await,
        Some(Act::Hold(gate)) => {
            gate.acquire().await.map_err(|_| Closed)?.forget();
            Ok(forward(request, target).await)
        }
        Some(Act::Date(date)) => {
            let mut response = forward(request, target).await;
            response.headers_mut().remove("date");
            // An empty one keeps this server from adding its own.
            let date = date.unwrap_or_default().parse().unwrap();
            response.headers_mut().insert("date", date);
            Ok(response)
        }
    }
}

fn act_for(state: &Mutex<State>, operation: &str, body: &[u8]) -> Option<Act> {
    let mut state = state.lock().unwrap();
    state.seen.push(operation.to_owned());
    let text = String::from_utf8_lossy(body);
    let rule = state
        .rules
        .iter_mut()
        .find(|rule| rule.times > 0 && rule.operation == operation && text.contains(&rule.part))?;
    rule.times -= 1;
    Some(rule.act.clone())
}

/// The body of an error that DynamoDB answers with.
pub fn error(code: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"on command"}}"#)
}

fn answer(status: u16, text: String) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/x-amz-json-1.0")
        .body(Full::new(text.into()))
        .unwrap()
}

async fn forward(request: Request<Full<Bytes>>, target: SocketAddr) -> Response<Full<Bytes>> {
    let sent = async {
        let stream = TcpStream::connect(target).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .ok()?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Response::from_parts(head, Full::new(body)))
    };
    sent.await.unwrap_or_else(|| answer(502, String::new()))
}
