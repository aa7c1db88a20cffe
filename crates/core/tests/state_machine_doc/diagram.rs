//! Arrows between states, drawn from the transitions that were observed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use onlyonce_core::{Command, Next, Record, Resolution, StateKind, Verdict, step};

use crate::common::*;

/// `None` is "no row".
type Arrow = (Option<StateKind>, Option<StateKind>);

/// What commands, verdicts and clocks do.
pub(crate) fn life() -> String {
    draw(&arrows(|command| {
        !matches!(command, Command::Resolve { .. })
    }))
}

/// What a person does.
pub(crate) fn by_hand() -> String {
    draw(&arrows(|command| {
        matches!(command, Command::Resolve { .. })
    }))
}

/// Every change of state under any policy, at any moment, by the holder of the row's fence or
/// by somebody else.
fn arrows(wanted: impl Fn(&Command) -> bool) -> BTreeMap<Arrow, BTreeSet<&'static str>> {
    let mut arrows: BTreeMap<Arrow, BTreeSet<&'static str>> = BTreeMap::new();
    let rows = std::iter::once(None).chain(every_row().into_iter().map(Some));
    for row in rows {
        for command in commands().into_iter().filter(&wanted) {
            for policy in every_policy() {
                for now in [at(0), at(15), at(20), at(75), at(100), at(1100)] {
                    let (_, next) = step(&policy, row.as_ref(), &command, now);
                    if let Some(arrow) = arrow(row.as_ref(), &command, &next) {
                        arrows
                            .entry(arrow)
                            .or_default()
                            .insert(label(arrow, &command));
                    }
                }
            }
        }
    }
    arrows
}

fn commands() -> Vec<Command> {
    let own = every_command(fence(1), payload(1));
    let other = every_command(fence(2), payload(1));
    own.into_iter().chain(other).collect()
}

fn arrow(row: Option<&Record>, command: &Command, next: &Next) -> Option<Arrow> {
    // A claim that finds its own row starts the lease again; drawn, it would look like a second
    // grant.
    if let (Some(row), Command::Claim(claim)) = (row, command)
        && row.fence == claim.fence
    {
        return None;
    }
    let from = row.map(|row| row.state.kind());
    let to = match next {
        Next::Keep => return None,
        Next::Put(row) => Some(row.state.kind()),
        Next::Remove => None,
    };
    Some((from, to))
}

fn label((from, to): Arrow, command: &Command) -> &'static str {
    match command {
        Command::Claim(_) => match from {
            Some(StateKind::Unknown) => "claim (upstream dedupes)",
            Some(StateKind::Completed) => "claim (past retention)",
            Some(StateKind::Executing) => "claim (lease over)",
            None | Some(StateKind::DeadLetter | StateKind::Released | StateKind::Expired) => {
                "claim"
            }
        },
        Command::Renew { .. } => "renew",
        Command::Complete { .. } => "complete",
        Command::Release { .. } => "release",
        Command::Evict { .. } => "evict",
        Command::MarkUnknown { .. } => "mark unknown",
        Command::Sweep if from == to => "sweep (probe)",
        Command::Sweep => "sweep",
        Command::Reconcile { verdict, .. } => match verdict {
            Verdict::Completed(_) => "found",
            Verdict::NotFound => "not found",
            Verdict::Pending => "pending",
        },
        Command::Resolve { resolution, .. } => match resolution {
            Resolution::Completed(_) => "it happened",
            Resolution::Released => "it did not",
            Resolution::Forget => "forget",
            Resolution::AskAgain => "ask again",
        },
    }
}

fn draw(arrows: &BTreeMap<Arrow, BTreeSet<&'static str>>) -> String {
    let name = |kind: Option<StateKind>| kind.map_or("[*]", StateKind::as_str);
    let mut text = String::from("stateDiagram-v2\n");
    for ((from, to), labels) in arrows {
        let labels: Vec<&str> = labels.iter().copied().collect();
        let labels = labels.join(", ");
        writeln!(text, "    {} --> {}: {labels}", name(*from), name(*to)).unwrap();
    }
    text
}
