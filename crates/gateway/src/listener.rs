//! Accepting connections: limits, TLS, HTTP/1.1 and HTTP/2, and ending gracefully.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use onlyonce_http::BoxError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::ending::Ending;
use crate::forward::Peer;
use crate::inbound::{Inbound, PIECE_BYTES, Patience, Talk};
use crate::principal::ClientCertificate;
use crate::upstream::Timed;

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How many requests one HTTP/2 connection may have open.
const STREAMS_MAX: u32 = 256;

/// How much of one upload may wait for an API that does not read, and how much of all uploads on one
/// connection. The first is also as much as an upload gets through in one round trip. Once the second is
/// reached, the connection's other uploads wait, too, which may be other people's, so it is many times
/// the first. It is less than one for each request that may be open (32 MiB): nothing but the number of
/// connections bounds this memory, and whoever knows a path where the API does not read can fill it.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// How many connections may wait to be accepted; the system has a limit of its own besides. Where
/// there is no room, clients lose seconds before they try again.
const BACKLOG: u32 = 8192;

/// The pause after the system refused a connection (for want of file handles, say), so that the
/// refusals do not take all processor time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenerLimits {
    pub(crate) connections: usize,
    pub(crate) header_bytes: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) answer_timeout: Duration,
    /// Whether HTTP/2 is spoken.
    pub(crate) http2: bool,
}

impl ListenerLimits {
    fn patience(&self) -> Patience {
        Patience {
            head: self.header_timeout,
            idle: self.idle_timeout,
            answer: self.answer_timeout,
        }
    }
}

/// TLS settings that can be replaced while connections come in.
pub(crate) type Tls = watch::Receiver<Arc<rustls::ServerConfig>>;

/// A listener of the gateway.
pub(crate) struct Listener {
    socket: TcpListener,
    limits: ListenerLimits,
    tls: Option<Tls>,
    places: Arc<Semaphore>,
    /// Whose turn it is to have a connection; the runtime that accepts them if there are none.
    homes: Vec<Handle>,
}

impl Listener {
    pub(crate) fn bind(
        address: SocketAddr,
        limits: ListenerLimits,
        tls: Option<Tls>,
    ) -> std::io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // A restart must not wait for the connections of its predecessor to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let socket = socket.listen(BACKLOG)?;
        let places = Arc::new(Semaphore::new(
            limits.connections.min(Semaphore::MAX_PERMITS),
        ));
        Ok(Self {
            socket,
            limits,
            tls,
            places,
            homes: Vec::new(),
        })
    }

    /// Gives connections to these in turn.
    pub(crate) fn among(self, homes: Vec<Handle>) -> Self {
        Self { homes, ..self }
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until `stop`, then lets the open connections end for up to `grace`.
    pub(crate) async fn serve<F, Fut, B>(
        self,
        service: F,
        mut stop: watch::Receiver<bool>,
        grace: Duration,
    ) where
        F: Fn(Request<Timed<Incoming>>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        // Nothing is ever sent: the last connection ends it.
        let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
        let (mut homes, here) = (self.homes.iter().cycle(), Handle::current());
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let Ok((stream, peer, place)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // From one runtime to another one, whose task it is to wait for its bytes.
            let Ok(stream) = stream.into_std() else {
                continue;
            };
            let Some(peer) = Peer::new(peer.ip().to_canonical(), self.tls.is_some()) else {
                continue;
            };
            let (limits, tls, service) = (self.limits, self.tls.clone(), service.clone());
            let (stopping, open) = (stop.clone(), open.clone());
            homes.next().unwrap_or(&here).spawn(async move {
                let _open = open;
                let client = Client {
                    peer,
                    certificate: None,
                    place,
                };
                receive(stream, client, tls, limits, service, stopping).await;
            });
        }
        drop((self.socket, open));
        // Connections that do not end by then end with the process.
        let _ = tokio::time::timeout(grace, all_ended.recv()).await;
    }

    async fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(std::io::Error::other)?;
        let (stream, peer) = self.socket.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, peer, place))
    }
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

async fn handshake(stream: TcpStream, tls: &Tls) -> Option<(TlsStream, Option<ClientCertificate>)> {
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
    let shaken = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
    let stream = shaken
        .ok()?
        .inspect_err(|error| tracing::debug!(%error, "TLS handshake"))
        .ok()?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(|der| ClientCertificate(der.to_vec()));
    Some((stream, certificate))
}

/// Who connects, and their place among all who do.
struct Client {
    peer: Peer,
    certificate: Option<ClientCertificate>,
    place: OwnedSemaphorePermit,
}

/// One connection, from the beginning.
async fn receive<F, Fut, B>(
    stream: std::net::TcpStream,
    mut client: Client,
    tls: Option<Tls>,
    limits: ListenerLimits,
    service: F,
    stop: watch::Receiver<bool>,
) where
    F: Fn(Request<Timed<Incoming>>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let Ok(stream) = TcpStream::from_std(stream) else {
        return;
    };
    let Some(tls) = tls else {
        return converse(stream, client, limits, service, stop).await;
    };
    if let Some((stream, certificate)) = handshake(stream, &tls).await {
        client.certificate = certificate;
        converse(stream, client, limits, service, stop).await;
    }
}

/// One connection, from its first request to its last.
async fn converse<I, F, Fut, B>(
    stream: I,
    client: Client,
    limits: ListenerLimits,
    service: F,
    stop: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(Request<Timed<Incoming>>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let Client {
        peer,
        certificate,
        place,
    } = client;
    let talk = Talk::new();
    let talking = Arc::clone(&talk);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let version = request.version();
        let open = talking.open(version);
        request.extensions_mut().insert(peer.clone());
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let answer = service(request.map(|body| Timed::new(body, version, limits.body_timeout)));
        async move {
            let answer = answer.await?;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                open.switch();
            }
            Ok::<_, Infallible>(answer.map(|body| open.over(body)))
        }
    });
    let stream = Inbound::new(stream, Arc::clone(&talk), limits.patience(), place);
    let builder = builder(limits);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(connection.into_owned());
    let mut ending = Ending::new(stop, talk.clone());
    let mut connection = poll_fn(|context| {
        if ending.begins(context) {
            connection.as_mut().graceful_shutdown();
        }
        let polled = connection.as_mut().poll(context);
        if polled.is_pending() && ending.is_over(context) {
            return Poll::Ready(Ok(()));
        }
        polled
    });
    // hyper has no limit on the bytes that tell HTTP/1.1 from HTTP/2, nor on the beginning of
    // HTTP/2: whoever asks nothing would keep a place for ever.
    let first = tokio::time::timeout(limits.header_timeout, &mut connection).await;
    let ended = match first {
        Ok(ended) => ended,
        Err(_) if talk.was_asked() => connection.await,
        Err(_) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

fn builder(limits: ListenerLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if !limits.http2 {
        builder = builder.http1_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        // `Inbound` knows when a head begins; hyper would count the silence before it, too.
        .header_read_timeout(None)
        // hyper wants room for at least 8 KiB.
        .max_buf_size(limits.header_bytes.max(8192))
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // Before they were looked at: a client that leaves takes all back at once. How many in all is
        // `Inbound`'s to say.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // What is queued beyond that only waits, and its time runs.
        .max_send_buf_size(PIECE_BYTES)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(limits.idle_timeout)
        .keep_alive_timeout(limits.header_timeout);
    builder
}
