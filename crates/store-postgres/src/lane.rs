//! A lane: one connection that sends what is waiting, a batch at a time.
//!
//! While one lane waits for the commit of its batch, the next fills its own. A batch is one
//! statement and one transaction, so it is written whole or not at all; what became of each swap
//! is in its answer. If it fails without having written, its swaps go again, one by one, and only
//! the guilty one fails. If it may have written, every caller of the batch is told so.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_store::{StoreError, Swap, Version};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;

use crate::columns::{self, NewResponse, NewRow, RECORD_VERSION};
use crate::error::{Failure, failure};
use crate::queue::{Entry, Queue};
use crate::session::Session;
use crate::slot::Slot;

/// How long a lane without a connection leaves the work to the others.
const DOWN_PAUSE: Duration = Duration::from_millis(100);

/// The first pause before a swap whose row was locked is tried again; then twice as long each time.
/// Every try keeps a lane busy for `lock_timeout`, which the swaps of other rows need.
pub(crate) const LOCKED_PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest such pause: how much later than the row is free a swap may be.
const LOCKED_PAUSE_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Lane {
    pub(crate) queue: Arc<Queue>,
    pub(crate) slot: Slot,
    pub(crate) swaps_max: usize,
    pub(crate) bytes_max: u64,
    /// How long an answer may take.
    pub(crate) patience: Duration,
    pub(crate) is_up: bool,
}

impl Lane {
    /// Works until the queue is closed and empty. What is waiting is taken by a lane that has a
    /// connection: making one may take long.
    pub(crate) async fn run(mut self) {
        while self.queue.ready().await {
            if !self.slot.is_ready() {
                self.queue.pass_on();
            }
            match self.slot.get().await {
                Ok(session) => {
                    self.mark(true);
                    self.work(&session).await;
                }
                Err(error) => {
                    self.mark(false);
                    self.without_connection(&error).await;
                }
            }
        }
    }

    /// Sends what is waiting, if another lane has not done so meanwhile.
    async fn work(&mut self, session: &Arc<Session>) {
        let batch = self.queue.take(self.swaps_max, self.bytes_max);
        if batch.is_empty() {
            return;
        }
        let was_locked = batch.iter().any(|entry| entry.was_locked);
        self.send(session, batch).await;
        if was_locked {
            self.queue.locked_was_tried();
        }
    }

    fn mark(&mut self, up: bool) {
        if up && !self.is_up {
            self.queue.lanes_up.fetch_add(1, Ordering::Relaxed);
        } else if !up && self.is_up {
            self.queue.lanes_up.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_up = up;
    }

    /// Another lane may do better. If none does, nobody is kept waiting.
    async fn without_connection(&self, error: &StoreError) {
        if self.queue.lanes_up.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(DOWN_PAUSE).await;
            return;
        }
        let batch = self.queue.take(self.swaps_max, self.bytes_max);
        let was_locked = batch.iter().any(|entry| entry.was_locked);
        for entry in batch {
            entry.answer(Err(error.clone()));
        }
        if was_locked {
            self.queue.locked_was_tried();
        }
    }

    async fn send(&mut self, session: &Arc<Session>, batch: Vec<Entry>) {
        let sent = tokio::time::timeout(self.patience, query(session, &batch)).await;
        let failure = match sent {
            Ok(Ok(rows)) => return self.queue.give_back(answer(batch, &rows)),
            Ok(Err(error)) => failure(&error),
            Err(_) => Failure::MayHaveWritten(format!("no answer within {:?}", self.patience)),
        };
        match failure {
            Failure::MayHaveWritten(reason) => {
                self.leave(session);
                for entry in batch {
                    entry.answer(Err(StoreError::ambiguous(&reason)));
                }
            }
            Failure::Unusable(reason) => {
                self.leave(session);
                for entry in batch {
                    entry.answer(Err(StoreError::unavailable(&reason)));
                }
            }
            Failure::Refused { reason, is_passing } => self.again(batch, &reason, is_passing),
        }
    }

    fn leave(&mut self, session: &Arc<Session>) {
        self.slot.leave(session);
        self.mark(false);
    }

    /// Nothing was written. Those who shared a statement with the one that failed must not suffer
    /// for it, and a lock is held only for a while.
    fn again(&self, batch: Vec<Entry>, reason: &str, is_passing: bool) {
        let now = Instant::now();
        let was_shared = batch.len() > 1;
        for mut entry in batch {
            if entry.give_up_at <= now || !(was_shared || is_passing) {
                entry.answer(Err(StoreError::unavailable(reason)));
                continue;
            }
            let queue = Arc::clone(&self.queue);
            if was_shared {
                entry.alone = true;
                queue.push(entry);
                continue;
            }
            entry.alone = true;
            entry.was_locked = true;
            // The last try is at the end of its time.
            let next_try = (now + entry.locked_pause).min(entry.give_up_at);
            entry.locked_pause = (entry.locked_pause * 2).min(LOCKED_PAUSE_MAX);
            tokio::spawn(async move {
                tokio::time::sleep_until(next_try).await;
                queue.push(entry);
            });
        }
    }
}

/// Answers those that have a line. The function ends early when its answers are large: what it did
/// not come to is given back, and was not written.
fn answer(batch: Vec<Entry>, rows: &[tokio_postgres::Row]) -> Vec<Entry> {
    // Rows come in the order of the batch; the slot is there to make sure.
    let mut lines = rows.iter();
    let mut not_tried = Vec::new();
    for (slot, entry) in (1_i64..).zip(batch) {
        match lines.next() {
            Some(row) if row.try_get(0).ok() == Some(slot) => entry.answer(swapped(row)),
            None if !rows.is_empty() => not_tried.push(entry),
            Some(_) | None => {
                let odd = "the answer has no line for this row";
                entry.answer(Err(StoreError::ambiguous(odd)));
            }
        }
    }
    not_tried
}

fn swapped(row: &tokio_postgres::Row) -> Result<Swap, StoreError> {
    let won: Option<i64> = row.try_get(1).map_err(StoreError::ambiguous)?;
    if let Some(version) = won {
        return Ok(Swap::Won(Version(version.cast_unsigned())));
    }
    match columns::row(row, 2) {
        None => Ok(Swap::Lost(None)),
        Some((_, found)) => found.map(|found| Swap::Lost(Some(found))),
    }
}

type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

async fn query(
    session: &Session,
    batch: &[Entry],
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let params = params(batch);
    let params: Vec<&(dyn ToSql + Sync)> = params
        .iter()
        .map(|param| &**param as &(dyn ToSql + Sync))
        .collect();
    session.link.client.query(&session.swap, &params).await
}

/// One array per column, in the order of `onlyonce_swap`.
fn params(batch: &[Entry]) -> Vec<Param<'_>> {
    fn row<'a, T: ToSql + Sync + Send + 'a>(
        batch: &'a [Entry],
        column: impl Fn(&'a NewRow) -> Option<T>,
    ) -> Param<'a> {
        let values: Vec<Option<T>> = batch
            .iter()
            .map(|entry| entry.next.as_ref().and_then(&column))
            .collect();
        Box::new(values)
    }
    fn response<'a, T: ToSql + Sync + Send + 'a>(
        batch: &'a [Entry],
        column: impl Fn(&'a NewResponse) -> Option<T>,
    ) -> Param<'a> {
        row(batch, move |row| column(&row.response))
    }
    let ids: Vec<&[u8]> = batch.iter().map(|entry| &entry.id.as_bytes()[..]).collect();
    let expected = batch.iter().map(|entry| entry.expected);
    let expected: Vec<Option<i64>> = expected
        .map(|version| version.map(|version| version.0.cast_signed()))
        .collect();
    vec![
        Box::new(ids),
        Box::new(expected),
        row(batch, |row| Some(row.state)),
        row(batch, |row| row.deadline),
        row(batch, |row| Some(&row.fence[..])),
        row(batch, |row| Some(row.attempt)),
        row(batch, |row| Some(row.algorithm)),
        row(batch, |row| Some(&row.fingerprint[..])),
        row(batch, |row| Some(&row.fields[..])),
        row(batch, |row| Some(row.fields_truncated)),
        row(batch, |row| Some(row.route.as_str())),
        row(batch, |row| Some(&row.principal[..])),
        row(batch, |row| Some(row.created_at)),
        row(batch, |row| Some(row.updated_at)),
        row(batch, |row| row.reason),
        row(batch, |row| row.unknown_since),
        row(batch, |row| row.probes),
        response(batch, |response| response.kind),
        response(batch, |response| response.status),
        response(batch, |response| response.headers.as_deref()),
        response(batch, |response| response.trailers.as_deref()),
        response(batch, |response| response.body.as_deref()),
        response(batch, |response| response.seal_key_id),
        response(batch, |response| {
            response.seal_nonce.as_ref().map(|nonce| &nonce[..])
        }),
        row(batch, |row| Some(row.response_schema)),
        row(batch, |row| Some(&row.memo[..])),
        Box::new(RECORD_VERSION),
    ]
}
