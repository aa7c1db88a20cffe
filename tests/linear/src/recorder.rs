//! A store's handle that writes down what it is asked and what it answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_conformance::suite::samples::{at, id, record, state};
use onlyonce_core::{Record, StateKind};
use onlyonce_store::{BoxStore, Row, Store, StoreError, Swap, Version};
use tokio::sync::watch;

use crate::history::{Answer, Event, Operation, Seen, Write};

/// How many handles a run has.
pub const HANDLES: usize = 2;

/// How long a run waits for what must come, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A deadline that no server's clock reaches: nothing here may expire.
const DEADLINE_MS: u64 = 4_000_000_000_000;

/// How the calls of one handle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// With an answer.
    pub answered: usize,
    /// With an error that may have written.
    pub unanswered: usize,
    /// With an error that proves that nothing was written; every failed load, too.
    pub refused: usize,
    /// The caller went away first.
    pub abandoned: usize,
}

impl Tally {
    /// Calls that the store failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.unanswered + self.refused
    }

    /// All calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.answered + self.failed() + self.abandoned
    }
}

/// Where the handles of one run write.
#[derive(Debug)]
pub struct Recorder {
    moment: AtomicU64,
    last_write: AtomicU64,
    histories: Mutex<BTreeMap<u64, Vec<Event>>>,
    tallies: watch::Sender<[Tally; HANDLES]>,
}

impl Recorder {
    /// Nothing is written yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            moment: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            histories: Mutex::default(),
            tallies: watch::Sender::default(),
        })
    }

    /// What was written, by row.
    #[must_use]
    pub fn histories(&self) -> BTreeMap<u64, Vec<Event>> {
        self.histories.lock().expect("no panic under it").clone()
    }

    /// How the calls ended so far, by handle.
    #[must_use]
    pub fn tallies(&self) -> [Tally; HANDLES] {
        *self.tallies.borrow()
    }

    /// Waits until the calls that ended meet a condition.
    pub async fn until(&self, what: &str, condition: impl FnMut(&[Tally; HANDLES]) -> bool) {
        let mut tallies = self.tallies.subscribe();
        let met = tokio::time::timeout(PATIENCE, tallies.wait_for(condition)).await;
        assert!(met.is_ok(), "not after {PATIENCE:?}: {what}");
    }

    fn now(&self) -> u64 {
        // One order of all moments, on every thread: with less a call could seem to overlap
        // another that it follows.
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, row: u64, event: Event) {
        let mut histories = self.histories.lock().expect("no panic under it");
        histories.entry(row).or_default().push(event);
    }

    fn count(&self, handle: usize, count: impl FnOnce(&mut Tally)) {
        self.tallies
            .send_modify(|tallies| count(&mut tallies[handle]));
    }
}

/// One worker's access to one handle.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Whose calls these are.
    pub worker: usize,
    /// Which of the run's handles it is.
    pub number: usize,
    /// The handle.
    pub store: BoxStore,
    /// Where its calls are written.
    pub recorder: Arc<Recorder>,
}

impl Handle {
    /// Loads a row.
    pub async fn load(&self, row: u64) -> Answer {
        let called = self.recorder.now();
        let loaded = self.store.load(&id(row)).await;
        let answer = match loaded {
            Ok(found) => Answer::Found(found.as_ref().map(seen)),
            Err(error) => {
                assert!(!error.may_have_written(), "a read wrote: {error}");
                refused(&error)
            }
        };
        self.note(row, called, Operation::Load, answer);
        self.recorder.count(self.number, |tally| match answer {
            Answer::Refused => tally.refused += 1,
            Answer::Unanswered => tally.unanswered += 1,
            Answer::Found(_) | Answer::Won(_) | Answer::Lost(_) => tally.answered += 1,
        });
        answer
    }

    /// Writes a new record, or removes the row. A caller with `patience` goes away after it.
    pub async fn swap(
        &self,
        row: u64,
        expected: Option<Version>,
        removes: bool,
        patience: Option<Duration>,
    ) -> (Option<Write>, Answer) {
        let write = self.recorder.last_write.fetch_add(1, Ordering::Relaxed);
        let next = (!removes).then(|| written(write));
        let called = self.recorder.now();
        let id = id(row);
        let swap = self.store.swap(&id, expected, next.as_ref());
        let swapped = match patience {
            Some(patience) => tokio::time::timeout(patience, swap).await.ok(),
            None => Some(swap.await),
        };
        let answer = match &swapped {
            Some(Ok(Swap::Won(version))) => Answer::Won(*version),
            Some(Ok(Swap::Lost(row))) => Answer::Lost(row.as_ref().map(seen)),
            Some(Err(error)) => refused(error),
            None => Answer::Unanswered,
        };
        let next = (!removes).then_some(write);
        self.note(row, called, Operation::Swap { expected, next }, answer);
        self.recorder.count(self.number, |tally| match answer {
            Answer::Unanswered if swapped.is_none() => tally.abandoned += 1,
            Answer::Unanswered => tally.unanswered += 1,
            Answer::Refused => tally.refused += 1,
            Answer::Found(_) | Answer::Won(_) | Answer::Lost(_) => tally.answered += 1,
        });
        (next, answer)
    }

    fn note(&self, row: u64, called: u64, operation: Operation, answer: Answer) {
        let event = Event {
            worker: self.worker,
            called,
            returned: self.recorder.now(),
            operation,
            answer,
        };
        self.recorder.note(row, event);
    }
}

/// What an error proves. Those that do not pass are none that a fault may cause.
fn refused(error: &StoreError) -> Answer {
    assert!(error.is_transient(), "{error}");
    if error.may_have_written() {
        Answer::Unanswered
    } else {
        Answer::Refused
    }
}

/// The record of a write.
fn written(write: Write) -> Record {
    const KINDS: [StateKind; 4] = [
        StateKind::Executing,
        StateKind::Completed,
        StateKind::Unknown,
        StateKind::Released,
    ];
    let kind = usize::try_from(write).expect("few writes") % KINDS.len();
    record(write, state(KINDS[kind], at(DEADLINE_MS)))
}

/// Whose record a row has: the fence says it, and all of it must be as it was written.
fn seen(row: &Row) -> Seen {
    let fence = *row.record.fence.as_bytes();
    let (_, write) = fence.split_at(8);
    let write = Write::from_be_bytes(write.try_into().expect("8 bytes"));
    assert_eq!(*row.record, written(write), "not as it was written");
    Seen {
        write,
        version: row.version,
    }
}
