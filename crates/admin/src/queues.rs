//! How many keys wait, and for how long, as counted in the store.
//!
//! Counting reads every row that is not settled. It is done in the background, only while
//! somebody asks, and takes at most a twentieth of the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{State, StateKind};
use onlyonce_engine::Engine;
use onlyonce_store::{Filter, ListStore, Store, StoreError};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The shortest time between two counts.
const PAUSE_MIN: Duration = Duration::from_secs(5);

/// A count is followed by a pause of so many times its own length.
const PAUSE_TIMES: u32 = 20;

/// How many rows are read at once.
const PAGE_ROWS: usize = 500;

/// How many rows of one state are counted; beyond that it is "more".
const ROWS_MAX: u64 = 20_000;

/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

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
}

/// The latest counts, and who asked for them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    latest: Mutex<QueueCounts>,
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
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts whenever somebody asked, until told to stop.
    pub(crate) async fn keep_counting<S: Store + ListStore>(
        self: Arc<Self>,
        engine: Engine<S>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                () = self.asked.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let started = Instant::now();
            // A store that fails keeps the counts that it had.
            if let Ok(counts) = count(&engine).await {
                *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
                self.counted.notify_waiters();
            }
            let pause = PAUSE_MIN.max(started.elapsed() * PAUSE_TIMES);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

async fn count<S: Store + ListStore>(engine: &Engine<S>) -> Result<QueueCounts, StoreError> {
    let mut counts = QueueCounts {
        counted_at_ms: engine.now().as_millis().max(1),
        ..QueueCounts::default()
    };
    counts.executing = count_state(engine, StateKind::Executing, &mut counts).await?;
    counts.unknown = count_state(engine, StateKind::Unknown, &mut counts).await?;
    counts.dead_letter = count_state(engine, StateKind::DeadLetter, &mut counts).await?;
    Ok(counts)
}

async fn count_state<S: Store + ListStore>(
    engine: &Engine<S>,
    state: StateKind,
    counts: &mut QueueCounts,
) -> Result<u64, StoreError> {
    let filter = Filter {
        state: Some(state),
        ..Filter::default()
    };
    let (mut rows, mut after) = (0, None);
    loop {
        let page = engine.store().list(&filter, after, PAGE_ROWS);
        let page = tokio::time::timeout(PAGE_TIMEOUT, page).await;
        let page = page.map_err(|_| StoreError::unavailable("no list in time"))??;
        for row in page
            .entries
            .iter()
            .filter_map(|entry| entry.row.as_ref().ok())
        {
            if row.record.route.is_reserved() {
                continue;
            }
            rows += 1;
            if let State::Unknown { since, .. } = row.record.state {
                let since = since.as_millis();
                let oldest = counts.oldest_unknown_ms.map_or(since, |old| old.min(since));
                counts.oldest_unknown_ms = Some(oldest);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
        if rows >= ROWS_MAX {
            counts.more = true;
            return Ok(rows);
        }
    }
}
