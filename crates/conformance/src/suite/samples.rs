//! Records to write: plain ones, and one of every kind.

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Doubt, Fence, FieldDigests, Fingerprint, HeaderBlock, PrincipalDigest, Record, RecordId,
    Response, RouteName, SealedResponse, State, StateKind, StoredResponse, Timestamp,
    TombstoneReason, UnknownReason,
};

/// An id that is spread like a hash, different for every number.
#[must_use]
pub fn id(number: u64) -> RecordId {
    let mut bytes = [0; 32];
    for (lane, chunk) in (0_u64..).zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&mix(number.wrapping_mul(4).wrapping_add(lane)).to_be_bytes());
    }
    RecordId::from_bytes(bytes)
}

/// One step of splitmix64: a bijection, so different numbers stay different.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// This many milliseconds after the epoch.
#[must_use]
pub const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A record in a state. `number` tells its fence and fingerprint from other records'.
#[must_use]
pub fn record(number: u64, state: State) -> Record {
    let mut fence = [0; 16];
    fence[8..].copy_from_slice(&number.to_be_bytes());
    let is_open = !state.kind().is_settled();
    let memo = if is_open { "what was asked" } else { "" };
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest: *id(number).as_bytes(),
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes(fence),
        attempt: 1,
        state,
        created_at: at(1_000),
        updated_at: at(2_000),
        route: RouteName::new("payments").expect("a short name"),
        principal: PrincipalDigest::from_bytes([7; 8]),
        response_schema: 1,
        memo: memo.into(),
    }
}

/// A claim whose lease ends then.
#[must_use]
pub fn executing(number: u64, lease_until: Timestamp) -> Record {
    record(
        number,
        State::Executing {
            lease_until,
            doubt: None,
        },
    )
}

/// A completion with this body.
#[must_use]
pub fn completed(number: u64, body: impl Into<Bytes>) -> Record {
    response(number, StoredResponse::from_bytes(body))
}

/// A completion with this answer.
#[must_use]
pub fn response(number: u64, response: StoredResponse) -> Record {
    let response = Response::Plain(response);
    let expires_at = at(90_000_000);
    let state = State::Completed {
        response,
        expires_at,
    };
    record(number, state)
}

/// A state of this kind with this deadline; a dead letter has none.
#[must_use]
pub fn state(kind: StateKind, deadline: Timestamp) -> State {
    let reason = UnknownReason::NoCompleteAnswer;
    let since = at(1_500);
    match kind {
        StateKind::Executing => State::Executing {
            lease_until: deadline,
            doubt: Some(Doubt { reason, since }),
        },
        StateKind::Unknown => State::Unknown {
            reason,
            since,
            reconcile_at: deadline,
            attempts: 3,
        },
        StateKind::DeadLetter => State::DeadLetter {
            reason,
            since,
            attempts: 9,
        },
        StateKind::Released => State::Released {
            expires_at: deadline,
        },
        StateKind::Completed => State::Completed {
            response: Response::Plain(answer()),
            expires_at: deadline,
        },
        StateKind::Expired => State::Expired { purge_at: deadline },
    }
}

/// An answer with everything an answer can have.
#[must_use]
pub fn answer() -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: lines(&[
            (b"content-type", b"application/json"),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
        ]),
        body: Bytes::from_static(b"{\"id\":\"pay_1\"}"),
        trailers: lines(&[(b"server-timing", b"db;dur=3")]),
    }
}

/// Header lines.
#[must_use]
pub fn lines(lines: &[(&[u8], &[u8])]) -> HeaderBlock {
    HeaderBlock::from_lines(lines.iter().copied()).expect("short lines")
}

/// A sealed answer.
#[must_use]
pub fn sealed(number: u64) -> Record {
    let response = Response::Sealed(SealedResponse {
        key_id: 0xdead_beef,
        nonce: [0xff, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 0, 0xff],
        ciphertext: body(1_000),
    });
    let expires_at = at(90_000_000);
    let state = State::Completed {
        response,
        expires_at,
    };
    record(number, state)
}

/// A completion with nothing to replay.
#[must_use]
pub fn tombstone(number: u64, reason: TombstoneReason) -> Record {
    let response = Response::Tombstone(reason);
    let expires_at = at(90_000_000);
    let state = State::Completed {
        response,
        expires_at,
    };
    record(number, state)
}

/// Bytes that neither compress nor repeat, so that a piece lost or moved shows.
#[must_use]
pub fn body(bytes: usize) -> Bytes {
    let words = (0_u64..).flat_map(|word| mix(word).to_be_bytes());
    words.take(bytes).collect()
}
