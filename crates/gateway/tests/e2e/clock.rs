//! A machine whose clock is wrong, or is set while the gateway runs: nothing expires early, comes
//! back to life, or runs twice. Only the wall clock is changed, as somebody who sets it would.

use std::path::Path;

use onlyonce_conformance::http_suite::{Upstream, serve};

use crate::kit::{Call, Gateway, Setup, Stage, UNKNOWN, soon, until};

const LIBRARY: &str = "libfaketime.so.1";

/// Short leases, and keys that are kept for half of what the clock is moved by.
const HALF_AN_HOUR: &str =
    "retention = \"30m\"\nlease = \"1s\"\n[engine]\nsweep_every = \"100ms\"\n";

/// Keys that are kept for a second.
const A_SECOND: &str = "retention = \"1s\"\nlease = \"1s\"\n[engine]\nsweep_every = \"100ms\"\n";

fn library() -> String {
    let folders = std::fs::read_dir("/usr/lib").expect("a system");
    let folders = folders.flatten().map(|entry| entry.path());
    let found = folders
        .map(|folder| folder.join("faketime").join(LIBRARY))
        .chain([Path::new("/usr/lib/faketime").join(LIBRARY)])
        .find(|path| path.exists());
    let found = found.expect("the package `faketime` is installed");
    found.to_str().expect("text").to_owned()
}

/// A gateway whose clock is off by what its file says, now and whenever that changes.
pub(crate) fn with_clock(setup: Setup, offset: &str) -> Setup {
    let file = setup.file("clock", offset);
    let settings = [
        format!("LD_PRELOAD={}", library()),
        format!("FAKETIME_TIMESTAMP_FILE={file}"),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ];
    let mut wrapper = vec!["env"];
    wrapper.extend(settings.iter().map(String::as_str));
    setup.under(&wrapper)
}

/// The hour of the day in the gateway's log, which goes by its wall clock.
fn hour(gateway: &Gateway) -> Option<u32> {
    let log = gateway.log();
    let time = log.lines().last()?.split('T').nth(1)?;
    time.get(..2)?.parse().ok()
}

/// Sets the clock and waits until the gateway has noticed.
async fn set_clock(stage: &Stage, offset: &str) {
    let before = hour(&stage.gateway);
    stage.setup.file("clock", offset);
    soon(async {
        loop {
            stage.gateway.signal("HUP").await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            if hour(&stage.gateway) != before {
                return;
            }
        }
    })
    .await;
}

async fn stage(config: &str, offset: &str) -> Stage {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await).config(config);
    let stage = Stage::of(upstream, with_clock(setup, offset)).await;
    stage.gateway.signal("HUP").await;
    until(|| hour(&stage.gateway)).await;
    stage
}

/// Ends it in a way that leaves no time to say anything.
async fn kill(stage: &mut Stage) {
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
}

/// The clock jumps while keys are stored and while one is at work. The hour that nobody lived
/// through expires no key and no lease, and setting it back gives none of them more time.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_while_it_runs_changes_nothing() {
    let stage = stage(HALF_AN_HOUR, "+0").await;
    let stored = Call::payment("stored");
    let first = stage.send(&stored).await;
    first.assert_executed(201);
    let held = Call::payment("held");
    let task = stage.hold(&held, "gate").await;
    for offset in ["+1h", "-1h", "+2h", "+0"] {
        set_clock(&stage, offset).await;
        stage.assert_replays(&stored, &first).await;
        let retry = stage.send(&held).await;
        retry.assert_problem(409, crate::kit::IN_PROGRESS);
        let new = Call::payment(&format!("new{offset}"));
        let answer = stage.send(&new).await;
        answer.assert_executed(201);
        stage.assert_replays(&new, &answer).await;
    }
    stage.upstream.open("gate");
    let answer = soon(task).await.expect("a task").expect("an answer");
    answer.assert_executed(201);
    stage.assert_replays(&held, &answer).await;
    stage.finish();
}

/// Keys that were written under a clock an hour ahead, or behind, are there after a restart under
/// the right one, and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn answers_survive_a_restart_under_another_clock() {
    for offsets in [["+1h", "+0"], ["+0", "-1h"], ["-1h", "-2h"], ["+1h", "-1h"]] {
        let mut stage = stage(HALF_AN_HOUR, offsets[0]).await;
        let call = Call::payment("k");
        let first = stage.send(&call).await;
        first.assert_executed(201);
        kill(&mut stage).await;
        stage.setup.file("clock", offsets[1]);
        stage.restart().await;
        stage.assert_replays(&call, &first).await;
        let new = Call::payment("new");
        let answer = stage.send(&new).await;
        answer.assert_executed(201);
        stage.assert_replays(&new, &answer).await;
        assert_eq!(stage.total(), 2, "{offsets:?}");
        stage.finish();
    }
}

/// A crash in the middle of a request, then a restart an hour earlier or later: the lease ends
/// within its own length, the outcome is unknown, and nothing runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_in_its_own_time_under_any_clock() {
    for offset in ["-1h", "+1h"] {
        let mut stage = stage(HALF_AN_HOUR, "+0").await;
        let call = Call::payment("k");
        let task = stage.hold(&call, "gate").await;
        kill(&mut stage).await;
        let _ = soon(task).await;
        stage.upstream.open("gate");
        stage.setup.file("clock", offset);
        stage.restart().await;
        stage.settled(&call).await.assert_problem(409, UNKNOWN);
        stage.send(&call).await.assert_problem(409, UNKNOWN);
        assert!(stage.effects(&call) <= 1);
        stage.finish();
    }
}

/// A key that was kept for a second is not kept for an hour because the clock was set back, and
/// once it has expired no clock brings its answer back.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_prolongs_and_revives_no_key() {
    let mut stage = stage(A_SECOND, "+1h").await;
    let call = Call::payment("k");
    let first = stage.send(&call).await;
    first.assert_executed(201);
    kill(&mut stage).await;
    stage.setup.file("clock", "+0");
    stage.restart().await;
    let second = soon(async {
        loop {
            let answer = stage.send(&call).await;
            if !answer.is_replay() {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    second.assert_executed(201);
    kill(&mut stage).await;
    stage.setup.file("clock", "-1h");
    stage.restart().await;
    let third = stage.send(&call).await;
    assert_ne!(third.body, first.body, "an expired answer came back");
    assert!(!third.is_replay() || third.body == second.body, "{third:?}");
}
