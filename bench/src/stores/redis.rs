//! A Redis server that syncs before it answers, and `redis-benchmark` with the store's script.
//!
//! Keys, arguments and rows have the sizes of the store's. All rows that `redis-benchmark` writes
//! have the same version, so that it can complete a key more than once.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_core::{Record, Timestamp, codec};
use onlyonce_store_redis::{RedisOptions, RedisStore};

use super::limit::{Amount, Limit};
use super::work::{CALLERS, Work, id};
use crate::records::{body, claimed, completed};

/// The store's own script.
const SWAP: &str = include_str!("../../../crates/store-redis/src/lua/swap.lua");

/// The version of every row that is not the store's: as many bytes as the store's.
const VERSION: &str = "12345678";

/// How many completed keys are there.
const KEYS: u32 = 20_000;

/// What `redis-benchmark` puts a random number of twelve digits for.
const ANY: &str = "__rand_int__";

/// In how many milliseconds a settled row may be dropped: a day and an hour.
const DROP_IN_MS: &str = "90000000";

/// How many of the keys there are go to the server at once.
const FILL: usize = 500;

/// How often a server is asked whether it has finished.
const POLL: Duration = Duration::from_millis(200);

/// A server.
pub(crate) struct Server {
    process: RedisServer,
    /// The digest that it knows the script by.
    script: String,
    /// Requests per second of the latest runs, to know how many take how long.
    writes: Cell<u64>,
    reads: Cell<u64>,
}

impl Server {
    /// One that never rewrites its file while it is measured.
    pub(crate) fn start() -> Self {
        let process = RedisServer::with(&[("auto-aof-rewrite-percentage", "0")]);
        let script = process.cli(&["SCRIPT", "LOAD", SWAP]);
        Self {
            process,
            script,
            writes: Cell::new(10_000),
            reads: Cell::new(20_000),
        }
    }

    /// The same with these completed rows, as it is in use: with a log as long as the rows need, not
    /// as their writing made it; and started anew, for the rewriting shares the memory with a
    /// child, and every page that is written to after that costs a fault, once.
    pub(crate) async fn with(keys: Range<u64>) -> Self {
        let mut server = Self::start();
        server.fill();
        let store = Self::store(server.address()).await;
        Work::new(store, 0).await.fill(keys).await;
        server.rewrite_log().await;
        server.process.restart();
        server.script = server.process.cli(&["SCRIPT", "LOAD", SWAP]);
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// The store on it, or on a proxy before it.
    pub(crate) async fn store(address: SocketAddr) -> RedisStore {
        let options = RedisOptions::from_url(&format!("redis://{address}")).unwrap();
        RedisStore::open(&options).await.unwrap()
    }

    /// Writes the completed keys that `redis-benchmark` asks for, and completes them once more to
    /// see that it can.
    pub(crate) fn fill(&self) {
        let client = redis::Client::open(self.process.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let numbers: Vec<_> = (0..KEYS).map(|number| format!("{number:012}")).collect();
        for expected in ["", VERSION] {
            let swap = self.swap('d', expected, &sample(true));
            for some in numbers.chunks(FILL) {
                let mut pipeline = redis::pipe();
                for number in some {
                    pipeline.add_command(of_key(&swap, number));
                }
                let won: Vec<u8> = pipeline.query(&mut connection).unwrap();
                assert!(won.iter().all(|answer| *answer == 1), "a swap was lost");
            }
        }
    }

    async fn rewrite_log(&self) {
        let answer = self.process.cli(&["BGREWRITEAOF"]);
        assert!(answer.contains("rewriting"), "{answer}");
        let is_done = |info: &str| {
            ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"]
                .iter()
                .all(|line| info.contains(line))
        };
        while !is_done(&self.process.cli(&["INFO", "persistence"])) {
            tokio::time::sleep(POLL).await;
        }
        let info = self.process.cli(&["INFO", "persistence"]);
        assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
    }

    /// The command of one swap of any key, of those that end like this.
    fn swap(&self, end: char, expected: &str, record: &Record) -> Vec<String> {
        let key = format!("{ANY}{}", end.to_string().repeat(52));
        let bytes = codec::encode(&id(0), record).unwrap().len();
        let is_settled = record.state.kind().is_settled();
        [
            "EVALSHA",
            &self.script,
            "3",
            &format!("onlyonce:{{17}}:r:{key}"),
            "onlyonce:{17}:due",
            "onlyonce:{17}:ids",
            expected,
            &format!("{VERSION}{}", "x".repeat(bytes)),
            &key,
            &format!("1{ANY}"),
            if is_settled { DROP_IN_MS } else { "" },
        ]
        .map(str::to_owned)
        .into()
    }

    /// Requests per second of a command on that many different keys.
    fn benchmark(&self, latest: &Cell<u64>, amount: Amount, keys: u32, command: &[String]) -> f64 {
        let requests = match amount {
            Amount::For(length) => latest.get() * length.as_secs().max(1),
            Amount::Count(count) => count,
        };
        let port = self.address().port().to_string();
        let output = Command::new("redis-benchmark")
            .args(["-p", &port, "-c", &CALLERS.to_string(), "--csv"])
            .args(["-n", &requests.to_string(), "-r", &keys.to_string()])
            .args(command)
            .output()
            .expect("redis-benchmark comes with redis-tools");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "redis-benchmark: {words}{text}");
        // The last line is: "the command","requests per second",…
        let line = text.lines().last().unwrap_or_default();
        let rate = line.split("\",\"").nth(1).unwrap_or_default();
        let whole = rate.split('.').next().unwrap_or_default().parse();
        latest.set(whole.unwrap_or(latest.get()));
        rate.parse().unwrap_or(f64::NAN)
    }
}

impl Limit for Server {
    fn name(&self) -> &'static str {
        "redis-benchmark"
    }

    fn claims(&self, amount: Amount) -> f64 {
        let claim = self.swap('c', "", &sample(false));
        self.benchmark(&self.writes, amount, 1_000_000_000, &claim)
    }

    fn completions(&self, count: u64) -> f64 {
        let complete = self.swap('d', VERSION, &sample(true));
        self.benchmark(&self.writes, Amount::Count(count), KEYS, &complete)
    }

    fn loads(&self, length: Duration) -> f64 {
        let key = format!("onlyonce:{{17}}:r:{ANY}{}", "d".repeat(52));
        let load = ["GETEX".into(), key];
        self.benchmark(&self.reads, Amount::For(length), KEYS, &load)
    }

    fn reclaims(&self, length: Duration) -> f64 {
        let claim = self.swap('d', "", &sample(false));
        self.benchmark(&self.reads, Amount::For(length), KEYS, &claim)
    }
}

/// The same command with this number.
fn of_key(command: &[String], number: &str) -> redis::Cmd {
    let mut with_number = redis::Cmd::new();
    for part in command {
        with_number.arg(part.replace(ANY, number));
    }
    with_number
}

fn sample(is_completed: bool) -> Record {
    let time = Timestamp::from_millis(1_700_000_000_000);
    if is_completed {
        completed(time, &body())
    } else {
        claimed(time)
    }
}
