//! Things break: the upstream, its answers, and the caller's patience.

use http_body_util::BodyExt;

use crate::http_suite::{Api, Call};

const UNKNOWN: &str = "idempotency_outcome_unknown";
const NOT_REPLAYABLE: &str = "idempotency_response_not_replayable";

/// The effect happened, the answer did not. Never again.
async fn lost_answer(api: &Api, how: &str) {
    let call = Call::payment("k").test("break", how);
    api.send(&call).await.assert_problem(502, UNKNOWN);
    assert_eq!(api.effects(&call), 1);
    for _ in 0..3 {
        api.assert_refused(&Call::payment("k"), 409, UNKNOWN).await;
    }
    assert_eq!(api.effects(&call), 1);
}

/// A crash after the charge and before the receipt.
pub async fn a_crash_of_the_upstream_is_unknown_and_never_run_again(api: &Api) {
    lost_answer(api, "panic").await;
}

/// Half a receipt stored as a whole one would be replayed for a day.
pub async fn a_torn_answer_is_unknown_and_never_run_again(api: &Api) {
    lost_answer(api, "body").await;
}

/// The same when the end of the body looks like an end.
pub async fn an_answer_shorter_than_announced_is_unknown(api: &Api) {
    lost_answer(api, "short").await;
}

/// A caller that goes away must not cancel the payment, nor its completion.
pub async fn a_caller_that_leaves_cancels_nothing(api: &Api) {
    let call = Call::payment("k");
    let task = api.hold(&call, "gate").await;
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    api.assert_refused(&call, 409, "idempotency_key_in_progress")
        .await;
    api.upstream().open("gate");
    let answer = api.settled(&call).await;
    assert_eq!(answer.status.as_u16(), 201);
    assert!(answer.is_replay(), "the retry is answered, not run");
    assert_eq!(api.effects(&call), 1);
}

/// Half a request is none: it might lack a digit of the amount.
pub async fn a_caller_that_leaves_in_the_middle_of_its_request_executes_nothing(api: &Api) {
    let head = "POST /payments HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer alice\r\n\
                content-type: application/json\r\nidempotency-key: k\r\ncontent-length: 32\r\n\r\n";
    drop(api.write(head.as_bytes()).await);
    drop(api.write(format!("{head}{{\"amount\":12").as_bytes()).await);
    // The key is as if never used: another payload may have it.
    let call = Call::payment("k").body(r#"{"amount":5}"#);
    let answer = api.settled(&call).await;
    answer.assert_executed(201);
    assert_eq!(api.total(), 1);
}

/// A chunked body without its last chunk is torn too.
pub async fn a_chunked_request_without_its_end_executes_nothing(api: &Api) {
    let torn = "POST /payments HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer alice\r\n\
                content-type: application/json\r\nidempotency-key: k\r\n\
                transfer-encoding: chunked\r\n\r\n6\r\n{\"a\":1\r\n";
    drop(api.write(torn.as_bytes()).await);
    api.settled(&Call::payment("k")).await.assert_executed(201);
    assert_eq!(api.total(), 1);
}

/// An answer too large to keep must still arrive whole, and must not make its request run again.
pub async fn an_oversized_answer_arrives_whole_and_is_not_run_again(api: &Api) {
    let call = Call::payment("k").test("body-bytes", "3000000");
    let first = api.send(&call).await;
    first.assert_executed(201);
    assert_eq!(first.body.len(), 3_000_000);
    let expected = (0_u8..=u8::MAX).cycle().take(3_000_000);
    assert!(first.body.iter().copied().eq(expected), "byte for byte");
    api.assert_refused(&call, 409, NOT_REPLAYABLE).await;
    assert_eq!(api.effects(&call), 1);
}

/// A stream that is collected before it is passed on is no stream.
pub async fn a_stream_passes_live_and_is_not_run_again(api: &Api) {
    let call = Call::payment("k").test("stream", "more");
    let mut response = api.open(&call).await.expect("an answer");
    let event = response.body_mut().frame().await.expect("an event");
    assert_eq!(
        event.expect("whole").into_data().expect("data"),
        "data: 1\n\n"
    );
    api.assert_refused(&Call::payment("k"), 409, NOT_REPLAYABLE)
        .await;
    api.upstream().open("more");
    let rest = response.into_body().collect().await.expect("its end");
    assert_eq!(rest.to_bytes(), "data: 2\n\n");
    assert_eq!(api.effects(&call), 1);
}

/// Part of something is not an answer to keep.
pub async fn a_partial_answer_is_not_replayed(api: &Api) {
    let call = Call::payment("k").test("status", "206");
    api.send(&call).await.assert_executed(206);
    api.assert_refused(&call, 409, NOT_REPLAYABLE).await;
}
