//! From an address to a connection: TCP, TLS, password, database.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use crate::OpenError;
use crate::answer::Answer;
use crate::failure::{NoServer, explain};
use crate::options::{Address, Credentials, RedisOptions, Tls};

/// How many commands may wait for a connection's task. More than callers that are common, so that
/// they do not wait for each other.
const QUEUE: usize = 1024;

/// How many bytes are gathered before they are written to the socket.
const WRITE_BYTES: usize = 64 * 1024;

/// A connection that many callers share. Closed when the last of them lets go.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    is_open: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Link {
    /// Whether the other side is not known to be gone.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) async fn send(&self, command: &Cmd) -> Result<Answer, RedisError> {
        let mut connection = self.connection.clone();
        connection
            .send_packed_command(command)
            .await
            .map(Answer::from)
    }

    /// Sends commands in one piece. Nobody else's command gets between them.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Answer>, RedisError> {
        let count = commands.len();
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(commands, 0, count).await?;
        Ok(answers.into_iter().map(Answer::from).collect())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link(open: {})", self.is_open())
    }
}

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: Option<TlsConnector>,
    options: Arc<RedisOptions>,
}

impl Dialer {
    pub(crate) fn new(options: &Arc<RedisOptions>) -> Result<Self, OpenError> {
        let tls = options.tls.as_ref().map(client_config).transpose();
        let tls = tls.map_err(OpenError::Tls)?;
        Ok(Self {
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
            options: Arc::clone(options),
        })
    }

    /// Connects to a server that holds rows.
    pub(crate) async fn dial(&self, address: &Address) -> Result<Link, NoServer> {
        let database = self.options.database;
        self.connect(address, &self.options.credentials, database)
            .await
    }

    /// Connects to a sentinel.
    pub(crate) async fn dial_sentinel(&self, address: &Address) -> Result<Link, NoServer> {
        self.connect(address, &self.options.sentinel_credentials, 0)
            .await
    }

    async fn connect(
        &self,
        address: &Address,
        credentials: &Credentials,
        database: u16,
    ) -> Result<Link, NoServer> {
        let patience = self.options.connect_timeout;
        let connecting = async {
            let target = (address.host.as_str(), address.port);
            let socket = TcpStream::connect(target).await;
            let socket = socket.map_err(|error| silent(address, error))?;
            let sending = socket.set_nodelay(true);
            sending.map_err(|error| silent(address, error))?;
            match &self.tls {
                None => handshake(socket, address, credentials, database).await,
                Some(tls) => {
                    let name = ServerName::try_from(address.host.clone());
                    let name = name.map_err(|error| silent(address, error))?;
                    let stream = tls.connect(name, socket).await;
                    let stream = stream.map_err(|error| no_tls(address, &error))?;
                    handshake(stream, address, credentials, database).await
                }
            }
        };
        let connected = tokio::time::timeout(patience, connecting).await;
        connected.unwrap_or_else(|_| {
            let hint = if self.tls.is_some() {
                ": is this its port for TLS, as rediss:// says?"
            } else {
                ""
            };
            let reason = format!("{address} does not answer within {patience:?}{hint}");
            Err(NoServer::silent(reason))
        })
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: &Address,
    credentials: &Credentials,
    database: u16,
) -> Result<Link, NoServer> {
    let mut info = RedisConnectionInfo::default()
        .set_db(database.into())
        .set_skip_set_lib_name();
    if let Some(user) = &credentials.user {
        info = info.set_username(user);
    }
    if let Some(password) = &credentials.password {
        info = info.set_password(password);
    }
    // Time is kept by whoever calls: only there is it known what a missing answer means.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_write_backpressure_boundary(WRITE_BYTES);
    let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
        .await
        .map_err(|error| not_greeted(&error, address, database))?;
    let is_open = Arc::new(AtomicBool::new(true));
    let task = tokio::spawn({
        let is_open = Arc::clone(&is_open);
        async move {
            driver.await;
            is_open.store(false, Ordering::Release);
        }
    });
    Ok(Link {
        connection,
        is_open,
        task: task.abort_handle(),
    })
}

fn silent(address: &Address, error: impl fmt::Display) -> NoServer {
    NoServer::silent(format!("{address}: {error}"))
}

fn no_tls(address: &Address, error: &std::io::Error) -> NoServer {
    NoServer::unusable(format!(
        "{address} does not speak TLS as expected ({error}): check rediss:// and tls_ca="
    ))
}

fn not_greeted(error: &RedisError, address: &Address, database: u16) -> NoServer {
    let detail = error.detail().unwrap_or_default();
    NoServer::unusable(match (error.kind(), error.code()) {
        (redis::ErrorKind::AuthenticationFailed, _) => explain("WRONGPASS", detail, address),
        (_, Some(code)) => explain(code, detail, address),
        (_, None) if error.is_io_error() => {
            let reason = format!("{address}: {error}; if it speaks TLS, write rediss://");
            return NoServer::silent(reason);
        }
        (_, None) if database > 0 => explain("ERR", "DB index", address),
        (_, None) => return silent(address, error),
    })
}

fn client_config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(tls.authority.as_deref())?);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let chain = certificates(certificate, "tls_cert=")?;
            let wrong = |error| format!("tls_key={}: {error}", key.display());
            let secret = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
            let config = builder.with_client_auth_cert(chain, secret);
            config.map_err(|error| format!("tls_cert= and tls_key= do not match: {error}"))
        }
    }
}

fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let trusted = match authority {
        Some(file) => certificates(file, "tls_ca=")?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(trusted);
    if roots.is_empty() {
        return Err("there is no authority to trust: name one with tls_ca=".to_owned());
    }
    Ok(roots)
}

fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{option}{}: {error}", file.display());
    let read = CertificateDer::pem_file_iter(file).map_err(wrong)?;
    read.collect::<Result<_, _>>().map_err(wrong)
}
