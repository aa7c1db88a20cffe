//! The schema: versioned, checksummed, and changed by one process at a time.
//!
//! A build uses a schema that is as new as it needs, or newer if that one says that older builds
//! may go on. So instances are replaced one by one: migrate first, then restart each.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::connector::{Connector, server_error};
use crate::{OpenError, PostgresOptions, schema};

/// One step of the schema.
pub(crate) struct Migration {
    pub(crate) version: i32,
    /// The oldest build that may use the schema after this step, by the newest step it knows.
    readable_by: i32,
    pub(crate) sql: &'static str,
    /// The index that it makes, where that is all it does: it is built while the table is used,
    /// statement by statement, each of which may be repeated.
    index: Option<&'static str>,
}

impl Migration {
    const fn new(version: i32, sql: &'static str) -> Self {
        Self {
            version,
            readable_by: 1,
            sql,
            index: None,
        }
    }

    /// The statement that notes that it was applied.
    fn noted(&self) -> String {
        format!(
            "INSERT INTO onlyonce_schema (version, readable_by, checksum) VALUES ({}, {}, '{}')",
            self.version,
            self.readable_by,
            checksum(self.sql)
        )
    }
}

/// Every step, in order. Never change one that was released: add another.
pub(crate) const MIGRATIONS: [Migration; 7] = [
    Migration::new(1, include_str!("../migrations/0001_records.sql")),
    Migration::new(2, include_str!("../migrations/0002_functions.sql")),
    Migration::new(3, include_str!("../migrations/0003_versions.sql")),
    Migration::new(4, include_str!("../migrations/0004_asking.sql")),
    Migration::new(5, include_str!("../migrations/0005_clock.sql")),
    Migration::new(6, include_str!("../migrations/0006_answers.sql")),
    Migration {
        index: Some("onlyonce_record_unsettled"),
        ..Migration::new(7, include_str!("../migrations/0007_unsettled.sql"))
    },
];

/// The newest schema that this build knows, and the oldest that it can use.
pub(crate) const NEWEST: i32 = 7;

/// Half of the advisory lock's key; the other half is the schema's.
const LOCK_KEY: i32 = 0x6f6e_6c79;

/// How long another process's migration may take, and how long a step is tried while others use the
/// tables.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked whether that is over. A statement that waits for it would be waited for
/// itself by an index that is built.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// How long one try of a step waits for a table: every writer that comes later waits behind it.
const TABLE_LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// The pause between two tries, in which those writers go on.
const TABLE_LOCK_PAUSE: Duration = Duration::from_millis(800);

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version that the schema had; 0 when there was none.
    pub from: i32,
    /// The version that it has.
    pub to: i32,
}

/// Brings the schema to this build's version. Safe to run again, and by several at once: one
/// does it, the others find it done, if it takes no longer than a minute. Each step is a
/// transaction, but for indexes of tables that are in use, which may take as long as the tables are
/// large and others' transactions last.
///
/// # Errors
/// When the server cannot be used, the schema is newer than this build, or a step was applied
/// with another content.
pub async fn migrate(options: &PostgresOptions) -> Result<Migrated, OpenError> {
    let connector = Arc::new(Connector::new(options)?);
    connector.survey().await?;
    let link = connector.link().await?;
    let client = &link.client;
    let failed = |what| move |error| server_error(options, what, &error);
    let unhurried = client.batch_execute("SET statement_timeout = 0").await;
    unhurried.map_err(failed("preparing for the migration"))?;
    lock(client, options).await?;
    prepare(client, options).await?;
    let steps = schema::steps(client).await;
    let from = schema::version(
        &steps.map_err(failed("reading the schema's version"))?,
        options,
    )?;
    for step in MIGRATIONS.iter().filter(|step| step.version > from) {
        let applied = match step.index {
            // Nobody uses what was just made.
            Some(index) if from > 0 => build(client, step, index).await,
            Some(_) | None => apply(client, step).await,
        };
        applied.map_err(failed("migrating the schema"))?;
        tracing::info!(version = step.version, schema = options.schema, "migrated");
    }
    let to = from.max(NEWEST);
    Ok(Migrated { from, to })
}

/// Waits until no other process migrates, and keeps them from it for as long as the connection lives.
async fn lock(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let ask = format!("SELECT pg_try_advisory_lock({LOCK_KEY}, hashtext($1))");
    let give_up_at = Instant::now() + LOCK_PATIENCE;
    loop {
        let locked = client.query_one(&ask, &[&options.schema]).await;
        let locked = locked
            .map_err(|error| server_error(options, "asking for another migration", &error))?;
        if locked.get(0) {
            return Ok(());
        }
        if Instant::now() >= give_up_at {
            return Err(OpenError::Migrating {
                schema: options.schema.clone(),
            });
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

/// The table that knows which steps were applied.
async fn prepare(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let what = "the use of the schema";
    let failed = |error| server_error(options, what, &error);
    let schema = &options.schema;
    let exists = client
        .query_one(
            "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL",
            &[schema],
        )
        .await;
    let exists: bool = exists.map_err(failed)?.get(0);
    if !exists {
        let create = format!("CREATE SCHEMA \"{schema}\"");
        client.batch_execute(&create).await.map_err(failed)?;
    }
    let exists = client
        .query_one("SELECT to_regclass('onlyonce_schema') IS NOT NULL", &[])
        .await;
    let exists: bool = exists.map_err(failed)?.get(0);
    if !exists {
        let table = "CREATE TABLE onlyonce_schema (
                version     integer PRIMARY KEY,
                readable_by integer NOT NULL,
                checksum    text NOT NULL,
                applied_at  timestamptz NOT NULL DEFAULT now()
            )";
        client.batch_execute(table).await.map_err(failed)?;
    }
    Ok(())
}

/// Builds an index while the table is used. It waits for those who use it, and none of them for it.
async fn build(client: &Client, step: &Migration, index: &str) -> Result<(), Error> {
    let is_there = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) \
                    AND indisvalid AND indisready";
    client.batch_execute("SET lock_timeout = 0").await?;
    // It may be whole without being noted: the server goes on when the process was ended.
    while client.query_opt(is_there, &[&index]).await?.is_none() {
        tracing::info!(index, "building an index; others go on meanwhile");
        for statement in step.sql.split_inclusive(';') {
            match client.batch_execute(statement).await {
                Ok(()) => {}
                // With an older build that waits for this migration. It was given up; once more.
                Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                    tracing::warn!(index, %error, "building the index once more");
                    tokio::time::sleep(LOCK_PAUSE).await;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    client.batch_execute(&step.noted()).await
}

async fn apply(client: &Client, step: &Migration) -> Result<(), Error> {
    // Only what is not in use comes here with an index.
    let sql = step.sql.replace(" CONCURRENTLY", "");
    let script = format!("BEGIN; {sql}; {}; COMMIT", step.noted());
    let hurried = format!("SET lock_timeout = {}", TABLE_LOCK_TIMEOUT.as_millis());
    client.batch_execute(&hurried).await?;
    let give_up_at = Instant::now() + LOCK_PATIENCE;
    loop {
        let Err(error) = client.batch_execute(&script).await else {
            return Ok(());
        };
        let is_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
        if !is_locked || Instant::now() >= give_up_at {
            return Err(error);
        }
        client.batch_execute("ROLLBACK").await?;
        tokio::time::sleep(TABLE_LOCK_PAUSE).await;
    }
}

pub(crate) fn checksum(sql: &str) -> String {
    // Eight bytes are enough to tell two apart, and short enough to read.
    let digest = Sha256::digest(sql.as_bytes());
    let mut text = String::new();
    for byte in digest.iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
