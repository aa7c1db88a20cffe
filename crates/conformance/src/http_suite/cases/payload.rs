//! The payload that a key belongs to.

use serde_json::json;

use crate::http_suite::{Answer, Api, Call};

const REUSED: &str = "idempotency_key_reused_with_different_payload";
const TOO_LARGE: &str = "idempotency_payload_too_large";

async fn refused_after(api: &Api, first: &Call, other: &Call) -> Answer {
    api.send(first).await.assert_executed(201);
    api.assert_refused(other, 422, REUSED).await
}

/// A client bug that reuses a key must not be told that its second payment went through, and its
/// author wants to know what differs without anybody having kept the values.
pub async fn another_payload_is_refused_and_the_difference_named(api: &Api) {
    let first = Call::payment("k").body(r#"{"amount":1200,"to":{"iban":"X"}}"#);
    let other = Call::payment("k").body(r#"{"amount":9900,"to":{"iban":"X"},"memo":"y"}"#);
    let answer = refused_after(api, &first, &other).await;
    let differs = &answer.json()["differs"];
    assert_eq!(differs["changed"], json!(["/amount"]));
    assert_eq!(differs["added"], json!(["/memo"]));
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("9900") && !text.contains("1200"), "{text}");
}

/// The refusal of a misused key must not spend or free it.
pub async fn a_refused_payload_leaves_the_first_answer_alone(api: &Api) {
    let call = Call::payment("k");
    let first = api.send(&call).await;
    let other = Call::payment("k").body("{}");
    api.assert_refused(&other, 422, REUSED).await;
    api.assert_replays(&call, &first).await;
}

/// Serialisers do not promise an order; a retry from another process must still be a retry.
pub async fn member_order_and_white_space_do_not_matter(api: &Api) {
    let call = Call::payment("k").body(r#"{"amount":1200,"currency":"EUR"}"#);
    let first = api.send(&call).await;
    let respelt = "{ \"currency\" : \"EUR\",\n \"amount\" : 1200.0 }";
    api.assert_replays(&call.body(respelt), &first).await;
}

/// RFC 8785 alone would make these two payments one.
pub async fn numbers_beyond_double_precision_are_told_apart(api: &Api) {
    let first = Call::payment("k").body(r#"{"account":9007199254740992}"#);
    let other = Call::payment("k").body(r#"{"account":9007199254740993}"#);
    refused_after(api, &first, &other).await;
}

/// Which of two members counts differs between parsers.
pub async fn duplicate_members_are_not_dropped(api: &Api) {
    let first = Call::payment("k").body(r#"{"amount":2}"#);
    let other = Call::payment("k").body(r#"{"amount":1,"amount":2}"#);
    refused_after(api, &first, &other).await;
}

/// "Forget the memo" is not "leave the memo".
pub async fn null_is_not_absent(api: &Api) {
    let first = Call::payment("k").body(r#"{"amount":1}"#);
    let other = Call::payment("k").body(r#"{"amount":1,"memo":null}"#);
    refused_after(api, &first, &other).await;
}

/// `?dry_run=true` and no query are two requests.
pub async fn another_query_is_another_payload(api: &Api) {
    let first = Call::payment("k").to("/payments?dry_run=true");
    refused_after(api, &first, &Call::payment("k")).await;
    let other = Call::payment("k").to("/payments?dry_run=false");
    api.assert_refused(&other, 422, REUSED).await;
}

/// A precondition decides whether anything is executed at all.
pub async fn another_precondition_is_another_payload(api: &Api) {
    let first = Call::payment("k").header("if-match", "\"v1\"");
    let other = Call::payment("k").header("if-match", "\"v2\"");
    refused_after(api, &first, &other).await;
}

/// Not every body is JSON.
pub async fn other_bytes_are_another_payload(api: &Api) {
    let form = Call::payment("k").header("content-type", "application/x-www-form-urlencoded");
    let (first, other) = (form.clone().body("amount=1"), form.body("amount=2"));
    refused_after(api, &first, &other).await;
}

/// Every retry of an upload draws a new boundary.
pub async fn a_multipart_retry_with_a_new_boundary_is_a_retry(api: &Api) {
    let upload = |boundary: &str| {
        let part = "Content-Disposition: form-data; name=\"amount\"\r\n\r\n1200";
        Call::payment("k")
            .header(
                "content-type",
                &format!("multipart/form-data; boundary={boundary}"),
            )
            .body(format!("--{boundary}\r\n{part}\r\n--{boundary}--\r\n"))
    };
    let first = api.send(&upload("one")).await;
    first.assert_executed(201);
    let retry = api.send(&upload("two")).await;
    assert!(retry.is_replay(), "{}", retry.status);
    assert_eq!(retry.body, first.body);
}

/// What cannot be held cannot be compared, and must not be executed unguarded.
pub async fn a_body_above_1_mib_is_refused(api: &Api) {
    let call = Call::payment("k").body(vec![b'x'; (1 << 20) + 1]);
    let executed = api.total();
    // The refusal may overtake the body, and break the connection it is sent on.
    if let Ok(answer) = api.try_send(&call).await {
        answer.assert_problem(413, TOO_LARGE);
    }
    assert_eq!(api.total(), executed);
    api.send(&Call::payment("k")).await.assert_executed(201);
}

/// Refused from its head alone: a client that announces a gigabyte must not make anybody wait
/// for it, or hold it.
pub async fn an_announced_giant_is_refused_before_it_is_sent(api: &Api) {
    let head = "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\n\
                content-length: 1073741824\r\n\r\n";
    let mut socket = api.write(head.as_bytes()).await;
    let answer = super::problems::read_some(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(api.total(), 0);
}
