//! What an answer means for its key.

use crate::http_suite::{Api, Call};

const REUSED: &str = "idempotency_key_reused_with_different_payload";
const UNKNOWN: &str = "idempotency_outcome_unknown";

async fn stored(api: &Api, status: u16) {
    let call = Call::payment("k").test("status", &status.to_string());
    let first = api.send(&call).await;
    first.assert_executed(status);
    api.assert_replays(&call, &first).await;
}

/// The client may correct its request and use the key again.
async fn evicted(api: &Api, call: &Call, status: u16) {
    api.send(call).await.assert_executed(status);
    let corrected = Call::payment("k").body(r#"{"amount":1}"#);
    let answer = api.send(&corrected).await;
    answer.assert_executed(201);
    api.assert_replays(&corrected, &answer).await;
}

/// The same request may run again; another one under the key may not.
async fn released(api: &Api, call: &Call, status: u16) {
    api.send(call).await.assert_executed(status);
    let other = Call::payment("k").body("{}");
    api.assert_refused(&other, 422, REUSED).await;
    let answer = api.send(&Call::payment("k")).await;
    answer.assert_executed(201);
    api.assert_replays(&Call::payment("k"), &answer).await;
}

/// The effect may have happened: whatever the retry, nothing runs again.
async fn unknown(api: &Api, call: &Call, status: u16) {
    api.send(call).await.assert_problem(status, UNKNOWN);
    assert_eq!(api.effects(call), 1);
    for _ in 0..3 {
        let answer = api.assert_refused(&Call::payment("k"), 409, UNKNOWN).await;
        assert_ne!(answer.header("retry-after"), "");
    }
}

/// A declined card is an answer, and asking again is not to decline it twice.
pub async fn a_declined_payment_is_stored(api: &Api) {
    stored(api, 402).await;
}

/// "It exists already" is the truth about the first attempt, not about the retry.
pub async fn a_conflict_is_stored(api: &Api) {
    stored(api, 409).await;
}

/// A handler that failed half-way has had half an effect.
pub async fn an_internal_error_is_stored(api: &Api) {
    stored(api, 500).await;
}

/// Success has many numbers.
pub async fn an_accepted_job_is_stored(api: &Api) {
    stored(api, 202).await;
}

/// A typing error in the payload must not cost the key.
pub async fn a_validation_failure_frees_the_key(api: &Api) {
    evicted(api, &Call::payment("k").rejected(422), 422).await;
}

/// An expired token must not either.
pub async fn a_missing_permission_frees_the_key(api: &Api) {
    evicted(api, &Call::payment("k").rejected(401), 401).await;
}

/// "Slow down" stored for a day would be "never".
pub async fn a_rate_limit_frees_the_key(api: &Api) {
    evicted(api, &Call::payment("k").rejected(429), 429).await;
}

/// A service that says that it did nothing is asked again.
pub async fn an_unavailable_service_is_asked_again(api: &Api) {
    released(api, &Call::payment("k").rejected(503), 503).await;
}

/// A proxy further down does not know what happened.
pub async fn a_bad_gateway_is_unknown(api: &Api) {
    unknown(api, &Call::payment("k").test("status", "502"), 502).await;
}

/// Late is not never.
pub async fn a_timeout_is_unknown(api: &Api) {
    unknown(api, &Call::payment("k").test("status", "504"), 504).await;
}

/// The upstream knows better than a table of statuses.
pub async fn the_upstream_may_say_completed(api: &Api) {
    let call = Call::payment("k")
        .test("status", "422")
        .test("outcome", "completed");
    let first = api.send(&call).await;
    first.assert_executed(422);
    api.assert_replays(&call, &first).await;
}

/// The same for "nothing happened, run it again".
pub async fn the_upstream_may_say_released(api: &Api) {
    let call = Call::payment("k").rejected(500).test("outcome", "released");
    released(api, &call, 500).await;
}

/// The same for "as if never asked".
pub async fn the_upstream_may_say_not_stored(api: &Api) {
    let call = Call::payment("k")
        .rejected(200)
        .test("outcome", "not-stored");
    evicted(api, &call, 200).await;
}

/// The same for "nobody can tell", also with a status that looks like success.
pub async fn the_upstream_may_say_unknown(api: &Api) {
    unknown(api, &Call::payment("k").test("outcome", "unknown"), 502).await;
}

/// A misspelt word about a charge must not be taken for "nothing happened".
pub async fn a_misspelt_outcome_is_unknown(api: &Api) {
    unknown(api, &Call::payment("k").test("outcome", "relesed"), 502).await;
}

/// How a service talks to its guard is nobody else's business, now or on a replay.
pub async fn the_outcome_header_is_never_seen(api: &Api) {
    let call = Call::payment("k").test("outcome", "completed");
    let first = api.send(&call).await;
    assert!(first.lines("onlyonce-outcome").is_empty());
    let retry = api.send(&call).await;
    assert!(retry.is_replay());
    assert!(retry.lines("onlyonce-outcome").is_empty());
}
