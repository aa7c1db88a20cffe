//! The search for an order: Wing and Gong's, with the memory that Lowe added.
//!
//! A node of the search is which steps were ordered so far, and the row after them. A step may
//! come next if nothing that is left had ended before it began. Two things make it fast and lose
//! no order: nodes that were met before are left out, and a step that changes nothing and fits
//! the row as it is comes at once, because moving it to the front of any order that goes on from
//! here leaves an order.

use std::collections::HashSet;
use std::fmt;

use onlyonce_store::Version;

use crate::history::{Event, Write};
use crate::steps::{Act, Base, Step, steps};

/// How many calls one history may have: as many as a set of them has bits.
pub const CALLS_MAX: usize = 128;

/// How many nodes are looked at before the search gives up. Runs need some hundred.
const NODES_MAX: usize = 2_000_000;

/// Why a history is none of a store that keeps the port's promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// One version stood for two states of the row.
    VersionReturned(Version),
    /// One write was seen under two versions.
    TwoVersions(Write),
    /// A row that nobody wrote here.
    WrittenByNobody(Write),
    /// A row whose write was proven not to have happened.
    RefusedAndWritten(Write),
    /// A row whose write was answered as lost.
    LostAndWritten(Write),
    /// There is no order. This is how far the search came.
    NoOrder {
        /// Calls that could be ordered, at most.
        ordered: usize,
        /// The events that then had to come next, of which none could.
        stuck: Vec<usize>,
        /// The row at that point.
        row: Option<Write>,
    },
    /// The search gave up. Not a verdict on the store, but no pass either.
    TooHard,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VersionReturned(version) => write!(f, "version {version} returned"),
            Self::TwoVersions(write) => write!(f, "#{write} was seen under two versions"),
            Self::WrittenByNobody(write) => write!(f, "#{write} was seen, and nobody wrote it"),
            Self::RefusedAndWritten(write) => write!(f, "#{write} was refused, and seen"),
            Self::LostAndWritten(write) => write!(f, "#{write} lost, and was seen"),
            Self::NoOrder {
                ordered,
                stuck,
                row,
            } => write!(
                f,
                "no order: after {ordered} calls the row is {row:?}, and none of the calls \
                 {stuck:?} fits"
            ),
            Self::TooHard => write!(f, "no verdict after {NODES_MAX} nodes"),
        }
    }
}

/// Checks the history of one row that did not exist before it.
///
/// # Errors
/// When no order of its calls explains it.
///
/// # Panics
/// When it has more than [`CALLS_MAX`] calls.
pub fn check(history: &[Event]) -> Result<(), Violation> {
    assert!(history.len() <= CALLS_MAX, "{} calls", history.len());
    Search::new(steps(history)?).run()
}

/// A set of steps.
type Set = u128;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    ordered: Set,
    row: Option<Write>,
}

struct Search {
    steps: Vec<Step>,
    /// The steps that must be ordered: all but those that may never take effect.
    over: Set,
    met: HashSet<Node>,
    furthest: Node,
}

impl Search {
    fn new(steps: Vec<Step>) -> Self {
        let over = steps.iter().enumerate();
        let over = over.filter(|(_, step)| step.returned.is_some());
        let over = over.fold(0, |set, (number, _)| set | 1 << number);
        let furthest = Node {
            ordered: 0,
            row: None,
        };
        Self {
            steps,
            over,
            met: HashSet::new(),
            furthest,
        }
    }

    fn run(mut self) -> Result<(), Violation> {
        let mut open = vec![self.furthest];
        while let Some(node) = open.pop() {
            let node = self.with_what_changes_nothing(node);
            if !self.met.insert(node) {
                continue;
            }
            if node.ordered & self.over == self.over {
                return Ok(());
            }
            if self.met.len() > NODES_MAX {
                return Err(Violation::TooHard);
            }
            if self.count(node) > self.count(self.furthest) {
                self.furthest = node;
            }
            open.extend(self.changes(node));
        }
        Err(self.no_order())
    }

    /// How many of the calls that must be ordered are.
    fn count(&self, node: Node) -> u32 {
        (node.ordered & self.over).count_ones()
    }

    /// The steps that may come next.
    fn candidates(&self, node: Node) -> impl Iterator<Item = (usize, &Step)> {
        let left = self.steps.iter().enumerate();
        let left = left.filter(move |(number, _)| node.ordered & (1 << number) == 0);
        let first_end = left.clone().filter_map(|(_, step)| step.returned).min();
        left.filter(move |(_, step)| first_end.is_none_or(|end| step.called < end))
    }

    fn with_what_changes_nothing(&self, mut node: Node) -> Node {
        loop {
            let fits = self.candidates(node).find(|(_, step)| match step.act {
                Act::Saw { row, not } => row == node.row && not.is_none_or(|not| !is(not, row)),
                Act::Changed { .. } => false,
            });
            let Some((number, _)) = fits else {
                return node;
            };
            node.ordered |= 1 << number;
        }
    }

    fn changes(&self, node: Node) -> Vec<Node> {
        let changed = |(number, step): (usize, &Step)| match step.act {
            Act::Changed { from, to } if is(from, node.row) => Some(Node {
                ordered: node.ordered | 1 << number,
                row: to,
            }),
            Act::Changed { .. } | Act::Saw { .. } => None,
        };
        self.candidates(node).filter_map(changed).collect()
    }

    fn no_order(&self) -> Violation {
        let node = self.furthest;
        let stuck = self.candidates(node);
        Violation::NoOrder {
            ordered: usize::try_from(self.count(node)).expect("at most 128"),
            stuck: stuck.map(|(_, step)| step.event).collect(),
            row: node.row,
        }
    }
}

/// Whether the row is what a version stands for.
fn is(base: Base, row: Option<Write>) -> bool {
    match base {
        Base::Nothing => row.is_none(),
        Base::Row(write) => row == Some(write),
        Base::Unseen => false,
    }
}
