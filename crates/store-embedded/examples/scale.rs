//! What many rows cost: memory, the time to open after a crash, and a pair at that size.
//!
//! `cargo run --release -p onlyonce-store-embedded --example scale -- [rows] [body bytes] [folder]`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a program that measures may stop at anything unexpected, and needs a clock"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, Response, RouteName,
    State, StoredResponse, Timestamp,
};
use onlyonce_store::{Store, Swap, Version};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

const TASKS: u64 = 256;

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

async fn win(
    store: &EmbeddedStore,
    id: &RecordId,
    expected: Option<Version>,
    next: &Record,
) -> Version {
    match store.swap(id, expected, Some(next)).await.unwrap() {
        Swap::Won(version) => version,
        Swap::Lost(row) => panic!("lost to {row:?}"),
    }
}

/// Claims and completes keys in many tasks.
async fn pairs(store: &EmbeddedStore, from: u64, to: u64, body: &Bytes) {
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (store, body) = (store.clone(), body.clone());
        tasks.push(tokio::spawn(async move {
            let mut number = from + task;
            while number < to {
                let id = id(number);
                let claim = record(State::Executing {
                    lease_until: Timestamp::from_millis(15_000),
                    doubt: None,
                });
                let version = win(&store, &id, None, &claim).await;
                let completion = record(State::Completed {
                    response: Response::Plain(StoredResponse::from_bytes(body.clone())),
                    expires_at: Timestamp::from_millis(86_400_000 + number),
                });
                win(&store, &id, Some(version), &completion).await;
                number += TASKS;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

fn timed_pairs(runtime: &tokio::runtime::Runtime, store: &EmbeddedStore, from: u64, body: &Bytes) {
    const PAIRS: u64 = 100_000;
    let (started, before) = (Instant::now(), cpu());
    runtime.block_on(pairs(store, from, from + PAIRS, body));
    println!(
        "at {from} rows: {:.0} pairs/s, {:.1} CPU us/pair",
        PAIRS as f64 / started.elapsed().as_secs_f64(),
        cpu().saturating_sub(before).as_micros() as f64 / PAIRS as f64
    );
}

/// Fills the folder and dies without closing anything.
fn fill(folder: &Path, rows: u64, body: &Bytes) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder)).unwrap();
    runtime.block_on(pairs(&store, 0, 10_000, body));
    timed_pairs(&runtime, &store, 10_000, body);
    let rest = rows.saturating_sub(100_000).max(110_000);
    runtime.block_on(pairs(&store, 110_000, rest, body));
    timed_pairs(&runtime, &store, rest, body);
    println!("filled, resident: {}", status("VmRSS"));
    std::process::abort();
}

fn reopen(folder: &Path, rows: u64) {
    let started = Instant::now();
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder)).unwrap();
    println!(
        "opened after the crash in {:.2} s",
        started.elapsed().as_secs_f64()
    );
    println!("resident: {}, at most {}", status("VmRSS"), status("VmHWM"));
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let started = Instant::now();
        let loads = 200_000_u64;
        for number in 0..loads {
            let id = id(number * 7_919 % rows);
            assert!(store.load(&id).await.unwrap().is_some());
        }
        let per_second = loads as f64 / started.elapsed().as_secs_f64();
        println!("{per_second:.0} loads/s, one task");
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("fill") {
        let rows = arguments.next().unwrap().parse().unwrap();
        let body = vec![b'x'; arguments.next().unwrap().parse().unwrap()];
        fill(Path::new(&arguments.next().unwrap()), rows, &body.into());
    }
    if first.as_deref() == Some("open") {
        let rows = arguments.next().unwrap().parse().unwrap();
        reopen(Path::new(&arguments.next().unwrap()), rows);
        return;
    }
    let rows: u64 = first.map_or(1_000_000, |text| text.parse().unwrap());
    let body_bytes = arguments.next().unwrap_or_else(|| "1024".to_owned());
    let folder: PathBuf = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("onlyonce-scale-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["fill", &rows.to_string(), &body_bytes])
        .arg(&folder)
        .status()
        .unwrap();
    assert!(!status.success(), "the first part ends by dying");
    reopen(&folder, rows);
    fs::remove_dir_all(&folder).unwrap();
}
