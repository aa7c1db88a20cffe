//! What the tests share: records, ids, and a store in a folder.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs;
use std::path::Path;

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, Response, RouteName,
    State, StoredResponse, Timestamp, UnknownReason,
};
use onlyonce_store::{Store, Swap, Version};
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn id(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        let mixed = (number + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(u32::try_from(place).unwrap() * 7);
        *byte = mixed.to_be_bytes()[0];
    }
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    RecordId::from_bytes(bytes)
}

pub(crate) fn record(state: State) -> Record {
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest: [7; 32],
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([1; 16]),
        attempt: 1,
        state,
        created_at: at(1),
        updated_at: at(1),
        route: RouteName::new("payments").unwrap(),
        principal: PrincipalDigest::default(),
        response_schema: 0,
        memo: bytes::Bytes::new(),
    }
}

pub(crate) fn executing(lease_until: u64) -> Record {
    record(State::Executing {
        lease_until: at(lease_until),
        doubt: None,
    })
}

pub(crate) fn unknown(reconcile_at: u64) -> Record {
    record(State::Unknown {
        reason: UnknownReason::LeaseExpired,
        since: at(1),
        reconcile_at: at(reconcile_at),
        attempts: 0,
    })
}

/// Completed with a body that has no long run of any byte.
pub(crate) fn completed(expires_at: u64, body_bytes: usize) -> Record {
    let body: Vec<u8> = (0..body_bytes)
        .map(|n| u8::try_from(n * 7 % 251).unwrap() | 1)
        .collect();
    record(State::Completed {
        response: Response::Plain(StoredResponse::from_bytes(Bytes::from(body))),
        expires_at: at(expires_at),
    })
}

/// Completed with a body of zeros.
pub(crate) fn zeros(body_bytes: usize) -> Record {
    answered(&vec![0; body_bytes])
}

/// Completed with this body.
pub(crate) fn answered(body: &[u8]) -> Record {
    record(State::Completed {
        response: Response::Plain(StoredResponse::from_bytes(Bytes::copy_from_slice(body))),
        expires_at: at(1 << 40),
    })
}

pub(crate) fn released(expires_at: u64) -> Record {
    record(State::Released {
        expires_at: at(expires_at),
    })
}

pub(crate) fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&EmbeddedOptions::new(folder)).unwrap()
}

/// With segments so small that a test has many.
pub(crate) fn open_small(folder: &Path, segment_bytes_max: u64) -> EmbeddedStore {
    EmbeddedStore::open(&EmbeddedOptions {
        segment_bytes_max,
        dead_bytes_max: 2 * segment_bytes_max,
        ..EmbeddedOptions::new(folder)
    })
    .unwrap()
}

pub(crate) async fn win(
    store: &EmbeddedStore,
    id: &RecordId,
    expected: Option<Version>,
    next: Option<&Record>,
) -> Version {
    match store.swap(id, expected, next).await.unwrap() {
        Swap::Won(version) => version,
        Swap::Lost(row) => panic!("lost to {row:?}"),
    }
}

/// The bytes of everything in a folder.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            // A file may be deleted while it is counted.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
                Ok(metadata) => metadata.len(),
                Err(_) => 0,
            }
        })
        .sum()
}

/// The log's files, oldest first.
pub(crate) fn log_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder.join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    files
}

/// A copy of a store that is not open.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
