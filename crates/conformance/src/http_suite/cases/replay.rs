//! A retry gets the first answer.

use crate::http_suite::{Api, Call};

/// The product in one case.
pub async fn a_new_key_executes_once_and_a_retry_gets_the_first_answer(api: &Api) {
    let call = Call::payment("k");
    let first = api.send(&call).await;
    first.assert_executed(201);
    api.assert_replays(&call, &first).await;
    assert_eq!(api.effects(&call), 1);
}

/// Retries are not limited in number.
pub async fn the_fiftieth_retry_gets_the_first_answer_too(api: &Api) {
    let call = Call::payment("k");
    let first = api.send(&call).await;
    for _ in 0..50 {
        api.assert_replays(&call, &first).await;
    }
}

/// Two operations under two keys are two effects: a guard that answers everything from its
/// store is no better.
pub async fn two_keys_are_two_operations(api: &Api) {
    let first = api.send(&Call::payment("one")).await;
    let second = api.send(&Call::payment("two")).await;
    second.assert_executed(201);
    assert_ne!(first.body, second.body);
    api.assert_replays(&Call::payment("one"), &first).await;
    api.assert_replays(&Call::payment("two"), &second).await;
}

/// A list of links or warnings in another order, or with one missing, is another answer.
pub async fn repeated_header_lines_keep_their_order(api: &Api) {
    let call = Call::payment("k");
    let first = api.send(&call).await;
    assert_eq!(first.lines("x-line"), ["first", "second"]);
    let retry = api.send(&call).await;
    assert_eq!(retry.lines("x-line"), ["first", "second"]);
}

/// A cookie belongs to the moment it was set in, and perhaps to somebody who has logged out.
pub async fn a_cookie_is_given_once(api: &Api) {
    let call = Call::payment("k").test("cookie", "session=1");
    let first = api.send(&call).await;
    assert_eq!(first.header("set-cookie"), "session=1");
    api.assert_replays(&call, &first).await;
    assert_eq!(api.send(&call).await.header("set-cookie"), "");
}

/// "Try again in an hour" was said an hour ago.
pub async fn a_stored_retry_after_is_not_given_again(api: &Api) {
    let call = Call::payment("k").test("header", "retry-after=3600");
    let first = api.send(&call).await;
    assert_eq!(first.header("retry-after"), "3600");
    assert_eq!(api.send(&call).await.header("retry-after"), "");
}

/// Fields of one connection would break, or smuggle something into, another.
pub async fn fields_of_the_connection_are_not_given_again(api: &Api) {
    let call = Call::payment("k")
        .test("header", "connection=x-hop")
        .test("header", "x-hop=1");
    let first = api.send(&call).await;
    first.assert_executed(201);
    let retry = api.send(&call).await;
    assert!(retry.is_replay());
    assert_eq!(retry.body, first.body);
    assert_eq!(retry.header("x-hop"), "");
    assert_ne!(retry.header("connection"), "x-hop");
}

/// Not every body is text.
pub async fn a_binary_body_comes_back_byte_for_byte(api: &Api) {
    let call = Call::payment("k").test("body-bytes", "70000");
    let first = api.send(&call).await;
    assert_eq!(first.body.len(), 70_000);
    api.assert_replays(&call, &first).await;
}

/// The limit itself is within the limit.
pub async fn a_body_of_exactly_1_mib_comes_back(api: &Api) {
    let call = Call::payment("k").test("body-bytes", "1048576");
    let first = api.send(&call).await;
    assert_eq!(first.body.len(), 1 << 20);
    api.assert_replays(&call, &first).await;
}

/// No body is an answer too.
pub async fn an_empty_answer_comes_back(api: &Api) {
    let call = Call::payment("k")
        .test("body-bytes", "0")
        .test("status", "204");
    let first = api.send(&call).await;
    first.assert_executed(204);
    assert!(first.body.is_empty());
    api.assert_replays(&call, &first).await;
}

/// gRPC and checksums say in trailers whether the body is worth anything.
pub async fn trailers_come_back(api: &Api) {
    let call = Call::payment("k").test("trailers", "c0ffee");
    let first = api.send(&call).await;
    let trailers = first.trailers.as_ref().expect("the first has trailers");
    assert_eq!(trailers["x-checksum"], "c0ffee");
    api.assert_replays(&call, &first).await;
}

/// What a client was told to see elsewhere, it is told again.
pub async fn a_redirect_comes_back(api: &Api) {
    let call = Call::payment("k")
        .test("status", "303")
        .test("header", "location=/payments/1");
    let first = api.send(&call).await;
    first.assert_executed(303);
    api.assert_replays(&call, &first).await;
    assert_eq!(api.send(&call).await.header("location"), "/payments/1");
}

/// A marker from the upstream must not make a first answer look like a replay of this guard's on
/// every retry, nor be doubled.
pub async fn the_marker_is_on_replays_once(api: &Api) {
    let call = Call::payment("k");
    let first = api.send(&call).await;
    assert!(first.lines("idempotency-replayed").is_empty());
    let retry = api.send(&call).await;
    assert_eq!(retry.lines("idempotency-replayed"), ["true"]);
}
