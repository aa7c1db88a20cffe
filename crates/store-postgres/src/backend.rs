//! The server's side of a connection, which can outlive ours.
//!
//! A statement that was not answered may still be at work in the server: its commit waits for a
//! disk or for a standby. Whoever then connects anew, again and again, fills the server with
//! backends that wait. So a slot remembers those that it left, and asks after them.
//!
//! They are not cancelled. A statement that runs is ended by `statement_timeout`. A commit that
//! waits for the disk cannot be cancelled, and one that waits for its standby must not: it would
//! be shown to readers, and be lost in the failover that the standby is for.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, SimpleQueryRow};

/// A backend: its process, and when it was started, because numbers of processes come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    pid: i32,
    started: String,
}

/// What a session asks about its own backend, in two columns.
pub(crate) const IDENTITY: &str = "pg_catalog.pg_backend_pid(), \
     (SELECT extract(epoch FROM backend_start) FROM pg_catalog.pg_stat_activity \
      WHERE pid = pg_catalog.pg_backend_pid())";

impl Backend {
    /// Reads [`IDENTITY`], from a column on.
    pub(crate) fn read(row: &SimpleQueryRow, column: usize) -> Option<Self> {
        Some(Self {
            pid: row.get(column)?.parse().ok()?,
            started: row.get(column + 1)?.to_owned(),
        })
    }
}

/// Those of the backends that are still at work. One that waits for its client is not: that client
/// is gone, and it will notice.
pub(crate) async fn working(client: &Client, asked: &[Backend]) -> Result<Vec<Backend>, Error> {
    let mut working = Vec::new();
    for backend in asked {
        let params: [&(dyn ToSql + Sync); 2] = [&backend.pid, &backend.started];
        let found = client.query_opt(
            "SELECT 1 FROM pg_catalog.pg_stat_activity \
             WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2 \
             AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'",
            &params,
        );
        if found.await?.is_some() {
            working.push(backend.clone());
        }
    }
    Ok(working)
}
