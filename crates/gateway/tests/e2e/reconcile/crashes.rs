//! Reconcilers that die at each step, and two of them at once.

use std::time::Duration;

use onlyonce_conformance::servers::redis::RedisServer;

use super::provider::{ASKS, Asked, Provider, pay, until_state};
use crate::kit::{UNKNOWN, binary, send_to, until};

/// Killed before anybody was asked: the outcome is unknown in the store, and the next process asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_killed_before_asking_is_followed_by_one_that_asks() {
    let provider = Provider::start().await;
    let route = "probe = \"p\"\nreconcile_delay = \"1s\"\nreconcile_delay_max = \"2s\"";
    let setup = provider.setup("dedupes", route, "");
    let mut gateway = setup.start().await;
    let call = pay("k", "lose");
    let first = send_to(gateway.address, &call).await;
    first.assert_problem(502, UNKNOWN);
    gateway.signal("KILL").await;
    gateway.ended().await;
    assert_eq!(provider.questions(), 0);
    let gateway = setup.start().await;
    until_state(&gateway, &first, "completed").await;
    assert!(send_to(gateway.address, &call).await.is_replay());
    assert_eq!(provider.effects(&call), 1);
}

/// Killed while the request was at work: its lease ends in the next process, which asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_at_work_leaves_an_outcome_that_is_asked_about() {
    let provider = Provider::start().await;
    let setup = provider.setup("opaque", ASKS, "");
    let mut gateway = setup.start().await;
    let (address, call) = (gateway.address, pay("k", "hold"));
    let asked = call.clone();
    let lost = tokio::spawn(async move { crate::kit::try_send_to(address, &asked).await.is_err() });
    until(|| (provider.effects(&call) == 1).then_some(())).await;
    gateway.signal("KILL").await;
    gateway.ended().await;
    assert!(lost.await.expect("a client"));
    let gateway = setup.start().await;
    let replay = crate::kit::soon(async {
        loop {
            let answer = send_to(gateway.address, &call).await;
            if answer.is_replay() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_eq!(replay.await.status.as_u16(), 201);
    assert_eq!(provider.effects(&call), 1);
}

/// Whether every thread of a process has come to a halt.
fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in brackets and may hold anything.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

/// Killed while it waited for the answer, and killed with the answer unread: both ask again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_killed_while_asking_or_before_writing_is_followed_by_one_that_asks_again() {
    for answered in [false, true] {
        let provider = Provider::start().await;
        provider.say(Asked::Held);
        let route = "probe = \"p\"\nreconcile_delay = \"1s\"\nreconcile_delay_max = \"2s\"";
        let setup = provider.setup("dedupes", route, "");
        let mut gateway = setup.start().await;
        let call = pay("k", "lose");
        let first = send_to(gateway.address, &call).await;
        first.assert_problem(502, UNKNOWN);
        until(|| (provider.questions() == 1).then_some(())).await;
        if answered {
            // The answer comes, and nobody reads it.
            gateway.signal("STOP").await;
            until(|| is_stopped(gateway.pid()).then_some(())).await;
            provider.open();
        }
        gateway.signal("KILL").await;
        gateway.ended().await;
        provider.open();
        let gateway = setup.start().await;
        until_state(&gateway, &first, "completed").await;
        assert!(send_to(gateway.address, &call).await.is_replay());
        assert!(provider.questions() > 1);
        assert_eq!(provider.effects(&call), 1);
        provider.assert_no_doubles();
    }
}

/// Two gateways on one store look for the same keys; of each key one of them asks at a time.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_ask_one_question_at_a_time() {
    let server = tokio::task::spawn_blocking(RedisServer::start)
        .await
        .expect("a server");
    let migrated = binary(&["migrate", "--store", &server.url()]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    let provider = Provider::start().await;
    provider.say(Asked::Held);
    // Longer than a question takes at most, so that one is over when the next one is due.
    let route = "probe = \"p\"\nreconcile_delay = \"1500ms\"\nreconcile_delay_max = \"1500ms\"\n\
                 reconcile_attempts = 100";
    let setup = provider.setup("dedupes", route, "").store(&server.url());
    let (one, two) = (setup.start().await, setup.start().await);
    let call = pay("k", "lose");
    let first = send_to(one.address, &call).await;
    first.assert_problem(502, UNKNOWN);
    until(|| (provider.questions() >= 3).then_some(())).await;
    provider.say(Asked::Truth);
    provider.open();
    until_state(&two, &first, "completed").await;
    let replays = [
        send_to(one.address, &call).await,
        send_to(two.address, &call).await,
    ];
    for replay in &replays {
        assert!(replay.is_replay(), "{replay:?}");
        assert_eq!(replay.body, replays[0].body);
    }
    assert_eq!(provider.asking_max(), 1);
    assert_eq!(provider.effects(&call), 1);
    provider.assert_no_doubles();
}
