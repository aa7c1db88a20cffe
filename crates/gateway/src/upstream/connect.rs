//! Making connections: TCP, TLS where the address says so, then HTTP.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::Sender;
use super::failure::describe;
use super::io::{Counted, Written};
use super::pool::Connection;
use super::shares::{Crowd, Placed};

/// An HTTP/2 connection serves everybody: one that died silently must be noticed soon.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEP_ALIVE_PATIENCE: Duration = Duration::from_secs(5);

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
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(crowd.stream_window_bytes())
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEP_ALIVE_EVERY)
                .keep_alive_timeout(KEEP_ALIVE_PATIENCE)
                .keep_alive_while_idle(true);
            let shaken = builder.handshake::<_, Placed>(stream).await;
            let (sender, connection) = shaken.map_err(|error| describe(&error))?;
            let task = tokio::spawn(async move { drop(connection.await) });
            return Ok((Sender::Http2(sender), task.abort_handle()));
        }
        let shaken = http1::Builder::new().handshake::<_, Placed>(stream).await;
        let (sender, connection) = shaken.map_err(|error| describe(&error))?;
        let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok((Sender::Http1(sender), task.abort_handle()))
    }
}
