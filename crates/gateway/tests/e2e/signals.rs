//! The end of the process, asked for and not, and what its successor knows.

use std::time::Duration;

use onlyonce_conformance::http_suite::same;
use tokio::net::TcpStream;

use crate::http2;
use crate::kit::{
    Call, IN_PROGRESS, Scripted, Setup, Stage, UNKNOWN, Wire, send_to, soon, try_send_to, until,
};

/// Short, so that a test can wait for its end.
const SHORT_LEASE: &str =
    "lease = \"1s\"\n[engine]\nsweep_every = \"100ms\"\nstore_timeout = \"300ms\"";

/// A deploy must not cost anybody their answer: what runs is finished, what comes is refused.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_what_runs_and_accepts_nothing_new() {
    let mut stage = Stage::start().await;
    let call = Call::payment("k");
    let running = stage.hold(&call, "gate").await;
    stage.gateway.signal("TERM").await;
    let address = stage.address();
    soon(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!stage.gateway.has_ended(), "it waits for what runs");
    stage.upstream.open("gate");
    let first = running.await.expect("a client").expect("an answer");
    first.assert_executed(201);
    assert_eq!(stage.gateway.ended().await.code(), Some(0));
    stage.restart().await;
    stage.assert_replays(&call, &first).await;
    stage.finish();
}

/// Connections that clients keep for their next request end at once, not after the grace: a deploy
/// would take a minute for each gateway.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_the_end() {
    let mut stage = Stage::with("[drain]\ngrace = \"10m\"").await;
    let mut wire = Wire::connect(stage.address()).await;
    wire.send("GET /payments HTTP/1.1\r\nhost: api.test\r\n\r\n")
        .await;
    assert!(wire.message().await.is_some());
    let socket = TcpStream::connect(stage.address()).await;
    let sender = http2::over(socket.expect("connected")).await;
    http2::ask(&sender, &Call::payment("k"))
        .await
        .assert_executed(201);
    stage.gateway.signal("TERM").await;
    assert_eq!(wire.message().await, None, "closed");
    assert_eq!(soon(stage.gateway.ended()).await.code(), Some(0));
    assert!(sender.is_closed());
    stage.finish();
}

/// What outlives the grace may have been executed. It is unknown at once, not after a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_outlives_the_grace_is_unknown() {
    let mut stage = Stage::with("[drain]\ngrace = \"300ms\"").await;
    let call = Call::payment("k");
    let running = stage.hold(&call, "gate").await;
    stage.gateway.signal("TERM").await;
    assert_eq!(stage.gateway.ended().await.code(), Some(0));
    if let Ok(answer) = running.await.expect("a client") {
        answer.assert_problem(502, UNKNOWN);
    }
    stage.upstream.open("gate");
    stage.restart().await;
    stage.send(&call).await.assert_problem(409, UNKNOWN);
    assert!(stage.effects(&call) <= 1);
    stage.finish();
}

/// Ctrl-C in a terminal is the same request.
#[tokio::test(flavor = "multi_thread")]
async fn sigint_ends_it_too() {
    let mut stage = Stage::start().await;
    stage.send(&Call::payment("k")).await.assert_executed(201);
    stage.gateway.signal("INT").await;
    assert_eq!(stage.gateway.ended().await.code(), Some(0));
    stage.finish();
}

/// A crash in the middle of an execution leaves the key held. Its successor must not hand it out:
/// not while the lease lasts, not when it ends, not ever.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_an_execution_is_in_flight_then_unknown_and_never_run_again() {
    let mut stage =
        Stage::with("lease = \"3s\"\n[engine]\nsweep_every = \"100ms\"\nstore_timeout = \"500ms\"")
            .await;
    let call = Call::payment("k");
    let running = stage.hold(&call, "gate").await;
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    assert!(running.await.expect("a client").is_err(), "no answer");
    stage.restart().await;
    stage.send(&call).await.assert_problem(409, IN_PROGRESS);
    stage.settled(&call).await.assert_problem(409, UNKNOWN);
    stage.upstream.open("gate");
    for _ in 0..3 {
        stage.send(&call).await.assert_problem(409, UNKNOWN);
    }
    assert!(stage.effects(&call) <= 1);
    stage.finish();
}

/// What a client has seen is kept, whatever happens in the next microsecond.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_right_after_an_answer_loses_nothing() {
    let mut stage = Stage::start().await;
    let mut answers = Vec::new();
    for number in 0..8 {
        let call = Call::payment(&format!("k{number}"));
        let first = stage.send(&call).await;
        first.assert_executed(201);
        stage.gateway.signal("KILL").await;
        stage.gateway.ended().await;
        answers.push((call, first));
        stage.restart().await;
        for (call, first) in &answers {
            let retry = stage.send(call).await;
            assert!(retry.is_replay(), "lost completion: {retry:?}");
            same(first, &retry);
        }
    }
    stage.finish();
}

/// kill -9 among forty clients, again and again: everybody retries until they have an answer, and
/// nobody is charged twice.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_under_load_never_doubles_and_never_loses() {
    let mut stage = Stage::with(SHORT_LEASE).await;
    let (mut seen, mut calls) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (call, address) = (Call::payment(&format!("{round}-{number}")), stage.address());
            calls.push(call.clone());
            clients.spawn(async move {
                let answer = try_send_to(address, &call).await;
                (call, answer)
            });
        }
        // Some are answered, some are at work, some have not been read.
        let done = stage.total() + 36;
        until(|| (stage.total() >= done).then_some(())).await;
        stage.gateway.signal("KILL").await;
        stage.gateway.ended().await;
        while let Some(client) = clients.join_next().await {
            if let (call, Ok(answer)) = client.expect("a client") {
                stage.check(&call, &answer);
                seen.push((call, answer));
            }
        }
        stage.restart().await;
    }
    for (call, first) in &seen {
        stage.assert_replays(call, first).await;
    }
    let (mut executed, mut unknown) = (0, 0);
    for call in &calls {
        let answer = stage.settled(call).await;
        match answer.status.as_u16() {
            201 => executed += 1,
            409 if answer.code() == UNKNOWN => unknown += 1,
            other => panic!("stuck: {other}: {answer:?}"),
        }
    }
    println!(
        "{} answered before a kill, {executed} in all, {unknown} unknown",
        seen.len()
    );
    assert!(executed * 10 >= calls.len() * 6, "vacuous: {executed}");
    stage.finish();
}

/// A machine that pauses is late for everything, and answers lie in its sockets.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_came_during_a_pause_is_taken() {
    const KEYS: usize = 10;
    let stage = Stage::with("[upstream]\nresponse_timeout = \"1s\"").await;
    let mut running = Vec::new();
    for number in 0..KEYS {
        let (key, gate) = (format!("k{number}"), format!("gate{number}"));
        running.push(stage.hold(&Call::payment(&key), &gate).await);
    }
    stage.gateway.signal("STOP").await;
    for number in 0..KEYS {
        stage.upstream.open(&format!("gate{number}"));
    }
    // The pause itself.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.gateway.signal("CONT").await;
    for one in running {
        let answer = one.await.expect("a client").expect("an answer");
        answer.assert_executed(201);
    }
    stage.finish();
}

/// A client that was told to end its connection and has gone, or does not care, has no request that
/// anybody would wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_requests_does_not_hold_up_the_end() {
    let mut stage = Stage::with("[drain]\ngrace = \"1m\"").await;
    let mut wire = Wire::connect(stage.address()).await;
    wire.send([http2::BEGINNING, &http2::get_by_hand(1)].concat())
        .await;
    http2::head_of_answer(&mut wire).await;
    stage.gateway.signal("TERM").await;
    let status = soon(stage.gateway.ended()).await;
    assert_eq!(status.code(), Some(0));
    stage.finish();
}

/// It is in the gateway's hands to its last byte, and nothing of it waits to be asked for.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_taken_slowly_is_not_cut_off_by_the_end() {
    const BYTES: usize = 12 * 1024 * 1024;
    const PAYMENT: &str = "POST /payments HTTP/1.1\r\nhost: api.test\r\nidempotency-key: k\r\n\
                           content-length: 0\r\n\r\n";
    let upstream = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await;
        wire.send(format!(
            "HTTP/1.1 201 Created\r\ncontent-length: {BYTES}\r\n\r\n"
        ))
        .await;
        wire.send(vec![b'x'; BYTES]).await;
        wire.rest().await;
    })
    .await;
    let config = "[limits]\nstored_response = \"14MiB\"\n[drain]\ngrace = \"1m\"";
    let mut gateway = Setup::new(upstream.address).config(config).start().await;
    let mut first = Wire::connect(gateway.address).await;
    first.send(PAYMENT).await;
    first.bytes(BYTES).await.expect("the first answer");
    let mut slow = Wire::connect(gateway.address).await;
    slow.send(PAYMENT).await;
    slow.bytes(1).await.expect("the beginning of a replay");
    gateway.signal("TERM").await;
    // Longer than clients without requests have to go.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(slow.rest().await.len() >= BYTES, "it was cut off");
    assert_eq!(soon(gateway.ended()).await.code(), Some(0));
}

/// A process that was stopped for longer than its lease wakes up in the middle of its work. The
/// key was unknown to others meanwhile; what the sleeper does now must not be a second effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_slept_past_its_lease_executes_nothing_twice() {
    let stage = Stage::with(SHORT_LEASE).await;
    let call = Call::payment("k");
    let running = stage.hold(&call, "gate").await;
    // Others, whose requests are on their way in when it stops.
    let mut others = Vec::new();
    stage.gateway.signal("STOP").await;
    for number in 0..20 {
        let (call, address) = (Call::payment(&format!("o{number}")), stage.address());
        let sent = call.clone();
        let task = tokio::spawn(async move { send_to(address, &sent).await });
        others.push((call, task));
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.gateway.signal("CONT").await;
    stage.upstream.open("gate");
    let first = running.await.expect("a client").expect("an answer");
    assert!([201, 502].contains(&first.status.as_u16()), "{first:?}");
    let retry = stage.settled(&call).await;
    if first.status.as_u16() == 201 {
        assert!(retry.is_replay(), "lost completion: {retry:?}");
    }
    assert_eq!(stage.effects(&call), 1);
    for (call, task) in others {
        let first = task.await.expect("a client");
        stage.check(&call, &first);
        if first.status.as_u16() == 201 {
            stage.assert_replays(&call, &first).await;
        }
        assert!(stage.effects(&call) <= 1);
    }
    stage.finish();
}

/// Two processes on one folder would each believe they hold the lock on every key.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_on_the_same_folder_refuses_to_start() {
    let stage = Stage::start().await;
    let Err((status, text)) = stage.setup.try_start().await else {
        panic!("two gateways on one folder");
    };
    assert_eq!(status.code(), Some(1));
    assert!(text.contains("store: "), "{text}");
    assert!(text.contains("data"), "the folder is named: {text}");
    let call = Call::payment("k");
    stage.send(&call).await.assert_executed(201);
    stage.finish();
}
