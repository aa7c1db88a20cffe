//! The suite can fail: every planted bug is caught, and every case catches one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "helpers of a test; a bug acts in few places and nowhere else"
)]

mod planted;

use std::collections::BTreeMap;
use std::panic;
use std::sync::{Mutex, PoisonError};

use onlyonce_conformance::suite::{self, Case, Outcome};
use planted::{ALL, Bug, Planted};

/// Runs something whose panics are its results, without printing them.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = work();
    panic::set_hook(hook);
    result
}

fn catches(case: &Case<Planted>, bug: Bug) -> bool {
    matches!(case.check(Planted(bug)), Outcome::Broken(_))
}

/// Whatever a case catches below must be the bug and nothing else.
#[test]
fn without_a_bug_every_case_holds() {
    for case in suite::all::<Planted>() {
        assert_eq!(case.check(Planted(Bug::None)), Outcome::Held, "{case:?}");
    }
}

/// A suite that passes a broken store is worse than none.
#[test]
fn every_bug_is_caught_by_the_case_that_is_there_for_it() {
    let cases: BTreeMap<_, _> = suite::all::<Planted>()
        .into_iter()
        .map(|case| (format!("{case:?}"), case))
        .collect();
    let missed: Vec<_> = quietly(|| {
        ALL.iter()
            .filter(|(bug, name)| !cases.get(*name).is_some_and(|case| catches(case, *bug)))
            .collect()
    });
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A case that no bug can fail says nothing about a store that passes it.
#[test]
fn every_case_catches_a_bug() {
    let vacuous: Vec<_> = quietly(|| {
        suite::all::<Planted>()
            .into_iter()
            .filter(|case| !ALL.iter().any(|(bug, _)| catches(case, *bug)))
            .collect()
    });
    assert!(vacuous.is_empty(), "{vacuous:#?}");
}
