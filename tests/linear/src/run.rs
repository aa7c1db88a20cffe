//! A run: workers on two handles, trouble, and the verdict on every row.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce_store::BoxStore;
use tokio::task::JoinSet;

use crate::check::{Violation, check};
use crate::history::{Answer, Event, Operation, Seen};
use crate::recorder::{HANDLES, Handle, Recorder, Tally};
use crate::rng::Rng;
use crate::workers::{Rows, Worker};

/// How many workers each handle has.
const WORKERS_PER_HANDLE: usize = 3;

/// How many of a hundred calls must be answered: a run that saw nothing but errors proves
/// nothing.
const ANSWERED_PERCENT_MIN: usize = 60;

/// How often a row is read at the end until it is answered.
const READS_MAX: usize = 10;

/// One run on one store.
#[derive(Debug)]
pub struct Run {
    /// What was seen so far.
    pub recorder: Arc<Recorder>,
    /// The run's choices.
    pub rng: Rng,
    seed: u64,
    rows: Arc<Rows>,
}

impl Run {
    /// A run with a seed of [`Rng::seed`], which is printed.
    #[must_use]
    pub fn new() -> Self {
        let seed = Rng::seed();
        eprintln!("ONLYONCE_LINEAR_SEED={seed}");
        Self::with_seed(seed)
    }

    /// A run with this seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            recorder: Recorder::new(),
            rng: Rng::new(seed),
            seed,
            rows: Arc::default(),
        }
    }

    /// Lets workers work until `meanwhile` is over. Every handle is given back by then.
    pub async fn work(&mut self, stores: [BoxStore; HANDLES], meanwhile: impl Future<Output = ()>) {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for worker in 0..HANDLES * WORKERS_PER_HANDLE {
            let worker = Worker {
                handle: self.handle(&stores, worker),
                rows: Arc::clone(&self.rows),
                rng: self.rng.fork(),
                stop: Arc::clone(&stop),
            };
            workers.spawn(worker.work());
        }
        drop(stores);
        tokio::select! {
            () = meanwhile => {}
            // None ends by itself, so this is one that panicked.
            ended = workers.join_next() => ended.expect("workers").expect("a worker"),
        }
        stop.store(true, Ordering::Relaxed);
        workers.join_all().await;
    }

    /// Reads every row once more through each handle, and checks every history.
    ///
    /// # Errors
    /// The first row whose history is rejected.
    pub async fn verdict(&self, stores: [BoxStore; HANDLES]) -> Result<Summary, Rejected> {
        let readers = [0, 1].map(|worker| self.handle(&stores, worker));
        for row in self.recorder.histories().into_keys() {
            for reader in &readers {
                read(reader, row).await;
            }
        }
        let histories = self.recorder.histories();
        for (row, history) in &histories {
            check(history).map_err(|violation| Rejected {
                seed: self.seed,
                row: *row,
                violation,
                history: history.clone(),
            })?;
        }
        let took_effect = histories.values().map(|history| late_effects(history));
        Ok(Summary {
            seed: self.seed,
            rows: histories.len(),
            took_effect: took_effect.sum(),
            tallies: self.recorder.tallies(),
        })
    }

    fn handle(&self, stores: &[BoxStore; HANDLES], worker: usize) -> Handle {
        let number = worker % HANDLES;
        Handle {
            worker,
            number,
            store: stores[number].clone(),
            recorder: Arc::clone(&self.recorder),
        }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads a row when nothing is wrong any more. A connection that broke before may first be met now.
async fn read(reader: &Handle, row: u64) {
    for _ in 0..READS_MAX {
        if reader.load(row).await != Answer::Refused {
            return;
        }
    }
    panic!("row {row} cannot be read {READS_MAX} times in a row");
}

/// How many writes nobody was told of, and were seen.
fn late_effects(history: &[Event]) -> usize {
    let rows: HashSet<_> = history.iter().filter_map(shown).collect();
    let unanswered = history.iter().filter_map(|event| match event.operation {
        Operation::Swap { next, .. } if event.answer == Answer::Unanswered => next,
        Operation::Swap { .. } | Operation::Load => None,
    });
    let unanswered: BTreeSet<_> = unanswered.collect();
    unanswered
        .iter()
        .filter(|write| rows.contains(write))
        .count()
}

fn shown(event: &Event) -> Option<u64> {
    match event.answer {
        Answer::Found(Some(Seen { write, .. })) | Answer::Lost(Some(Seen { write, .. })) => {
            Some(write)
        }
        Answer::Found(None)
        | Answer::Lost(None)
        | Answer::Won(_)
        | Answer::Unanswered
        | Answer::Refused => None,
    }
}

/// A run whose histories all have an order.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its seed.
    pub seed: u64,
    /// How many histories were checked.
    pub rows: usize,
    /// Writes that were not answered, and were seen later.
    pub took_effect: usize,
    /// How the calls ended, by handle.
    pub tallies: [Tally; HANDLES],
}

impl Summary {
    /// Over both handles.
    #[must_use]
    pub fn total(&self) -> Tally {
        let add = |sum: Tally, next: &Tally| Tally {
            answered: sum.answered + next.answered,
            unanswered: sum.unanswered + next.unanswered,
            refused: sum.refused + next.refused,
            abandoned: sum.abandoned + next.abandoned,
        };
        self.tallies.iter().fold(Tally::default(), add)
    }

    /// Asserts that most of the calls were answered.
    pub fn assert_mostly_answered(&self) {
        let total = self.total();
        let enough = total.answered * 100 >= total.calls() * ANSWERED_PERCENT_MIN;
        assert!(enough, "too little was answered: {self}");
    }

    /// Asserts that faults left writes in doubt, some of which had happened.
    pub fn assert_doubts(&self) {
        assert!(self.total().unanswered > 0, "nothing in doubt: {self}");
        assert!(self.total().refused > 0, "nothing refused: {self}");
        assert!(self.took_effect > 0, "no doubt was a write: {self}");
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        write!(
            f,
            "seed {}: {} rows, {} calls, {} answered, {} in doubt and {} abandoned (of both, {} \
             took effect), {} refused",
            self.seed,
            self.rows,
            total.calls(),
            total.answered,
            total.unanswered,
            total.abandoned,
            self.took_effect,
            total.refused
        )
    }
}

/// A history without an order.
#[derive(Clone)]
pub struct Rejected {
    /// The run's seed.
    pub seed: u64,
    /// The row's number.
    pub row: u64,
    /// What is wrong with it.
    pub violation: Violation,
    /// The whole history.
    pub history: Vec<Event>,
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, row {}: {}",
            self.seed, self.row, self.violation
        )?;
        for (number, event) in self.history.iter().enumerate() {
            writeln!(f, "{number:>4} {event}")?;
        }
        Ok(())
    }
}
