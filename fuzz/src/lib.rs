//! Hostile bytes against everything that onlyonce reads: keys, JSON, payloads, stored records, and
//! where requests begin and end.
//!
//! Each target takes any bytes and fails if a promise breaks. They run on stable Rust: as plain
//! tests with random inputs (`cargo test -p onlyonce-fuzz`, longer with
//! `BOLERO_RANDOM_TEST_TIME_MS=60000`), or under a coverage-guided fuzzer with `cargo bolero`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    reason = "a broken promise stops a target at once"
)]

#[path = "../../crates/gateway/src/framing.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a file of the gateway, which is no library"
)]
mod framing;
mod requests;

use bytes::Bytes;
use onlyonce_core::fingerprint::{Algorithm, Payload, explain, fingerprint};
use onlyonce_core::json::{Document, JsonLimits, canonicalize};
use onlyonce_core::{FingerprintPolicy, Key, KeyLimits, RecordId, Secret, codec};

pub use requests::requests;

/// A header value is a key or refused; what is accepted is visible, within its limits, and means
/// the same when written in quotes.
pub fn key(input: &[u8]) {
    for hygiene in [false, true] {
        let limits = KeyLimits {
            hygiene,
            ..KeyLimits::default()
        };
        let Ok(key) = Key::from_header(input, &limits) else {
            continue;
        };
        let text = key.as_str();
        assert!((1..=255).contains(&text.len()));
        assert!(text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
        let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(Key::from_header(quoted.as_bytes(), &limits), Ok(key));
    }
}

/// A document is read or refused; its canonical form is its own canonical form.
pub fn json(input: &[u8]) {
    let Ok(canonical) = canonicalize(input) else {
        return;
    };
    assert_eq!(canonicalize(&canonical).unwrap(), canonical);
    let document = Document::parse(input, &JsonLimits::default()).unwrap();
    assert_eq!(document.canonical(), canonical);
}

/// Any payload has one fingerprint, the same each time; another body has another one, unless both
/// are the same JSON.
pub fn payload(input: &[u8]) {
    const TYPES: [&[u8]; 4] = [
        b"application/json",
        b"multipart/form-data; boundary=b",
        b"application/octet-stream",
        b"",
    ];
    let (secret, policy) = (Secret::new([7; 32]), FingerprintPolicy::default());
    let (first, second) = input.split_at(input.len() / 2);
    for content_type in TYPES {
        let payload = |body| Payload {
            method: "POST",
            path: "/",
            query: None,
            headers: &[],
            content_type: Some(content_type),
            body,
        };
        let (whole, fields) = fingerprint(&secret, &policy, &payload(input));
        assert_eq!(fingerprint(&secret, &policy, &payload(input)).0, whole);
        let difference = explain(&secret, &policy, &payload(input), &fields);
        assert!(difference.changed.is_empty() && difference.added.is_empty());
        let one = fingerprint(&secret, &policy, &payload(first)).0;
        let other = fingerprint(&secret, &policy, &payload(second)).0;
        if one == other && first != second {
            assert_ne!(
                one.algorithm,
                Algorithm::Raw,
                "two raw bodies, one fingerprint"
            );
            if one.algorithm == Algorithm::JsonCanonical {
                assert_eq!(canonicalize(first).unwrap(), canonicalize(second).unwrap());
            }
        }
    }
}

/// Stored bytes are a record or an error. A record that was read writes the same bytes, and no
/// flipped bit of it is taken for a record.
pub fn record(input: &[u8]) {
    let id = RecordId::from_bytes([3; 32]);
    let Ok(record) = codec::decode(&id, &Bytes::copy_from_slice(input)) else {
        return;
    };
    let mut bytes = codec::encode(&id, &record).unwrap();
    assert_eq!(bytes, input);
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        assert!(codec::decode(&id, &Bytes::copy_from_slice(&bytes)).is_err());
        bytes[at] ^= 1;
    }
}

/// Any body under a valid frame: the checksum is mended, so that what lies behind it is reached.
pub fn record_behind_its_checksum(input: &[u8]) {
    let id = RecordId::from_bytes([3; 32]);
    let mut bytes = vec![codec::VERSION];
    bytes.extend_from_slice(input);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&bytes);
    bytes.extend_from_slice(&hasher.finalize().to_be_bytes());
    record(&bytes);
}

/// A valid input with a few edits taken from random bytes: reaches what random bytes alone never
/// would.
#[must_use]
pub fn near(seed: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for edit in edits.chunks_exact(4).take(8) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % (bytes.len() + 1);
        match edit[2] % 4 {
            0 => bytes.insert(at, edit[3]),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 if at < bytes.len() => bytes[at] = edit[3],
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}
