//! What happened, counted; and whether it was enough to mean something.

use std::fmt;

use onlyonce_core::{Decision, StateKind, UnknownReason};

use crate::checks::Kind;
use crate::client::Told;
use crate::faults::Fault;

const DECISIONS: [Decision; 20] = [
    Decision::Execute,
    Decision::Replay,
    Decision::NotReplayable,
    Decision::AlreadyUsed,
    Decision::InFlight,
    Decision::Mismatch,
    Decision::Unknown,
    Decision::Renewed,
    Decision::Settled,
    Decision::AlreadySettled,
    Decision::Fenced,
    Decision::NotDue,
    Decision::LeaseExpired,
    Decision::Probe,
    Decision::DeadLettered,
    Decision::Expired,
    Decision::Purged,
    Decision::StillUnknown,
    Decision::Rescheduled,
    Decision::NotAllowed,
];

/// What the engine never tells anybody: a sweep that found nothing to do.
const NEVER_TOLD: Decision = Decision::NotDue;

/// States a row can be in, absence included.
const STATES: usize = StateKind::ALL.len() + 1;

/// Every change of a row that the rules allow. 0 is absence, the rest in [`StateKind`]'s order.
const TRANSITIONS: [(usize, usize); 25] = [
    (0, 1),
    (1, 0),
    (1, 1),
    (1, 2),
    (1, 4),
    (1, 5),
    (2, 0),
    (2, 1),
    (2, 2),
    (2, 3),
    (2, 4),
    (2, 5),
    (3, 0),
    (3, 2),
    (3, 4),
    (3, 5),
    (4, 0),
    (4, 1),
    (4, 5),
    (4, 6),
    (5, 0),
    (5, 1),
    (5, 6),
    (6, 0),
    (6, 1),
];

/// Counts over any number of schedules.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// How many schedules.
    pub schedules: u64,
    /// Logical operations: a tenant's key in one schedule.
    pub operations: u64,
    /// Those whose end some client saw.
    pub succeeded: u64,
    /// Effects in the witness.
    pub effects: u64,
    pub(crate) lease_lost: u64,
    pub(crate) not_settled: u64,
    pub(crate) told: [u64; Told::NAMES.len()],
    decisions: [u64; DECISIONS.len()],
    transitions: [[u64; STATES]; STATES],
    unknown: [u64; UnknownReason::ALL.len()],
    faults: [u64; Fault::ALL.len()],
    violations: [u64; Kind::ALL.len()],
}

impl Counts {
    pub(crate) fn decision(&mut self, decision: Decision) {
        self.decisions[decision as usize] += 1;
    }

    pub(crate) fn unknown(&mut self, reason: UnknownReason) {
        self.unknown[reason as usize] += 1;
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(crate) fn violated(&mut self, kind: Kind) {
        self.violations[kind as usize] += 1;
    }

    pub(crate) fn transition(&mut self, from: Option<StateKind>, to: Option<StateKind>) {
        let index = |kind: Option<StateKind>| kind.map_or(0, |kind| kind as usize + 1);
        self.transitions[index(from)][index(to)] += 1;
        // Renewals are not reported as events: a lease is the one thing written over itself.
        if (from, to) == (Some(StateKind::Executing), Some(StateKind::Executing)) {
            self.decision(Decision::Renewed);
        }
    }

    /// How often a promise was broken.
    #[must_use]
    pub const fn violations(&self, kind: Kind) -> u64 {
        self.violations[kind as usize]
    }

    /// Adds the counts of other schedules.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.operations += other.operations;
        self.succeeded += other.succeeded;
        self.effects += other.effects;
        self.lease_lost += other.lease_lost;
        self.not_settled += other.not_settled;
        add(&mut self.told, &other.told);
        add(&mut self.decisions, &other.decisions);
        for (row, other) in self.transitions.iter_mut().zip(&other.transitions) {
            add(row, other);
        }
        add(&mut self.unknown, &other.unknown);
        add(&mut self.faults, &other.faults);
        add(&mut self.violations, &other.violations);
    }

    /// What never happened, though it must for the run to mean anything.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.succeeded * 10 < self.operations * 6 {
            missing.push(format!(
                "success: {} of {}",
                self.succeeded, self.operations
            ));
        }
        let mut miss = |count: u64, what: String| {
            if count == 0 {
                missing.push(what);
            }
        };
        for decision in DECISIONS
            .into_iter()
            .filter(|decision| *decision != NEVER_TOLD)
        {
            miss(
                self.decisions[decision as usize],
                format!("decision {decision:?}"),
            );
        }
        for (from, to) in TRANSITIONS {
            let words = format!("transition {} -> {}", state(from), state(to));
            miss(self.transitions[from][to], words);
        }
        for reason in UnknownReason::ALL {
            miss(
                self.unknown[reason as usize],
                format!("unknown because {reason:?}"),
            );
        }
        for fault in Fault::ALL {
            miss(
                self.faults[*fault as usize],
                format!("fault {}", fault.name()),
            );
        }
        for (index, name) in Told::NAMES.iter().enumerate() {
            miss(self.told[index], format!("reply {name}"));
        }
        missing
    }

    /// Changes of a row that the rules do not allow.
    #[must_use]
    pub fn impossible(&self) -> Vec<String> {
        let all = (0..STATES).flat_map(|from| (0..STATES).map(move |to| (from, to)));
        all.filter(|(from, to)| self.transitions[*from][*to] > 0)
            .filter(|transition| !TRANSITIONS.contains(transition))
            .map(|(from, to)| format!("transition {} -> {}", state(from), state(to)))
            .collect()
    }
}

fn add(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

fn state(index: usize) -> &'static str {
    index
        .checked_sub(1)
        .map_or("absent", |index| StateKind::ALL[index].as_str())
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "  {name:<42}{count:>14}");
        line("schedules", self.schedules)?;
        line("operations", self.operations)?;
        line("operations whose end was seen", self.succeeded)?;
        line("effects", self.effects)?;
        for (index, name) in Told::NAMES.iter().enumerate() {
            line(&format!("reply: {name}"), self.told[index])?;
        }
        for decision in DECISIONS
            .into_iter()
            .filter(|decision| *decision != NEVER_TOLD)
        {
            line(
                &format!("decision: {decision:?}"),
                self.decisions[decision as usize],
            )?;
        }
        for (from, to) in TRANSITIONS {
            let name = format!("transition: {} -> {}", state(from), state(to));
            line(&name, self.transitions[from][to])?;
        }
        for reason in UnknownReason::ALL {
            line(
                &format!("unknown: {}", reason.as_str()),
                self.unknown[reason as usize],
            )?;
        }
        line("lease lost at work", self.lease_lost)?;
        line("outcome not recorded in time", self.not_settled)?;
        for fault in Fault::ALL {
            line(
                &format!("fault: {}", fault.name()),
                self.faults[*fault as usize],
            )?;
        }
        for kind in Kind::ALL {
            line(
                &format!("VIOLATION: {}", kind.name()),
                self.violations[kind as usize],
            )?;
        }
        Ok(())
    }
}
