//! Making connections: TCP, TLS where the address says so, then HTTP.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::uri::Authority;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::Sender;
use super::failure::describe;
use super::io::{Counted, Written};
use super::place::Placed;
use super::pool::Connection;
use super::shares::Crowd;

/// Many requests wait for answers on one HTTP/2 connection: one that died silently must be noticed well
/// before the first of them is out of time. Servers count what they are asked while they have nothing
/// to say: gRPC ones close the connection at the fourth time. That is after the time of the default for
/// an answer. An idle connection is not asked at all, but closed.
const PING_AFTER_SILENCE: Duration = Duration::from_secs(10);
/// A living one answers at once, whatever its requests wait for.
const PING_PATIENCE: Duration = Duration::from_secs(5);

/// How many requests that were taken back are remembered, for a second. Whatever the API still sends for
/// others counts as an error, and by default a connection ends with 1,024 of them in its life, and with
/// it every request there. That is meant against hostile servers; the API is one that was configured.
const TAKEN_BACK_MAX: usize = 4096;

/// How much of an upload waits within an HTTP/1.1 connection for an API that does not read, and how large
/// the head of an answer may be.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// More than all streams together have: what one client does not read must not keep the answers of
/// others back.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Where to connect to, and how.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) http2: bool,
    pub(crate) timeout: Duration,
    /// What requests call this address, where each has a name of its own.
    pub(crate) name: Option<Authority>,
}

impl Connector {
    /// A new connection, ready for a request, or why there is none. Whatever fails here, nothing was
    /// sent.
    pub(crate) async fn connect(&self, crowd: Crowd) -> Result<Connection, String> {
        let connecting = tokio::time::timeout(self.timeout, self.establish(crowd));
        let never = |why: String| format!("{}:{}: {why}", self.host, self.port);
        match connecting.await {
            Ok(result) => result.map_err(never),
            Err(_) => Err(never(format!("no connection within {:?}", self.timeout))),
        }
    }

    async fn establish(&self, crowd: Crowd) -> Result<Connection, String> {
        let address = (self.host.as_str(), self.port);
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| describe(&error))?;
        // A request is written whole; waiting to fill a packet would only delay it.
        stream.set_nodelay(true).map_err(|error| describe(&error))?;
        let written = Written::default();
        let stream = Counted::new(stream, written.clone());
        let (sender, task) = match &self.tls {
            None => self.handshake(stream, crowd).await?,
            Some(tls) => {
                let name = self
                    .host
                    .trim_start_matches('[')
                    .trim_end_matches(']')
                    .to_owned();
                let name = ServerName::try_from(name).map_err(|error| describe(&error))?;
                let connector = TlsConnector::from(Arc::clone(tls));
                let stream = connector.connect(name, stream).await;
                let stream = stream.map_err(|error| describe(&error))?;
                let agreed = stream.get_ref().1.alpn_protocol();
                if self.http2 && agreed != Some(b"h2") {
                    return Err("it did not agree to HTTP/2: set upstream.http2 = false".into());
                }
                self.handshake(stream, crowd).await?
            }
        };
        Ok(Connection {
            sender,
            written,
            task,
        })
    }

    async fn handshake<I>(&self, stream: I, crowd: Crowd) -> Result<(Sender, AbortHandle), String>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(stream);
        if self.http2 {
            let tasks = Tasks::default();
            let mut builder = http2::Builder::new(tasks.clone());
            builder
                .initial_stream_window_size(crowd.stream_window_bytes())
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_AFTER_SILENCE)
                .keep_alive_timeout(PING_PATIENCE)
                .keep_alive_while_idle(false)
                .max_concurrent_reset_streams(TAKEN_BACK_MAX)
                .max_local_error_reset_streams(None);
            let shaken = builder.handshake::<_, Placed>(stream).await;
            let (sender, connection) = shaken.map_err(|error| describe(&error))?;
            let giving_out = tokio::spawn(async move { drop(connection.await) });
            let moving = tasks.first.get().cloned();
            let task = moving.unwrap_or_else(|| giving_out.abort_handle());
            return Ok((Sender::Http2(sender), task));
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES_MAX);
        let shaken = builder.handshake::<_, Placed>(stream).await;
        let (sender, connection) = shaken.map_err(|error| describe(&error))?;
        let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok((Sender::Http1(sender), task.abort_handle()))
    }
}

/// Runs the tasks of an HTTP/2 connection. The first one, which hyper starts with the connection, reads and
/// writes; the others end with it.
#[derive(Clone, Default)]
struct Tasks {
    first: Arc<OnceLock<AbortHandle>>,
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let task = tokio::spawn(future);
        self.first.get_or_init(|| task.abort_handle());
    }
}
