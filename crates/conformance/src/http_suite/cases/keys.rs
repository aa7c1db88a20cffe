//! The key: missing, malformed, and spelt in two ways.

use crate::http_suite::{Api, Call};

const REQUIRED: &str = "idempotency_key_required";
const INVALID: &str = "idempotency_key_invalid";

/// A write without a key could not be retried safely, and nobody would know until it was.
pub async fn a_missing_key_is_refused(api: &Api) {
    let call = Call::payment("").without("idempotency-key");
    api.assert_refused(&call, 400, REQUIRED).await;
}

/// Every client that forgot to fill in its key would share this one.
pub async fn an_empty_key_is_refused(api: &Api) {
    for key in ["", "\"\"", "  "] {
        api.assert_refused(&Call::payment(key), 400, INVALID).await;
    }
}

/// Which of the two would count is anybody's guess, and the next proxy's may differ.
pub async fn a_key_sent_twice_is_refused(api: &Api) {
    for second in ["two", "one"] {
        let call = Call::payment("one").line("idempotency-key", second);
        api.assert_refused(&call, 400, INVALID).await;
    }
    api.assert_refused(&Call::payment("one, two"), 400, INVALID)
        .await;
}

/// RFC 9651 lets a recipient ignore what it cannot parse. Here that would run a write unprotected.
pub async fn a_malformed_key_is_refused_and_not_ignored(api: &Api) {
    for key in [
        "\"open", "\"a\\b\"", "a b", "a;b", "a\"b", "\"a\" b", "k\u{e9}y",
    ] {
        api.assert_refused(&Call::payment(key), 400, INVALID).await;
    }
}

/// A client that is updated to the standard's spelling between two retries must not pay twice.
pub async fn a_quoted_key_and_the_bare_one_are_the_same(api: &Api) {
    let first = api.send(&Call::payment("\"k-1\"")).await;
    first.assert_executed(201);
    api.assert_replays(&Call::payment("k-1"), &first).await;
    api.assert_replays(&Call::payment("\"k-1\"; v=2"), &first)
        .await;
}

/// As Structured Fields, one of these is no item and the other a token. Both are keys.
pub async fn bare_uuids_are_keys_whatever_they_begin_with(api: &Api) {
    for key in [
        "0b5e9e5c-7f0e-4f53-a1c5-5d0f4a2f7f11",
        "fb5e9e5c-7f0e-4f53-a1c5-5d0f4a2f7f11",
    ] {
        let first = api.send(&Call::payment(key)).await;
        first.assert_executed(201);
        api.assert_replays(&Call::payment(key), &first).await;
    }
}

/// A key is part of every record, so its length has a limit, and the limit is the documented one.
pub async fn a_key_has_at_most_255_characters(api: &Api) {
    let longest = "k".repeat(255);
    let first = api.send(&Call::payment(&longest)).await;
    first.assert_executed(201);
    api.assert_replays(&Call::payment(&longest), &first).await;
    let longer = Call::payment(&"k".repeat(256));
    api.assert_refused(&longer, 400, INVALID).await;
}

/// Keys are opaque: a guard that folds case gives two operations one answer.
pub async fn keys_that_differ_in_case_are_two_keys(api: &Api) {
    let first = api.send(&Call::payment("key")).await;
    let other = api.send(&Call::payment("KEY")).await;
    other.assert_executed(201);
    assert_ne!(first.body, other.body);
}

/// A proxy that deduplicates by the key too must get to see it.
pub async fn the_key_reaches_the_upstream(api: &Api) {
    let answer = api.send(&Call::payment("k-7")).await;
    assert_eq!(answer.json()["key"], "k-7");
}
