//! How many keys wait, and for how long, as counted in the store.
//!
//! Counting reads every row that is not settled, and a store without an index of these looks at all
//! the others besides. It is done in the background, only while somebody asks, and takes at most a
//! twentieth of the time. So on a large store the counts are old, which is no failure: only a
//! store that cannot be read at all is one, and [`QueueCounts::unreadable_ms`] tells since when.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Record, State, StateKind};
use onlyonce_engine::{Engine, EngineError};
use onlyonce_store::{Filter, ListStore, Store, StoreError};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The shortest time between two counts, and between two questions whether the store answers.
const PAUSE_MIN: Duration = Duration::from_secs(5);

/// A count is followed by a pause of so many times its own length.
const PAUSE_TIMES: u32 = 20;

/// How many rows are read at once.
const PAGE_ROWS: usize = 500;

/// How many rows are counted in one go; beyond that it is "more".
const ROWS_MAX: usize = 100_000;

/// How long one page may take: nobody waits for it, and a shared store may look at all of its rows
/// until it has one.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the first who asks waits for the first count.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);

/// Keys in the states that somebody should look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct QueueCounts {
    /// Being executed.
    pub executing: u64,
    /// With an unknown outcome.
    pub unknown: u64,
    /// Waiting for a person.
    pub dead_letter: u64,
    /// Since when the oldest unknown outcome is unknown.
    pub oldest_unknown_ms: Option<u64>,
    /// When they were counted, by the store's clock; 0 before the first time.
    pub counted_at_ms: u64,
    /// Whether there are more than were counted.
    pub more: bool,
    /// For how long the store could not be read; 0 while it can.
    pub unreadable_ms: u64,
}

/// How counting goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// The keys were counted.
    Works,
    /// The store answers, and takes too long to list its keys.
    Slow,
    /// The store cannot be read, or is not the one that it was.
    Fails(EngineError),
}

impl Counting {
    /// Whether something else is to be said than before.
    fn differs(&self, before: &Self) -> bool {
        std::mem::discriminant(self) != std::mem::discriminant(before)
    }
}

/// Who is told when it begins to go otherwise.
pub type CountingObserver = Box<dyn Fn(&Counting) + Send + Sync>;

/// The latest counts, and who asked for them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    latest: Mutex<QueueCounts>,
    unreadable_since: Mutex<Option<Instant>>,
    asked: Notify,
    counted: Notify,
}

impl Queues {
    /// The latest counts; asks for new ones.
    pub(crate) async fn counts(&self) -> QueueCounts {
        let counted = self.counted.notified();
        self.asked.notify_one();
        if self.latest().counted_at_ms == 0 {
            // Without a count in time the answer is that there is none yet.
            let _ = tokio::time::timeout(FIRST_PATIENCE, counted).await;
        }
        self.latest()
    }

    /// The latest counts, at once; asks for new ones.
    pub(crate) fn ask(&self) -> QueueCounts {
        self.asked.notify_one();
        self.latest()
    }

    fn latest(&self) -> QueueCounts {
        let since = self.unreadable_since.lock();
        let since = *since.unwrap_or_else(PoisonError::into_inner);
        let unreadable = since.map_or(Duration::ZERO, |since| since.elapsed());
        QueueCounts {
            unreadable_ms: u64::try_from(unreadable.as_millis()).unwrap_or(u64::MAX),
            ..*self.latest.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Counts whenever somebody asked and it is time, until told to stop. In between it only asks
    /// whether the store answers, so that a long pause hides no failure.
    pub(crate) async fn keep_counting<S: Store + ListStore>(
        self: Arc<Self>,
        engine: Engine<S>,
        observer: CountingObserver,
        mut stop: watch::Receiver<bool>,
    ) {
        let (mut before, mut next_count) = (Counting::Works, Instant::now());
        loop {
            tokio::select! {
                () = self.asked.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let started = Instant::now();
            let now = match engine.check_store().await {
                Err(error) => {
                    next_count = started;
                    Counting::Fails(error)
                }
                Ok(_) if started < next_count => before.clone(),
                Ok(_) => {
                    let counted = self.count_once(&engine).await;
                    next_count = Instant::now() + started.elapsed() * PAUSE_TIMES;
                    counted
                }
            };
            self.note(&now, started);
            if now.differs(&before) {
                observer(&now);
            }
            before = now;
            tokio::select! {
                () = tokio::time::sleep(PAUSE_MIN) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Counts; what goes wrong leaves the counts as they were.
    async fn count_once<S: Store + ListStore>(&self, engine: &Engine<S>) -> Counting {
        match count(engine, ROWS_MAX).await {
            Ok(counts) => {
                *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
                Counting::Works
            }
            Err(Trouble::TooLong) => Counting::Slow,
            Err(Trouble::Failed(error)) => Counting::Fails(error.into()),
        }
    }

    /// Remembers since when the store cannot be read.
    fn note(&self, now: &Counting, started: Instant) {
        let since = self.unreadable_since.lock();
        let mut since = since.unwrap_or_else(PoisonError::into_inner);
        *since = match now {
            Counting::Fails(_) => Some(since.unwrap_or(started)),
            Counting::Works | Counting::Slow => None,
        };
        drop(since);
        self.counted.notify_waiters();
    }
}

/// Why keys were not counted.
enum Trouble {
    TooLong,
    Failed(StoreError),
}

/// All states at once: a store without an index by state looks at every row for each list. Only
/// where there are too many are those counted by themselves that somebody must look at: a few unknown
/// outcomes must not be lost among a million dead letters.
async fn count<S: Store + ListStore>(
    engine: &Engine<S>,
    rows_max: usize,
) -> Result<QueueCounts, Trouble> {
    let mut all = QueueCounts {
        counted_at_ms: engine.now().as_millis().max(1),
        ..QueueCounts::default()
    };
    let unsettled = Filter {
        unsettled: true,
        ..Filter::default()
    };
    count_those(engine, &unsettled, rows_max, &mut all).await?;
    if !all.more {
        return Ok(all);
    }
    let mut alone = QueueCounts::default();
    for state in [StateKind::Unknown, StateKind::DeadLetter] {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        count_those(engine, &filter, rows_max, &mut alone).await?;
    }
    Ok(QueueCounts {
        unknown: alone.unknown,
        dead_letter: alone.dead_letter,
        oldest_unknown_ms: alone.oldest_unknown_ms,
        ..all
    })
}

/// Counts keys that match, as many as `rows_max` of them or a page more.
async fn count_those<S: Store + ListStore>(
    engine: &Engine<S>,
    filter: &Filter,
    rows_max: usize,
    counts: &mut QueueCounts,
) -> Result<(), Trouble> {
    let (mut rows, mut after) = (0, None);
    loop {
        let page = engine.store().list(filter, after, PAGE_ROWS.min(rows_max));
        let page = tokio::time::timeout(PAGE_TIMEOUT, page).await;
        let page = page
            .map_err(|_| Trouble::TooLong)?
            .map_err(Trouble::Failed)?;
        rows += page.entries.len();
        let readable = page.entries.iter();
        let readable = readable.filter_map(|entry| entry.row.as_ref().ok());
        readable.for_each(|row| counts.add(&row.record));
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
        if rows >= rows_max {
            counts.more = true;
            return Ok(());
        }
    }
}

impl QueueCounts {
    fn add(&mut self, record: &Record) {
        if record.route.is_reserved() {
            return;
        }
        match record.state {
            State::Executing { .. } => self.executing += 1,
            State::Unknown { since, .. } => {
                self.unknown += 1;
                let since = since.as_millis();
                let oldest = self.oldest_unknown_ms.map_or(since, |old| old.min(since));
                self.oldest_unknown_ms = Some(oldest);
            }
            State::DeadLetter { .. } => self.dead_letter += 1,
            State::Released { .. } | State::Completed { .. } | State::Expired { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_core::UnknownReason;
    use onlyonce_engine::{Finished, Outcome};
    use onlyonce_store::MemoryStore;

    use super::*;

    /// A few unknown outcomes behind many dead letters: an alert that waits for them would be silent.
    #[tokio::test]
    async fn what_is_rare_is_counted_also_where_the_rest_is_too_much() {
        let engine = Engine::builder(MemoryStore::new()).without_background();
        let engine = engine.open().await.unwrap();
        let reason = UnknownReason::NoCompleteAnswer;
        for key in 0..10 {
            let work = async move |_| Finished {
                outcome: Outcome::Unknown(reason),
                value: (),
            };
            let key = format!("order-{key}");
            engine.guard("pay", b"", &key).run(b"", work).await.unwrap();
        }
        let unsettled = Filter {
            unsettled: true,
            ..Filter::default()
        };
        let page = engine.store().list(&unsettled, None, 100).await.unwrap();
        // The last one stays unknown: whoever stops early does not come to it.
        for entry in page.entries.iter().take(9) {
            let mut row = entry.row.clone().unwrap();
            let since = row.record.updated_at;
            let attempts = 9;
            row.record.state = State::DeadLetter {
                reason,
                since,
                attempts,
            };
            let swap = engine
                .store()
                .swap(&entry.id, Some(row.version), Some(&row.record));
            assert!(matches!(swap.await, Ok(onlyonce_store::Swap::Won(_))));
        }
        for (rows_max, dead_letter, more) in [(5, 5, true), (50, 9, false)] {
            let counts = count(&engine, rows_max).await.ok().unwrap();
            assert_eq!(counts.unknown, 1);
            assert!(counts.oldest_unknown_ms.is_some());
            assert_eq!((counts.dead_letter, counts.more), (dead_letter, more));
        }
    }
}
