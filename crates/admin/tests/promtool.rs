//! What Prometheus' own checker thinks of the text, and what counting costs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and owns its clock"
)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onlyonce_admin::{QueueCounts, Stats};
use onlyonce_core::{Decision, RecordId, RouteName};
use onlyonce_engine::{Event, Observer};

fn route(name: &str) -> RouteName {
    RouteName::new(name).unwrap()
}

fn claimed<'a>(id: &'a RecordId, route: &'a RouteName) -> Event<'a> {
    Event::Claimed {
        id,
        route,
        decision: Decision::Execute,
        attempt: 1,
        took: Duration::from_micros(250),
    }
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let stats = Stats::new("embedded");
    let id = RecordId::from_bytes([1; 32]);
    for name in ["payments", "a \"quoted\" \\ route\n", ""] {
        stats.observe(&claimed(&id, &route(name)));
        stats.unprotected(&route(name));
    }
    let text = stats.render(&QueueCounts::default());
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool comes with the package prometheus");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{text}");
    assert_eq!(said, "");
}

/// Prints, does not judge: the machine may be busy.
#[test]
fn what_one_event_costs() {
    const EVENTS: u32 = 200_000;
    for threads in [1_u8, 2, 4] {
        let stats = Stats::new("embedded");
        let names: Vec<_> = (0..20)
            .map(|number| route(&format!("route-{number}")))
            .collect();
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (stats, names) = (&stats, &names);
                scope.spawn(move || {
                    for (number, name) in (0..EVENTS).zip(names.iter().cycle()) {
                        let mut bytes = [thread; 32];
                        bytes[..4].copy_from_slice(&number.to_le_bytes());
                        let id = RecordId::from_bytes(bytes);
                        stats.observe(&claimed(&id, name));
                    }
                });
            }
        });
        let each = started.elapsed() / EVENTS;
        assert_eq!(
            stats.totals().executed,
            u64::from(EVENTS) * u64::from(threads)
        );
        println!("{threads} threads: {each:?} for an event of each");
    }
}
