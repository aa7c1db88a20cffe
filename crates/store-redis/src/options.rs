//! Every setting of the store, with its default and the reason for it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::OpenError;
use crate::url;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the primary of a key is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One server, which is the primary.
    Single,
    /// The sentinels know it by this name.
    Sentinel {
        /// As in `sentinel monitor NAME …`.
        service: String,
    },
    /// A cluster, which any of its nodes describes.
    Cluster,
}

/// A user and a password. The password is never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The ACL user; `None` is the server's default one.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "(hidden)");
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("password", &password)
            .finish()
    }
}

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// The authorities to trust, in PEM; `None` trusts the system's.
    pub authority: Option<PathBuf>,
    /// The certificate to show, in PEM, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The least of `expiry_grace`. A primary tells its replicas at what time a row may go, so the
/// clock of a replica that is promoted may be ahead by this much before it drops a row early.
pub(crate) const EXPIRY_GRACE_MIN: Duration = Duration::from_secs(3600);

/// See [`RedisOptions::connections`].
pub(crate) const CONNECTIONS: u16 = 4;

/// How a [`RedisStore`](crate::RedisStore) is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// The server; or sentinels or nodes of a cluster, of which one must answer.
    pub servers: Vec<Address>,
    /// How the primary of a key is found.
    pub layout: Layout,
    /// The user and password for the servers that hold rows.
    pub credentials: Credentials,
    /// The user and password for the sentinels.
    pub sentinel_credentials: Credentials,
    /// Whether and how TLS is spoken. Default: not.
    pub tls: Option<Tls>,
    /// The database number. Default: 0, the only one that a cluster has.
    pub database: u16,
    /// What every key starts with. Default: `onlyonce`. Two deployments on one server need two.
    pub prefix: String,
    /// How many replicas must confirm a write before it counts. Default: 0. Without it a write
    /// that was acknowledged can be lost in a failover.
    pub wait_replicas: u16,
    /// How long to wait for them. Default: 1 s; later the write counts as one that may have
    /// happened.
    pub wait_timeout: Duration,
    /// How long an operation may take, from the first try to the last. Default: 3 s, below the 5 s
    /// after which the engine gives up, so that the store still says what it knows.
    pub timeout: Duration,
    /// How long connecting may take, with TLS, password and a look at the settings. Default: 2 s.
    pub connect_timeout: Duration,
    /// How many connections to each server. Default: 4, because a server reads 16 KiB from each
    /// before it syncs, and so a few large answers would fill a single one; 8 with
    /// `wait_replicas`, because a connection that waits does nothing else.
    pub connections: u16,
    /// How long after its own deadline a settled row is dropped by the server itself. Default, and
    /// the least: 1 hour. The engine's sweep removes rows long before; this is for when no engine
    /// runs.
    pub expiry_grace: Duration,
    /// The largest record. Default: 16 MiB.
    pub record_bytes_max: u64,
    /// Whether to open on a server that can lose acknowledged writes in a crash.
    pub allow_unsafe_persistence: bool,
    /// Whether to open on a server that can drop rows when its memory is full.
    pub allow_eviction: bool,
}

impl RedisOptions {
    /// The defaults, for one server.
    #[must_use]
    pub fn new(server: Address) -> Self {
        Self {
            servers: vec![server],
            layout: Layout::Single,
            credentials: Credentials::default(),
            sentinel_credentials: Credentials::default(),
            tls: None,
            database: 0,
            prefix: "onlyonce".to_owned(),
            wait_replicas: 0,
            wait_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(2),
            connections: CONNECTIONS,
            expiry_grace: EXPIRY_GRACE_MIN,
            record_bytes_max: 16 << 20,
            allow_unsafe_persistence: false,
            allow_eviction: false,
        }
    }

    /// Reads a URL such as `redis://user:password@host:6379/0?wait=1`.
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` | one server |
    /// | `redis-cluster://HOST[:PORT],…` | a cluster |
    /// | `redis-sentinel://HOST[:PORT],…/SERVICE[/DATABASE]` | Sentinel |
    /// | `rediss://`, `rediss-cluster://`, `rediss-sentinel://` | the same over TLS |
    ///
    /// After a `?`, joined with `&`: `prefix`, `wait`, `wait_timeout_ms`, `timeout_ms`,
    /// `connect_timeout_ms`, `connections`, `expiry_grace_s`, `tls_ca`, `tls_cert`, `tls_key`,
    /// `sentinel_user`, `sentinel_password`, `allow_unsafe_persistence`, `allow_eviction`.
    ///
    /// # Errors
    /// When it is not such a URL. The message names the part to change.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        url::parse(url).map_err(OpenError::Url)
    }
}
