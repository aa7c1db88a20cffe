//! The one thread that writes: one batch, one sync, then the answers.
//!
//! While a sync runs, callers queue; the next batch is whatever has queued. So one caller pays
//! one sync, and a thousand callers share one.
//!
//! The engine appends a batch to its journal, syncs, and only then applies it to what readers
//! see. Nobody is answered before that, losers included, and the index follows after it: nothing
//! that could still be lost is ever seen.
//!
//! After any failed write or sync nobody knows what is on disk. The callers of that batch are
//! told so, all later ones are refused, and no sync is tried again: a second sync that succeeds
//! proves nothing about the first. Opening the store again reads the journal from the disk and
//! recovers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use fjall::PersistMode;
use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::{StoreError, Version};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::layout::{NewRow, meta};
use crate::maintenance::Removed;
use crate::plan::{Effects, Outcome, Plan};
use crate::shared::Shared;

/// How many versions are reserved at a time. After a crash the rest of the block is skipped:
/// of 2^64 versions, nobody will miss them.
const VERSION_BLOCK: u64 = 1 << 20;

/// How long the writer sleeps while the engine is behind with its files.
const BEHIND_SLEEP: Duration = Duration::from_millis(1);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) enum Command {
    Swap(SwapCommand),
    Secret {
        candidate: [u8; 32],
        reply: Reply<[u8; 32]>,
    },
}

pub(crate) struct SwapCommand {
    pub(crate) id: RecordId,
    pub(crate) expected: Option<Version>,
    pub(crate) next: Option<NewRow>,
    pub(crate) reply: Reply<Outcome>,
    /// Given back when the command is dropped: the bytes are then in the engine.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

pub(crate) struct Limits {
    pub(crate) swaps_max: usize,
    pub(crate) bytes_max: u64,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    limits: Limits,
    removed: Removed,
    last_version: u64,
    version_ceiling: u64,
    persisted_time: Timestamp,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        compact: SyncSender<()>,
        compact_bytes_min: u64,
        version_ceiling: u64,
    ) -> Self {
        Self {
            removed: Removed::new(compact, compact_bytes_min),
            shared,
            limits,
            last_version: version_ceiling,
            version_ceiling,
            persisted_time: Timestamp::ZERO,
        }
    }

    /// Runs until every sender is gone and the queue is empty.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Some(first) = queue.blocking_recv() {
            let mut swaps = Vec::new();
            let mut secrets = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Swap(swap) => {
                        bytes += swap.next.as_ref().map_or(0, NewRow::len);
                        swaps.push(swap);
                    }
                    Command::Secret { candidate, reply } => secrets.push((candidate, reply)),
                }
                let is_full =
                    swaps.len() >= self.limits.swaps_max || bytes >= self.limits.bytes_max;
                next = if is_full { None } else { queue.try_recv().ok() };
            }
            self.keep_secret(secrets);
            self.write(swaps);
        }
    }

    fn write(&mut self, swaps: Vec<SwapCommand>) {
        if swaps.is_empty() {
            return;
        }
        self.wait_while_behind();
        if self.shared.is_stopped() {
            for swap in swaps {
                answer(swap.reply, Err(self.shared.stopped_error()));
            }
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut plan = Plan::new(&shared, swaps.len());
        let mut answers = Vec::with_capacity(swaps.len());
        let mut permits = Vec::new();
        for swap in swaps {
            let version = Version(self.last_version + 1);
            let outcome = plan.swap(&swap.id, swap.expected, swap.next, version);
            self.last_version = version.0;
            answers.push((swap.reply, outcome));
            permits.extend(swap.permit);
        }
        let committed = self.commit(plan);
        drop(permits);
        let counters = &self.shared.counters;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        let decided = answers.len() as u64;
        counters.swaps.fetch_add(decided, Ordering::Relaxed);
        for (reply, outcome) in answers {
            answer(reply, committed.clone().and(outcome));
        }
    }

    /// Makes a plan durable, and then visible.
    fn commit(&mut self, plan: Plan<'_>) -> Result<(), StoreError> {
        let shared = &self.shared;
        let tables = &shared.tables;
        let mut batch = tables.db.batch().durability(Some(PersistMode::SyncData));
        let effects = plan.write(&mut batch);
        if batch.is_empty() {
            return Ok(());
        }
        if self.last_version >= self.version_ceiling {
            self.version_ceiling = self.last_version + VERSION_BLOCK;
            let ceiling = self.version_ceiling.to_be_bytes();
            batch.insert(&tables.meta, meta::VERSION_CEILING, ceiling);
        }
        let now = shared.clock.now();
        if Shared::is_time_stale(self.persisted_time, now) {
            self.persisted_time = now;
            batch.insert(&tables.meta, meta::LATEST_TIME, now.as_millis().to_be_bytes());
        }
        commit(shared, batch)?;
        shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.show(effects);
        Ok(())
    }

    fn show(&mut self, effects: Effects) {
        self.shared.index.apply(effects.flips);
        self.shared.floor.lower(&effects.expiries);
        self.removed.add(&self.shared, effects.removed_bytes);
    }

    fn keep_secret(&self, asked: Vec<([u8; 32], Reply<[u8; 32]>)>) {
        for (candidate, reply) in asked {
            answer(reply, self.secret(candidate));
        }
    }

    fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let tables = &self.shared.tables;
        let kept = tables.meta.get(meta::SECRET);
        if let Some(kept) = kept.map_err(|error| Shared::unreadable(&error))? {
            return kept.as_ref().try_into().map_err(|_| {
                StoreError::unavailable("the store's secret is damaged; restore the folder")
            });
        }
        if self.shared.is_stopped() {
            return Err(self.shared.stopped_error());
        }
        let mut batch = tables.db.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&tables.meta, meta::SECRET, candidate);
        commit(&self.shared, batch)?;
        Ok(candidate)
    }

    fn wait_while_behind(&self) {
        let tables = &self.shared.tables;
        while tables.is_behind() && !self.shared.is_stopped() {
            if tables.has_failed() {
                self.shared.stop(BACKGROUND_FAILURE);
            }
            thread::sleep(BEHIND_SLEEP);
        }
    }
}

const BACKGROUND_FAILURE: &str =
    "writing a file in the background failed, perhaps because the disk is full";

fn commit(shared: &Shared, batch: fjall::OwnedWriteBatch) -> Result<(), StoreError> {
    match batch.commit() {
        Ok(()) => Ok(()),
        // The engine looks at this flag before it writes anything.
        Err(fjall::Error::Poisoned) => {
            shared.stop(BACKGROUND_FAILURE);
            Err(shared.stopped_error())
        }
        Err(error) => {
            shared.stop(&format!("writing the journal failed: {error}"));
            Err(StoreError::ambiguous(error))
        }
    }
}

/// Nobody may be waiting any more: a caller may give up at any time.
fn answer<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    let _ = reply.send(result);
}
