//! What every event counts as, and that the text can be read back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onlyonce_core::UnknownReason;
use onlyonce_engine::Source;
use onlyonce_store::StoreError;

use super::*;

fn route(name: &str) -> RouteName {
    RouteName::new(name).unwrap()
}

fn id(number: u8) -> RecordId {
    RecordId::from_bytes([number; 32])
}

fn claim(stats: &Stats, name: &str, decision: Decision, attempt: u16, at_ms: u64) {
    let (id, route) = (id(1), route(name));
    let event = Event::Claimed {
        id: &id,
        route: &route,
        decision,
        attempt,
        took: Duration::from_micros(300),
    };
    stats.observe_at(&event, Duration::from_millis(at_ms));
}

/// One line of the text: name, labels, value.
type Line = (String, BTreeMap<String, String>, f64);

/// Reads the text as its specification has it, and refuses everything else.
fn parse(text: &str) -> Vec<Line> {
    assert!(text.ends_with('\n'));
    let (mut lines, mut types) = (Vec::new(), BTreeMap::new());
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && helped.insert(name), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none());
        } else {
            let sample = sample(line);
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| sample.0.strip_suffix(suffix))
                .filter(|base| types.get(*base).is_some_and(|kind| kind == "histogram"));
            let kind = types.get(base.unwrap_or(&sample.0)).expect("a type");
            assert_eq!(kind == "counter", sample.0.ends_with("_total"), "{line}");
            lines.push(sample);
        }
    }
    let series: BTreeSet<_> = lines
        .iter()
        .map(|(name, labels, _)| (name, labels))
        .collect();
    assert_eq!(series.len(), lines.len(), "a series is there twice");
    lines
}

fn sample(line: &str) -> Line {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let end = line.find(|character| !is_name(character)).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(!label.is_empty() && label.chars().all(is_name), "{line}");
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after.split_at(1) {
                (",", after) => rest = after,
                ("}", after) => {
                    rest = after;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap())
}

/// The value up to its closing quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                other => panic!("\\{other}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no end: {text}");
}

fn value(lines: &[Line], name: &str, route: &str) -> f64 {
    let found = lines.iter().find(|(own, labels, _)| {
        own == name && labels.get("route").is_some_and(|label| label == route)
    });
    found.unwrap_or_else(|| panic!("no {name} of {route}")).2
}

/// Alerts compare with 0, and a series that is not there compares with nothing.
#[test]
fn every_name_of_the_contract_is_there_from_the_start() {
    let stats = Stats::new("memory");
    stats.expect_route(&route("payments"));
    let lines = parse(&stats.render(&QueueCounts::default()));
    for name in [
        "reserve_created",
        "reserve_replay",
        "reserve_in_progress",
        "reserve_key_misuse",
        "reserve_failed_retry",
        "reserve_unknown",
        "zombie_key",
        "ttl_pruned",
        "reconcile_scheduled",
        "reconcile_resolved",
        "reconcile_failed",
    ] {
        let name = format!("api_idempotency_{name}_total");
        assert!(value(&lines, &name, "payments").abs() < f64::EPSILON);
    }
    for name in ["claim", "complete", "upstream"] {
        let count = format!("api_idempotency_{name}_seconds_count");
        assert!(value(&lines, &count, "payments").abs() < f64::EPSILON);
    }
    let errors = lines.iter().filter(|(name, labels, value)| {
        name == "api_idempotency_store_error_total" && labels["store"] == "memory" && *value < 1.0
    });
    assert_eq!(errors.count(), OPERATIONS.len());
}

#[test]
fn a_claim_counts_as_what_it_was_told() {
    let stats = Stats::new("memory");
    for (decision, attempt) in [
        (Decision::Execute, 1),
        (Decision::Execute, 2),
        (Decision::Replay, 1),
        (Decision::InFlight, 1),
        (Decision::Mismatch, 1),
        (Decision::AlreadyUsed, 1),
        (Decision::NotReplayable, 1),
        (Decision::Unknown, 1),
    ] {
        claim(&stats, "payments", decision, attempt, 0);
    }
    let lines = parse(&stats.render(&QueueCounts::default()));
    for (name, count) in [
        ("created", 1.0),
        ("failed_retry", 1.0),
        ("replay", 1.0),
        ("in_progress", 1.0),
        ("key_misuse", 2.0),
        ("not_replayable", 1.0),
        ("unknown", 1.0),
    ] {
        let name = format!("api_idempotency_reserve_{name}_total");
        assert!(
            (value(&lines, &name, "payments") - count).abs() < f64::EPSILON,
            "{name}"
        );
    }
    let buckets = lines.iter().filter(|(name, labels, _)| {
        name == "api_idempotency_claim_seconds_bucket" && labels["le"] == "0.0005"
    });
    assert_eq!(
        buckets.map(|(_, _, count)| *count).collect::<Vec<_>>(),
        [8.0]
    );
    let totals = stats.totals();
    assert_eq!(
        (totals.executed, totals.released_retry, totals.mismatch),
        (2, 1, 2)
    );
    let routes = stats.routes();
    assert_eq!(
        (routes[0].executed, routes[0].refused, routes[0].unknown),
        (2, 5, 0)
    );
}

#[test]
fn unknown_outcomes_are_counted_from_their_beginning_to_their_end() {
    let stats = Stats::new("memory");
    let (key, name) = (id(7), route("payments"));
    let (id, route) = (&key, &name);
    let swept = |decision| Event::Swept {
        id,
        route,
        decision,
    };
    let reconciled = |decision| Event::Reconciled {
        id,
        route,
        source: Source::Asked,
        verdict: "completed",
        decision,
    };
    let reason = UnknownReason::LeaseExpired;
    for event in [
        swept(Decision::LeaseExpired),
        Event::BecameUnknown { id, route, reason },
        Event::LeaseLost { id, route },
        swept(Decision::Probe),
        reconciled(Decision::StillUnknown),
        reconciled(Decision::Settled),
        reconciled(Decision::DeadLettered),
        swept(Decision::DeadLettered),
        Event::Resolved {
            id,
            route,
            resolution: "released",
            decision: Decision::Settled,
        },
        Event::Resolved {
            id,
            route,
            resolution: "released",
            decision: Decision::Fenced,
        },
        swept(Decision::Expired),
        swept(Decision::Purged),
        Event::StoreFailed {
            operation: StoreOperation::Swap,
            error: &StoreError::unavailable("away"),
        },
    ] {
        stats.observe_at(&event, Duration::ZERO);
    }
    let totals = stats.totals();
    assert_eq!(
        totals.zombies, 1,
        "the sweeper and the executor tell of one key"
    );
    assert_eq!(totals.reconcile_scheduled, 1);
    assert_eq!((totals.reconcile_resolved, totals.reconcile_failed), (2, 2));
    assert_eq!((totals.pruned, totals.store_errors), (2, 1));
    let story: Vec<_> = stats
        .recent(id)
        .into_iter()
        .map(|event| (event.what, event.by))
        .collect();
    assert_eq!(story[0], ("lease_lost", "reconciler"));
    assert_eq!(story[5], ("reconciled", "reconciler"));
    assert_eq!(story[8], ("resolved", "operator"));
}

/// An alert compares what became unknown with what was settled since. An outcome that is settled
/// without a word about it must not count as one that is behind, nor a key that never was unknown.
#[test]
fn an_unknown_outcome_is_resolved_however_it_ends() {
    let name = route("payments");
    let route = &name;
    let (late, repeated, word, done) = (id(1), id(2), id(3), id(4));
    let reason = UnknownReason::LeaseExpired;
    let became = |id| Event::BecameUnknown { id, route, reason };
    let settled = |id, outcome, decision| Event::Settled {
        id,
        route,
        outcome,
        decision,
        worked: Duration::ZERO,
        took: Duration::ZERO,
    };
    let forgotten = |id| Event::Resolved {
        id,
        route,
        resolution: "forget",
        decision: Decision::Settled,
    };
    let stats = Stats::new("memory");
    for (event, expected) in [
        (became(&late), (1, 0)),
        (settled(&late, "completed", Decision::Fenced), (1, 0)),
        (settled(&late, "completed", Decision::Settled), (1, 1)),
        (became(&repeated), (2, 1)),
        (settled(&repeated, "unknown", Decision::Settled), (2, 1)),
        (became(&repeated), (2, 1)),
        (settled(&repeated, "completed", Decision::Settled), (2, 2)),
        (became(&word), (3, 2)),
        (forgotten(&word), (3, 3)),
        (settled(&done, "completed", Decision::Settled), (3, 3)),
        (forgotten(&done), (3, 3)),
    ] {
        stats.observe_at(&event, Duration::ZERO);
        let totals = stats.totals();
        let counted = (totals.reconcile_scheduled, totals.reconcile_resolved);
        assert_eq!(counted, expected, "{event:?}");
    }
}

/// A count without a place of its own stays 0 for ever, and nobody sees lost answers.
#[test]
fn everything_that_enforcing_would_do_is_counted_apart() {
    let stats = Stats::new("memory");
    let all = [
        (Would::Execute, "execute"),
        (Would::Replay, "replay"),
        (Would::Refuse, "refuse"),
        (Would::Unknown, "unknown"),
    ];
    for (times, (would, _)) in (1..).zip(all) {
        for _ in 0..times {
            stats.would(&route("r"), would);
        }
    }
    let text = stats.render(&QueueCounts::default());
    for (times, (_, label)) in (1..).zip(all) {
        let line = format!("would=\"{label}\"}} {times}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
}

/// A name that could end its label would let one route write another's numbers.
#[test]
fn a_route_of_any_name_is_one_label() {
    let stats = Stats::new("memory");
    let names = [
        "a\"b",
        "a\\",
        "a\nb 9",
        "a\\n",
        "{}=,",
        "ü ",
        "\"} 1\nx{y=\"",
    ];
    for name in names {
        claim(&stats, name, Decision::Execute, 1, 0);
    }
    let lines = parse(&stats.render(&QueueCounts::default()));
    for name in names {
        let count = value(&lines, "api_idempotency_reserve_created_total", name);
        assert!((count - 1.0).abs() < f64::EPSILON, "{name}");
    }
}

#[test]
fn queues_tell_how_long_the_oldest_waits() {
    let stats = Stats::new("memory");
    let queues = QueueCounts {
        executing: 1,
        unknown: 2,
        dead_letter: 3,
        oldest_unknown_ms: Some(1000),
        counted_at_ms: 91_500,
        more: true,
        unreadable_ms: 4500,
    };
    let text = stats.render(&queues);
    parse(&text);
    for line in [
        "api_idempotency_keys{state=\"dead_letter\",store=\"memory\"} 3\n",
        "api_idempotency_oldest_unknown_seconds{store=\"memory\"} 90.5\n",
        "api_idempotency_keys_truncated{store=\"memory\"} 1\n",
        "api_idempotency_store_unreadable_seconds{store=\"memory\"} 4.5\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn steps_are_apart_and_an_hour_old_ones_are_forgotten() {
    let stats = Stats::new("memory");
    claim(&stats, "a", Decision::Execute, 1, 0);
    claim(&stats, "a", Decision::Replay, 1, STEP_MS - 1);
    claim(&stats, "b", Decision::Replay, 1, STEP_MS);
    let series = stats.series_at(10, STEP_MS);
    assert_eq!(series.points.len(), 2);
    assert_eq!(
        (series.points[0].executed, series.points[0].replayed),
        (1, 1)
    );
    assert_eq!(
        (series.points[1].executed, series.points[1].replayed),
        (0, 1)
    );
    assert_eq!(series.routes["a"][1].replayed, 0);
    assert_eq!(series.points[1].at_ms - series.points[0].at_ms, STEP_MS);
    // The same places, an hour later.
    let later = STEPS_MAX * STEP_MS;
    assert_eq!(stats.series_at(5, later).points[0].replayed, 0);
    claim(&stats, "a", Decision::Replay, 1, later);
    assert_eq!(stats.series_at(5, later).points[0].replayed, 1);
    assert_eq!(stats.series_at(99_999, later).points.len(), 720);
}

/// The charts' dates are the store's, and do not tremble with every look.
#[test]
fn dates_follow_the_stores_clock() {
    let stats = Stats::new("memory");
    claim(&stats, "a", Decision::Execute, 1, 0);
    let first = stats.series(5, 5_000_000);
    assert!(first.points[0].at_ms <= 5_000_000 && first.points[0].at_ms > 4_900_000);
    let again = stats.series(5, 5_000_700);
    assert_eq!(again.from_ms, first.from_ms);
}

#[test]
fn the_replay_rate_of_now_is_told_from_the_usual_one() {
    let stats = Stats::new("memory");
    assert_eq!(stats.replay_rate_at(0), ReplayRate::default());
    let minute = 60_000;
    for at in 0..50 {
        claim(&stats, "a", Decision::Execute, 1, at * minute);
        claim(&stats, "a", Decision::Execute, 1, at * minute);
        claim(&stats, "a", Decision::Execute, 1, at * minute);
        claim(&stats, "a", Decision::Replay, 1, at * minute);
    }
    claim(&stats, "a", Decision::Replay, 1, 51 * minute);
    let rate = stats.replay_rate_at(51 * minute + 1000);
    assert!((rate.now - 1.0).abs() < 1e-9, "{rate:?}");
    assert!((rate.usual - 0.25).abs() < 1e-9, "{rate:?}");
    assert_eq!(rate.samples, 200);
}

/// Bounded: the oldest events make room, those of other keys stay apart.
#[test]
fn recent_events_are_bounded_and_in_order() {
    let stats = Stats::new("memory");
    let name = route("a");
    for at in 0..20_000_u64 {
        let event = Event::LeaseLost {
            id: &id(1),
            route: &name,
        };
        stats.observe_at(&event, Duration::from_millis(at));
    }
    let events = stats.recent(&id(1));
    assert_eq!(events.len(), 16_384);
    assert!(events.is_sorted_by_key(|event| event.at_ms));
    assert!(stats.recent(&id(2)).is_empty());
}

/// A retry may come to another thread than the request that it repeats, within the millisecond.
#[test]
fn what_several_threads_saw_of_a_key_is_told_in_order() {
    let (stats, name) = (Stats::new("memory"), route("a"));
    let saw = |decision, at| {
        let event = Event::Claimed {
            id: &id(1),
            route: &name,
            decision,
            attempt: 1,
            took: Duration::ZERO,
        };
        stats.observe_at(&event, Duration::from_micros(at as u64));
    };
    let told = [
        Decision::Execute,
        Decision::InFlight,
        Decision::Replay,
        Decision::Mismatch,
    ];
    // The first to come is the last that is told: the order of the lanes must not show.
    for (at, decision) in told.into_iter().enumerate().rev() {
        std::thread::scope(|scope| drop(scope.spawn(|| saw(decision, at))));
    }
    let details: Vec<_> = stats
        .recent(&id(1))
        .iter()
        .map(|seen| seen.detail)
        .collect();
    assert_eq!(details, told.map(decision_name));
    let point = stats.series_at(60, 0).points[0];
    assert_eq!((point.executed, point.replayed, point.refused), (1, 1, 2));
}
