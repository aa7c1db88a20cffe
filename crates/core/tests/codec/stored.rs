//! One record of every kind, and the bytes under which each is stored for ever.
//!
//! `fixtures/vN/NAME.bin` are the records of [`fixtures`] as format version N wrote them;
//! `fixtures/vN/ids.txt` has the id that each stands under. They are never rewritten, because
//! they stand for rows in somebody's database. After a *new* version or a new kind of record,
//!
//! ```text
//! ONLYONCE_UPDATE=1 cargo test -p onlyonce-core --test codec
//! ```
//!
//! writes the missing ones, each into the folder of the version that it is written in, and leaves
//! the others alone. A fixture that was wrong before any
//! release is deleted by hand first.
use std::path::PathBuf;
use std::sync::Once;
use std::{env, fs};

use bytes::Bytes;
use onlyonce_core::{
    Doubt, Fence, FieldDigests, HeaderBlock, PrincipalDigest, Record, RecordId, Response,
    RouteName, SealedResponse, State, StoredResponse, Timestamp, TombstoneReason, UnknownReason,
    codec,
};

use crate::common::payload;
use crate::{encode, id};

/// Values no two of which are equal, so that swapped fields show.
pub(crate) fn stored(state: State) -> Record {
    Record {
        fingerprint: payload(0xA1),
        fields: FieldDigests::default(),
        fence: Fence::from_bytes(*b"sixteen letters!"),
        attempt: 0x0102,
        state,
        created_at: Timestamp::from_millis(1_700_000_000_001),
        updated_at: Timestamp::from_millis(1_700_000_000_002),
        route: RouteName::new("größe/{id}").unwrap(),
        principal: PrincipalDigest::from_bytes(*b"eightish"),
        response_schema: 0x0304_0506,
        memo: bytes::Bytes::new(),
    }
}

pub(crate) fn full_response() -> StoredResponse {
    let headers: [(&[u8], &[u8]); 4] = [
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"x-empty", b""),
        (b"x-bytes", b"\x00\xff\r\n: "),
    ];
    StoredResponse {
        status: 201,
        headers: HeaderBlock::from_lines(headers).unwrap(),
        body: Bytes::from_static(b"{\"charge\":\"ch_1\"}\x00\xff"),
        trailers: HeaderBlock::from_lines([(&b"grpc-status"[..], &b"0"[..])]).unwrap(),
    }
}

/// One record of every kind, and of every number that the format gives a meaning to.
pub(crate) fn fixtures() -> Vec<(String, Record)> {
    let later = Timestamp::from_millis(1_700_000_100_003);
    let executing = State::Executing {
        lease_until: later,
        doubt: None,
    };
    let in_doubt = State::Executing {
        lease_until: later,
        doubt: Some(Doubt {
            reason: UnknownReason::LeaseExpired,
            since: Timestamp::from_millis(1_700_000_050_004),
        }),
    };
    let with_fields = Record {
        fields: FieldDigests::from_encoded(Bytes::from_static(b"field-1!field-2!"), true).unwrap(),
        ..stored(executing.clone())
    };
    let with_memo = Record {
        memo: Bytes::from_static(b"GET /charges?key=1"),
        ..stored(executing.clone())
    };
    let dead_letter = State::DeadLetter {
        reason: UnknownReason::NoCompleteAnswer,
        since: later,
        attempts: 0x0A0B,
    };
    let completed = |response| State::Completed {
        response,
        expires_at: later,
    };
    let sealed = Response::Sealed(SealedResponse {
        key_id: 0x0708_090A,
        nonce: *b"twelve bytes",
        ciphertext: Bytes::from_static(b"ciphertext and its tag"),
    });
    let mut all = vec![
        ("executing".into(), stored(executing)),
        ("executing-with-two-fields".into(), with_fields),
        ("executing-with-memo".into(), with_memo),
        ("executing-in-doubt".into(), stored(in_doubt)),
        ("dead_letter".into(), stored(dead_letter)),
        (
            "released".into(),
            stored(State::Released { expires_at: later }),
        ),
        (
            "completed-plain".into(),
            stored(completed(Response::Plain(full_response()))),
        ),
        ("completed-sealed".into(), stored(completed(sealed))),
        ("expired".into(), stored(State::Expired { purge_at: later })),
    ];
    for reason in UnknownReason::ALL {
        let state = State::Unknown {
            reason,
            since: Timestamp::from_millis(1_700_000_050_004),
            reconcile_at: later,
            attempts: 0x0A0B,
        };
        all.push((format!("unknown-{}", reason.as_str()), stored(state)));
    }
    for reason in TombstoneReason::ALL {
        let state = completed(Response::Tombstone(reason));
        all.push((
            format!("completed-tombstone-{}", reason.as_str()),
            stored(state),
        ));
    }
    all
}

fn fixture_dir(version: u8) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}"))
}

/// The ids of a version's fixtures, by name.
fn fixture_ids(version: u8) -> Vec<(String, RecordId)> {
    let text = fs::read_to_string(fixture_dir(version).join("ids.txt")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, hex)| (name.to_owned(), RecordId::from_hex(hex).unwrap()))
        .collect()
}

/// Runs once, whichever test comes first.
fn update_if_asked() {
    static UPDATE: Once = Once::new();
    if env::var_os("ONLYONCE_UPDATE").is_some() {
        UPDATE.call_once(write_missing_fixtures);
    }
}

/// The version that a record is written in.
fn version_of(record: &Record) -> u8 {
    encode(&id(1), record)[0]
}

fn write_missing_fixtures() {
    for version in 1..=codec::VERSION {
        let dir = fixture_dir(version);
        fs::create_dir_all(&dir).unwrap();
        let mut ids = fixture_ids(version);
        for (name, record) in fixtures() {
            if version_of(&record) != version || ids.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let id = id(u8::try_from(ids.len() + 1).unwrap());
            fs::write(dir.join(format!("{name}.bin")), encode(&id, &record)).unwrap();
            ids.push((name, id));
        }
        let lines: Vec<String> = ids
            .iter()
            .map(|(name, id)| format!("{name} {id}\n"))
            .collect();
        fs::write(dir.join("ids.txt"), lines.concat()).unwrap();
    }
}

/// A row that was written by any release must be read by this one, and this one must write
/// what the others of the same version read: two of them share a store during a deploy.
#[test]
fn stored_records_of_every_version_are_read_exactly() {
    update_if_asked();
    let records = fixtures();
    for version in 1..=codec::VERSION {
        for (name, id) in fixture_ids(version) {
            let path = fixture_dir(version).join(format!("{name}.bin"));
            let bytes = Bytes::from(fs::read(&path).unwrap());
            let known = records.iter().find(|(known, _)| *known == name);
            let (_, expected) = known.unwrap_or_else(|| panic!("{name} has no record"));
            assert_eq!(
                codec::decode(&id, &bytes).as_ref(),
                Ok(expected),
                "{path:?}"
            );
            if version == version_of(expected) {
                assert_eq!(encode(&id, expected), bytes, "{path:?}");
            }
        }
    }
}

/// A version without fixtures could change its meaning without anybody noticing.
#[test]
fn every_kind_of_record_has_a_fixture_of_the_version_that_it_is_written_in() {
    update_if_asked();
    for (name, record) in fixtures() {
        let version = version_of(&record);
        assert!(
            fixture_ids(version).iter().any(|(known, _)| *known == name),
            "no fixture {name} of version {version}: run with ONLYONCE_UPDATE=1"
        );
    }
    for version in 1..=codec::VERSION {
        assert!(
            !fixture_ids(version).is_empty(),
            "version {version} has no fixtures"
        );
    }
}
