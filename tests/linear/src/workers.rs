//! Who asks the store, and what: loads and swaps of a few rows, from what was last seen of them.
//!
//! The number of calls on a row is bounded, because the search for an order is over them all. A
//! row that had its share is left alone, and a new one takes its place; all of them are read once
//! more at the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_store::Version;

use crate::history::{Answer, Seen};
use crate::recorder::Handle;
use crate::rng::Rng;

/// How many rows are worked on at a time: few, so that workers meet.
const ROWS_LIVE: usize = 3;

/// How many calls a row gets. With those at the end it must stay below
/// [`CALLS_MAX`](crate::check::CALLS_MAX).
const CALLS_PER_ROW: usize = 100;

/// Between two calls of a worker: a row then lives long enough to see a fault come and go.
const PAUSE_MAX: Duration = Duration::from_millis(6);

/// After a failed call: an outage should not be most of what a history shows.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A caller that goes away does so within this time: about as long as a write takes.
const PATIENCE_MAX: Duration = Duration::from_millis(2);

/// The rows that are worked on.
#[derive(Debug)]
pub struct Rows(Mutex<Live>);

#[derive(Debug)]
struct Live {
    /// The rows' numbers, and how many calls each had.
    rows: Vec<(u64, usize)>,
    next: u64,
}

impl Default for Rows {
    fn default() -> Self {
        Self(Mutex::new(Live {
            rows: (0..).zip([0; ROWS_LIVE]).collect(),
            next: u64::try_from(ROWS_LIVE).expect("few rows"),
        }))
    }
}

impl Rows {
    /// A row that may be called once more.
    fn take(&self, rng: &mut Rng) -> u64 {
        let mut live = self.0.lock().expect("no panic under it");
        let next = live.next;
        let (row, calls) = &mut live.rows[rng.below(ROWS_LIVE)];
        let taken = *row;
        *calls += 1;
        if *calls == CALLS_PER_ROW {
            (*row, *calls) = (next, 0);
            live.next += 1;
        }
        taken
    }
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    /// Its access to the store.
    pub handle: Handle,
    /// The rows, which all workers share.
    pub rows: Arc<Rows>,
    /// Its choices.
    pub rng: Rng,
    /// Tells it to stop.
    pub stop: Arc<AtomicBool>,
}

/// What a worker knows of a row.
#[derive(Debug, Default)]
struct Known {
    row: Option<Version>,
    /// A version that was there once, and must never win again.
    old: Option<Version>,
}

impl Worker {
    /// Works until told to stop. A call that is under way is waited for.
    pub async fn work(mut self) {
        let mut known: HashMap<u64, Known> = HashMap::new();
        while !self.stop.load(Ordering::Relaxed) {
            let row = self.rows.take(&mut self.rng);
            let failed = self.call(row, known.entry(row).or_default()).await;
            let pause = self.rng.up_to(PAUSE_MAX);
            let penalty = if failed {
                PAUSE_AFTER_FAILURE
            } else {
                Duration::ZERO
            };
            tokio::time::sleep(pause + penalty).await;
        }
    }

    /// One call; whether the store failed.
    async fn call(&mut self, row: u64, known: &mut Known) -> bool {
        let answer = if self.rng.percent(30) {
            self.handle.load(row).await
        } else {
            self.swap(row, known).await
        };
        let now = match answer {
            Answer::Found(seen) | Answer::Lost(seen) => version(seen),
            // Of a removal: nobody must meet it, also not as what is expected.
            Answer::Won(version) => Some(version),
            Answer::Unanswered | Answer::Refused => return true,
        };
        if known.row != now {
            known.old = known.row.or(known.old);
            known.row = now;
        }
        false
    }

    async fn swap(&mut self, row: u64, known: &Known) -> Answer {
        let rng = &mut self.rng;
        let expected = match known.old {
            Some(old) if rng.percent(5) => Some(old),
            _ if rng.percent(3) => None,
            _ => known.row,
        };
        let removes = expected.is_some() && rng.percent(20);
        // Half of those who go away do so as soon as they have asked.
        let patience = match rng.below(40) {
            0 => Some(Duration::ZERO),
            1 => Some(rng.up_to(PATIENCE_MAX)),
            _ => None,
        };
        let (_, answer) = self.handle.swap(row, expected, removes, patience).await;
        answer
    }
}

fn version(seen: Option<Seen>) -> Option<Version> {
    seen.map(|seen| seen.version)
}
