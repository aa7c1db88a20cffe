//! What always holds, and the tests that say so. A test that is renamed or removed breaks this.

use std::fmt::Write;

const SOURCES: [(&str, &str); 8] = [
    ("machine", include_str!("../machine/claims.rs")),
    ("machine", include_str!("../machine/executor.rs")),
    ("machine", include_str!("../machine/sweep.rs")),
    ("machine", include_str!("../machine/reconcile.rs")),
    ("machine", include_str!("../machine/operator.rs")),
    (
        "machine_properties",
        include_str!("../machine_properties/main.rs"),
    ),
    (
        "machine_properties",
        include_str!("../machine_properties/history.rs"),
    ),
    ("codec", include_str!("../codec/main.rs")),
];

const INVARIANTS: [(&str, &[&str]); 11] = [
    (
        "A key is granted only when it is absent, released or expired (or unknown, where the upstream deduplicates and re-execution is on), and every grant is on record under its own fence.",
        &[
            "every_combination_keeps_the_properties_of_a_step",
            "every_execution_of_any_history_is_of_a_free_key",
        ],
    ),
    (
        "While an outcome is open, no claim, no sweep and no clock gives the key to anybody else, with that one exception.",
        &[
            "an_unsettled_key_is_never_granted_to_others",
            "an_expired_lease_becomes_unknown_not_free",
        ],
    ),
    (
        "What is not settled is never forgotten, at any time of any clock.",
        &["no_unsettled_state_ever_expires"],
    ),
    (
        "Without the fence of the current grant nothing changes.",
        &[
            "another_fence_is_fenced_and_changes_nothing_in_any_state",
            "a_late_completion_never_overwrites_a_successor",
        ],
    ),
    (
        "The executor's own completion counts, however late, until somebody else is granted the key.",
        &["a_late_completion_by_the_same_fence_settles_the_key"],
    ),
    (
        "A stored answer is never changed: it ends with its retention, or when a person forgets it.",
        &[
            "a_second_completion_changes_nothing",
            "a_settled_key_cannot_be_given_another_outcome",
            "any_input_keeps_the_properties_of_a_step",
        ],
    ),
    (
        "Another payload under a live key is refused in every state.",
        &["another_payload_is_a_mismatch_in_every_live_state"],
    ),
    (
        "\"Not found\" frees a key only where a second dispatch is no second effect, or where somebody opted in.",
        &[
            "not_found_at_an_opaque_upstream_is_for_a_person_to_decide",
            "not_found_before_the_opt_in_delay_decides_nothing",
            "a_stalled_executor_and_a_probe_never_lead_to_a_second_grant",
        ],
    ),
    (
        "A command whose acknowledgement was lost can be sent again: it counts once, and a claim never refuses itself.",
        &[
            "an_executors_word_said_twice_counts_once",
            "a_claim_that_finds_its_own_row_executes",
        ],
    ),
    (
        "One probe goes to one reconciler, and the probes end in a person's hands.",
        &[
            "a_probe_is_given_to_one_reconciler",
            "exhausted_probes_end_in_a_dead_letter",
        ],
    ),
    (
        "A row that was altered, cut, moved or written by a newer version is an error, never an absent key.",
        &[
            "every_altered_byte_is_noticed",
            "every_truncation_is_noticed",
            "a_record_under_another_id_is_refused",
            "an_unknown_version_is_named",
        ],
    ),
];

pub(crate) fn list() -> String {
    let mut text = String::new();
    for (number, (promise, tests)) in INVARIANTS.iter().enumerate() {
        writeln!(text, "{}. {promise}", number + 1).unwrap();
        for test in *tests {
            writeln!(text, "    - `{}`: `{test}`", suite_of(test)).unwrap();
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn suite_of(test: &str) -> &'static str {
    let needle = format!("fn {test}(");
    let found = SOURCES.iter().find(|(_, source)| source.contains(&needle));
    found
        .unwrap_or_else(|| panic!("no test is called {test}"))
        .0
}
