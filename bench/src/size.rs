//! What a million records cost in memory and on disk, and how long reopening takes.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::Timestamp;
use onlyonce_store::Store;
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

use crate::machine::{folder_bytes, now, resident_bytes};
use crate::records::{body, completed, id};

/// Set in the child that fills the store and dies without closing it.
const FILL: &str = "ONLYONCE_BENCH_FILL";

pub(crate) fn run(records: u64) {
    if let Ok(folder) = std::env::var(FILL) {
        return fill(Path::new(&folder), records);
    }
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = folder.path().join("store");
    println!("filling {records} records of 1 KB in a process that is then killed …");
    let filled = Command::new(std::env::current_exe().unwrap())
        .args(["size", "--records", &records.to_string()])
        .env(FILL, &path)
        .status()
        .unwrap();
    assert!(!filled.success(), "the child kills itself");
    let disk = folder_bytes(&path);
    let (before, started) = (resident_bytes(), now());
    let store = EmbeddedStore::open(&EmbeddedOptions::new(&path)).unwrap();
    let reopened = started.elapsed();
    let after_open = resident_bytes();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let started = now();
    let found = runtime.block_on(async {
        let mut found = 0_u64;
        for number in (0..records).step_by(10) {
            found += u64::from(store.load(&id(number)).await.unwrap().is_some());
        }
        found
    });
    let sampled = records.div_ceil(10);
    println!("reopened after kill -9 in {:.2} s", reopened.as_secs_f64());
    println!(
        "found {found} of {sampled} sampled records, {:.1} µs each",
        started.elapsed().as_micros() as f64 / sampled as f64
    );
    println!(
        "memory after opening: {:.1} MB more ({:.0} bytes per record)",
        mega(after_open - before),
        (after_open - before) as f64 / records as f64
    );
    println!(
        "memory after reading: {:.1} MB in all ({:.0} bytes per record)",
        mega(resident_bytes()),
        resident_bytes() as f64 / records as f64
    );
    println!(
        "disk: {:.1} MB ({:.0} bytes per record)",
        mega(disk),
        disk as f64 / records as f64
    );
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn fill(folder: &Path, records: u64) {
    let store = EmbeddedStore::open(&EmbeddedOptions::new(folder)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let next = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..512)
            .map(|_| {
                let (store, next, body) = (store.clone(), Arc::clone(&next), body());
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= records {
                            return;
                        }
                        let record = completed(Timestamp::from_millis(number), &body);
                        let _ = store.swap(&id(number), None, Some(&record)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    println!(
        "memory of the process that wrote them: {:.1} MB",
        mega(resident_bytes())
    );
    let _ = Command::new("kill")
        .args(["-9", &std::process::id().to_string()])
        .status();
}
