//! What the world looks like between two actions: small, comparable, and without a clock.

use onlyonce_core::Decision;

/// How many executors matter at the same time.
pub const WORKERS: usize = 4;
/// How many verdicts can be under way at the same time: a stalled one and a later one.
pub const PROBES: usize = 2;

/// One of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) u8);

impl Id {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..WORKERS).filter_map(|index| u8::try_from(index).ok().map(Self))
    }
}

/// The key's row: a mirror of `onlyonce_core::Record` without what the rules never look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// Whose execution it is. Under the shipped rules this is the fence.
    pub holder: Id,
    /// The fence of a [`Variant`](crate::Variant) that counts; 0 where fences are drawn.
    pub serial: u8,
    /// How far it got.
    pub state: RowState,
}

/// A mirror of `onlyonce_core::State`, in ticks from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as in onlyonce_core::State")]
pub enum RowState {
    Executing { lease: u8, doubt: bool },
    Unknown { age: u8, probe_in: u8, probes: u8 },
    DeadLetter,
    Released { left: u8 },
    Completed { left: u8 },
    Expired { left: u8 },
}

impl Row {
    fn tick(&mut self, age_max: u8) {
        match &mut self.state {
            RowState::Unknown { age, probe_in, .. } => {
                *age = age.saturating_add(1).min(age_max);
                *probe_in = probe_in.saturating_sub(1);
            }
            RowState::DeadLetter => {}
            RowState::Executing { lease: left, .. }
            | RowState::Released { left }
            | RowState::Completed { left }
            | RowState::Expired { left } => *left = left.saturating_sub(1),
        }
    }
}

/// What a swap expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Base {
    /// No row. The one expectation that can become true again.
    Absent,
    /// The row that was read; versions never return, so a write by another ends it.
    Present,
}

/// A read and its decision, with the swap still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Swap {
    /// What `step` decided.
    pub decision: Decision,
    /// What it wants written; `None` removes the row.
    pub next: Option<Row>,
    /// What it was decided on.
    pub base: Base,
}

/// An outcome that an executor has yet to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as in onlyonce_core::Command")]
pub enum Settle {
    Complete,
    Release,
    Evict,
    MarkUnknown,
}

/// How far a worker got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// A client that may claim, with a fence nobody has seen.
    Idle,
    /// Its claim may have been written: it reads again, with the same fence.
    Again,
    /// Told to execute.
    Granted,
    /// Has sent, and waits for the answer.
    Sent,
    /// Has an outcome to write.
    Settling(Settle),
    /// Over: answered, refused or crashed.
    Done,
}

/// One executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker {
    /// How far it got.
    pub phase: Phase,
    /// A swap that it is about to do.
    pub swap: Option<Swap>,
    /// Its request is on its way, whatever became of the worker.
    pub wire: bool,
    /// What it believes to be left of its lease; kept only where it looks.
    pub lease: u8,
    /// Its fence, where fences are counted.
    pub serial: u8,
}

impl Worker {
    /// A client that has done nothing yet.
    pub const FRESH: Self = Self {
        phase: Phase::Idle,
        swap: None,
        wire: false,
        lease: 0,
        serial: 0,
    };

    /// Whether a dispatch of it may still reach the upstream.
    #[must_use]
    pub fn may_dispatch(&self) -> bool {
        self.wire || matches!(self.phase, Phase::Granted | Phase::Sent)
    }
}

/// Somebody was told to ask the upstream about an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Probe {
    /// What was heard; `None` until asked.
    pub heard: Option<Heard>,
    /// The execution.
    pub holder: Id,
    /// Its fence, where fences are counted.
    pub serial: u8,
}

/// What the upstream said. "Pending" changes nothing and is the probe's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as in onlyonce_core::Verdict")]
pub enum Heard {
    Completed,
    NotFound,
}

/// What really happened, which nobody in the world can see. Never read by a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Truth {
    /// Effects in this life of the key.
    pub effects: u8,
    /// Dispatches to an opaque upstream that were not proven to be without effect.
    pub dispatches: u8,
    /// A client was given the final answer, and its retention is not over.
    pub answered: bool,
    /// Ticks left of the retention of the completion.
    pub retained: u8,
    /// What must never happen, and did.
    pub broken: Broken,
}

/// Promises that were broken on the way. Once broken, always broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken {
    /// A client was told of success without an effect.
    pub false_success: bool,
    /// A claim within the retention of a given answer did not get that answer.
    pub lost_completion: bool,
    /// Somebody settled an execution that was granted to another.
    pub fence: bool,
}

/// The whole world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The store.
    pub row: Option<Row>,
    /// The executors.
    pub workers: [Worker; WORKERS],
    /// The sweeper's swap, if it is about to do one.
    pub sweeper: Option<Swap>,
    /// The verdicts under way.
    pub probes: [Option<Probe>; PROBES],
    /// What really happened.
    pub truth: Truth,
}

impl State {
    /// Nothing has happened yet.
    pub const FRESH: Self = Self {
        row: None,
        workers: [Worker::FRESH; WORKERS],
        sweeper: None,
        probes: [None; PROBES],
        truth: Truth {
            effects: 0,
            dispatches: 0,
            answered: false,
            retained: 0,
            broken: Broken {
                false_success: false,
                lost_completion: false,
                fence: false,
            },
        },
    };

    /// A worker.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "ids come from Id::all alone")]
    pub fn worker(&self, id: Id) -> &Worker {
        &self.workers[usize::from(id.0)]
    }

    /// A worker, to be changed.
    #[expect(clippy::indexing_slicing, reason = "ids come from Id::all alone")]
    pub fn worker_mut(&mut self, id: Id) -> &mut Worker {
        &mut self.workers[usize::from(id.0)]
    }

    /// How far the row got.
    #[must_use]
    pub fn row_state(&self) -> Option<RowState> {
        self.row.map(|row| row.state)
    }

    /// Whether a swap that expects `base` still wins. What expected a row that somebody wrote
    /// since is not kept at all.
    #[must_use]
    pub fn wins(&self, base: Base) -> bool {
        match base {
            Base::Absent => self.row.is_none(),
            Base::Present => true,
        }
    }

    /// Every row in the world: the store's, and those about to be written.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        let swaps = self.workers.iter_mut().map(|worker| &mut worker.swap);
        let swaps = swaps.chain([&mut self.sweeper]).flatten();
        self.row
            .iter_mut()
            .chain(swaps.filter_map(|swap| swap.next.as_mut()))
    }

    /// One tick. `forgets` says whether the upstream forgets a key along with its row.
    pub(crate) fn tick(&mut self, age_max: u8, forgets: bool) {
        self.rows_mut().for_each(|row| row.tick(age_max));
        for worker in &mut self.workers {
            worker.lease = worker.lease.saturating_sub(1);
        }
        if self.truth.retained == 1 {
            self.truth.end_life(forgets);
        }
        self.truth.retained = self.truth.retained.saturating_sub(1);
    }
}

impl Truth {
    /// The promise of the last completion is over: what comes now is another operation.
    pub(crate) fn end_life(&mut self, forgets: bool) {
        self.answered = false;
        if forgets {
            self.effects = 0;
            self.dispatches = 0;
        }
    }
}
