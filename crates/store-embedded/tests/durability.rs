//! What was acknowledged is there after the process died, in every way it can die.
//!
//! The process that dies is this test program itself, run again with a folder in its environment:
//! it writes and says on its standard output what was acknowledged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use onlyonce_store::{Store, StoreError, Swap};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore, OpenError};

const FOLDER: &str = "ONLYONCE_TEST_FOLDER";
const TASKS: u64 = 8;

/// The child: claims and completes keys in several tasks, and reports each acknowledged write as
/// `number state`. When the store stops it reports `stopped` and checks what it must still do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open_small(Path::new(&folder), 256 * 1024);
        report("open");
        // Asked for before anything is written: a store that has stopped does not tell it.
        let first = store.now().await.unwrap().as_millis() * 1000;
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(write_until_stopped(store.clone(), first + task)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        report("stopped");
    });
}

fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may be gone; then there is nobody to tell.
    let _ = writeln!(out, "\n{line}").and_then(|()| out.flush());
}

async fn write_until_stopped(store: EmbeddedStore, first: u64) {
    let (mut number, mut acknowledged) = (first, None);
    loop {
        let key = id(number);
        match store.swap(&key, None, Some(&executing(9))).await {
            Ok(Swap::Won(version)) => {
                report(&format!("ack {number} claimed"));
                let next = completed(u64::MAX - 1, 700);
                match store.swap(&key, Some(version), Some(&next)).await {
                    Ok(Swap::Won(_)) => report(&format!("ack {number} completed")),
                    Ok(Swap::Lost(row)) => panic!("lost to {row:?}"),
                    Err(error) => return check_stopped(&store, error, acknowledged).await,
                }
                acknowledged = Some(number);
                number += TASKS;
            }
            Ok(Swap::Lost(row)) => panic!("lost to {row:?}"),
            Err(error) => return check_stopped(&store, error, acknowledged).await,
        }
    }
}

/// After a failure: later swaps are refused as stopped, and what was durable is still served.
async fn check_stopped(store: &EmbeddedStore, error: StoreError, acknowledged: Option<u64>) {
    assert!(
        matches!(
            error,
            StoreError::Ambiguous { .. } | StoreError::Stopped { .. }
        ),
        "{error}"
    );
    if matches!(error, StoreError::Ambiguous { .. }) {
        report("ambiguous");
    }
    let later = store.swap(&id(1), None, Some(&executing(9))).await;
    assert!(
        matches!(later, Err(StoreError::Stopped { .. })),
        "{later:?}"
    );
    if let Some(number) = acknowledged {
        let row = store.load(&id(number)).await.unwrap().unwrap();
        assert_eq!(*row.record, completed(u64::MAX - 1, 700));
    }
}

fn start(folder: &Path, before: &[&str]) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut words = before.to_vec();
    words.extend([program.to_str().unwrap(), "--exact", "child", "--nocapture"]);
    Command::new(words[0])
        .args(&words[1..])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}; is it installed?", words[0]))
}

/// Adds the reports of a child to what is acknowledged, until it ends.
fn read_reports(child: &mut Child, acknowledged: &mut HashMap<u64, bool>) -> Vec<String> {
    let mut others = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            // A child that is killed may leave half a line.
            ["ack", number, state @ ("claimed" | "completed")] => {
                acknowledged.insert(number.parse().unwrap(), state == "completed");
            }
            _ => others.push(line),
        }
    }
    others
}

async fn check(folder: &Path, acknowledged: &HashMap<u64, bool>) {
    let store = open_small(folder, 256 * 1024);
    for (number, is_completed) in acknowledged {
        let row = store.load(&id(*number)).await.unwrap();
        let row = row.unwrap_or_else(|| panic!("{number} was acknowledged and is gone"));
        // A claim that was acknowledged may have been completed without a word.
        let is_right = *row.record == completed(u64::MAX - 1, 700)
            || (!is_completed && *row.record == executing(9));
        assert!(is_right, "{number}: {row:?}");
    }
}

/// A completion that a client saw and that is gone after a crash is a second charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    for round in 0..12_u64 {
        let mut child = start(folder.path(), &[]);
        let process = child.id();
        // Odd delays, so that rounds end in every phase: opening, writing, beginning a segment.
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20 + round * 53 % 400));
            Command::new("kill")
                .args(["-9", &process.to_string()])
                .status()
                .unwrap();
        });
        read_reports(&mut child, &mut acknowledged);
        child.wait().unwrap();
        killer.join().unwrap();
        check(folder.path(), &acknowledged).await;
    }
    assert!(
        acknowledged.len() > 100,
        "only {} writes",
        acknowledged.len()
    );
}

/// The disk says no to one sync. Trying again would succeed and prove nothing: the store must
/// stop, go on serving what was durable, and have it all after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_stops_the_store_and_loses_nothing_acknowledged() {
    for (call, when) in [
        ("fdatasync", 1),
        ("fdatasync", 7),
        ("fdatasync", 40),
        ("pwrite64", 90),
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()));
        let mut acknowledged = HashMap::new();
        let inject = match call {
            // The log alone, and from then on: the disk stays full.
            "pwrite64" => format!("inject=pwrite64:error=ENOSPC:when={when}+"),
            _ => format!("inject={call}:error=EIO:when={when}"),
        };
        let log = folder.path().join("log");
        let logs: Vec<String> = (1..=9)
            .map(|number| log.join(format!("{number:010}.log")).display().to_string())
            .collect();
        let mut trace = vec!["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
        if call == "pwrite64" {
            for path in &logs {
                trace.extend(["-P", path]);
            }
        }
        let mut child = start(folder.path(), &trace);
        let others = read_reports(&mut child, &mut acknowledged);
        assert!(child.wait().unwrap().success(), "{call} {when}: {others:?}");
        assert!(
            others.iter().any(|line| line == "stopped"),
            "{call} {when}: {others:?}"
        );
        assert!(
            others.iter().any(|line| line == "ambiguous"),
            "{call} {when}: {others:?}"
        );
        check(folder.path(), &acknowledged).await;
    }
}

/// Zeros ahead of the log's end are a help and no need: a disk without room for them has room for
/// what is to be written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_for_zeros_the_store_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let log = log_files(folder.path()).pop().unwrap();
    // The second write of each segment: after the first frame.
    let inject = "inject=pwrite64:error=ENOSPC:when=2";
    let trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject];
    let path = log.display().to_string();
    let mut child = start(folder.path(), &[&trace[..], &["-P", &path]].concat());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = HashMap::new();
    while acknowledged.len() < 50 {
        let line = lines.next().expect("it goes on").unwrap();
        assert_ne!(line, "stopped");
        if let ["ack", number, state] = line.split(' ').collect::<Vec<_>>()[..] {
            acknowledged.insert(number.parse().unwrap(), state == "completed");
        }
    }
    let process = child.id();
    let children = format!("/proc/{process}/task/{process}/children");
    for child in std::fs::read_to_string(children)
        .unwrap()
        .split_whitespace()
    {
        Command::new("kill").args(["-9", child]).status().unwrap();
    }
    child.wait().unwrap();
    check(folder.path(), &acknowledged).await;
}

/// The moment of a sync is the moment between "nobody was told" and "somebody was".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_a_sync_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    for when in [1, 2, 3, 5, 8, 13, 21, 34] {
        let inject = format!("inject=fdatasync:signal=SIGKILL:when={when}");
        let trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
        let mut child = start(folder.path(), &trace);
        read_reports(&mut child, &mut acknowledged);
        assert!(!child.wait().unwrap().success(), "it was not killed");
        check(folder.path(), &acknowledged).await;
    }
    assert!(!acknowledged.is_empty());
}

/// A crash during recovery must be as harmless as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_every_step_of_opening_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_small(folder.path(), 256 * 1024);
    let mut acknowledged = HashMap::new();
    for number in 0..20 {
        let version = win(&store, &id(number), None, Some(&executing(9))).await;
        let next = completed(u64::MAX - 1, 700);
        win(&store, &id(number), Some(version), Some(&next)).await;
        acknowledged.insert(number, true);
    }
    drop(store);
    for call in ["fsync", "rename", "openat"] {
        for when in 1..8 {
            let inject = format!("inject={call}:signal=SIGKILL:when={when}");
            let under = folder.path().join("log").display().to_string();
            let unfinished = format!("{under}/unfinished");
            let trace = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &inject,
                "-P",
                &under,
                "-P",
                &unfinished,
            ];
            let mut child = start(folder.path(), &trace);
            let process = child.id();
            // If that call comes less often, the child runs on: end it.
            let (end, ended) = mpsc::channel::<()>();
            let killer = std::thread::spawn(move || {
                if ended.recv_timeout(Duration::from_millis(400)).is_ok() {
                    return;
                }
                let children = format!("/proc/{process}/task/{process}/children");
                let children = std::fs::read_to_string(children).unwrap_or_default();
                for child in children.split_whitespace() {
                    Command::new("kill").args(["-9", child]).status().unwrap();
                }
            });
            read_reports(&mut child, &mut acknowledged);
            child.wait().unwrap();
            // The killer may have gone already.
            let _ = end.send(());
            killer.join().unwrap();
            check(folder.path(), &acknowledged).await;
        }
    }
}

/// Two processes on one folder would each take themselves for the only writer.
#[test]
fn a_second_process_on_the_folder_is_refused_and_a_killed_one_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &[]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"));
    let second = EmbeddedStore::open(&EmbeddedOptions::new(folder.path()));
    let Err(error @ OpenError::InUse(_)) = second else {
        panic!("{second:?}");
    };
    let message = error.to_string();
    assert!(
        message.contains("another onlyonce process uses this folder"),
        "{message}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    drop(open(folder.path()));
}

/// The same process may hold it twice by mistake, too.
#[tokio::test]
async fn a_second_store_in_the_same_process_is_refused_until_the_first_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let second = EmbeddedStore::open(&EmbeddedOptions::new(folder.path()));
    assert!(matches!(second, Err(OpenError::InUse(_))));
    let clone = first.clone();
    drop(first);
    let second = EmbeddedStore::open(&EmbeddedOptions::new(folder.path()));
    assert!(matches!(second, Err(OpenError::InUse(_))));
    drop(clone);
    drop(open(folder.path()));
}
