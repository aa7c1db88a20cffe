//! One request over one connection: to its end, or broken off on purpose.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::faults::Order;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// How long a client that will not read the answer waits for it to be there.
const ANSWER_THERE_MAX: Duration = Duration::from_secs(2);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<Duration>,
    /// The code of a problem.
    pub(crate) code: Option<String>,
}

/// Sends an order and reads the answer. Dropping the future drops the connection.
pub(crate) async fn ask(address: SocketAddr, order: &Order) -> io::Result<Answer> {
    let stream = connect(address).await?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(io::Error::other)?;
    let request = Request::post("/payments")
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .header(KEY, quoted(&order.key))
        .body(Full::new(order.body.clone()))
        .map_err(io::Error::other)?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
    };
    tokio::pin!(exchange);
    let exchanged = tokio::select! {
        exchanged = &mut exchange => exchanged,
        // The connection may end in the same moment as the answer.
        _ = connection => exchange.await,
    };
    let (head, body) = exchanged.map_err(io::Error::other)?;
    Ok(read(head.status, &head.headers, &body))
}

/// Sends an order and drops the connection when the answer is there, unread.
pub(crate) async fn lose_answer(address: SocketAddr, order: &Order) -> io::Result<()> {
    let mut stream = connect(address).await?;
    stream.write_all(&head(address, order)).await?;
    stream.write_all(&order.body).await?;
    // However long it takes, the request is with the server.
    let _ = tokio::time::timeout(ANSWER_THERE_MAX, stream.readable()).await;
    Ok(())
}

/// Sends half an order and drops the connection.
pub(crate) async fn cut_off(address: SocketAddr, order: &Order) -> io::Result<()> {
    let mut stream = connect(address).await?;
    let half = order.body.slice(..order.body.len() / 2);
    stream.write_all(&head(address, order)).await?;
    stream.write_all(&half).await?;
    stream.shutdown().await
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn head(address: SocketAddr, order: &Order) -> Vec<u8> {
    format!(
        "POST /payments HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         idempotency-key: {}\r\ncontent-length: {}\r\n\r\n",
        quoted(&order.key),
        order.body.len()
    )
    .into_bytes()
}

/// The draft standard wants a string in quotes.
fn quoted(key: &str) -> String {
    format!("\"{key}\"")
}

fn read(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Answer {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = text(&header::RETRY_AFTER).and_then(|value| value.parse().ok());
    let problem: Option<serde_json::Value> = if status.is_success() {
        None
    } else {
        serde_json::from_slice(body).ok()
    };
    let code = problem
        .as_ref()
        .and_then(|problem| problem.get("code")?.as_str());
    Answer {
        status,
        replayed: text(&REPLAYED) == Some("true"),
        retry_after: seconds.map(Duration::from_secs),
        code: code.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_for_what_a_retrying_client_needs() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, 3.into());
        let body = Bytes::from_static(br#"{"code":"idempotency_key_in_progress"}"#);
        let busy = read(StatusCode::CONFLICT, &headers, &body);
        assert_eq!(busy.retry_after, Some(Duration::from_secs(3)));
        assert_eq!(busy.code.as_deref(), Some("idempotency_key_in_progress"));

        let mut headers = HeaderMap::new();
        headers.insert(REPLAYED, header::HeaderValue::from_static("true"));
        let paid = read(StatusCode::CREATED, &headers, &Bytes::from_static(b"{}"));
        assert!(paid.replayed && paid.code.is_none());
    }
}
