//! The calls on one row, as they were seen from outside.

use std::fmt;

use onlyonce_store::Version;

/// Names one write: the number that its record was made from, which no other write has.
pub type Write = u64;

/// A moment. Only the order of moments means anything.
pub type Moment = u64;

/// A row that an answer showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Whose record it is.
    pub write: Write,
    /// Its version.
    pub version: Version,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The row, if there is one.
    Load,
    /// A conditional write.
    Swap {
        /// The version that must be there; `None` expects no row.
        expected: Option<Version>,
        /// The write; `None` removes the row.
        next: Option<Write>,
    },
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A load's.
    Found(Option<Seen>),
    /// It is written.
    Won(Version),
    /// It is not written, because of this.
    Lost(Option<Seen>),
    /// Nobody knows whether it is written, or will be.
    Unanswered,
    /// An error that proves that nothing was written.
    Refused,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Whose call it is.
    pub worker: usize,
    /// When it began.
    pub called: Moment,
    /// When it ended.
    pub returned: Moment,
    /// What was asked.
    pub operation: Operation,
    /// What came back.
    pub answer: Answer,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (called, returned) = (self.called, self.returned);
        write!(f, "{called:>7}..{returned:<7} worker {}: ", self.worker)?;
        match self.operation {
            Operation::Load => write!(f, "load")?,
            Operation::Swap { expected, next } => {
                let expected = expected.map_or_else(|| "no row".into(), |v| format!("version {v}"));
                let next = next.map_or_else(|| "nothing".into(), |write| format!("#{write}"));
                write!(f, "swap {expected} for {next}")?;
            }
        }
        match self.answer {
            Answer::Found(row) => write!(f, " -> found {}", Shown(row)),
            Answer::Won(version) => write!(f, " -> won, version {version}"),
            Answer::Lost(row) => write!(f, " -> lost to {}", Shown(row)),
            Answer::Unanswered => write!(f, " -> no answer"),
            Answer::Refused => write!(f, " -> refused"),
        }
    }
}

struct Shown(Option<Seen>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Seen { write, version }) => write!(f, "#{write} at version {version}"),
            None => write!(f, "no row"),
        }
    }
}
