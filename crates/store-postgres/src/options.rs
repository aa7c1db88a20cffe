//! Every limit of the store, with its default and the reason for it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::OpenError;
use crate::url;

const MIB: u64 = 1024 * 1024;

/// How much longer than the server's own limit an answer may take before the connection is given
/// up: the way there and back, and the commit.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// Whether and how the line to the server is encrypted. The names are libpq's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server offers it; its certificate is not checked.
    #[default]
    Prefer,
    /// Always. The certificate is checked only if `sslrootcert` is given.
    Require,
    /// Always, and an authority that is trusted must have signed the certificate.
    VerifyCa,
    /// The same, and the certificate must be for this host.
    VerifyFull,
}

/// How a [`PostgresStore`](crate::PostgresStore) is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Hosts, user, password, database.
    pub(crate) config: Config,
    /// Default: [`SslMode::Prefer`].
    pub sslmode: SslMode,
    /// The authorities to trust, in PEM. Default: the system's.
    pub sslrootcert: Option<PathBuf>,
    /// The schema that the tables are in. Default: `public`.
    pub schema: String,
    /// How many connections there are at most. Default: 4, of which one reads; more made no more
    /// of the batches, see `docs/decisions`.
    pub pool: usize,
    /// How long making a connection may take. Default: 3 s.
    pub connect_timeout: Duration,
    /// How long the server may work on one statement. Default: 4 s, below the 5 s after which the
    /// engine gives up, so that the store still says what it knows. Whoever hears nothing for
    /// longer gives the connection up.
    pub statement_timeout: Duration,
    /// How long a batch waits for a row that somebody else has locked, before its swaps go on one
    /// by one. Default: 25 ms, longer than any batch of another instance takes.
    pub lock_timeout: Duration,
    /// How long what the server said of its settings holds, before a connection asks again, and
    /// before all of several hosts are looked at again. Default: 5 s. What it acknowledges within this time after somebody turned its syncs off may
    /// be lost in a crash.
    pub ask_again_after: Duration,
    /// Whether a server that may lose acknowledged writes is accepted. Default: no.
    pub allow_unsafe: bool,
    /// Whether a schema is accepted in which every user of the database may create things, as in
    /// `public` before `PostgreSQL` 15. Default: no.
    pub allow_shared_schema: bool,
    /// How many swaps share one statement. Default: 128.
    pub batch_swaps_max: usize,
    /// How many bytes share one statement; one record may go over. Default: 4 MiB.
    pub batch_bytes_max: u64,
    /// How many swaps may wait; further callers wait to get in. Default: 4096.
    pub queue_swaps_max: usize,
    /// How many bytes of large records (over 64 KiB) may wait. Default: 64 MiB.
    pub queue_bytes_max: u64,
    /// The largest record. Default: 16 MiB.
    pub record_bytes_max: u64,
}

impl PostgresOptions {
    /// Reads `postgres://user:password@host:port/database?…`.
    ///
    /// | parameter | |
    /// |---|---|
    /// | `sslmode` | `disable`, `prefer`, `require`, `verify-ca`, `verify-full` |
    /// | `sslrootcert` | a PEM file with the authorities to trust |
    /// | `schema` | where the tables are |
    /// | `pool` | how many connections |
    /// | `connect_timeout` | in seconds |
    /// | `statement_timeout_ms` | in milliseconds |
    /// | `application_name` | as the server's logs show it |
    /// | `unsafe_settings` | `allow`: use a server that may lose acknowledged writes |
    /// | `shared_schema` | `allow`: use a schema in which every user may create things |
    ///
    /// # Errors
    /// When it cannot be read; the error names the part, and never shows the password.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let options = url::parse(url).map_err(OpenError::Url)?;
        options.check().map_err(OpenError::Url)?;
        Ok(options)
    }

    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            sslmode: SslMode::default(),
            sslrootcert: None,
            schema: "public".into(),
            pool: 4,
            connect_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(4),
            lock_timeout: Duration::from_millis(25),
            ask_again_after: Duration::from_secs(5),
            allow_unsafe: false,
            allow_shared_schema: false,
            batch_swaps_max: 128,
            batch_bytes_max: 4 * MIB,
            queue_swaps_max: 4096,
            queue_bytes_max: 64 * MIB,
            record_bytes_max: 16 * MIB,
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = if self.schema.is_empty() || self.schema.len() > 63 {
            "schema must have 1 to 63 bytes"
        } else if self.schema.contains(['\0', '"']) {
            "schema must not contain quotes"
        } else if !(2..=100).contains(&self.pool) {
            "pool must be from 2 to 100"
        } else if self.connect_timeout.is_zero() || self.statement_timeout.is_zero() {
            "connect_timeout and statement_timeout_ms must be above zero"
        } else if self.batch_swaps_max == 0 || self.queue_swaps_max == 0 {
            "batch_swaps_max and queue_swaps_max must be at least 1"
        } else if self.record_bytes_max > self.queue_bytes_max {
            "record_bytes_max must not be above queue_bytes_max"
        } else {
            return Ok(());
        };
        Err(wrong.into())
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        self.statement_timeout + ANSWER_MARGIN
    }

    /// Where the server is, for messages.
    pub(crate) fn place(&self) -> String {
        let ports = self.config.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).unwrap_or(&5432);
        let hosts = self.config.get_hosts().iter().enumerate();
        let places: Vec<_> = hosts
            .map(|(index, host)| match host {
                Host::Tcp(name) => format!("{name}:{}", port(index)),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        places.join(",")
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("place", &self.place())
            .field("user", &self.config.get_user())
            .field("database", &self.config.get_dbname())
            .field("schema", &self.schema)
            .field("sslmode", &self.sslmode)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
