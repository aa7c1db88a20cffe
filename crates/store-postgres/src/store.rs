//! The handle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{
    Cursor, Filter, ListStore, Page, Row, Store, StoreError, StoreProfile, Swap, Version,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::columns::{self, NewRow, millis};
use crate::connector::Connector;
use crate::error::{Failure, failure};
use crate::lane::{LOCKED_PAUSE_MIN, Lane};
use crate::queue::{Entry, Queue, Room};
use crate::slot::{ReadError, Readers, Slot};
use crate::{OpenError, PostgresOptions, list};

/// Rows above this count against `queue_bytes_max`; smaller ones are bounded by their number.
const LARGE_ROW_BYTES: u64 = 64 * 1024;

/// Large rows are counted in these units, so that the count fits the semaphore.
const PERMIT_BYTES: u64 = 1024;

/// The store in a `PostgreSQL` database. Clones share it; several processes may use one database.
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: PostgresOptions,
    connector: Arc<Connector>,
    queue: Arc<Queue>,
    readers: Readers,
    swaps: Arc<Semaphore>,
    large_rows: Arc<Semaphore>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl PostgresStore {
    /// Opens the store: one connection is made and looked at now, the others when they are needed.
    /// Its tasks run on the caller's tokio runtime.
    ///
    /// # Errors
    /// When the server cannot be reached or used, or the schema is not this build's; see
    /// [`migrate`](crate::migrate).
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let connector = Arc::new(Connector::new(options)?);
        connector.survey().await?;
        let (first, _) = connector.session(&[]).await?;
        connector.is_open.store(true, Ordering::Relaxed);
        connector.watch();
        let options = options.clone();
        let patience = options.patience();
        let reader_count = (options.pool / 4).max(1);
        let lane_count = options.pool.saturating_sub(reader_count).max(1);
        let queue = Arc::new(Queue::default());
        let mut first = Some(first);
        for _ in 0..lane_count {
            let session = first.take();
            let is_up = session.is_some();
            let lane = Lane {
                queue: Arc::clone(&queue),
                slot: Slot::new(Arc::clone(&connector), session),
                swaps_max: options.batch_swaps_max,
                bytes_max: options.batch_bytes_max,
                patience,
                is_up,
            };
            queue
                .lanes_up
                .fetch_add(usize::from(is_up), Ordering::Relaxed);
            tokio::spawn(lane.run());
        }
        let slots = (0..reader_count).map(|_| Slot::new(Arc::clone(&connector), None));
        let permits = usize::try_from(options.queue_bytes_max / PERMIT_BYTES)
            .unwrap_or(usize::MAX)
            .clamp(1, Semaphore::MAX_PERMITS);
        let inner = Inner {
            queue,
            readers: Readers::new(slots.collect(), patience),
            swaps: Arc::new(Semaphore::new(options.queue_swaps_max)),
            large_rows: Arc::new(Semaphore::new(permits)),
            connector,
            options,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What an operator should know: what is unsafe about the server and was accepted because the
    /// URL allows it.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.inner.connector.warnings()
    }

    /// A place in the queue. Given back once the swap is answered.
    async fn room_for(&self, bytes: u64) -> Result<Room, StoreError> {
        let closed = |_| StoreError::unavailable("the store is closed");
        let swap = Arc::clone(&self.inner.swaps).acquire_owned();
        let swap = swap.await.map_err(closed)?;
        if bytes <= LARGE_ROW_BYTES {
            return Ok((swap, None));
        }
        let units = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX);
        let large = Arc::clone(&self.inner.large_rows).acquire_many_owned(units);
        Ok((swap, Some(large.await.map_err(closed)?)))
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.inner.readers
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.inner.options;
        write!(
            f,
            "PostgresStore({}, {:?})",
            options.place(),
            options.schema
        )
    }
}

impl Store for PostgresStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "postgres",
            durable: true,
            shared: true,
            cheap_reads: false,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let id = &id.as_bytes()[..];
        let rows = self
            .readers()
            .run(async |session| session.link.client.query_opt(&session.load, &[&id]).await);
        let row = rows.await.map_err(nothing_written)?;
        let found = row.as_ref().and_then(|row| columns::row(row, 0));
        found.map(|(_, row)| row).transpose()
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let options = &self.inner.options;
        let next = next
            .map(|record| NewRow::new(record, options.record_bytes_max))
            .transpose()?;
        let room = self
            .room_for(next.as_ref().map_or(0, NewRow::bytes))
            .await?;
        let (reply, answer) = oneshot::channel();
        self.inner.queue.push(Entry {
            id: *id,
            expected,
            next,
            reply,
            alone: false,
            was_locked: false,
            locked_pause: LOCKED_PAUSE_MIN,
            give_up_at: Instant::now() + options.statement_timeout,
            _room: room,
        });
        let gone = |_| StoreError::ambiguous("the task that writes has ended");
        answer.await.map_err(gone)?
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        // Times in the upper half are stored as negative numbers, and come last.
        let now = millis(now);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let near = if now < 0 { i64::MAX } else { now };
        let rows = self.readers().run(async |session| {
            let client = &session.link.client;
            let mut rows = client.query(&session.due, &[&near, &limit]).await?;
            let left = limit.saturating_sub(i64::try_from(rows.len()).unwrap_or(limit));
            if now < 0 && left > 0 {
                rows.extend(client.query(&session.due_far, &[&now, &left]).await?);
            }
            Ok(rows)
        });
        let rows = rows.await.map_err(nothing_written)?;
        let id = |row: &tokio_postgres::Row| {
            let bytes = row.try_get::<_, &[u8]>(0).ok()?;
            bytes.try_into().ok().map(RecordId::from_bytes)
        };
        Ok(rows.iter().filter_map(id).collect())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self
            .readers()
            .run(async |session| session.link.client.query_one(&session.now, &[]).await);
        let row = row.await.map_err(nothing_written)?;
        let millis = row.try_get(0).map_err(StoreError::unavailable)?;
        Ok(columns::time(millis))
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let candidate = &candidate[..];
        let row = self.readers().run(async |session| {
            let client = &session.link.client;
            client.query_one(&session.secret, &[&candidate]).await
        });
        let row = row.await.map_err(may_have_written)?;
        let secret: &[u8] = row.try_get(0).map_err(StoreError::unavailable)?;
        let odd = |_| StoreError::unavailable("the secret in onlyonce_secret has not 32 bytes");
        secret.try_into().map_err(odd)
    }
}

impl ListStore for PostgresStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        list::list(self.readers(), filter, after, limit).await
    }
}

/// A read that failed changed nothing.
pub(crate) fn nothing_written(error: ReadError) -> StoreError {
    match error {
        ReadError::NoConnection(error) => error,
        ReadError::Failed(error) => match failure(&error) {
            Failure::Refused { reason, .. }
            | Failure::Unusable(reason)
            | Failure::MayHaveWritten(reason) => StoreError::unavailable(reason),
        },
        ReadError::NoAnswer(patience) => {
            StoreError::unavailable(format!("no answer within {patience:?}"))
        }
    }
}

fn may_have_written(error: ReadError) -> StoreError {
    match error {
        ReadError::NoConnection(error) => error,
        ReadError::Failed(error) => match failure(&error) {
            Failure::Refused { reason, .. } | Failure::Unusable(reason) => {
                StoreError::unavailable(reason)
            }
            Failure::MayHaveWritten(reason) => StoreError::ambiguous(reason),
        },
        ReadError::NoAnswer(patience) => {
            StoreError::ambiguous(format!("no answer within {patience:?}"))
        }
    }
}
