//! Versions replaced by the writes that they stand for.
//!
//! A version is the identity of one write. So whatever shows a version with a row, or gives one
//! to a winner, ties it to a write, for the whole history. A version that is tied to two writes
//! has returned, which the port forbids; a row whose write was refused, or lost, or that nobody
//! wrote, needs no search either.

use std::collections::HashMap;

use onlyonce_store::Version;

use crate::check::Violation;
use crate::history::{Answer, Event, Moment, Operation, Seen, Write};

/// What a version stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    /// No row.
    Nothing,
    /// The row of this write.
    Row(Write),
    /// A version that no row was ever seen to have: nobody can win from it.
    Unseen,
}

/// What a call did, or may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Saw this, and changed nothing: a load, or a swap that lost and expected another row.
    Saw {
        /// The row's write.
        row: Option<Write>,
        /// What it must not have been, for a swap that lost.
        not: Option<Base>,
    },
    /// Changed the row.
    Changed {
        /// What must be there before.
        from: Base,
        /// What is there after.
        to: Option<Write>,
    },
}

/// One call that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When it began: it took no effect before.
    pub called: Moment,
    /// When it ended: it had taken effect by then. `None`: it may at any time, or never.
    pub returned: Option<Moment>,
    /// What it did.
    pub act: Act,
    /// Which event of the history it is.
    pub event: usize,
}

/// Reads a history.
///
/// # Errors
/// When a version or a row cannot be what the port promises, in whatever order.
pub fn steps(history: &[Event]) -> Result<Vec<Step>, Violation> {
    let names = Names::of(history)?;
    let numbered = history.iter().enumerate();
    let steps = numbered.filter_map(|(number, event)| names.step(number, event));
    Ok(steps.collect())
}

/// Which version stands for which write.
#[derive(Default)]
struct Names {
    /// `None`: it was given to a removal.
    writes: HashMap<Version, Option<Write>>,
    versions: HashMap<Write, Version>,
    /// How each write was answered.
    answers: HashMap<Write, Answer>,
}

impl Names {
    fn of(history: &[Event]) -> Result<Self, Violation> {
        let mut names = Self::default();
        for event in history {
            if let Operation::Swap {
                next: Some(write), ..
            } = event.operation
            {
                names.answers.insert(write, event.answer);
            }
        }
        for event in history {
            match (event.operation, event.answer) {
                (_, Answer::Found(Some(seen)) | Answer::Lost(Some(seen))) => names.seen(seen)?,
                (Operation::Swap { next: None, .. }, Answer::Won(version)) => {
                    names.removed(version)?;
                }
                (
                    Operation::Swap {
                        next: Some(write), ..
                    },
                    Answer::Won(version),
                ) => names.tie(Seen { write, version })?,
                _ => {}
            }
        }
        Ok(names)
    }

    /// A row is seen: somebody may have written it, and it has one version.
    fn seen(&mut self, seen: Seen) -> Result<(), Violation> {
        match self.answers.get(&seen.write) {
            None => Err(Violation::WrittenByNobody(seen.write)),
            Some(Answer::Refused) => Err(Violation::RefusedAndWritten(seen.write)),
            Some(Answer::Lost(_)) => Err(Violation::LostAndWritten(seen.write)),
            Some(Answer::Won(_) | Answer::Unanswered | Answer::Found(_)) => self.tie(seen),
        }
    }

    fn tie(&mut self, seen: Seen) -> Result<(), Violation> {
        let write = *self.writes.entry(seen.version).or_insert(Some(seen.write));
        if write != Some(seen.write) {
            return Err(Violation::VersionReturned(seen.version));
        }
        let version = *self.versions.entry(seen.write).or_insert(seen.version);
        if version != seen.version {
            return Err(Violation::TwoVersions(seen.write));
        }
        Ok(())
    }

    /// Nobody else meets the version of a removal.
    fn removed(&mut self, version: Version) -> Result<(), Violation> {
        match self.writes.insert(version, None) {
            None => Ok(()),
            Some(_) => Err(Violation::VersionReturned(version)),
        }
    }

    fn base(&self, expected: Option<Version>) -> Base {
        let Some(version) = expected else {
            return Base::Nothing;
        };
        let write = self.writes.get(&version).copied().flatten();
        write.map_or(Base::Unseen, Base::Row)
    }

    /// `None` for a call that took no effect and proves nothing.
    fn step(&self, number: usize, event: &Event) -> Option<Step> {
        let write = |seen: Option<Seen>| seen.map(|seen| seen.write);
        let (act, is_over) = match (event.operation, event.answer) {
            (_, Answer::Refused) | (Operation::Load, Answer::Unanswered) => return None,
            (Operation::Load, Answer::Found(row) | Answer::Lost(row)) => {
                let row = write(row);
                (Act::Saw { row, not: None }, true)
            }
            (Operation::Swap { expected, .. }, Answer::Lost(row) | Answer::Found(row)) => {
                let (row, not) = (write(row), Some(self.base(expected)));
                (Act::Saw { row, not }, true)
            }
            (Operation::Swap { expected, next }, answer) => {
                let (from, to) = (self.base(expected), next);
                (Act::Changed { from, to }, answer != Answer::Unanswered)
            }
            (Operation::Load, Answer::Won(version)) => {
                panic!("a load won version {version}")
            }
        };
        Some(Step {
            called: event.called,
            returned: is_over.then_some(event.returned),
            act,
            event: number,
        })
    }
}
