//! The schema: versioned, checksummed, and changed by one process at a time.
//!
//! A build uses a schema that is as new as it needs, or newer if that one says that older builds
//! may go on. So instances are replaced one by one: migrate first, then restart each.

use std::fmt::Write;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connector::{Connector, server_error};
use crate::{OpenError, PostgresOptions};

/// One step of the schema.
struct Migration {
    version: i32,
    /// The oldest build that may use the schema after this step, by the newest step it knows.
    readable_by: i32,
    sql: &'static str,
}

/// Every step, in order. Never change one that was released: add another.
const MIGRATIONS: [Migration; 5] = [
    Migration {
        version: 1,
        readable_by: 1,
        sql: include_str!("../migrations/0001_records.sql"),
    },
    Migration {
        version: 2,
        readable_by: 1,
        sql: include_str!("../migrations/0002_functions.sql"),
    },
    Migration {
        version: 3,
        readable_by: 1,
        sql: include_str!("../migrations/0003_versions.sql"),
    },
    Migration {
        version: 4,
        readable_by: 1,
        sql: include_str!("../migrations/0004_asking.sql"),
    },
    Migration {
        version: 5,
        readable_by: 1,
        sql: include_str!("../migrations/0005_clock.sql"),
    },
];

/// The newest schema that this build knows, and the oldest that it can use.
pub(crate) const NEWEST: i32 = 5;

/// Half of the advisory lock's key; the other half is the schema's.
const LOCK_KEY: i32 = 0x6f6e_6c79;

/// How long another process's migration may take.
const LOCK_PATIENCE: &str = "60s";

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version that the schema had; 0 when there was none.
    pub from: i32,
    /// The version that it has.
    pub to: i32,
}

/// Brings the schema to this build's version. Safe to run again, and by several at once: one
/// does it, the others find it done. Each step is a transaction.
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
    let lock = format!(
        "SET statement_timeout = 0; SET lock_timeout = '{LOCK_PATIENCE}'; \
         SELECT pg_advisory_lock({LOCK_KEY}, hashtext('{}')); \
         SET lock_timeout = '{LOCK_PATIENCE}'",
        options.schema.replace('\'', "''")
    );
    let locked = client.batch_execute(&lock).await;
    locked.map_err(failed("waiting for another migration"))?;
    prepare(client, options).await?;
    let applied = applied(client, options).await?;
    let from = applied.last().map_or(0, |step| step.version);
    for step in MIGRATIONS.iter().filter(|step| step.version > from) {
        apply(client, step)
            .await
            .map_err(failed("migrating the schema"))?;
        tracing::info!(version = step.version, schema = options.schema, "migrated");
    }
    let to = from.max(NEWEST);
    Ok(Migrated { from, to })
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

struct Applied {
    version: i32,
}

/// The steps that were applied, all of which must be this build's, or newer.
async fn applied(client: &Client, options: &PostgresOptions) -> Result<Vec<Applied>, OpenError> {
    let asked = client
        .query(
            "SELECT version, readable_by, checksum FROM onlyonce_schema ORDER BY version",
            &[],
        )
        .await;
    let rows =
        asked.map_err(|error| server_error(options, "reading the schema's version", &error))?;
    let mut applied = Vec::new();
    for row in rows {
        let (version, readable_by): (i32, i32) = (row.get(0), row.get(1));
        let found: String = row.get(2);
        if readable_by > NEWEST {
            return Err(OpenError::NewerSchema {
                schema: options.schema.clone(),
                found: version,
                known: NEWEST,
            });
        }
        let known = MIGRATIONS.iter().find(|step| step.version == version);
        if let Some(step) = known
            && checksum(step.sql) != found
        {
            return Err(OpenError::ChangedMigration {
                schema: options.schema.clone(),
                version,
                found,
                expected: checksum(step.sql),
            });
        }
        applied.push(Applied { version });
    }
    Ok(applied)
}

async fn apply(client: &Client, step: &Migration) -> Result<(), tokio_postgres::Error> {
    let script = format!(
        "BEGIN; {}; INSERT INTO onlyonce_schema (version, readable_by, checksum) \
         VALUES ({}, {}, '{}'); COMMIT",
        step.sql,
        step.version,
        step.readable_by,
        checksum(step.sql)
    );
    client.batch_execute(&script).await
}

/// Whether this build may use the schema as it is.
pub(crate) async fn check(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let old = |found| OpenError::OldSchema {
        schema: options.schema.clone(),
        found,
        needed: NEWEST,
    };
    let asked = client
        .query_one(
            "SELECT coalesce(max(version), 0), coalesce(max(readable_by), 0) FROM onlyonce_schema",
            &[],
        )
        .await;
    let row = match asked {
        Ok(row) => row,
        Err(error) if is_missing(&error) => {
            may_look(client, options).await?;
            return Err(old(0));
        }
        Err(error) => {
            return Err(server_error(
                options,
                "reading the schema's version",
                &error,
            ));
        }
    };
    let (version, readable_by): (i32, i32) = (row.get(0), row.get(1));
    if version < NEWEST {
        return Err(old(version));
    }
    if readable_by > NEWEST {
        return Err(OpenError::NewerSchema {
            schema: options.schema.clone(),
            found: version,
            known: NEWEST,
        });
    }
    Ok(())
}

fn is_missing(error: &tokio_postgres::Error) -> bool {
    let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| missing.contains(code))
}

/// Tables in a schema that a user may not use look as if they were not there.
async fn may_look(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let asked = client
        .query_opt(
            "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1",
            &[&options.schema],
        )
        .await;
    let what = "the use of the schema";
    let row = asked.map_err(|error| server_error(options, what, &error))?;
    if row.is_some_and(|row| !row.get::<_, bool>(0)) {
        let reason = format!("no USAGE on the schema {:?}", options.schema);
        return Err(OpenError::Permission { what, reason });
    }
    Ok(())
}

fn checksum(sql: &str) -> String {
    // Eight bytes are enough to tell two apart, and short enough to read.
    let digest = Sha256::digest(sql.as_bytes());
    let mut text = String::new();
    for byte in digest.iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
