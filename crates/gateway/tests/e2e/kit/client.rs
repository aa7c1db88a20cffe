//! A polite client, over a connection of its own for every request.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use onlyonce_conformance::http_suite::{Answer, Upstream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::soon;

/// One request. Sending it again is a retry.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// `POST /payments` with a key and a caller who says who they are.
    pub(crate) fn payment(key: &str) -> Self {
        Self::new(Method::POST, "/payments")
            .header("content-type", "application/json")
            .header("authorization", "Bearer alice")
            .header("idempotency-key", key)
            .body(r#"{"amount":1200}"#)
    }

    /// A request with nothing in it.
    pub(crate) fn new(method: Method, target: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("api.test"));
        Self {
            method,
            target: target.to_owned(),
            headers,
            body: Bytes::new(),
        }
    }

    /// With this header instead of any of its name.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().expect("a value"));
        self
    }

    /// Without this header.
    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    /// With this body.
    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Its name in the witness.
    pub(crate) fn name(&self) -> String {
        let text = |name: &str| {
            let value = self.headers.get(name);
            value.map_or("", |value| value.to_str().expect("text"))
        };
        let (principal, key) = (text("authorization"), text("idempotency-key"));
        let path = self.target.split('?').next().expect("a path");
        Upstream::name(principal, &self.method, path, key)
    }

    /// The request as hyper sends it.
    pub(crate) fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.parse().expect("a target");
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Sends a request and reads its answer.
pub(crate) async fn send_to(address: SocketAddr, call: &Call) -> Answer {
    try_send_to(address, call).await.expect("an answer")
}

/// The same where the connection may break.
pub(crate) async fn try_send_to(address: SocketAddr, call: &Call) -> hyper::Result<Answer> {
    let socket = soon(TcpStream::connect(address)).await;
    soon(call_over(socket.expect("the gateway listens"), call)).await
}

/// The same where the gateway may be gone.
pub(crate) async fn try_connect(address: SocketAddr, call: &Call) -> Option<Answer> {
    let socket = soon(TcpStream::connect(address)).await.ok()?;
    soon(call_over(socket, call)).await.ok()
}

/// The same over a connection that is there.
pub(crate) async fn call_over<I>(stream: I, call: &Call) -> hyper::Result<Answer>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken?;
    tokio::spawn(connection);
    read(sender.send_request(call.request()).await?).await
}

async fn read(response: Response<Incoming>) -> hyper::Result<Answer> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        trailers: body.trailers().cloned(),
        body: body.to_bytes(),
    })
}
