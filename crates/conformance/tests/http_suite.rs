//! The HTTP suite is whole, and it can fail.

use onlyonce_conformance::http_suite::{self, Target, Upstream};

const SOURCES: [(&str, &str); 8] = [
    ("replay", include_str!("../src/http_suite/cases/replay.rs")),
    ("keys", include_str!("../src/http_suite/cases/keys.rs")),
    ("scope", include_str!("../src/http_suite/cases/scope.rs")),
    (
        "payload",
        include_str!("../src/http_suite/cases/payload.rs"),
    ),
    (
        "outcomes",
        include_str!("../src/http_suite/cases/outcomes.rs"),
    ),
    ("faults", include_str!("../src/http_suite/cases/faults.rs")),
    (
        "concurrency",
        include_str!("../src/http_suite/cases/concurrency.rs"),
    ),
    (
        "problems",
        include_str!("../src/http_suite/cases/problems.rs"),
    ),
];

/// What a service gets right without a guard. These are about guards that do too much.
const HOLD_WITHOUT_A_GUARD: [&str; 11] = [
    "keys::keys_that_differ_in_case_are_two_keys",
    "keys::the_key_reaches_the_upstream",
    "scope::a_caller_without_a_name_is_not_one_with_a_name",
    "scope::the_same_key_on_another_path_is_another_operation",
    "scope::a_path_spelt_otherwise_is_never_answered_for_this_one",
    "scope::a_get_passes_with_a_key_and_without",
    "scope::a_put_and_a_delete_pass",
    "faults::a_caller_that_leaves_in_the_middle_of_its_request_executes_nothing",
    "faults::a_chunked_request_without_its_end_executes_nothing",
    "concurrency::keys_do_not_wait_for_each_other",
    "concurrency::callers_with_the_same_key_do_not_wait_for_each_other",
];

/// A case that is written and not listed is never run, and nobody notices.
#[test]
fn every_case_that_is_written_is_listed() {
    let written: Vec<_> = SOURCES
        .iter()
        .flat_map(|(group, source)| {
            source.lines().filter_map(move |line| {
                let name = line.strip_prefix("pub async fn ")?.split('(').next()?;
                Some(format!("{group}::{name}"))
            })
        })
        .collect();
    let listed: Vec<_> = http_suite::all()
        .iter()
        .map(|case| format!("{case:?}"))
        .collect();
    assert_eq!(written, listed);
    assert!(written.len() >= 40);
}

async fn unguarded() -> Target {
    let upstream = Upstream::new();
    Target::new(upstream.serve().await, upstream)
}

/// A suite that a bare service passes proves nothing about a guard.
#[test]
fn a_service_without_a_guard_fails_every_other_case() {
    let cases = http_suite::all();
    let held = |cases: &[http_suite::Case]| -> Vec<String> {
        let held = cases.iter().filter(|case| case.check(unguarded).is_ok());
        held.map(|case| format!("{case:?}")).collect()
    };
    // Some fail by waiting for what never comes; others need not wait for them.
    let held: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = cases
            .chunks(10)
            .map(|part| scope.spawn(move || held(part)))
            .collect();
        let parts = parts.into_iter();
        parts.flat_map(|part| part.join().unwrap()).collect()
    });
    assert_eq!(held, HOLD_WITHOUT_A_GUARD);
}
