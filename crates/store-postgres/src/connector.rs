//! Makes connections: to which host, and to which servers not.
//!
//! A connection is used only if its server takes writes, does not lose them in a crash, and has
//! the tables of this build. That is asked of every connection, because after a failover the
//! same address may lead to another server.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};

use crate::backend::{self, Backend};
use crate::error::{chain, said};
use crate::history::Latest;
use crate::hosts::{Hosts, Server};
use crate::link::Link;
use crate::options::{PostgresOptions, SslMode};
use crate::session::Session;
use crate::tls::{self, Check, Tls};
use crate::{OpenError, schema};

/// How many unanswered statements of one slot the server may still work on before that slot makes
/// no new connection. More than one, because a line that broke says nothing about the server.
const STALLED_MAX: usize = 2;

/// Makes connections.
pub(crate) struct Connector {
    pub(crate) options: PostgresOptions,
    hosts: Hosts,
    tls: Option<Arc<ClientConfig>>,
    latest: Latest,
    /// Whether the store was opened: what is found from then on is logged.
    pub(crate) is_open: AtomicBool,
    /// What an operator should know: also what was accepted because the options say so.
    pub(crate) warnings: Mutex<BTreeSet<String>>,
}

impl Connector {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self, OpenError> {
        options.check().map_err(OpenError::Url)?;
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
            options: options.clone(),
            hosts: Hosts::new(options),
            tls,
            latest: Latest::default(),
            is_open: AtomicBool::new(false),
            warnings: Mutex::default(),
        })
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
        let link = self.link().await?;
        let host = link.host;
        let patience = self.options.connect_timeout;
        let ready = timeout(patience, self.make_ready(link, left)).await;
        ready.unwrap_or_else(|_| {
            self.hosts.failed(host);
            Err(self.silent(self.options.place()))
        })
    }

    async fn make_ready(
        &self,
        link: Link,
        left: &[Backend],
    ) -> Result<(Session, Vec<Backend>), OpenError> {
        let working = backend::working(&link.client, left).await;
        let working = working.map_err(|error| self.server_error("looking at its work", &error))?;
        if working.len() >= STALLED_MAX {
            return Err(OpenError::Stalled {
                place: self.options.place(),
                statements: working.len(),
            });
        }
        schema::check(&link.client, &self.options).await?;
        Ok((self.prepare(link).await?, working))
    }

    /// A connection whose server takes writes and keeps them: to the first of the hosts that is
    /// such a one. Its schema is not looked at.
    pub(crate) async fn link(&self) -> Result<Link, OpenError> {
        let mut telling: Option<OpenError> = None;
        for server in self.hosts.in_turn() {
            match self.reach(server).await {
                Ok(link) => {
                    self.hosts.worked(server.index);
                    return Ok(link);
                }
                Err(error) if error.is_of_this_host() => {
                    self.hosts.failed(server.index);
                    if telling
                        .as_ref()
                        .is_none_or(|said| error.tells_as_much_as(said))
                    {
                        telling = Some(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(telling.unwrap_or_else(|| self.silent(self.options.place())))
    }

    /// A connection to one host, by the first of its addresses that works.
    async fn reach(&self, server: &Server) -> Result<Link, OpenError> {
        let patience = self.options.connect_timeout;
        let place = server.place();
        let unreachable = |reason| OpenError::Unreachable {
            place: place.clone(),
            reason,
        };
        let found = match timeout(patience, server.addresses()).await {
            Ok(found) => found.map_err(|error| unreachable(error.to_string()))?,
            Err(_) => return Err(unreachable("its name is not resolved".into())),
        };
        let mut failed = unreachable("its name has no address".into());
        for config in found {
            let connecting = self.connect(&config, server.index, &place);
            match timeout(patience, connecting).await {
                Ok(Err(error)) if error.is_of_this_host() => failed = error,
                Ok(connected) => return connected,
                Err(_) => failed = self.silent(place.clone()),
            }
        }
        Err(failed)
    }

    async fn connect(&self, config: &Config, host: usize, place: &str) -> Result<Link, OpenError> {
        let refused = |error| refused(place, &error);
        let mut link = match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(refused)?;
                Link::new(client, connection, host)
            }
            Some(tls) => {
                let connected = config.connect(Tls(Arc::clone(tls))).await;
                let (client, connection) = connected.map_err(refused)?;
                Link::new(client, connection, host)
            }
        };
        (link.backend, link.state) = self.look(&link.client, place).await?;
        let history = self.history(&link.client).await?;
        if history.is_none() && self.has_several_hosts() {
            self.warn(format!(
                "PostgreSQL at {place} does not say which timeline it is on: after a failover a primary from before could not be told from the new one"
            ));
        }
        self.latest.admit(place, history, &link.driver)?;
        Ok(link)
    }

    pub(crate) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Looks at every host, so that the highest timeline of all is known before one is used: which
    /// of two that take writes is the right one cannot be seen from one of them.
    ///
    /// # Errors
    /// When they are not copies of one server.
    pub(crate) async fn survey(self: &Arc<Self>) -> Result<(), OpenError> {
        if !self.has_several_hosts() {
            return Ok(());
        }
        let mut looks = JoinSet::new();
        for server in self.hosts.in_turn() {
            let (connector, server) = (Arc::clone(self), server.clone());
            looks.spawn(async move { connector.reach(&server).await.err() });
        }
        let found = looks.join_all().await.into_iter().flatten();
        let mut others = found.filter(|error| matches!(error, OpenError::OtherServer { .. }));
        others.next().map_or(Ok(()), Err)
    }

    /// Looks at every host again and again, for as long as somebody uses the store: connections to
    /// a primary that was replaced, and lives on, do not break by themselves.
    pub(crate) fn watch(self: &Arc<Self>) {
        if !self.has_several_hosts() {
            return;
        }
        let watched = Arc::downgrade(self);
        let pause = self.options.ask_again_after;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(connector) = watched.upgrade() else {
                    return;
                };
                if let Err(error) = connector.survey().await {
                    tracing::warn!(%error, "one of the hosts of the store is another server");
                }
            }
        });
    }

    pub(crate) fn server_error(
        &self,
        what: &'static str,
        error: &tokio_postgres::Error,
    ) -> OpenError {
        server_error(&self.options, what, error)
    }

    fn silent(&self, place: String) -> OpenError {
        let patience = self.options.connect_timeout;
        let reason = format!("no connection within {patience:?}");
        OpenError::Unreachable { place, reason }
    }
}

fn refused(place: &str, error: &tokio_postgres::Error) -> OpenError {
    let place = place.to_owned();
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
    if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
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

pub(crate) fn unfit(place: &str, reason: String) -> OpenError {
    OpenError::Unfit {
        place: place.into(),
        reason,
    }
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
