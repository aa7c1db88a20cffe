//! A store in a folder is tested by the function that opens it, and nothing else.
//!
//! The store here is the memory store, kept under its folder's name for as long as the test
//! runs: enough to show that a durable store needs no harness of its own.
#![allow(clippy::unwrap_used, reason = "helpers of a test")]

mod kept;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use kept::Kept;

async fn open_store(folder: PathBuf) -> Kept {
    static FOLDERS: Mutex<Option<HashMap<PathBuf, Kept>>> = Mutex::new(None);
    let mut folders = FOLDERS.lock().unwrap();
    let folders = folders.get_or_insert_default();
    folders.entry(folder).or_default().clone()
}

onlyonce_conformance::store_suite!(open_store);
