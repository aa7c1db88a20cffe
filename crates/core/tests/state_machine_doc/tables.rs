//! The tables: one row for every condition that makes a difference.

use onlyonce_core::{
    Command, Decision, Expiry, Policy, Record, Resolution, Reuse, StateKind, Timestamp, Upstream,
    Verdict, step,
};

use crate::common::*;
use crate::{grouped, outcome, state_name, table};

/// A row, the condition under which it is looked at, and the policy and moment that make it so.
struct Case {
    row: Option<Record>,
    when: &'static str,
    upstream: Upstream,
    now: Timestamp,
}

fn case(row: impl Into<Option<Record>>, when: &'static str, now: Timestamp) -> Case {
    Case {
        row: row.into(),
        when,
        upstream: OPAQUE,
        now,
    }
}

impl Case {
    fn upstream(self, upstream: Upstream) -> Self {
        Self { upstream, ..self }
    }

    fn outcome(&self, command: &Command) -> String {
        let policy = upstream(self.upstream);
        outcome(&policy, self.row.as_ref(), command, self.now)
    }

    fn single_use(&self, command: &Command) -> String {
        let policy = policy_for(self.upstream, Reuse::SingleUse, Expiry::Delete);
        outcome(&policy, self.row.as_ref(), command, self.now)
    }
}

pub(crate) fn claims() -> String {
    let cases = [
        case(None, "", at(1)),
        case(executing(), "lease live", at(1)),
        case(executing(), "lease over", at(15)),
        case(unknown(), "", at(16)),
        case(unknown(), "upstream `dedupes`, re-execution on", at(16)).upstream(REEXECUTES),
        case(
            unknown(),
            "the same, for longer than it is asked about",
            at(9999),
        )
        .upstream(REEXECUTES),
        case(dead_letter(), "", at(16)),
        case(released(), "", at(16)),
        case(completed(), "answer stored", at(16)),
        case(tombstone(), "nothing to replay", at(16)),
        case(released(), "past its retention", at(100)),
        case(completed(), "past its retention", at(100)),
        case(expired(), "", at(101)),
    ];
    let rows: Vec<Vec<String>> = cases.iter().map(claim_row).collect();
    let head = [
        "state",
        "when",
        "same payload",
        "another payload",
        "single-use",
        "its own fence",
    ];
    grouped(&head, rows)
}

fn claim_row(case: &Case) -> Vec<String> {
    let same = claim(fence(2));
    vec![
        state_name(case.row.as_ref()),
        case.when.into(),
        case.outcome(&same),
        case.outcome(&claim_of(payload(2), fence(2))),
        case.single_use(&same),
        case.outcome(&claim(fence(1))),
    ]
}

/// The sentence that replaces a column, after looking at every one of its cells.
pub(crate) fn single_use_mismatch() -> &'static str {
    let other = claim_of(payload(2), fence(2));
    for row in every_row() {
        let (told, _) = step(&policy(), Some(&row), &other, at(50));
        let (instead, _) = step(&single_use(), Some(&row), &other, at(50));
        let expected = if told == Decision::Mismatch {
            Decision::AlreadyUsed
        } else {
            told
        };
        assert_eq!(instead, expected);
    }
    "To another payload it says AlreadyUsed wherever the table says Mismatch."
}

/// One row of every state, at a moment when nothing is due.
fn one_of_each() -> Vec<Case> {
    let rows = [
        executing(),
        unknown(),
        dead_letter(),
        released(),
        completed(),
        expired(),
    ];
    let all = rows.map(|row| case(row, "", at(1)));
    std::iter::once(case(None, "", at(1))).chain(all).collect()
}

pub(crate) fn executor() -> String {
    let head = [
        "state",
        "renew",
        "complete",
        "release",
        "evict",
        "mark unknown",
    ];
    let rows: Vec<Vec<String>> = one_of_each().iter().map(executor_row).collect();
    grouped(&head, rows)
}

fn executor_row(case: &Case) -> Vec<String> {
    let mut cells = vec![state_name(case.row.as_ref())];
    cells.extend(
        executor_commands(fence(1))
            .iter()
            .map(|command| case.outcome(command)),
    );
    cells
}

/// The sentence that replaces a table of equal cells, after looking at every one of them.
pub(crate) fn foreign_fence() -> &'static str {
    for policy in every_policy() {
        for row in every_row() {
            for command in executor_commands(fence(2)) {
                assert_eq!(kept(&policy, &row, &command, at(50)), Decision::Fenced);
            }
        }
    }
    "With any other fence, every one of these commands is Fenced in every state, and nothing is written."
}

pub(crate) fn sweep() -> String {
    let due = [
        (executing(), "lease over", policy(), at(15)),
        (unknown(), "due, probes left", policy(), at(20)),
        (unknown_asked(10), "due, no probes left", policy(), at(20)),
        (dead_letter(), "has no deadline", policy(), END_OF_TIME),
        (released(), "past its retention", policy(), at(100)),
        (completed(), "past its retention", policy(), at(100)),
        (
            completed(),
            "past its retention, kept for audit",
            keeping_expired_rows(),
            at(100),
        ),
        (
            expired(),
            "end of the audit",
            keeping_expired_rows(),
            at(1100),
        ),
    ];
    let rows: Vec<Vec<String>> = due.iter().map(sweep_row).collect();
    grouped(&["state", "when", "sweep"], rows)
}

fn sweep_row((row, when, policy, now): &(Record, &str, Policy, Timestamp)) -> Vec<String> {
    if let Some(deadline) = row.state.deadline() {
        let early = Timestamp::from_millis(deadline.as_millis() - 1);
        assert_eq!(kept(policy, row, &Command::Sweep, early), Decision::NotDue);
    }
    let told = outcome(policy, Some(row), &Command::Sweep, *now);
    vec![state_name(Some(row)), (*when).to_owned(), told]
}

pub(crate) fn verdicts() -> String {
    let rows: Vec<Vec<String>> = one_of_each().iter().skip(1).map(verdict_row).collect();
    grouped(
        &["state", "found, with its answer", "not found", "pending"],
        rows,
    )
}

fn verdict_row(case: &Case) -> Vec<String> {
    let verdicts = [
        Verdict::Completed(answer("found")),
        Verdict::NotFound,
        Verdict::Pending,
    ];
    let cell = |verdict| same_for_every_upstream(case, &reconcile(fence(1), verdict));
    std::iter::once(state_name(case.row.as_ref()))
        .chain(verdicts.map(cell))
        .collect()
}

fn same_for_every_upstream(case: &Case, command: &Command) -> String {
    let told = case.outcome(command);
    let same = EVERY_UPSTREAM.iter().all(|kind| {
        [at(1), at(1000)]
            .iter()
            .all(|now| outcome(&upstream(*kind), case.row.as_ref(), command, *now) == told)
    });
    if same { told } else { "see below".into() }
}

pub(crate) fn not_found() -> String {
    let opaque = "`opaque`: anything else (the default)";
    let opt_in = "`opaque` with `release_after`";
    let dedupes = "`dedupes`: honours the key that is forwarded";
    let transactional = "`transactional`: completion and effect commit together";
    let kinds = [
        (opaque, "", OPAQUE, at(9999), "at most one dispatch"),
        (
            opt_in,
            "before the delay",
            OPAQUE_OPT_IN,
            at(74),
            "at most one dispatch",
        ),
        (
            opt_in,
            "after the delay",
            OPAQUE_OPT_IN,
            at(75),
            "a dispatch delayed longer runs twice",
        ),
        (dedupes, "", DEDUPES, at(20), "one effect"),
        (
            transactional,
            "",
            Upstream::Transactional,
            at(20),
            "one effect",
        ),
    ];
    let rows: Vec<Vec<String>> = kinds
        .iter()
        .map(|(kind, when, upstream, now, promise)| {
            let not_found = reconcile_asked(fence(1), *now, Verdict::NotFound);
            let told = case(unknown(), "", *now)
                .upstream(*upstream)
                .outcome(&not_found);
            vec![(*kind).into(), (*when).into(), told, (*promise).into()]
        })
        .collect();
    table(
        &[
            "upstream",
            "when",
            "an unknown key that is not found",
            "promise",
        ],
        &rows,
    )
}

pub(crate) fn person() -> String {
    let mut cases = one_of_each();
    cases.remove(0);
    cases.insert(1, case(executing(), "lease over", at(15)));
    let rows: Vec<Vec<String>> = cases.iter().map(person_row).collect();
    grouped(
        &[
            "state",
            "when",
            "it happened",
            "it did not",
            "forget",
            "ask again",
        ],
        rows,
    )
}

fn person_row(case: &Case) -> Vec<String> {
    let is_live = case.row.as_ref().is_some_and(|row| {
        let (told, _) = step(&policy(), Some(row), &claim(fence(2)), case.now);
        row.state.kind() == StateKind::Executing && told == Decision::InFlight
    });
    let when = if is_live { "lease live" } else { case.when };
    let resolutions = [
        Resolution::Completed(answer("by hand")),
        Resolution::Released,
        Resolution::Forget,
        Resolution::AskAgain,
    ];
    let cells = resolutions.map(|resolution| case.outcome(&resolve(fence(1), resolution)));
    [state_name(case.row.as_ref()), when.to_owned()]
        .into_iter()
        .chain(cells)
        .collect()
}
