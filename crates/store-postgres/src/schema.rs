//! Whether this build may use the schema as it is: every step is its own, or newer and said to be
//! readable; the functions work on these tables; and the user may do what the store does.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row};

use crate::connector::server_error;
use crate::migrate::{MIGRATIONS, NEWEST, checksum};
use crate::{OpenError, PostgresOptions};

/// What the store does, and the user may not: one line each.
const MISSING_RIGHTS: &str = "\
    SELECT privilege || ' on ' || name FROM (VALUES \
        ('onlyonce_record', 'SELECT'), ('onlyonce_record', 'INSERT'), \
        ('onlyonce_record', 'UPDATE'), ('onlyonce_record', 'DELETE'), \
        ('onlyonce_clock', 'SELECT'), ('onlyonce_clock', 'UPDATE'), \
        ('onlyonce_secret', 'SELECT'), ('onlyonce_secret', 'INSERT')) AS needed (name, privilege) \
    WHERE NOT has_table_privilege(to_regclass(name), privilege) \
    UNION ALL SELECT 'USAGE on SEQUENCE onlyonce_version' \
    WHERE NOT has_sequence_privilege(to_regclass('onlyonce_version'), 'USAGE') \
    UNION ALL SELECT 'EXECUTE on FUNCTION ' || proname FROM pg_proc \
    WHERE pronamespace = to_regnamespace(quote_ident($1)) AND proname IN ('onlyonce_swap', \
        'onlyonce_now', 'onlyonce_time', 'onlyonce_server_millis', 'onlyonce_keep_secret') \
    AND NOT has_function_privilege(oid, 'EXECUTE')";

/// The functions that look names up in another schema than their own.
const STRAYED: &str = "\
    SELECT proname::text, setting FROM pg_proc, unnest(proconfig) AS setting \
    WHERE pronamespace = to_regnamespace(quote_ident($1)) AND proname LIKE 'onlyonce\\_%' \
    AND setting LIKE 'search\\_path=%' \
    AND setting <> 'search_path=' || quote_ident($1) || ', pg_temp' ORDER BY proname LIMIT 1";

/// # Errors
/// When it may not.
pub(crate) async fn check(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let what = "reading the schema's version";
    let steps = match steps(client).await {
        Ok(steps) => steps,
        Err(error) if is_missing(&error) => {
            may_look(client, options).await?;
            Vec::new()
        }
        Err(error) => return Err(server_error(options, what, &error)),
    };
    let found = version(&steps, options)?;
    if found < NEWEST {
        return Err(OpenError::OldSchema {
            schema: options.schema.clone(),
            found,
            needed: NEWEST,
        });
    }
    has_its_own_functions(client, options).await?;
    may_do_what_it_must(client, options).await
}

/// The steps that were applied, in order.
pub(crate) async fn steps(client: &Client) -> Result<Vec<Row>, Error> {
    let ask = "SELECT version, readable_by, checksum FROM onlyonce_schema ORDER BY version";
    client.query(ask, &[]).await
}

/// The schema's version; 0 when there are no tables.
///
/// # Errors
/// When a step is not this build's, or says that this build may not use it.
pub(crate) fn version(steps: &[Row], options: &PostgresOptions) -> Result<i32, OpenError> {
    let mut newest = 0;
    for step in steps {
        let (version, readable_by): (i32, i32) = (step.get(0), step.get(1));
        let found: String = step.get(2);
        if readable_by > NEWEST {
            return Err(OpenError::NewerSchema {
                schema: options.schema.clone(),
                found: version,
                known: NEWEST,
            });
        }
        let known = MIGRATIONS.iter().find(|known| known.version == version);
        let expected = known.map(|known| checksum(known.sql));
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(OpenError::ChangedMigration {
                schema: options.schema.clone(),
                version,
                found,
                expected,
            });
        }
        newest = version;
    }
    Ok(newest)
}

async fn has_its_own_functions(
    client: &Client,
    options: &PostgresOptions,
) -> Result<(), OpenError> {
    let asked = client.query_opt(STRAYED, &[&options.schema]).await;
    let strayed = asked.map_err(|error| server_error(options, "reading its functions", &error))?;
    match strayed {
        None => Ok(()),
        Some(row) => Err(OpenError::RenamedSchema {
            schema: options.schema.clone(),
            function: row.get(0),
            path: row.get(1),
        }),
    }
}

/// A right that is missed only at the first purge would be missed at night.
async fn may_do_what_it_must(client: &Client, options: &PostgresOptions) -> Result<(), OpenError> {
    let what = "what the store does";
    let asked = client.query(MISSING_RIGHTS, &[&options.schema]).await;
    let missing = asked.map_err(|error| server_error(options, "reading its rights", &error))?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<String> = missing.iter().map(|row| row.get(0)).collect();
    let reason = format!("permission is missing for {}", missing.join(", "));
    Err(OpenError::Permission { what, reason })
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
