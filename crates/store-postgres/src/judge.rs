//! What is refused about a server, and what is accepted only because the URL allows it by name.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tokio_postgres::SimpleQueryRow;

use crate::OpenError;
use crate::connector::{Connector, unfit};

/// `gen_random_uuid` came with 13.
const SERVER_VERSION_MIN: u32 = 130_000;

impl Connector {
    /// Looks at what a session asked its server, in the order of its columns.
    pub(crate) fn judge(&self, row: &SimpleQueryRow, place: &str) -> Result<(), OpenError> {
        let place = || place.to_owned();
        let read_only = |reason| OpenError::ReadOnly {
            place: place(),
            reason,
        };
        if row.get(1) != Some("false") {
            return Err(read_only("it is a standby"));
        }
        if row.get(0) != Some("off") {
            return Err(read_only("default_transaction_read_only is on"));
        }
        for (column, setting, remedy) in [
            (2, "fsync = off", "fsync = on"),
            (3, "full_page_writes = off", "full_page_writes = on"),
        ] {
            if row.get(column) == Some("off") {
                let found = OpenError::Unsafe {
                    place: place(),
                    setting: setting.into(),
                    remedy,
                };
                self.accept(found, self.options.allow_unsafe)?;
            }
        }
        let encoding = row.get(5).unwrap_or_default();
        if encoding != "UTF8" {
            let reason = format!(
                "the database has the encoding {encoding}: use one that was created with ENCODING 'UTF8'"
            );
            return Err(unfit(&place(), reason));
        }
        let version: u32 = row.get(6).and_then(|text| text.parse().ok()).unwrap_or(0);
        if version < SERVER_VERSION_MIN {
            return Err(unfit(&place(), "PostgreSQL 13 or newer is needed".into()));
        }
        if row.get(7) == Some("true") {
            let found = OpenError::SharedSchema {
                place: place(),
                schema: self.options.schema.clone(),
            };
            self.accept(found, self.options.allow_shared_schema)?;
        }
        Ok(())
    }

    /// What the session's commits wait for: at least for the server's own disk, and for its
    /// standbys where it has such as are to be waited for.
    pub(crate) fn commit(&self, row: &SimpleQueryRow, place: &str) -> &'static str {
        let standbys = row.get(10).unwrap_or_default();
        let is_replicated = row.get(11).is_some_and(|count| count != "0");
        if standbys.is_empty() && (is_replicated || self.has_several_hosts()) {
            self.warn(format!(
                "PostgreSQL at {place} does not wait for a standby: a failover may lose claims that were acknowledged, and their requests would run twice; set synchronous_standby_names"
            ));
        }
        if row.get(12) == Some("off") {
            self.warn(format!(
                "PostgreSQL at {place} has track_activities = off: while its disk or standby stands still, connections to it are made without an end; turn it on"
            ));
        }
        match row.get(4) {
            Some("remote_apply") => "remote_apply",
            Some("remote_write") => "remote_write",
            Some("local") if standbys.is_empty() => "local",
            _ => "on",
        }
    }

    /// What was found is a reason to refuse, or to warn where it was allowed by name.
    fn accept(&self, found: OpenError, is_allowed: bool) -> Result<(), OpenError> {
        if !is_allowed {
            return Err(found);
        }
        self.warn(format!("allowed in the store URL: {found}"));
        Ok(())
    }

    /// Keeps something that an operator should know.
    pub(crate) fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever opens a store asks for them. After a failover nobody does.
        if self.is_open.load(Ordering::Relaxed) && !warnings.contains(&warning) {
            tracing::warn!("{warning}");
        }
        warnings.insert(warning);
    }

    /// What was found, on any connection so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.iter().cloned().collect()
    }
}
