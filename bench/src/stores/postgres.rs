//! A `PostgreSQL` server as it comes, and `pgbench` with the statements that the store sends.
//!
//! `pgbench` prepares them too and has the same session settings. It calls `onlyonce_swap` for one
//! key at a time, because it has no other callers to share a statement with. Its connections are
//! new in every round, and their first statements are slow: rounds of a second tell too little.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use onlyonce_conformance::servers::postgres::{
    PASSWORD, Postgres, PostgresOptions as ServerOptions, binary, url_at,
};
use onlyonce_core::{Record, State};
use onlyonce_store_postgres::{PostgresOptions, PostgresStore, migrate};
use tempfile::TempDir;

use super::limit::{Amount, Limit};
use super::work::CALLERS;
use crate::machine::machine_bytes;
use crate::records::{body, claimed, completed};

/// Where the keys begin that are claimed for `pgbench` to complete. Their versions are their
/// numbers; what the server draws is another one.
const FIRST_CLAIMED: u64 = 1 << 50;

/// As many as the store has callers.
const CLIENTS: u64 = CALLERS as u64;

/// As the store sets a session up.
const SESSION: &str = "-c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan";

/// A server with the schema on it.
pub(crate) struct Server {
    process: Postgres,
    folder: TempDir,
    /// The completed keys that are asked for again.
    keys: Range<u64>,
    next_claimed: Cell<u64>,
}

impl Server {
    /// Syncs, and has the memory that `PostgreSQL` has by default. Holds these completed rows.
    pub(crate) async fn start(keys: Range<u64>) -> Self {
        Self::with_buffers(keys, "128MB").await
    }

    /// The same with a quarter of the machine's memory, as the manual advises.
    pub(crate) async fn with_memory(keys: Range<u64>) -> Self {
        let megabytes = machine_bytes() / 4 / 1024 / 1024;
        Self::with_buffers(keys, &format!("{megabytes}MB")).await
    }

    async fn with_buffers(keys: Range<u64>, shared_buffers: &str) -> Self {
        let options = ServerOptions {
            fsync: true,
            ..ServerOptions::default()
        };
        let options = options.setting("shared_buffers", shared_buffers);
        let process = Postgres::with(&options.setting("max_wal_size", "1GB"));
        let options = PostgresOptions::from_url(&process.url()).unwrap();
        migrate(&options).await.unwrap();
        let server = Self {
            process,
            folder: tempfile::tempdir().unwrap(),
            keys: keys.clone(),
            next_claimed: Cell::new(FIRST_CLAIMED),
        };
        let version = "nextval('onlyonce_version')";
        server.insert(keys, version, &values(&sample(true), None));
        server.sql("VACUUM ANALYZE onlyonce_record");
        server.sql("CHECKPOINT");
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// The store on it, or on a proxy before it.
    pub(crate) async fn store(&self, address: SocketAddr) -> PostgresStore {
        let options = PostgresOptions::from_url(&url_at(address)).unwrap();
        PostgresStore::open(&options).await.unwrap()
    }

    /// Puts rows there without asking the store.
    fn insert(&self, keys: Range<u64>, version: &str, values: &[String]) {
        // As a replica writes: the rows keep the versions that they are given.
        self.sql(&format!(
            "SET session_replication_role = replica; INSERT INTO onlyonce_record SELECT sha256(int8send(n)), {version}, {}, 1 \
             FROM generate_series({}::bigint, {}) AS n",
            values.join(", "),
            keys.start,
            keys.end - 1
        ));
    }

    fn sql(&self, statement: &str) {
        let mut psql = Command::new(binary("psql"));
        let options = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"];
        psql.args(options).args(["--command", statement]);
        run(psql.arg(self.process.url()));
    }

    /// Transactions per second of a script.
    fn pgbench(&self, script: &str, options: &[String]) -> f64 {
        let file = self.folder.path().join("script.sql");
        std::fs::write(&file, script).unwrap();
        let mut pgbench = Command::new(binary("pgbench"));
        pgbench
            .args(["--no-vacuum", "--protocol", "prepared", "--jobs", "2"])
            .args(["--client", &CALLERS.to_string(), "--file"])
            .arg(file)
            .args(options)
            .args(["--host", "127.0.0.1", "--username", "postgres"])
            .args(["--port", &self.address().port().to_string(), "postgres"])
            .env("PGOPTIONS", SESSION);
        let text = run(&mut pgbench);
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = rate.and_then(|rest| rest.split(' ').next()?.parse().ok());
        rate.unwrap_or(f64::NAN)
    }

    fn any_key(&self) -> String {
        let Range { start, end } = self.keys;
        format!("\\set n random({start}, {})\n", end - 1)
    }
}

impl Limit for Server {
    fn name(&self) -> &'static str {
        "pgbench"
    }

    fn claims(&self, amount: Amount) -> f64 {
        let new_key = "\\set n random(1000000000000000000, 9000000000000000000)\n";
        let claim = swap("NULL::bigint", &values(&sample(false), None));
        let amount = match amount {
            Amount::For(length) => seconds(length),
            Amount::Count(count) => transactions(each(count)),
        };
        self.pgbench(&format!("{new_key}{claim}"), &[amount])
    }

    fn completions(&self, count: u64) -> f64 {
        let each = each(count);
        let first = self.next_claimed.get();
        let end = first + each * CLIENTS;
        self.next_claimed.set(end);
        self.insert(first..end, "n", &values(&sample(false), None));
        let next_key =
            format!("\\set n {first} + :client_id * {each} + :done\n\\set done :done + 1\n");
        let complete = swap(":n::bigint", &values(&sample(true), Some(":body::bytea")));
        let options = [
            transactions(each),
            "--define=done=0".into(),
            format!("--define=body=\\x{}", hex(&body())),
        ];
        let rate = self.pgbench(&format!("{next_key}{complete}"), &options);
        self.sql(&format!(
            "DO $$ BEGIN IF EXISTS (SELECT FROM onlyonce_record WHERE id IN (SELECT \
             sha256(int8send(n)) FROM generate_series({first}::bigint, {}) AS n) \
             AND state <> 'completed') THEN RAISE 'not all are completed'; END IF; END $$",
            end - 1
        ));
        rate
    }

    fn loads(&self, length: Duration) -> f64 {
        let load = "SELECT * FROM onlyonce_record WHERE id = sha256(int8send(:n));\n";
        self.pgbench(&format!("{}{load}", self.any_key()), &[seconds(length)])
    }

    fn reclaims(&self, length: Duration) -> f64 {
        let claim = swap("NULL::bigint", &values(&sample(false), None));
        self.pgbench(&format!("{}{claim}", self.any_key()), &[seconds(length)])
    }
}

/// What every client has to do for that many.
fn each(count: u64) -> u64 {
    count.div_ceil(CLIENTS)
}

fn transactions(each: u64) -> String {
    format!("--transactions={each}")
}

fn seconds(length: Duration) -> String {
    format!("--time={}", length.as_secs().max(1))
}

/// One swap of the key `:n`.
fn swap(expected: &str, values: &[String]) -> String {
    let mut arrays = String::new();
    for value in values {
        let _ = write!(arrays, "ARRAY[{value}], ");
    }
    format!(
        "SELECT slot, won, (present).* FROM onlyonce_swap(\
         ARRAY[sha256(int8send(:n))], ARRAY[{expected}], {arrays}1);\n"
    )
}

fn sample(is_completed: bool) -> Record {
    let time = onlyonce_core::Timestamp::from_millis(1_700_000_000_000);
    if is_completed {
        completed(time, &body())
    } else {
        claimed(time)
    }
}

/// A record's columns between `version` and `record_version`.
fn values(record: &Record, body_as: Option<&str>) -> Vec<String> {
    let millis = |time: onlyonce_core::Timestamp| format!("{}::bigint", time.as_millis());
    let bytes = |bytes: &[u8]| format!("decode('{}', 'hex')", hex(bytes));
    let mut values = vec![
        format!("'{}'::text", record.state.kind().as_str()),
        record.state.deadline().map(millis).unwrap(),
        bytes(record.fence.as_bytes()),
        record.attempt.to_string(),
        "'json'::text".into(),
        bytes(&record.fingerprint.digest),
        "''::bytea".into(),
        "false".into(),
        format!("'{}'::text", record.route.as_str()),
        bytes(record.principal.as_bytes()),
        millis(record.created_at),
        millis(record.updated_at),
    ];
    let body = body_as.map_or_else(|| bytes(&body()), str::to_owned);
    let response = if matches!(record.state, State::Completed { .. }) {
        let headers = "E'content-type: application/json\\n'";
        ["'plain'::text", "201", headers, "''::text", body.as_str()]
    } else {
        [
            "NULL::text",
            "NULL::integer",
            "NULL::text",
            "NULL::text",
            "NULL::bytea",
        ]
    };
    values.extend(["NULL::text", "NULL::bigint", "NULL::integer"].map(str::to_owned));
    values.extend(response.map(str::to_owned));
    values.extend(["NULL::bigint", "NULL::bytea", "0::bigint", "''::bytea"].map(str::to_owned));
    values
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What a program prints.
fn run(command: &mut Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("PGPASSWORD", PASSWORD).output();
    let output = output.expect("the programs of PostgreSQL");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
