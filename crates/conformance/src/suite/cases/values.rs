//! Records come back exactly: a replay is the first answer, byte for byte.

use bytes::Bytes;
use onlyonce_core::{FieldDigests, RouteName, State, StateKind, TombstoneReason, UnknownReason};
use onlyonce_core::{StoredResponse, Timestamp};
use onlyonce_store::{ListStore, Store, StoreError, Swap};

use crate::suite::samples::{
    answer, at, body, completed, executing, id, lines, record, response, sealed, state, tombstone,
};
use crate::suite::{Handle, Harness, Setup, lost, same};

/// What may follow a state depends on every one of its fields.
pub async fn every_state_comes_back_exactly<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, kind) in (0..).zip(StateKind::ALL) {
        let written = record(number, state(kind, at(123_456_789)));
        store.round_trip(&id(number), &written).await;
    }
}

/// An operator decides by the reason.
pub async fn every_reason_for_not_knowing_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let since = at(10);
    for (number, reason) in (0..).step_by(2).zip(UnknownReason::ALL) {
        let unknown = State::Unknown {
            reason,
            since,
            reconcile_at: at(20),
            attempts: 1,
        };
        store.round_trip(&id(number), &record(1, unknown)).await;
        let dead = State::DeadLetter {
            reason,
            since,
            attempts: 1,
        };
        store.round_trip(&id(number + 1), &record(1, dead)).await;
    }
}

/// A tombstone that came back as an empty answer would be replayed as a success.
pub async fn every_tombstone_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, reason) in (0..).zip(TombstoneReason::ALL) {
        store.round_trip(&id(number), &tombstone(1, reason)).await;
    }
}

/// One changed byte, and the answer can never be opened again.
pub async fn a_sealed_answer_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.round_trip(&id(1), &sealed(1)).await;
}

/// Two cookies are two lines.
pub async fn header_lines_keep_their_order_and_repeats<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let headers = lines(&[
        (b"set-cookie", b"b=2"),
        (b"vary", b"accept"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"a=1"),
    ]);
    let answer = StoredResponse {
        headers,
        ..answer()
    };
    store.round_trip(&id(1), &response(1, answer)).await;
}

/// Header values are bytes, not text; an empty one is not an absent one.
pub async fn empty_and_binary_header_values_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let binary: Vec<u8> = (0..=255).collect();
    let headers = lines(&[(b"x-empty", b""), (b"x-binary", &binary), (b"", b"")]);
    let answer = StoredResponse {
        headers,
        ..answer()
    };
    store.round_trip(&id(1), &response(1, answer)).await;
}

/// A gRPC status is in the trailers: without them a replay is a broken call.
pub async fn trailers_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let trailers = lines(&[(b"grpc-status", b"0"), (b"grpc-message", b"")]);
    let answer = StoredResponse {
        trailers,
        ..answer()
    };
    store.round_trip(&id(1), &response(1, answer)).await;
}

/// Nobody else may decide which status codes exist.
pub async fn every_status_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, status) in (0..).zip([0, 100, 200, 204, 304, 402, 500, 599, 999, u16::MAX]) {
        let answer = StoredResponse { status, ..answer() };
        store.round_trip(&id(number), &response(1, answer)).await;
    }
}

/// Bodies are bytes, not text.
pub async fn a_body_of_every_byte_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    store.round_trip(&id(1), &completed(1, bytes)).await;
}

/// 204 No Content is an answer too.
pub async fn an_empty_body_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    store.round_trip(&id(1), &completed(1, Bytes::new())).await;
    let bare = StoredResponse::default();
    store.round_trip(&id(2), &response(1, bare)).await;
}

/// The usual size.
pub async fn a_body_of_1_kib_comes_back<H: Harness>(setup: &Setup<H>) {
    keeps_a_body_of(&setup.open().await, 1 << 10).await;
}

/// Past the length field, page or item of many an engine.
pub async fn a_body_of_64_kib_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for bytes in [(64 << 10) - 1, 64 << 10, (64 << 10) + 1] {
        keeps_a_body_of(&store, bytes).await;
    }
}

/// The default limit of a route: every store must take it.
pub async fn a_body_of_1_mib_comes_back<H: Harness>(setup: &Setup<H>) {
    assert!(H::BODY_BYTES_MAX >= 1 << 20, "Harness::BODY_BYTES_MAX");
    keeps_a_body_of(&setup.open().await, 1 << 20).await;
}

/// A store that cannot take it must say so: half an answer is a wrong replay.
pub async fn a_body_of_4_mib_comes_back_or_is_refused_whole<H: Harness>(setup: &Setup<H>) {
    const BYTES: usize = 4 << 20;
    let store = setup.open().await;
    if H::BODY_BYTES_MAX >= BYTES {
        return keeps_a_body_of(&store, BYTES).await;
    }
    let large = completed(1, body(BYTES));
    let refused = store.store().swap(&id(1), None, Some(&large)).await;
    let too_large = matches!(refused, Err(StoreError::TooLarge { .. }));
    assert!(too_large, "a body over the declared limit is refused");
    assert_eq!(store.load(&id(1)).await, None);
}

async fn keeps_a_body_of<S: Store + ListStore>(store: &Handle<S>, bytes: usize) {
    let number = u64::try_from(bytes).expect("a small size");
    let written = completed(1, body(bytes));
    store.round_trip(&id(number), &written).await;
}

/// A loser replays from the row that its swap returned.
pub async fn a_lost_swap_returns_a_large_row_whole<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let large = completed(1, body(1 << 20));
    store.put(&id(1), &large).await;
    let claim = executing(2, at(5_000));
    let row = lost(store.swap(&id(1), None, Some(&claim)).await);
    same(&row.expect("the row").record, &large);
}

/// Where a large answer is kept in pieces, none may stay behind.
pub async fn a_large_row_gives_way_to_a_small_one_and_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let large = completed(1, body(700_000));
    let small = completed(2, "small");
    let mut version = store.put(&id(1), &large).await;
    for next in [&small, &large, &small] {
        version = store.replace(&id(1), version, next).await;
        same(&store.row(&id(1)).await.record, next);
    }
    store.remove(&id(1), version).await;
    assert_eq!(store.load(&id(1)).await, None);
    store.round_trip(&id(1), &large).await;
}

/// A deadline past the end of time never passes, and must not wrap around to the past.
pub async fn extreme_times_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let sign_bit = 1_u64 << 63;
    for (number, millis) in (0..).zip([0, 1, sign_bit - 1, sign_bit, u64::MAX - 1, u64::MAX]) {
        let time = Timestamp::from_millis(millis);
        let mut written = record(1, state(StateKind::Unknown, time));
        written.created_at = time;
        written.updated_at = time;
        store.round_trip(&id(number), &written).await;
    }
}

/// A count that wrapped around would grant executions that the policy forbids.
pub async fn extreme_counts_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, (attempt, schema)) in (0..).zip([
        (0, 0),
        (256, 1 << 31),
        (1 << 15, u32::MAX - 1),
        (u16::MAX, u32::MAX),
    ]) {
        let unknown = State::Unknown {
            reason: UnknownReason::Panicked,
            since: at(1),
            reconcile_at: at(2),
            attempts: attempt,
        };
        let mut written = record(1, unknown);
        written.attempt = attempt;
        written.response_schema = schema;
        store.round_trip(&id(number), &written).await;
    }
}

/// The policy of an unfinished key is found by its route's name.
pub async fn every_route_name_comes_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let longest = "r".repeat(RouteName::BYTES_MAX);
    let names = [
        "",
        "Größe/支払い/🦀",
        "a'b\"c\\d;--\n\t%",
        "  spaces  ",
        &longest,
    ];
    for (number, name) in (0..).zip(names) {
        let mut written = executing(1, at(5_000));
        written.route = RouteName::new(name).expect("a name that fits");
        store.round_trip(&id(number), &written).await;
    }
}

/// They explain a mismatch; whether some were left out is part of the explanation.
pub async fn field_digests_come_back<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    for (number, (bytes, truncated)) in (0..).zip([(0, false), (8, false), (8, true), (512, true)])
    {
        let mut written = executing(1, at(5_000));
        written.fields = FieldDigests::from_encoded(body(bytes), truncated).expect("whole digests");
        store.round_trip(&id(number), &written).await;
    }
}

/// Refused or not, a swap says which: an error would make a caller read again for nothing.
pub async fn a_swap_answers_won_or_lost_and_no_error<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let claim = executing(1, at(5_000));
    let first = store.store().swap(&id(1), None, Some(&claim)).await;
    assert!(matches!(first, Ok(Swap::Won(_))));
    let second = store.store().swap(&id(1), None, Some(&claim)).await;
    assert!(matches!(second, Ok(Swap::Lost(Some(_)))));
}
