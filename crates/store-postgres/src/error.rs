//! Why the store cannot be used, in one line that names what to change.
//!
//! A password is never part of it.

use thiserror::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Why the store did not open, or the schema was not migrated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL or an option makes no sense.
    #[error("the store URL is not usable: {0}")]
    Url(String),
    /// The TLS settings cannot be used.
    #[error("TLS to PostgreSQL cannot be set up: {0}")]
    Tls(String),
    /// Nobody answers there, or not in time.
    #[error(
        "PostgreSQL at {place} cannot be reached: {reason}; check host, port and sslmode in the store URL"
    )]
    Unreachable {
        /// Host and port.
        place: String,
        /// What happened.
        reason: String,
    },
    /// User or password are wrong, or the server lets nobody in from here.
    #[error(
        "PostgreSQL at {place} refuses the login: {reason}; check user and password in the store URL, and the server's pg_hba.conf"
    )]
    Login {
        /// Host and port.
        place: String,
        /// What the server said.
        reason: String,
    },
    /// There is no such database.
    #[error(
        "PostgreSQL at {place} has no such database: {reason}; create it, or change the database in the store URL"
    )]
    NoDatabase {
        /// Host and port.
        place: String,
        /// What the server said.
        reason: String,
    },
    /// The server does not take writes.
    #[error(
        "PostgreSQL at {place} is read-only ({reason}): claims need the primary; change the host in the store URL"
    )]
    ReadOnly {
        /// Host and port.
        place: String,
        /// How that shows.
        reason: &'static str,
    },
    /// It is not the server that was used before.
    #[error(
        "PostgreSQL at {place} is not the server that has the keys, nor a copy of it, or does not say: requests that ran there would run again here; check the hosts in the store URL, and if this is the right one, start onlyonce again"
    )]
    OtherServer {
        /// Host and port.
        place: String,
    },
    /// It is the server that another one was promoted in place of.
    #[error(
        "PostgreSQL at {place} is on timeline {found}, and the keys are on timeline {known}: it is a primary from before a failover, where requests would run again; stop it, or make it a standby of the new one"
    )]
    OldTimeline {
        /// Host and port.
        place: String,
        /// Its timeline.
        found: u32,
        /// The highest timeline that was seen.
        known: u32,
    },
    /// It would lose what it acknowledged.
    #[error(
        "PostgreSQL at {place} has {setting}: after a crash it may have lost claims that were acknowledged, and requests would run twice; set {remedy} in postgresql.conf, or accept that with unsafe_settings=allow in the store URL"
    )]
    Unsafe {
        /// Host and port.
        place: String,
        /// The setting.
        setting: String,
        /// What it should be.
        remedy: &'static str,
    },
    /// The server or database is of a kind that was never tested.
    #[error("PostgreSQL at {place} cannot be used: {reason}")]
    Unfit {
        /// Host and port.
        place: String,
        /// Why not.
        reason: String,
    },
    /// Anybody may create things beside the tables.
    #[error(
        "at {place} every user of the database may create functions and operators in the schema {schema:?}, and with them change what onlyonce does there: run `REVOKE CREATE ON SCHEMA \"{schema}\" FROM PUBLIC`, name another one with schema= in the store URL, or accept that with shared_schema=allow"
    )]
    SharedSchema {
        /// Host and port.
        place: String,
        /// The schema.
        schema: String,
    },
    /// Earlier statements were not answered, and the server still works on them.
    #[error(
        "PostgreSQL at {place} still works on {statements} statements that it did not answer in time: no more are sent on this connection until they end; look at its disk and at the standby that it waits for"
    )]
    Stalled {
        /// Host and port.
        place: String,
        /// How many.
        statements: usize,
    },
    /// The tables are missing or of an older build.
    #[error(
        "the schema {schema:?} has version {found}, this onlyonce needs {needed}: run `onlyonce migrate --store URL`, or start with `serve --migrate`"
    )]
    OldSchema {
        /// The schema.
        schema: String,
        /// Its version; 0 when there are no tables.
        found: i32,
        /// What this build needs.
        needed: i32,
    },
    /// Another process migrates, and has not come to an end.
    #[error(
        "another process has been migrating the schema {schema:?} for a minute, perhaps building an index while others use the table: try again when it is done"
    )]
    Migrating {
        /// The schema.
        schema: String,
    },
    /// The tables are of a newer build, which said that this one may not use them.
    #[error(
        "the schema {schema:?} has version {found}, this onlyonce knows up to {known}: upgrade onlyonce"
    )]
    NewerSchema {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The newest version that this build knows.
        known: i32,
    },
    /// A migration was applied with another content than this build has.
    #[error(
        "migration {version} in the schema {schema:?} is not the one of this onlyonce (checksum {found}, expected {expected}): use the build that made it, or another schema"
    )]
    ChangedMigration {
        /// The schema.
        schema: String,
        /// The migration.
        version: i32,
        /// The checksum of what was applied.
        found: String,
        /// The checksum of this build's.
        expected: String,
    },
    /// The functions work on the tables of another schema.
    #[error(
        "the functions in the schema {schema:?} were made for another one ({function} has {path}), and would mix two deployments: a schema with onlyonce's tables cannot be renamed or copied under another name; give it its old name, or migrate into a new one and use `onlyonce copy`"
    )]
    RenamedSchema {
        /// The schema.
        schema: String,
        /// One of the functions.
        function: String,
        /// What it was set to.
        path: String,
    },
    /// The user may not do what it must.
    #[error("PostgreSQL refuses {what}: {reason}; grant it, or change the user in the store URL")]
    Permission {
        /// What was tried.
        what: &'static str,
        /// What the server said.
        reason: String,
    },
    /// The server answered with another error.
    #[error("PostgreSQL at {place} failed while {what}: {reason}")]
    Server {
        /// Host and port.
        place: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
        reason: String,
    },
}

impl OpenError {
    /// Whether another host may do better: this one was not reached, lets nobody in, or is not
    /// the one that takes writes.
    pub(crate) fn is_of_this_host(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Login { .. }
            | Self::NoDatabase { .. }
            | Self::ReadOnly { .. }
            | Self::OtherServer { .. }
            | Self::OldTimeline { .. }
            | Self::Server { .. } => true,
            Self::Url(_)
            | Self::Tls(_)
            | Self::Unsafe { .. }
            | Self::Unfit { .. }
            | Self::SharedSchema { .. }
            | Self::Stalled { .. }
            | Self::OldSchema { .. }
            | Self::Migrating { .. }
            | Self::NewerSchema { .. }
            | Self::ChangedMigration { .. }
            | Self::RenamedSchema { .. }
            | Self::Permission { .. } => false,
        }
    }

    /// Of several hosts' errors the one that names something to change is shown: that a host is
    /// down, or a standby, may be as it should be.
    pub(crate) fn tells_as_much_as(&self, other: &Self) -> bool {
        let rank = |error: &Self| {
            let is_down = matches!(error, Self::Unreachable { .. });
            let is_standby = matches!(error, Self::ReadOnly { .. });
            u8::from(!is_down) + u8::from(!is_down && !is_standby)
        };
        rank(self) >= rank(other)
    }
}

/// What a failed request proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing was written. Of a batch, the others may work alone.
    Refused {
        /// What the server said.
        reason: String,
        /// Whether the same may work a moment later.
        is_passing: bool,
    },
    /// Nothing was written, and the connection is of no more use. What happened and what to do.
    Unusable(String),
    /// It was sent, and nobody knows.
    MayHaveWritten(String),
}

/// Sorts a failed statement. Each is its own transaction, so an error of severity ERROR has
/// undone all of it. A fatal one may come after the commit: a server that is shut down while it
/// waits for its standby has committed.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Failure {
    let Some(answer) = error.as_db_error() else {
        return Failure::MayHaveWritten(chain(error));
    };
    // Unlike the text beside it, this is in no language.
    if answer.parsed_severity() != Some(Severity::Error) {
        return Failure::MayHaveWritten(said(answer));
    }
    let leave = |hint: &str| Failure::Unusable(format!("{}; {hint}", said(answer)));
    // What one row met, the others of its statement may not: a replay needs no space on a disk.
    let refused = |hint: &str| Failure::Refused {
        reason: format!("{}; {hint}", said(answer)),
        is_passing: false,
    };
    let code = answer.code();
    let class = code.code().get(..2).unwrap_or_default();
    if *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN || class == "08" {
        // A pooler or a distributed server that lost another one in the middle of it.
        Failure::MayHaveWritten(said(answer))
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        leave("the server is read-only: claims need the primary, check the host in the store URL")
    } else if *code == SqlState::DISK_FULL {
        refused("the server's disk is full: free some space")
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        refused("grant it, or change the user in the store URL")
    } else if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_FUNCTION {
        leave("run `onlyonce migrate --store URL`, or start with `serve --migrate`")
    } else if *code == SqlState::QUERY_CANCELED {
        refused(
            "the server is too slow or the row is locked; see statement_timeout_ms in the store URL",
        )
    } else if class == "53" || class == "57" {
        refused("the server is short of something")
    } else if class == "26" || *code == SqlState::FEATURE_NOT_SUPPORTED {
        // A prepared statement is gone, or was made for another table.
        leave("the connection is made anew")
    } else {
        let passing = [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        Failure::Refused {
            reason: said(answer),
            is_passing: passing.contains(code),
        }
    }
}

/// What the server said, with its code.
pub(crate) fn said(answer: &DbError) -> String {
    let detail = answer.detail().map(|detail| format!(" ({detail})"));
    format!(
        "{}{} [{}]",
        answer.message(),
        detail.unwrap_or_default(),
        answer.code().code()
    )
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}
