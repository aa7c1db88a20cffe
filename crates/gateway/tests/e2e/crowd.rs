//! Ten thousand clients with one key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_conformance::http_suite::{Answer, same};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::kit::{Call, IN_PROGRESS, Stage, call_over, send_to};

const CLIENTS: usize = 10_000;

/// Handles that everything else needs: the runtime, the upstream, the logs.
const HANDLES_ELSEWHERE: usize = 200;

/// Allows this process, and the gateway it will start, as many sockets as the system lets it,
/// and says how many that is.
async fn sockets_max() -> usize {
    let pid = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.expect("a limit").split_whitespace().skip(3);
    let (soft, hard) = (words.next().expect("soft"), words.next().expect("hard"));
    let mut raise = Command::new("prlimit");
    raise.args(["--pid", &pid, &format!("--nofile={hard}:{hard}")]);
    let raised = raise.status().await.is_ok_and(|status| status.success());
    let limit = if raised { hard } else { soft };
    limit.parse::<usize>().unwrap_or(CLIENTS * 2) - HANDLES_ELSEWHERE
}

/// Where more connect at once than the system lets wait, some lose many seconds to TCP's own
/// retries.
const PATIENCE: Duration = Duration::from_secs(90);

async fn patient(address: SocketAddr, call: &Call) -> Answer {
    let asking = async {
        let socket = TcpStream::connect(address).await.expect("connected");
        call_over(socket, call).await.expect("an answer")
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.expect("stuck")
}

/// A retry storm is when a duplicate charge is likeliest: all of them ask before the first one
/// is answered. As many at once as the limit on open files allows, in as many rounds as it takes.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_clients_with_one_key_have_one_effect() {
    let at_once = sockets_max().await.min(CLIENTS);
    let stage = Arc::new(Stage::with("[limits]\nconnections = 12000").await);
    let call = Call::payment("crowd");
    let first = stage.hold(&call, "gate").await;
    let (mut asked, mut refused, mut replayed) = (1, 0, Vec::new());
    while asked < CLIENTS {
        let round = at_once.min(CLIENTS - asked);
        asked += round;
        let mut crowd = JoinSet::new();
        for number in 0..round {
            let (address, call) = (stage.address(), call.clone());
            // The gate opens while half of the first round is still on its way.
            if number == round / 2 {
                stage.upstream.open("gate");
            }
            crowd.spawn(async move { patient(address, &call).await });
        }
        while let Some(answer) = crowd.join_next().await {
            let answer = answer.expect("a client");
            if answer.code() == IN_PROGRESS {
                assert_ne!(answer.header("retry-after"), "");
                refused += 1;
            } else {
                replayed.push(answer);
            }
        }
    }
    let first = first.await.expect("a client").expect("an answer");
    first.assert_executed(201);
    assert_eq!(refused + replayed.len() + 1, CLIENTS);
    assert!(!replayed.is_empty(), "nobody got the answer");
    for answer in &replayed {
        assert!(answer.is_replay());
        same(&first, answer);
    }
    println!(
        "{at_once} at once: {refused} in progress, {} replays",
        replayed.len()
    );
    assert_eq!(stage.total(), 1);
    stage.assert_replays(&call, &first).await;
    stage.finish();
}

/// With `in_flight = "wait"` nobody is turned away while there is room to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_waits_gets_the_one_answer() {
    let stage = Stage::with("in_flight = \"wait\"\nwait = \"10s\"").await;
    let call = Call::payment("patient");
    let first = stage.hold(&call, "gate").await;
    let mut crowd = JoinSet::new();
    for _ in 0..500 {
        let (address, call) = (stage.address(), call.clone());
        crowd.spawn(async move { send_to(address, &call).await });
    }
    stage.upstream.open("gate");
    let first = first.await.expect("a client").expect("an answer");
    while let Some(answer) = crowd.join_next().await {
        let answer = answer.expect("a client");
        assert!(answer.is_replay(), "{answer:?}");
        same(&first, &answer);
    }
    assert_eq!(stage.total(), 1);
    stage.finish();
}
