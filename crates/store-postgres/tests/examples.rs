//! The examples in other languages, run as they are: an app that commits and dies has completed
//! its key, one that rolls back has not, and one that lost its key cannot commit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::{client, migrated, open};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::servers::{Process, free_port};
use onlyonce_conformance::suite::samples::{at, executing, id};
use onlyonce_core::{Record, Response, State, StateKind, StoredResponse};
use onlyonce_store::{Store, Swap};
use onlyonce_store_postgres::{PostgresStore, execution_token};

/// An app that dies after its commit, before it answers.
const DIED: i32 = 9;

/// How an example is run.
struct App {
    /// Where its copy is, with what it needs installed beside it.
    folder: PathBuf,
    /// Runs its server.
    serve: fn(&Path) -> Command,
    /// Runs `pay` on its own with a token and an amount, and dies instead of answering.
    pay: fn(&Path) -> Command,
}

fn run(command: &mut Command, package: &str) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}: install {package}"))
}

fn done(command: &mut Command, package: &str) {
    let output = run(command, package);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}

/// A copy of an example under the target folder, with its packages; made again when it changed.
fn installed(name: &str, files: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{name}"));
    fs::create_dir_all(&folder).unwrap();
    let wanted = fs::read(source.join(files[0])).unwrap();
    let marker = folder.join("installed");
    for file in files {
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    if fs::read(&marker).ok().as_ref() != Some(&wanted) {
        install(&folder);
        fs::write(marker, wanted).unwrap();
    }
    folder
}

fn python() -> App {
    let install = |folder: &Path| {
        let venv = folder.join("venv");
        done(
            Command::new("python3").args(["-m", "venv"]).arg(&venv),
            "python3 python3-venv",
        );
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
        done(pip.arg(folder.join("requirements.txt")), "python3-venv");
    };
    App {
        folder: installed("python-psycopg", &["requirements.txt", "app.py"], install),
        serve: |folder| {
            let mut command = Command::new(folder.join("venv/bin/python"));
            command.arg(folder.join("app.py"));
            command
        },
        pay: |folder| {
            let script = "import os, sys, psycopg, app\n\
                 with psycopg.connect(os.environ['DATABASE_URL']) as connection:\n\
                 \x20   connection.execute(app.SCHEMA)\n\
                 connection = psycopg.connect(os.environ['DATABASE_URL'])\n\
                 app.pay(connection, sys.argv[1], {'amount': int(sys.argv[2])})\n\
                 os._exit(9)\n";
            let mut command = Command::new(folder.join("venv/bin/python"));
            command.current_dir(folder).args(["-c", script]);
            command
        },
    }
}

fn node() -> App {
    let install = |folder: &Path| {
        let mut npm = Command::new("npm");
        npm.current_dir(folder);
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error"]);
        done(&mut npm, "npm");
    };
    App {
        folder: installed("node-pg", &["package.json", "app.mjs"], install),
        serve: |folder| {
            let mut command = Command::new("node");
            command.arg(folder.join("app.mjs"));
            command
        },
        pay: |folder| {
            let script = "import pg from 'pg'; import { pay } from './app.mjs';\
                 const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });\
                 await pay(pool, process.argv[1], { amount: Number(process.argv[2]) });\
                 process.exit(9);";
            let mut command = Command::new("node");
            command.current_dir(folder);
            command.args(["--input-type=module", "-e", script]);
            command
        },
    }
}

struct Setup {
    server: Postgres,
    store: PostgresStore,
    app: App,
}

impl Setup {
    /// A server with the app's table, which the app itself makes when it serves.
    async fn new(app: App) -> Self {
        let server = migrated().await;
        let store = open(&server).await;
        Self { server, store, app }
    }

    async fn claim(&self, number: u64) -> (Record, String) {
        let claim = executing(number, at(1 << 50));
        let swap = self
            .store
            .swap(&id(number), None, Some(&claim))
            .await
            .unwrap();
        assert!(matches!(swap, Swap::Won(_)));
        let token = execution_token(&id(number), claim.fence, Duration::from_secs(3600));
        (claim, token)
    }

    async fn record(&self, number: u64) -> Record {
        *self.store.load(&id(number)).await.unwrap().unwrap().record
    }

    async fn answer(&self, number: u64) -> StoredResponse {
        let State::Completed {
            response: Response::Plain(plain),
            ..
        } = self.record(number).await.state
        else {
            panic!("completed with an answer");
        };
        plain
    }

    async fn payments(&self) -> i64 {
        let asked = client(&self.server).await;
        let asked = asked.query_one("SELECT count(*) FROM payments", &[]).await;
        asked.unwrap().get(0)
    }

    fn pay(&self, token: &str, amount: i64) -> Output {
        let mut command = (self.app.pay)(&self.app.folder);
        command.env("DATABASE_URL", self.server.url());
        run(command.arg(token).arg(amount.to_string()), "nodejs")
    }

    /// Starts its server, and sends it one request as the gateway would.
    fn serve(&self, port: u16) -> Process {
        let mut command = (self.app.serve)(&self.app.folder);
        command
            .env("DATABASE_URL", self.server.url())
            .env("PORT", port.to_string());
        let log = self.app.folder.join("log");
        let ready = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        Process::start(&mut command, "nodejs", &log, ready)
    }
}

fn post(port: u16, token: &str, amount: i64) -> (String, String) {
    let body = format!("{{\"amount\": {amount}}}");
    let request = format!(
        "POST /payments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Onlyonce-Execution: {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

async fn settles_its_key_in_its_own_transaction(app: App) {
    let setup = Setup::new(app).await;
    let port = free_port();
    let process = setup.serve(port);

    // Served: what the client got is what a retry will get.
    let (_, token) = setup.claim(1).await;
    let (head, body) = post(port, &token, 500);
    let status = head.split(' ').nth(1);
    assert_eq!(status, Some("201"), "{head}");
    let stored = setup.answer(1).await;
    assert_eq!(stored.status, 201);
    assert_eq!(stored.body, body.as_bytes());
    assert_eq!(setup.payments().await, 1);
    for (name, value) in stored.headers.iter() {
        let line = [name, b": ", value].concat().to_ascii_lowercase();
        let line = String::from_utf8(line).unwrap();
        assert!(
            head.to_ascii_lowercase().contains(&line),
            "{line} in {head}"
        );
    }

    // Rolled back: no payment, and the key is as it was.
    let (claim, token) = setup.claim(2).await;
    let (head, _) = post(port, &token, -1);
    assert_eq!(head.split(' ').nth(1), Some("422"), "{head}");
    assert_eq!(setup.record(2).await, claim);
    assert_eq!(setup.payments().await, 1);
    drop(process);

    // Committed, and dead before it could answer.
    let (_, token) = setup.claim(3).await;
    let died = setup.pay(&token, 700);
    assert_eq!(died.status.code(), Some(DIED), "{died:?}");
    assert_eq!(setup.payments().await, 2);
    let stored = setup.answer(3).await;
    let stored: serde_json::Value = serde_json::from_slice(&stored.body).unwrap();
    assert_eq!(stored["amount"], 700);

    // Somebody else has the key: the payment is undone.
    let (claim, _) = setup.claim(4).await;
    let stale = execution_token(&id(4), executing(5, at(0)).fence, Duration::from_secs(1));
    let refused = setup.pay(&stale, 900);
    assert!(
        ![Some(0), Some(DIED)].contains(&refused.status.code()),
        "{refused:?}"
    );
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("no longer has the key"), "{words}");
    assert_eq!(setup.record(4).await, claim);
    assert_eq!(setup.record(4).await.state.kind(), StateKind::Executing);
    assert_eq!(setup.payments().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_app_settles_its_key_in_its_own_transaction() {
    settles_its_key_in_its_own_transaction(python()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_app_settles_its_key_in_its_own_transaction() {
    settles_its_key_in_its_own_transaction(node()).await;
}
