//! The stored bytes: what is written is read back, what was altered is noticed, and what an
//! earlier onlyonce wrote stays readable.
//!
//! The records, and the files that pin their bytes, are in `stored.rs`.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails is a failed test"
)]

#[path = "../common/mod.rs"]
mod common;

mod stored;

use bytes::Bytes;
use common::*;
use onlyonce_core::codec::{self, CodecError};
use onlyonce_core::{
    Fence, FieldDigests, HeaderBlock, Record, RecordId, Response, RouteName, SealedResponse, State,
    StoredResponse, Timestamp,
};
use proptest::prelude::*;
use proptest::sample::Index;
use stored::{fixtures, full_response, stored};

const CHECKSUM_BYTES: usize = 4;

fn id(n: u8) -> RecordId {
    RecordId::from_bytes([n; 32])
}

fn encode(id: &RecordId, record: &Record) -> Bytes {
    codec::encode(id, record).unwrap().into()
}

/// Content with the checksum that it would have under `id`.
fn with_checksum(id: &RecordId, content: &[u8]) -> Bytes {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(content);
    [content, &hasher.finalize().to_be_bytes()].concat().into()
}

fn content(encoded: &Bytes) -> Bytes {
    encoded.slice(..encoded.len() - CHECKSUM_BYTES)
}

/// A flipped byte that reads as another state, or as no record, executes twice.
#[test]
fn every_altered_byte_is_noticed() {
    for (name, record) in fixtures() {
        let whole = encode(&id(1), &record);
        for offset in 0..whole.len() {
            for flip in 1..=u8::MAX {
                let mut bytes = whole.to_vec();
                bytes[offset] ^= flip;
                let read = codec::decode(&id(1), &bytes.into());
                assert_eq!(read, Err(CodecError::BadChecksum), "{name} at {offset}");
            }
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    for (name, record) in fixtures() {
        let whole = encode(&id(1), &record);
        for end in 0..whole.len() {
            let read = codec::decode(&id(1), &whole.slice(..end));
            assert_eq!(read, Err(CodecError::BadChecksum), "{name} cut at {end}");
        }
    }
}

/// A truncated record whose checksum is right, as a writer with a bug would leave it.
#[test]
fn a_record_that_ends_early_is_malformed() {
    for (name, record) in fixtures() {
        let content = content(&encode(&id(1), &record));
        for end in 1..content.len() {
            let read = codec::decode(&id(1), &with_checksum(&id(1), &content[..end]));
            let malformed = matches!(read, Err(CodecError::Malformed(_)));
            assert!(malformed, "{name} that ends at {end}: {read:?}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_malformed() {
    for (_, record) in fixtures() {
        let longer = [&content(&encode(&id(1), &record))[..], &[0]].concat();
        let read = codec::decode(&id(1), &with_checksum(&id(1), &longer));
        assert_eq!(read, Err(CodecError::Malformed("bytes after the end")));
    }
}

/// A row restored under another key would show one tenant's response to another.
#[test]
fn a_record_under_another_id_is_refused() {
    for (_, record) in fixtures() {
        let read = codec::decode(&id(2), &encode(&id(1), &record));
        assert_eq!(read, Err(CodecError::BadChecksum));
    }
}

/// During a rolling deploy the older instance meets rows of the newer one: it must stop, and
/// say why, rather than guess.
#[test]
fn an_unknown_version_is_named() {
    for version in (0..=u8::MAX).filter(|version| !(1..=codec::VERSION).contains(version)) {
        let mut newer = content(&encode(&id(1), &executing())).to_vec();
        newer[0] = version;
        let read = codec::decode(&id(1), &with_checksum(&id(1), &newer));
        assert_eq!(read, Err(CodecError::UnknownVersion(version)));
    }
}

/// A replay of a megabyte must not copy a megabyte.
#[test]
fn a_decoded_record_shares_the_bytes_it_was_read_from() {
    let lies_in = |part: &[u8], whole: &Bytes| whole.as_ptr_range().contains(&part.as_ptr());
    let (response, expires_at) = (Response::Plain(full_response()), at(100));
    let plain = encode(
        &id(1),
        &stored(State::Completed {
            response,
            expires_at,
        }),
    );
    let read = codec::decode(&id(1), &plain).unwrap();
    assert!(lies_in(read.route.as_str().as_bytes(), &plain));
    let State::Completed {
        response: Response::Plain(response),
        ..
    } = read.state
    else {
        panic!("it was completed");
    };
    for part in [
        &response.body,
        response.headers.encoded(),
        response.trailers.encoded(),
    ] {
        assert!(lies_in(part, &plain));
    }
    let whole = encode(&id(1), &completed_with(sealed(b"ciphertext")));
    let State::Completed {
        response: Response::Sealed(read),
        ..
    } = codec::decode(&id(1), &whole).unwrap().state
    else {
        panic!("it was sealed");
    };
    assert!(lies_in(&read.ciphertext, &whole));
}

/// Two encodings of one record would make equal rows compare as different.
#[test]
fn a_record_has_one_encoding() {
    for (name, record) in fixtures() {
        let content = content(&encode(&id(1), &record));
        for offset in 0..content.len() {
            for flip in 1..=u8::MAX {
                let mut other = content.to_vec();
                other[offset] ^= flip;
                let bytes = with_checksum(&id(1), &other);
                if let Ok(read) = codec::decode(&id(1), &bytes) {
                    assert_eq!(encode(&id(1), &read), bytes, "{name} at {offset}");
                }
            }
        }
    }
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

/// Lines that no HTTP server would send: empty names, line breaks, every byte.
fn any_headers() -> impl Strategy<Value = HeaderBlock> {
    proptest::collection::vec((any_bytes(), any_bytes()), 0..6).prop_map(|lines| {
        let lines = lines.iter().map(|(name, value)| (&name[..], &value[..]));
        HeaderBlock::from_lines(lines).unwrap()
    })
}

fn any_response() -> impl Strategy<Value = Response> {
    let plain = (any::<u16>(), any_headers(), any_bytes(), any_headers());
    let sealed = (any::<u32>(), any::<[u8; 12]>(), any_bytes());
    prop_oneof![
        plain.prop_map(|(status, headers, body, trailers)| {
            Response::Plain(StoredResponse {
                status,
                headers,
                body,
                trailers,
            })
        }),
        sealed.prop_map(|(key_id, nonce, ciphertext)| {
            Response::Sealed(SealedResponse {
                key_id,
                nonce,
                ciphertext,
            })
        })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_is_read_back(
        which in any::<Index>(),
        response in any_response(),
        fields in proptest::collection::vec(any::<[u8; 8]>(), 0..8),
        truncated in any::<bool>(),
        (fence, times) in any::<([u8; 16], (u64, u64))>(),
        (attempt, response_schema) in any::<(u16, u32)>(),
        (under, route) in (any::<[u8; 32]>(), "\\PC{0,60}"),
    ) {
        let (_, mut record) = which.get(&fixtures()).clone();
        if let State::Completed { response: stored, .. } = &mut record.state {
            *stored = response;
        }
        record.fields = FieldDigests::from_encoded(fields.concat().into(), truncated).unwrap();
        record.fence = Fence::from_bytes(fence);
        record.created_at = Timestamp::from_millis(times.0);
        record.updated_at = Timestamp::from_millis(times.1);
        (record.attempt, record.response_schema) = (attempt, response_schema);
        record.route = RouteName::new(&route).unwrap();
        let id = RecordId::from_bytes(under);
        prop_assert_eq!(codec::decode(&id, &encode(&id, &record)), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_a_panic(bytes in any_bytes()) {
        prop_assert!(codec::decode(&id(1), &bytes).is_err());
    }

    /// Whoever can write to the store can write a right checksum too.
    #[test]
    fn arbitrary_content_with_a_right_checksum_never_panics(
        which in any::<Index>(),
        keep in 0..300_usize,
        tail in any_bytes(),
    ) {
        let (_, record) = which.get(&fixtures()).clone();
        let mut content = content(&encode(&id(1), &record)).to_vec();
        content.truncate(keep);
        content.extend_from_slice(&tail);
        let _ = codec::decode(&id(1), &with_checksum(&id(1), &content));
    }
}
