//! Outcomes that are found out by asking.

use super::provider::{ASKS, Asked, Provider, pay, payment, state, until_state};
use crate::kit::{Call, UNKNOWN, send_to, soon};

/// Retries until the answer is another than "unknown".
async fn settled(
    gateway: &crate::kit::Gateway,
    call: &Call,
) -> onlyonce_conformance::http_suite::Answer {
    soon(async {
        loop {
            let answer = send_to(gateway.address, call).await;
            if answer.code() != UNKNOWN {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

/// The charge was made and its answer lost: whoever retries must get it, and no second charge. On
/// every kind of upstream, "completed" is completed.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_executed_and_lost_the_answer_is_asked() {
    for kind in ["opaque", "dedupes", "transactional"] {
        let provider = Provider::start().await;
        let gateway = provider.setup(kind, ASKS, "").start().await;
        for (how, status) in [("lose", 201), ("decline", 402)] {
            let call = pay(how, how);
            let first = send_to(gateway.address, &call).await;
            first.assert_problem(502, UNKNOWN);
            let replay = settled(&gateway, &call).await;
            assert!(replay.is_replay(), "{replay:?}");
            assert_eq!(replay.status.as_u16(), status);
            assert_eq!(replay.header("content-type"), "application/json");
            assert_eq!(replay.json()["amount"], 12.0);
            // The bytes of the provider's own object, not a rendering of it.
            let operation = replay.json()["operation"]
                .as_str()
                .expect("text")
                .to_owned();
            let said = if how == "lose" { "paid" } else { "failed" };
            assert_eq!(replay.body, payment(&operation, said));
            let again = send_to(gateway.address, &call).await;
            assert_eq!(again.body, replay.body);
            assert_eq!(state(&gateway, &first).await, "completed");
            assert_eq!(provider.effects(&call), 1);
        }
        provider.assert_no_doubles();
    }
}

/// Nothing happened, and a second dispatch cannot happen twice: the retry may run.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_never_got_it_is_sent_it_once_by_the_retry() {
    for kind in ["dedupes", "transactional"] {
        let provider = Provider::start().await;
        let gateway = provider.setup(kind, ASKS, "").start().await;
        let call = pay("never", "never-once");
        let first = send_to(gateway.address, &call).await;
        first.assert_problem(502, UNKNOWN);
        until_state(&gateway, &first, "released").await;
        assert_eq!(provider.effects(&call), 0);
        let retry = settled(&gateway, &call).await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false));
        assert!(send_to(gateway.address, &call).await.is_replay());
        assert_eq!(provider.effects(&call), 1);
        provider.assert_no_doubles();
    }
}

/// "Not found" proves nothing about a dispatch that is still on its way. A person decides.
#[tokio::test(flavor = "multi_thread")]
async fn not_found_at_an_opaque_upstream_is_a_dead_letter_and_never_sent_again() {
    let provider = Provider::start().await;
    let gateway = provider.setup("opaque", ASKS, "").start().await;
    let call = pay("never", "never-once");
    let first = send_to(gateway.address, &call).await;
    first.assert_problem(502, UNKNOWN);
    until_state(&gateway, &first, "dead_letter").await;
    for _ in 0..3 {
        let retry = send_to(gateway.address, &call).await;
        retry.assert_problem(409, UNKNOWN);
        assert_ne!(retry.header("retry-after"), "");
    }
    assert_eq!(provider.effects(&call), 0);
    assert_eq!(provider.questions(), 1);
}

/// None of these is an answer. The key stays unknown, and in the end a person decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_answers_badly_decides_nothing_and_is_counted() {
    for (asked, reason) in [
        (Asked::Bytes("garbage\r\n\r\n"), "broken"),
        (
            Asked::Bytes(
                "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
            ),
            "redirect",
        ),
        (Asked::Held, "cut_off"),
        (Asked::Huge, "too_large"),
        (
            Asked::Bytes("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"),
            "not_json",
        ),
        (
            Asked::Bytes("HTTP/1.1 500 No\r\ncontent-length: 11\r\n\r\n{\"data\":[]}"),
            "no_rule",
        ),
        (
            Asked::Bytes("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
            "no_rule",
        ),
        (
            Asked::Bytes(
                "HTTP/1.1 200 OK\r\ncontent-length: 44\r\n\r\n{\"data\":[{\"status\":\"paid\",\"operation\":\"7\"}]}",
            ),
            "about_another",
        ),
        (
            Asked::Bytes(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx",
            ),
            "encoded",
        ),
    ] {
        let provider = Provider::start().await;
        provider.say(asked);
        let route = "probe = \"p\"\nreconcile_delay = \"700ms\"\nreconcile_delay_max = \"700ms\"\n\
                     reconcile_attempts = 2";
        let gateway = provider.setup("dedupes", route, "").start().await;
        let call = pay("bad", "lose");
        let first = send_to(gateway.address, &call).await;
        first.assert_problem(502, UNKNOWN);
        until_state(&gateway, &first, "dead_letter").await;
        let retry = send_to(gateway.address, &call).await;
        retry.assert_problem(409, UNKNOWN);
        let words = format!("reason=\"{reason}\"");
        gateway.logged("a probe could not tell").await;
        assert!(
            gateway.log().contains(&words),
            "{words} in {}",
            gateway.log()
        );
        gateway.logged("total=2").await;
        assert_eq!(provider.effects(&call), 1, "{reason}");
        assert_eq!(provider.questions(), 2, "{reason}");
    }
}

/// Nobody listens: the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_nobody_answers_decides_nothing() {
    let provider = Provider::start().await;
    let route = "probe = \"nobody\"\nreconcile_delay = \"100ms\"\nreconcile_attempts = 1";
    let nobody = "[[probe]]\nname = \"nobody\"\nurl = \"http://127.0.0.1:9/{key}\"\n\
                  completed = [{ status = \"200\" }]\nnot_found = [{ status = \"404\" }]";
    let gateway = provider.setup("dedupes", route, nobody).start().await;
    let call = pay("very-secret", "lose");
    let first = send_to(gateway.address, &call).await;
    until_state(&gateway, &first, "dead_letter").await;
    gateway.logged("reason=\"unreachable\"").await;
    // What a question is about is the client's business, and stands in no log.
    assert!(!gateway.log().contains("very-secret"), "{}", gateway.log());
    assert_eq!(provider.effects(&call), 1);
}
