//! One connection: made, looked at, and made ready.
//!
//! A connection is used only if its server takes writes, does not lose them in a crash, and has
//! the tables of this build. That is asked of every connection, because after a failover the
//! same address may lead to another server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::task::AbortHandle;
use tokio_postgres::config::{SslMode as Mode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, Statement};

use crate::backend::{self, Backend};
use crate::columns::NAMES;
use crate::error::{chain, said};
use crate::options::{PostgresOptions, SslMode};
use crate::tls::{self, Check, Tls};
use crate::{OpenError, migrate};

/// What `onlyonce_swap` takes: an array for each column, and the record's version.
const SWAP_ARGUMENTS: usize = 27;

/// How many unanswered statements of one slot the server may still work on before that slot makes
/// no new connection. More than one, because a line that broke says nothing about the server.
const STALLED_MAX: usize = 2;

/// When the system asks whether the other side of a quiet connection is still there. The default
/// of two hours is longer than a firewall remembers it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) options: PostgresOptions,
    tls: Option<Arc<ClientConfig>>,
    /// What was found and accepted, because the options say so.
    pub(crate) accepted: Mutex<BTreeSet<String>>,
}

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The server's side of it; `None` until it was asked.
    pub(crate) backend: Option<Backend>,
    driver: AbortHandle,
}

/// A connection with its statements prepared.
pub(crate) struct Session {
    pub(crate) link: Link,
    pub(crate) swap: Statement,
    pub(crate) load: Statement,
    pub(crate) due: Statement,
    pub(crate) due_far: Statement,
    pub(crate) list: Statement,
    pub(crate) window: Statement,
    pub(crate) now: Statement,
    pub(crate) secret: Statement,
}

impl Link {
    /// Ends the connection at once, whatever is under way.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }
}

impl Drop for Link {
    /// Without this the driver would wait for the answers that are due, for ever if the line
    /// swallows them, and the server would keep a backend for it.
    fn drop(&mut self) {
        self.cut();
    }
}

impl Connector {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self, OpenError> {
        options.check().map_err(OpenError::Url)?;
        let mut options = options.clone();
        let mode = match options.sslmode {
            SslMode::Disable => Mode::Disable,
            SslMode::Prefer => Mode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Mode::Require,
        };
        options.config.ssl_mode(mode);
        notice_silence(&mut options);
        if options.config.get_hosts().len() > 1 {
            // The one that takes writes. A single host is looked at anyway, with a better message.
            let writable = TargetSessionAttrs::ReadWrite;
            options.config.target_session_attrs(writable);
        }
        let ca_file = options.sslrootcert.as_deref();
        let check = match options.sslmode {
            SslMode::Disable => None,
            SslMode::VerifyFull => Some(Check::Full),
            SslMode::VerifyCa => Some(Check::Authority),
            // As libpq does: who names an authority wants it checked.
            SslMode::Require if ca_file.is_some() => Some(Check::Authority),
            SslMode::Prefer | SslMode::Require => Some(Check::Nothing),
        };
        let tls = check.map(|check| tls::config(check, ca_file)).transpose();
        let tls = tls.map_err(OpenError::Tls)?;
        Ok(Self {
            options,
            tls,
            accepted: Mutex::default(),
        })
    }

    /// A connection whose server takes writes and keeps them. Its schema is not looked at.
    pub(crate) async fn link(&self) -> Result<Link, OpenError> {
        let patience = self.options.connect_timeout;
        match tokio::time::timeout(patience, self.establish()).await {
            Ok(link) => link,
            Err(_) => Err(OpenError::Unreachable {
                place: self.options.place(),
                reason: format!("no connection within {patience:?}"),
            }),
        }
    }

    /// A connection that is ready for everything, and those of the backends that were left
    /// behind which are still at work.
    ///
    /// # Errors
    /// Also when those are too many.
    pub(crate) async fn session(
        &self,
        left: &[Backend],
    ) -> Result<(Session, Vec<Backend>), OpenError> {
        let patience = self.options.connect_timeout;
        let connecting = async {
            let link = self.establish().await?;
            let working = backend::working(&link.client, left).await;
            let working =
                working.map_err(|error| self.server_error("looking at its work", &error))?;
            if working.len() >= STALLED_MAX {
                return Err(OpenError::Stalled {
                    place: self.options.place(),
                    statements: working.len(),
                });
            }
            migrate::check(&link.client, &self.options).await?;
            Ok((self.prepare(link).await?, working))
        };
        match tokio::time::timeout(patience, connecting).await {
            Ok(session) => session,
            Err(_) => Err(OpenError::Unreachable {
                place: self.options.place(),
                reason: format!("no connection within {patience:?}"),
            }),
        }
    }

    async fn establish(&self) -> Result<Link, OpenError> {
        let config = &self.options.config;
        let mut link = match &self.tls {
            None => {
                let connected = config.connect(NoTls).await;
                let (client, connection) = connected.map_err(|error| self.refused(&error))?;
                Link::new(client, connection)
            }
            Some(tls) => {
                let connected = config.connect(Tls(Arc::clone(tls))).await;
                let (client, connection) = connected.map_err(|error| self.refused(&error))?;
                Link::new(client, connection)
            }
        };
        link.backend = self.look(&link.client).await?;
        Ok(link)
    }

    /// Sets the session up and looks at the server, in one round trip.
    async fn look(&self, client: &Client) -> Result<Option<Backend>, OpenError> {
        let options = &self.options;
        // It is asked before the schema is in the path, because somebody else's operators may be
        // in it. Plans never depend on how small the table was when they were made, and every
        // inner statement of a swap sees what was committed before it.
        let setup = format!(
            "SET search_path = pg_catalog, pg_temp; \
             SELECT current_setting('transaction_read_only'), pg_is_in_recovery()::text, \
             current_setting('fsync'), current_setting('full_page_writes'), \
             current_setting('synchronous_commit'), current_setting('server_encoding'), \
             current_setting('server_version_num'), \
             (SELECT has_schema_privilege('public', oid, 'CREATE')::text \
              FROM pg_namespace WHERE nspname = '{}'), {}; \
             SET search_path = \"{}\", pg_temp; SET statement_timeout = {}; \
             SET lock_timeout = {}; SET enable_seqscan = off; SET jit = off; \
             SET plan_cache_mode = force_generic_plan; SET client_min_messages = warning; \
             SET default_transaction_isolation = 'read committed'",
            options.schema.replace('\'', "''"),
            backend::IDENTITY,
            options.schema,
            options.statement_timeout.as_millis().max(1),
            options.lock_timeout.as_millis().max(1),
        );
        let asked = client.simple_query(&setup).await;
        let answer = asked.map_err(|error| self.server_error("setting a session up", &error))?;
        let row = answer.iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            Some(row)
        });
        let row = row.ok_or_else(|| self.unfit("it does not answer a plain query".into()))?;
        self.judge(row)?;
        if row.get(4) == Some("off") {
            let asked = client.batch_execute("SET synchronous_commit = on").await;
            asked.map_err(|error| self.server_error("setting a session up", &error))?;
        }
        Ok(Backend::read(row, 8))
    }

    async fn prepare(&self, link: Link) -> Result<Session, OpenError> {
        let present = NAMES.replace(", ", ", (present).");
        let arguments: Vec<_> = (1..=SWAP_ARGUMENTS)
            .map(|number| format!("${number}"))
            .collect();
        let swap = format!(
            "SELECT slot, won, (present).{present} FROM onlyonce_swap({})",
            arguments.join(", ")
        );
        let load = format!("SELECT {NAMES} FROM onlyonce_record WHERE id = $1");
        let unsigned = |column: &str| format!("({column} # '-9223372036854775808'::bigint)");
        let updated_at = unsigned("updated_at");
        let list = format!(
            "SELECT {NAMES} FROM onlyonce_record \
             WHERE id > $1 AND ($2::bytea IS NULL OR id <= $2) \
             AND ($3::text IS NULL OR state = $3) AND ($4::text IS NULL OR route = $4) \
             AND ($5::bytea IS NULL OR principal = $5) \
             AND ($6::bigint IS NULL OR {updated_at} >= $6) \
             AND ($7::bigint IS NULL OR {updated_at} < $7) ORDER BY id LIMIT $8"
        );
        let client = &link.client;
        let prepared = tokio::try_join!(
            client.prepare(&swap),
            client.prepare(&load),
            client.prepare(
                "SELECT id FROM onlyonce_record WHERE deadline BETWEEN 0 AND $1 \
                 ORDER BY deadline LIMIT $2"
            ),
            client.prepare(
                "SELECT id FROM onlyonce_record WHERE deadline BETWEEN \
                 '-9223372036854775808'::bigint AND least($1::bigint, -2::bigint) ORDER BY deadline LIMIT $2"
            ),
            client.prepare(&list),
            client.prepare(
                "SELECT id FROM onlyonce_record WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1"
            ),
            client.prepare("SELECT onlyonce_now()"),
            client.prepare("SELECT onlyonce_keep_secret($1)"),
        );
        let prepared = prepared.map_err(|error| self.server_error("preparing statements", &error));
        let (swap, load, due, due_far, list, window, now, secret) = prepared?;
        Ok(Session {
            link,
            swap,
            load,
            due,
            due_far,
            list,
            window,
            now,
            secret,
        })
    }

    fn refused(&self, error: &tokio_postgres::Error) -> OpenError {
        let place = self.options.place();
        let Some(answer) = error.as_db_error() else {
            let reason = chain(error);
            let is_login = reason.contains("password") || reason.contains("authentication");
            return if is_login {
                OpenError::Login { place, reason }
            } else {
                OpenError::Unreachable { place, reason }
            };
        };
        let reason = said(answer);
        let code = answer.code();
        if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            OpenError::Login { place, reason }
        } else if *code == SqlState::INVALID_CATALOG_NAME {
            OpenError::NoDatabase { place, reason }
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            let what = "the connection";
            OpenError::Permission { what, reason }
        } else {
            OpenError::Unreachable { place, reason }
        }
    }

    pub(crate) fn server_error(
        &self,
        what: &'static str,
        error: &tokio_postgres::Error,
    ) -> OpenError {
        server_error(&self.options, what, error)
    }

    pub(crate) fn unfit(&self, reason: String) -> OpenError {
        OpenError::Unfit {
            place: self.options.place(),
            reason,
        }
    }
}

/// Has the system end a connection whose other side is silent, also one that waits for nothing.
fn notice_silence(options: &mut PostgresOptions) {
    let patience = options.patience();
    let config = &mut options.config;
    config.tcp_user_timeout(patience);
    config.keepalives_idle(KEEPALIVE_IDLE);
    config.keepalives_interval(KEEPALIVE_INTERVAL);
    config.keepalives_retries(KEEPALIVE_RETRIES);
}

pub(crate) fn server_error(
    options: &PostgresOptions,
    what: &'static str,
    error: &tokio_postgres::Error,
) -> OpenError {
    let place = options.place();
    match error.as_db_error() {
        Some(answer) if *answer.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            let reason = said(answer);
            OpenError::Permission { what, reason }
        }
        Some(answer) => {
            let reason = said(answer);
            OpenError::Server {
                place,
                what,
                reason,
            }
        }
        None => OpenError::Server {
            place,
            what,
            reason: chain(error),
        },
    }
}

impl Link {
    fn new<S, T>(client: Client, connection: tokio_postgres::Connection<S, T>) -> Self
    where
        tokio_postgres::Connection<S, T>:
            Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    {
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = %chain(&error), "a connection to PostgreSQL ended");
            }
        });
        Self {
            client,
            backend: None,
            driver: driver.abort_handle(),
        }
    }
}
