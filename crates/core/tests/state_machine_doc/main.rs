//! Writes `docs/state-machine.md` from the rules themselves, and fails when the file is stale.
//!
//! Every cell and every arrow is what [`step`] answered for a representative row; only the
//! sentences between them are written here. Refresh the file with
//!
//! ```text
//! ONLYONCE_UPDATE=1 cargo test -p onlyonce-core --test state_machine_doc
//! ```
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails is a failed test"
)]

#[path = "../common/mod.rs"]
mod common;

mod diagram;
mod invariants;
mod tables;

use std::path::PathBuf;
use std::{env, fs};

use onlyonce_core::{Command, Decision, Next, Policy, Record, StateKind, Timestamp, step};

/// An answer as a reader sees it: the decision and, if the row changes, what becomes of it.
fn outcome(policy: &Policy, row: Option<&Record>, command: &Command, now: Timestamp) -> String {
    let (decision, next) = step(policy, row, command, now);
    // Checked in `machine_properties`: whoever is told to execute is on record as executing.
    if decision == Decision::Execute {
        return "**Execute**".into();
    }
    match next {
        Next::Keep => format!("{decision:?}"),
        Next::Put(row) => format!("{decision:?} → `{}`", row.state.kind().as_str()),
        Next::Remove => format!("{decision:?} → *removed*"),
    }
}

fn state_name(row: Option<&Record>) -> String {
    row.map_or("*absent*".into(), |row| {
        format!("`{}`", row.state.kind().as_str())
    })
}

fn meaning(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Executing => "somebody was told to execute, and renews a lease while it works",
        StateKind::Unknown => "the effect may have happened; the upstream is asked about it",
        StateKind::DeadLetter => "asking did not help, or may not decide; it waits for a person",
        StateKind::Released => "proven not executed; the same payload may run again",
        StateKind::Completed => "executed; retries get the stored answer",
        StateKind::Expired => "past its retention, kept without its answer for audit only",
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.to_vec());
    text.push_str(&line(vec!["---"; head.len()]));
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// The same table with rows that differ only in their first cell drawn together.
fn grouped(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[1..] == row[1..]) {
            Some(group) => group[0] = format!("{}, {}", group[0], row[0]),
            None => groups.push(row),
        }
    }
    table(head, &groups)
}

fn states() -> String {
    let mut rows = vec![vec![
        "*absent*".to_owned(),
        "never used, evicted, forgotten or removed".to_owned(),
        String::new(),
    ]];
    for kind in StateKind::ALL {
        let settled = if kind.is_settled() {
            "yes"
        } else {
            "**never**"
        };
        let name = format!("`{}`", kind.as_str());
        rows.push(vec![name, meaning(kind).to_owned(), settled.to_owned()]);
    }
    table(&["state", "meaning", "forgotten by the clock"], &rows)
}

fn document() -> String {
    format!(
        include_str!("template.md"),
        states = states(),
        life = diagram::life(),
        by_hand = diagram::by_hand(),
        claims = tables::claims(),
        single_use = tables::single_use_mismatch(),
        executor = tables::executor(),
        foreign = tables::foreign_fence(),
        sweep = tables::sweep(),
        verdicts = tables::verdicts(),
        not_found = tables::not_found(),
        person = tables::person(),
        invariants = invariants::list(),
    )
}

/// A document about the rules that the rules do not follow is worse than none.
#[test]
fn the_document_says_what_the_rules_do() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-machine.md");
    let fresh = document();
    if env::var_os("ONLYONCE_UPDATE").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == fresh,
        "docs/state-machine.md is stale. Refresh it, and read the difference:\n\
         ONLYONCE_UPDATE=1 cargo test -p onlyonce-core --test state_machine_doc"
    );
}
