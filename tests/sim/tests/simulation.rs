//! A million schedules without a broken promise, and every planted bug caught.
//!
//! `ONLYONCE_SIM_SCHEDULES` and `ONLYONCE_SIM_SEED` run more, or others. Everything is printed
//! straight to standard error, so that a run shows its seed and counts also when it passes.

use std::io::Write as _;

use onlyonce_sim::{Bug, Config, Kind, run, run_many};

const SEED_DEFAULT: u64 = 1;
const SCHEDULES_DEFAULT: u64 = 1_000_000;
/// Below this a rare fault may rightly not have happened.
const SCHEDULES_TO_SEE_EVERYTHING: u64 = 200_000;
/// Every planted bug is found well before this.
const SCHEDULES_PER_BUG_MAX: u64 = 200_000;

/// Seeds that once broke a promise, with what was wrong.
const REGRESSIONS: [(u64, &str); 11] = [
    (
        30_338,
        "the engine showed a slow executor the answer of the payload that reused its key",
    ),
    (34_207, "the same"),
    (79_254, "the same"),
    (156_412, "the same"),
    (189_197, "the same"),
    (
        8_525,
        "a rejected second execution made the rules forget an unknown first one",
    ),
    (9_606, "the same"),
    (
        168_118,
        "the resolver took the effect of a key's earlier life for this one's",
    ),
    (
        5_000_728_552,
        "a clock that stood still gave two lives of a key the same downstream key",
    ),
    (
        5_002_233_273,
        "a check took the row of a key's next life for the one that was answered",
    ),
    (
        57,
        "a work that never returned after the faults stopped kept its key",
    ),
];

fn number(variable: &str, default: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else {
        return default;
    };
    let number = value.parse();
    assert!(number.is_ok(), "{variable} is not a number: {value}");
    number.unwrap_or(default)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The harness captures what `eprintln!` prints.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

#[test]
fn a_million_schedules_break_no_promise() {
    let config = Config {
        seed: number("ONLYONCE_SIM_SEED", SEED_DEFAULT),
        schedules: number("ONLYONCE_SIM_SCHEDULES", SCHEDULES_DEFAULT),
        threads: threads(),
        bug: None,
        stops_at_first: false,
    };
    let summary = run_many(config);
    say(&format!("{}", summary.counts));
    let [double, lost, false_success, wrong, stuck] =
        Kind::ALL.map(|kind| summary.counts.violations(kind));
    say(&format!(
        "seed {}: {} schedules, {double} doubles, {lost} lost, {false_success} false successes, \
         {wrong} wrong replays, {stuck} stuck",
        config.seed, summary.counts.schedules
    ));
    for failure in &summary.failures {
        say(&format!(
            "{}: {}\n  replay: cargo run --release -p onlyonce-sim -- --seed {} --schedules 1 --trace",
            failure.kind.name(),
            failure.words,
            failure.seed
        ));
    }
    assert!(
        summary.failures.is_empty(),
        "broken promises, printed above"
    );
    assert_eq!(summary.counts.schedules, config.schedules);
    assert_eq!(summary.counts.impossible(), Vec::<String>::new());
    if config.schedules >= SCHEDULES_TO_SEE_EVERYTHING {
        assert_eq!(
            summary.counts.missing(),
            Vec::<String>::new(),
            "the run was vacuous"
        );
    }
}

/// A harness that cannot see a mistake proves nothing about its absence.
#[test]
fn every_planted_bug_is_caught() {
    for bug in Bug::ALL {
        let summary = run_many(Config {
            seed: SEED_DEFAULT,
            schedules: SCHEDULES_PER_BUG_MAX,
            // One, so that the number of schedules is exact.
            threads: 1,
            bug: Some(bug),
            stops_at_first: true,
        });
        let caught = summary
            .failures
            .first()
            .unwrap_or_else(|| panic!("{bug} was not caught"));
        say(&format!(
            "{bug:<24} caught after {:>6} schedules: {}",
            summary.counts.schedules,
            caught.kind.name()
        ));
    }
}

/// Between them the planted bugs must break every promise, or a count that is always zero would
/// go unnoticed.
#[test]
fn every_promise_is_broken_by_some_planted_bug() {
    let mut broken = Vec::new();
    for bug in Bug::ALL {
        let summary = run_many(Config {
            seed: SEED_DEFAULT,
            schedules: 2_000,
            threads: threads(),
            bug: Some(bug),
            stops_at_first: false,
        });
        broken.extend(
            Kind::ALL
                .into_iter()
                .filter(|kind| summary.counts.violations(*kind) > 0),
        );
    }
    for kind in Kind::ALL {
        assert!(broken.contains(&kind), "nothing breaks {}", kind.name());
    }
}

#[test]
fn seeds_that_once_failed_pass() {
    for (seed, wrong) in REGRESSIONS {
        let outcome = run(seed, None, false);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed} ({wrong}): {:?}",
            outcome.violations
        );
    }
}

/// A failing seed is worth nothing if it does not fail again.
#[test]
fn the_same_seed_gives_the_same_schedule() {
    for seed in 0..300 {
        let (first, second) = (run(seed, None, false), run(seed, None, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
    let hashes: std::collections::BTreeSet<_> =
        (0..300).map(|seed| run(seed, None, false).hash).collect();
    assert_eq!(hashes.len(), 300, "other seeds give other schedules");
}

/// A trace tells the whole story, and two of them tell the same one.
#[test]
fn a_trace_can_be_replayed_word_by_word() {
    let trace = run(7, None, true).trace.unwrap();
    assert!(trace.contains("Claimed"), "{trace}");
    assert_eq!(Some(trace), run(7, None, true).trace);
}
