//! Looking at the server behind a connection: once before it is used, and again now and then,
//! because settings can be changed on a running server.

use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::OpenError;
use crate::backend::{self, Backend};
use crate::connector::{Connector, unfit};
use crate::history::{self, History};
use crate::link::Link;

/// What must stay as it was when the connection was looked at, in one column: what the server
/// promises, what the session was set to, and that it is the same session. A pooler that gives
/// each transaction another one would mix them.
const STATE: &str = "SELECT pg_catalog.concat_ws('|', pg_catalog.pg_backend_pid(), \
     pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'), \
     pg_catalog.current_setting('synchronous_commit'), \
     (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'), \
     pg_catalog.current_setting('synchronous_standby_names'), \
     pg_catalog.current_setting('search_path'), pg_catalog.current_setting('lock_timeout'), \
     pg_catalog.current_setting('statement_timeout'), \
     pg_catalog.current_setting('default_transaction_isolation'))";

/// What of it the server decides: it may change between two questions, and what was judged must be
/// what is kept.
const SERVER: &str = "pg_catalog.concat_ws('|', pg_catalog.current_setting('fsync'), \
     pg_catalog.current_setting('full_page_writes'), \
     (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'), \
     pg_catalog.current_setting('synchronous_standby_names'))";

/// Where that is in the first answer.
const SERVER_COLUMN: usize = 13;

impl Connector {
    /// Sets the session up and looks at the server. What it found is the connection's state from
    /// then on.
    pub(crate) async fn look(
        &self,
        client: &Client,
        place: &str,
    ) -> Result<(Option<Backend>, String), OpenError> {
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
              FROM pg_namespace WHERE nspname = '{}'), {}, \
             current_setting('synchronous_standby_names'), \
             (SELECT count(*) FROM pg_stat_replication), current_setting('track_activities'), {SERVER}; \
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
        let row = first_row(&answer)
            .ok_or_else(|| unfit(place, "it does not answer a plain query".into()))?;
        self.judge(row, place)?;
        // Pinned, because a session without a setting of its own follows the server's file.
        let pin = format!(
            "SET synchronous_commit = {}; {STATE}, {SERVER}",
            self.commit(row, place)
        );
        let asked = client.simple_query(&pin).await;
        let answer = asked.map_err(|error| self.server_error("setting a session up", &error))?;
        let server = first_row(&answer).and_then(|row| row.get(1));
        if server.is_none() || server != row.get(SERVER_COLUMN) {
            let reason = "its settings changed while it was looked at: try again";
            return Err(unfit(place, reason.into()));
        }
        Ok((Backend::read(row, 8), state(&answer)))
    }

    /// Whose history the server's is. A managed one may refuse to say.
    pub(crate) async fn history(&self, client: &Client) -> Result<Option<History>, OpenError> {
        match client.simple_query(history::ASK).await {
            Ok(answer) => Ok(first_row(&answer).and_then(History::read)),
            Err(error) if error.as_db_error().is_some() => Ok(None),
            Err(error) => Err(self.server_error("asking for its timeline", &error)),
        }
    }

    /// Whether a connection is still what it was when it was looked at: settings can be changed
    /// on a running server.
    pub(crate) async fn is_unchanged(&self, link: &Link) -> bool {
        // Below the engine's own patience: a caller that went away would leave a dead connection.
        let patience = self.options.statement_timeout;
        let asked = timeout(patience, link.client.simple_query(STATE));
        matches!(asked.await, Ok(Ok(answer)) if state(&answer) == link.state)
    }
}

fn state(answer: &[SimpleQueryMessage]) -> String {
    let row = first_row(answer).and_then(|row| row.get(0));
    row.unwrap_or_default().to_owned()
}

fn first_row(answer: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    answer.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else {
            return None;
        };
        Some(row)
    })
}
