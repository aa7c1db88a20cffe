//! Requests and answers as the cases write and read them.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// One request. Sending it again is a retry.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Call {
    /// `POST /payments` with a small JSON body, a key, and a caller who says who they are.
    #[must_use]
    pub fn payment(key: &str) -> Self {
        Self::new(Method::POST, "/payments")
            .header("content-type", "application/json")
            .header("authorization", "Bearer alice")
            .header("idempotency-key", key)
            .body(r#"{"amount":1200,"currency":"EUR"}"#)
    }

    /// A request with nothing in it.
    #[must_use]
    pub fn new(method: Method, target: &str) -> Self {
        Self {
            method,
            target: target.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// With this header instead of any of its name.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().expect("a value"));
        self
    }

    /// With one more line of this header.
    #[must_use]
    pub fn line(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value.parse().expect("a value"));
        self
    }

    /// Without this header.
    #[must_use]
    pub fn without(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    /// With an instruction for the upstream, for example `test("status", "402")`.
    #[must_use]
    pub fn test(mut self, instruction: &str, value: &str) -> Self {
        let name = HeaderName::try_from(format!("x-test-{instruction}")).expect("a name");
        self.headers.append(name, value.parse().expect("a value"));
        self
    }

    /// Turned away by the upstream with this status, without any effect.
    #[must_use]
    pub fn rejected(self, status: u16) -> Self {
        self.test("effect", "none")
            .test("status", &status.to_string())
    }

    /// From this caller.
    #[must_use]
    pub fn by(self, principal: &str) -> Self {
        self.header("authorization", principal)
    }

    /// With this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// To this path and query.
    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The path alone.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }

    /// Whether a guard with the default routes guards it.
    pub(super) fn is_guarded(&self) -> bool {
        let guarded = [Method::POST, Method::PATCH].contains(&self.method);
        guarded && self.headers.contains_key("idempotency-key")
    }
}

/// One answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers, if it had any.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// A header's only value, or the empty text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }

    /// All values of a header.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<&str> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| value.to_str().expect("text")).collect()
    }

    /// Whether it says that it is a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == "true"
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {} {:?}", self.status, self.body))
    }

    /// The code of a problem; empty when it is none.
    #[must_use]
    pub fn code(&self) -> String {
        if self.header("content-type") != "application/problem+json" {
            return String::new();
        }
        let code = &self.json()["code"];
        code.as_str().unwrap_or_default().to_owned()
    }

    /// Asserts that it is this problem.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status.as_u16(), self.code().as_str()),
            (status, code),
            "{:?}",
            self.body.slice(..self.body.len().min(500))
        );
    }

    /// Asserts that it is the upstream's own answer and not a replay.
    #[track_caller]
    pub fn assert_executed(&self, status: u16) {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body);
        assert!(!self.is_replay(), "a first answer is no replay");
        assert!(!self.header("x-execution").is_empty(), "the upstream's own");
    }
}

/// Sends a request over a connection of its own; the body of the response is not read yet.
pub(super) async fn open(address: SocketAddr, call: &Call) -> hyper::Result<Response<Incoming>> {
    let socket = TcpStream::connect(address)
        .await
        .expect("the guard listens");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(socket)).await?;
    tokio::spawn(connection);
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.target.parse().expect("a target");
    *request.headers_mut() = call.headers.clone();
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_static("api.test"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    sender.send_request(request).await
}

/// Reads a response to its end.
pub(super) async fn read(response: Response<Incoming>) -> hyper::Result<Answer> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        trailers: body.trailers().cloned(),
        body: body.to_bytes(),
    })
}
