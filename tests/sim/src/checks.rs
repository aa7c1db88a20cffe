//! The five counts that must be zero.

use onlyonce_core::{Response, State, StoredResponse, TombstoneReason};

use crate::client::{Asked, Told};
use crate::shape::Operation;
use crate::upstream::belongs;
use crate::world::World;

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// More than one effect in one key's life.
    Double,
    /// A client saw a final answer, and a later retry got something else.
    LostCompletion,
    /// A client saw success, and there was no effect.
    FalseSuccess,
    /// Bytes of another tenant, key or payload.
    WrongReplay,
    /// A key that is neither settled nor waits for a person after the faults stopped.
    Stuck,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Double,
        Self::LostCompletion,
        Self::FalseSuccess,
        Self::WrongReplay,
        Self::Stuck,
    ];

    /// As printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::LostCompletion => "lost completion",
            Self::FalseSuccess => "false success",
            Self::WrongReplay => "wrong replay",
            Self::Stuck => "stuck",
        }
    }
}

/// What some client has seen of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Final(StoredResponse),
    Tombstone(TombstoneReason),
}

impl Seen {
    /// Whether the first caller may get this answer when another saw this first. A store that
    /// would not take the answer keeps the fact that there was one, and only its executor has it.
    fn allows(&self, response: &StoredResponse) -> bool {
        match self {
            Self::Final(first) => first == response,
            Self::Tombstone(reason) => *reason == TombstoneReason::TooLarge,
        }
    }
}

#[derive(Debug, Clone)]
struct First {
    seen: Seen,
    payload: u8,
    serial: u64,
    /// Until when every retry must get the same.
    until_ms: u64,
}

/// What was seen, and what was broken.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    first: [Option<First>; Operation::COUNT],
    /// A read failed its checksum: "unknown, and no row to show" is an honest answer.
    pub(crate) corrupted: bool,
    pub(crate) violations: Vec<(Kind, String)>,
}

impl Checks {
    /// Whether any client saw how this operation ended.
    pub(crate) fn succeeded(&self, operation: Operation) -> bool {
        self.first[operation.index()].is_some()
    }

    /// The payload of the answer that was seen.
    pub(crate) fn payload(&self, operation: Operation) -> Option<u8> {
        self.first[operation.index()]
            .as_ref()
            .map(|first| first.payload)
    }
}

impl World {
    pub(crate) fn violation(&mut self, kind: Kind, words: impl Fn() -> String) {
        self.note(99, || format!("VIOLATION {}: {}", kind.name(), words()));
        self.checks.violations.push((kind, words()));
    }

    /// A reply against what other clients saw before it was asked for.
    pub(crate) fn check_reply(&mut self, asked: &Asked, told: &Told) {
        if let Told::Final(response) = told {
            if !belongs(response, asked.operation, asked.payload) {
                self.violation(Kind::WrongReplay, || format!("{asked:?} got {response:?}"));
            } else if !self.witness.knows(response) {
                self.violation(Kind::FalseSuccess, || format!("{asked:?} got {response:?}"));
            }
        }
        let Some(first) = &self.checks.first[asked.operation.index()] else {
            return;
        };
        if first.until_ms <= self.now_ms {
            return;
        }
        let same_payload = first.payload == asked.payload;
        let kept = match told {
            // Asked before anybody saw the answer: then only another answer would be wrong.
            Told::Final(response) if first.serial > asked.serial => {
                self.shape.forgets_soon || first.seen.allows(response)
            }
            _ if first.serial > asked.serial => true,
            Told::Failed => true,
            Told::Unknown(false) => self.checks.corrupted,
            Told::Used => self.shape.single_use,
            Told::Mismatch => !same_payload,
            Told::Tombstone(TombstoneReason::TooLarge) => same_payload,
            Told::Tombstone(reason) => same_payload && first.seen == Seen::Tombstone(*reason),
            Told::Final(response) => same_payload && first.seen == Seen::Final(response.clone()),
            Told::InFlight | Told::Unknown(true) | Told::NotExecuted => false,
        };
        if !kept {
            let first = first.clone();
            self.violation(Kind::LostCompletion, || {
                format!("{asked:?} is told {told:?} after {first:?}")
            });
        }
    }

    /// A client has seen the end of an operation.
    pub(crate) fn saw(&mut self, asked: &Asked, seen: Seen) {
        let (now_ms, serial) = (self.now_ms, self.serial());
        // The row may belong to the key's next life by the time that a slow answer arrives.
        let same = |stored: &Response| match (stored, &seen) {
            (Response::Plain(stored), Seen::Final(seen)) => stored == seen,
            (Response::Tombstone(stored), Seen::Tombstone(seen)) => stored == seen,
            _ => false,
        };
        let row = self.row(asked.operation);
        let until_ms = row.and_then(|row| match &row.record.state {
            State::Completed {
                response,
                expires_at,
            } if same(response) => Some(expires_at.as_millis()),
            _ => None,
        });
        // With a short retention the row may rightly be gone before a slow answer arrives.
        let until_ms = until_ms.unwrap_or(if self.shape.forgets_soon {
            now_ms
        } else {
            u64::MAX
        });
        let first = &mut self.checks.first[asked.operation.index()];
        if let Some(first) = first.as_ref()
            && first.until_ms > now_ms
        {
            return;
        }
        *first = Some(First {
            seen,
            payload: asked.payload,
            serial,
            until_ms,
        });
    }

    /// Long after the faults stopped: nothing may still be undecided.
    pub(crate) fn check_stuck(&mut self) {
        let undecided = |state: &State| match state {
            State::Executing { .. } | State::Unknown { .. } => true,
            State::DeadLetter { .. }
            | State::Released { .. }
            | State::Completed { .. }
            | State::Expired { .. } => false,
        };
        let stuck: Vec<_> = (self.table.rows())
            .filter(|(_, row)| undecided(&row.record.state))
            .map(|(id, row)| format!("{:?}: {:?}", self.shape.operation(id), row.record))
            .collect();
        for row in stuck {
            self.violation(Kind::Stuck, || row.clone());
        }
    }
}
