//! The handle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use onlyonce_core::{Record, RecordId, Response, State, Timestamp};
use onlyonce_store::{
    Cursor, Filter, ListStore, Page, Row, Store, StoreClock, StoreError, StoreProfile, Swap,
    Version,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::answer::{self, Answer};
use crate::batch::Outcome;
use crate::cleaner::{Cleaner, CleanerHandle, Task};
use crate::folder::Folder;
use crate::record::NewRecord;
use crate::recovery::{Recovered, recover};
use crate::shared::Shared;
use crate::writer::{Command, Limits, SwapCommand, Writer};
use crate::{EmbeddedOptions, EmbeddedStats, OpenError, list, reader};

/// Rows above this count against `queue_bytes_max`; smaller ones are bounded by their number.
const LARGE_ROW_BYTES: u64 = 64 * 1024;

/// Large rows are counted in these units, so that the count fits the semaphore.
const PERMIT_BYTES: u64 = 1024;

/// The store in one folder of this machine.
///
/// Clones share it. When the last one is dropped, the writer finishes its queue and the folder is
/// free for the next process; dropping it inside a task is fine, and takes about as long as one
/// sync.
///
/// Of the callers of one thread, one is woken with the answers of all and hands the others on. So a
/// future of this store must be polled when it is woken, or dropped: one that is kept and not
/// polled keeps others waiting.
///
/// Reads run in the caller's task. They ask memory first; one that has to ask the disk blocks its
/// thread for as long as that takes.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    running: Running,
    large_rows: Arc<Semaphore>,
    /// How many units all large rows have together.
    units: u32,
    record_bytes_max: u64,
}

/// The threads of an open store. Fields are dropped in this order: the folder last.
struct Running {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
    cleaner: Option<JoinHandle<()>>,
    folder: Folder,
}

impl EmbeddedStore {
    /// Opens the store in a folder, making it if it is not there. Blocks while it reads the
    /// log: call it before serving, not inside a busy task.
    ///
    /// # Errors
    /// When the folder is in use, not an onlyonce store, of a newer format, or damaged.
    pub fn open(options: &EmbeddedOptions) -> Result<Self, OpenError> {
        let units = options.queue_bytes_max / PERMIT_BYTES;
        let units = u32::try_from(units).unwrap_or(u32::MAX).max(1);
        let permits = usize::try_from(units).unwrap_or(usize::MAX);
        let inner = Inner {
            running: start(options)?,
            large_rows: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            units,
            record_bytes_max: options.record_bytes_max,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What the writer has done since the store was opened.
    #[must_use]
    pub fn stats(&self) -> EmbeddedStats {
        self.shared().counters.read()
    }

    fn shared(&self) -> &Shared {
        &self.inner.running.shared
    }

    async fn send(&self, command: Command) -> Result<(), StoreError> {
        let Some(queue) = &self.inner.running.queue else {
            return Err(self.writer_is_gone());
        };
        let sent = queue.send(command).await;
        sent.map_err(|_| self.writer_is_gone())
    }

    fn writer_is_gone(&self) -> StoreError {
        self.shared().stop("the writer thread has ended");
        self.shared().stopped_error()
    }

    /// Room for a large row, asked for before it is encoded: those that wait have one copy of their
    /// answer, not two. Given back once the row is written.
    async fn room_for(&self, record: &Record) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        let bytes = answer_bytes(record);
        if bytes <= LARGE_ROW_BYTES {
            return Ok(None);
        }
        let units = bytes / PERMIT_BYTES;
        // The largest row takes all there is, where rounding would have it ask for more.
        let units = u32::try_from(units)
            .unwrap_or(u32::MAX)
            .min(self.inner.units);
        let room = Arc::clone(&self.inner.large_rows);
        match room.acquire_many_owned(units).await {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(self.writer_is_gone()),
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EmbeddedStore({})",
            self.inner.running.folder.path().display()
        )
    }
}

impl Store for EmbeddedStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "embedded",
            durable: true,
            shared: false,
            cheap_reads: true,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let row = reader::load(&self.shared().log, id)?;
        row.map(|row| row.decode(id)).transpose()
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        if self.shared().is_stopped() {
            return Err(self.shared().stopped_error());
        }
        let permit = match next {
            Some(record) => self.room_for(record).await?,
            None => None,
        };
        let next = next
            .map(|record| NewRecord::encode(id, record, self.inner.record_bytes_max))
            .transpose()?;
        let (reply, answer) = answer::channel();
        let command = SwapCommand {
            id: *id,
            expected,
            next,
            reply,
            permit,
        };
        self.send(Command::Swap(command)).await?;
        match answer.await.ok().and_then(Answer::take) {
            Some(Ok(Outcome::Won(version))) => Ok(Swap::Won(version)),
            Some(Ok(Outcome::Lost(row))) => {
                let row = row.map(|row| row.decode(id)).transpose()?;
                Ok(Swap::Lost(row))
            }
            Some(Err(error)) => Err(error),
            None => Err(StoreError::ambiguous("the writer thread has ended")),
        }
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        Ok(reader::due(&self.shared().log, now, limit))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let shared = self.shared();
        // Whoever asks for the time to see whether the store is well is told that it is not.
        if shared.is_stopped() {
            return Err(shared.stopped_error());
        }
        Ok(shared.clock.now())
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Secret { candidate, reply }).await?;
        let gone = |_| StoreError::ambiguous("the writer thread has ended");
        answer.await.map_err(gone)?
    }
}

impl ListStore for EmbeddedStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        list::list(&self.shared().log, filter, after, limit).await
    }
}

/// The bytes of the answer in a record, which is what makes one large.
fn answer_bytes(record: &Record) -> u64 {
    let State::Completed { response, .. } = &record.state else {
        return 0;
    };
    match response {
        Response::Plain(answer) => answer.body.len() as u64,
        Response::Sealed(answer) => answer.ciphertext.len() as u64,
        Response::Tombstone(_) => 0,
    }
}

fn start(options: &EmbeddedOptions) -> Result<Running, OpenError> {
    options.check()?;
    let folder = Folder::take(&options.folder)?;
    let recovered = recover(&folder)?;
    folder.keep_format()?;
    let clock = StoreClock::start(recovered.latest_time);
    let Recovered { log, .. } = recovered;
    let shared = Shared::new(folder.path().into(), folder.log(), log, clock);
    let shared = Arc::new(shared);
    let (queue, commands) = mpsc::channel(options.queue_swaps_max);
    let (task_sender, tasks) = std::sync::mpsc::channel();
    for sealed in recovered.unhinted {
        let _ = task_sender.send(Task::Sealed(sealed));
    }
    let is_wanted = Arc::new(AtomicBool::new(true));
    let _ = task_sender.send(Task::Clean);
    let cleaner = Cleaner {
        shared: Arc::clone(&shared),
        queue: queue.downgrade(),
        tasks,
        is_wanted: Arc::clone(&is_wanted),
        dead_bytes_max: options.dead_bytes_max,
    };
    let writer = Writer {
        shared: Arc::clone(&shared),
        limits: Limits {
            swaps_max: options.batch_swaps_max,
            bytes_max: options.batch_bytes_max,
            segment_bytes_max: options.segment_bytes_max,
        },
        cleaner: CleanerHandle::new(task_sender, is_wanted),
        active: recovered.active,
        active_bytes: recovered.active_bytes,
        zeros_until: recovered.active_bytes,
        active_entries: recovered.active_entries,
        next_frame: recovered.next_frame,
        had_frames: recovered.next_frame > 1,
        next_version: recovered.next_version,
        is_stretched: false,
        buffer: Vec::new(),
    };
    let cleaner = spawn(&folder, "onlyonce-cleaner", move || cleaner.run())?;
    let writer = spawn(&folder, "onlyonce-writer", move || writer.run(commands))?;
    Ok(Running {
        shared,
        queue: Some(queue),
        writer: Some(writer),
        cleaner: Some(cleaner),
        folder,
    })
}

fn spawn(
    folder: &Folder,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map_err(folder.io("start a thread"))
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a sender the writer ends after what is queued, and the cleaner after the
        // writer. Neither needs an executor, so waiting for them here cannot wait for the very
        // task that drops this.
        self.queue = None;
        for thread in [self.writer.take(), self.cleaner.take()] {
            // One that panicked has stopped the store; there is nothing to add.
            let _ = thread.map(JoinHandle::join);
        }
    }
}
