//! The records that are written: a claim of about 150 bytes, a completion of about 1 KB.

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, HeaderBlock, PrincipalDigest, Record, RecordId, Response,
    RouteName, State, StoredResponse, Timestamp,
};

/// An id as random as a keyed hash, from a counter.
pub(crate) fn id(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    let mut state = number;
    for chunk in bytes.chunks_exact_mut(8) {
        // splitmix64: a bijection, so no two numbers share an id.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    RecordId::from_bytes(bytes)
}

pub(crate) fn claimed(now: Timestamp) -> Record {
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::JsonCanonical,
            digest: [7; 32],
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([3; 16]),
        attempt: 1,
        state: State::Executing {
            lease_until: now.after(std::time::Duration::from_secs(15)),
            doubt: None,
        },
        created_at: now,
        updated_at: now,
        route: RouteName::new("payments").unwrap(),
        principal: PrincipalDigest::from_bytes([5; 8]),
        response_schema: 0,
        memo: bytes::Bytes::new(),
    }
}

pub(crate) fn completed(now: Timestamp, body: &Bytes) -> Record {
    let headers = HeaderBlock::from_lines([(&b"content-type"[..], &b"application/json"[..])]);
    let response = StoredResponse {
        status: 201,
        headers: headers.unwrap(),
        body: body.clone(),
        trailers: HeaderBlock::default(),
    };
    let expires_at = now.after(std::time::Duration::from_secs(86_400));
    let state = State::Completed {
        response: Response::Plain(response),
        expires_at,
    };
    Record {
        state,
        ..claimed(now)
    }
}

/// A body of one kilobyte that does not compress to nothing.
pub(crate) fn body() -> Bytes {
    let mut body = Vec::with_capacity(1024);
    for number in 0.. {
        body.extend_from_slice(id(number).to_string().as_bytes());
        if body.len() >= 1024 {
            break;
        }
    }
    body.truncate(1024);
    body.into()
}
