//! Durable pairs (a claim, then a completion with 1 KiB) per second, and what they cost: the
//! embedded store against a raw log that only appends and syncs, with the same writer thread and
//! the same callers.
//!
//! `cargo run --release -p onlyonce-store-embedded --example pairs -- [seconds] [folder]`
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a program that measures may stop at anything unexpected, and needs a clock"
)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, Response, RouteName,
    State, StoredResponse, Timestamp, codec,
};
use onlyonce_store::{Store, Swap, Version};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};
use tokio::sync::{mpsc, oneshot};

fn record(state: State) -> Record {
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest: [7; 32],
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([1; 16]),
        attempt: 1,
        state,
        created_at: Timestamp::from_millis(1),
        updated_at: Timestamp::from_millis(1),
        route: RouteName::new("payments").unwrap(),
        principal: PrincipalDigest::default(),
        response_schema: 0,
        memo: bytes::Bytes::new(),
    }
}

fn claim() -> Record {
    record(State::Executing {
        lease_until: Timestamp::from_millis(15_000),
        doubt: None,
    })
}

fn completion(body: &Bytes, number: u64) -> Record {
    record(State::Completed {
        response: Response::Plain(StoredResponse::from_bytes(body.clone())),
        expires_at: Timestamp::from_millis(86_400_000 + number),
    })
}

/// Ids are spread as a hash spreads them.
fn id(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    let mut state = number;
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    RecordId::from_bytes(bytes)
}

/// What both sides are asked to do.
trait Pairs: Clone + Send + 'static {
    fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: &Record,
    ) -> impl Future<Output = Version> + Send;
    fn syncs(&self) -> u64;
}

impl Pairs for EmbeddedStore {
    async fn swap(&self, id: &RecordId, expected: Option<Version>, next: &Record) -> Version {
        match Store::swap(self, id, expected, Some(next)).await.unwrap() {
            Swap::Won(version) => version,
            Swap::Lost(row) => panic!("lost to {row:?}"),
        }
    }

    fn syncs(&self) -> u64 {
        self.stats().syncs
    }
}

struct Append {
    id: RecordId,
    expected: Option<Version>,
    bytes: Vec<u8>,
    reply: oneshot::Sender<Version>,
}

/// The limit: a log and a hash map, nothing else.
#[derive(Clone)]
struct RawLog {
    queue: mpsc::Sender<Append>,
    syncs: Arc<AtomicU64>,
}

impl RawLog {
    fn open(path: &Path) -> Self {
        let mut file = File::create(path).unwrap();
        let (queue, mut commands) = mpsc::channel::<Append>(4096);
        let syncs = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&syncs);
        std::thread::spawn(move || {
            let mut versions: HashMap<RecordId, Version> = HashMap::new();
            let mut last = 0;
            while let Some(first) = commands.blocking_recv() {
                let mut buffer = Vec::new();
                let mut answers = Vec::new();
                let mut next = Some(first);
                while let Some(append) = next {
                    assert_eq!(versions.get(&append.id).copied(), append.expected);
                    last += 1;
                    versions.insert(append.id, Version(last));
                    buffer.extend_from_slice(append.id.as_bytes());
                    buffer.extend_from_slice(&append.bytes);
                    answers.push((append.reply, Version(last)));
                    next = (answers.len() < 1024)
                        .then(|| commands.try_recv().ok())
                        .flatten();
                }
                file.write_all(&buffer).unwrap();
                file.sync_data().unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                for (reply, version) in answers {
                    let _ = reply.send(version);
                }
            }
        });
        Self { queue, syncs }
    }
}

impl Pairs for RawLog {
    async fn swap(&self, id: &RecordId, expected: Option<Version>, next: &Record) -> Version {
        let (reply, answer) = oneshot::channel();
        let append = Append {
            id: *id,
            expected,
            bytes: codec::encode(id, next).unwrap(),
            reply,
        };
        self.queue.send(append).await.ok().unwrap();
        answer.await.unwrap()
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

/// User and system time of this process. The kernel counts in hundredths of a second.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields
        .iter()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Where the time went, thread by thread.
fn print_threads() {
    for entry in fs::read_dir("/proc/self/task").unwrap() {
        let stat = fs::read_to_string(entry.unwrap().path().join("stat")).unwrap();
        let name = stat.split(['(', ')']).nth(1).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        println!(
            "{name:16} user {:>5} system {:>5} ticks",
            fields[11], fields[12]
        );
    }
}

fn measure(name: &str, side: &impl Pairs, tasks: u64, seconds: u64, base: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let body = Bytes::from(vec![b'x'; 1024]);
    let done = Arc::new(AtomicU64::new(0));
    let (cpu_before, syncs_before, started) = (cpu(), side.syncs(), Instant::now());
    let until = started + Duration::from_secs(seconds);
    runtime.block_on(async {
        let mut handles = Vec::new();
        for task in 0..tasks {
            let (side, body, done) = (side.clone(), body.clone(), Arc::clone(&done));
            handles.push(tokio::spawn(async move {
                let mut number = base + task * 10_000_000;
                while Instant::now() < until {
                    let id = id(number);
                    let version = side.swap(&id, None, &claim()).await;
                    side.swap(&id, Some(version), &completion(&body, number))
                        .await;
                    done.fetch_add(1, Ordering::Relaxed);
                    number += 1;
                }
            }));
        }
        for handle in handles {
            handle.await.unwrap();
        }
    });
    let elapsed = started.elapsed().as_secs_f64();
    let pairs = done.load(Ordering::Relaxed) as f64;
    let cpu_us = cpu().saturating_sub(cpu_before).as_micros() as f64 / pairs;
    let per_sync = pairs * 2.0 / (side.syncs() - syncs_before) as f64;
    println!(
        "{name:9} {tasks:4} tasks {:9.0} pairs/s {cpu_us:7.1} CPU us/pair {per_sync:6.1} swaps/sync",
        pairs / elapsed
    );
    pairs / elapsed
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(3, |text| text.parse().unwrap());
    let only_tasks = std::env::var("TASKS")
        .ok()
        .map(|text| text.parse().unwrap());
    let folder: PathBuf = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("onlyonce-pairs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder.join("store"))).unwrap();
    let log = RawLog::open(&folder.join("raw.log"));
    let rounds = only_tasks.map_or(vec![1, 64, 256], |tasks| vec![tasks; 3]);
    for (round, tasks) in rounds.into_iter().enumerate() {
        let base = (round as u64 + 1) << 40;
        let raw = measure("raw log", &log, tasks, seconds, base);
        let embedded = measure("embedded", &store, tasks, seconds, base);
        println!("{:>9} {:.2}", "ratio", embedded / raw);
    }
    if std::env::var_os("THREADS").is_some() {
        print_threads();
    }
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}
