//! The journal of keys: what operators did (the audit trail) and what rarely happens (an outcome
//! became unknown, was asked about, waits for a person).
//!
//! Entries are notes in the store ([`Note`]), so they survive whatever the keys survive. The n-th
//! entry about a key in a period of [`PERIOD`] has an id that follows from the three; so a key's
//! entries are found by counting from 0 until there is none, and of two who append at once one
//! takes the next number. All entries of a period expire together, the retention after its end,
//! so that counting never meets a gap. An entry that cannot be read, such as one whose encryption
//! key is no longer configured, keeps its number: it hides nothing behind it, and stops nobody from
//! deciding. See `docs/decisions/0024-the-audit-trail-is-records.md`.

mod entry;
mod feed;
mod read;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{RecordId, RouteName, Timestamp};
use onlyonce_engine::{Engine, EngineError, Note};
use onlyonce_store::{ListStore, Store, StoreError, Version};
use thiserror::Error;

pub(crate) use entry::{Entry, Kind, PENDING, UNREADABLE};
pub(crate) use feed::outcome;
pub use feed::{Events, Feed, feed};

/// Entries are numbered within so long a time, and expire together.
pub const PERIOD: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How long entries are kept after the end of their period, unless configured otherwise.
pub const RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How many entries the machine writes about one key in one period. A key that is asked about for
/// ever must not fill the store.
const MACHINE_ENTRIES_MAX: u32 = 64;

/// How many there are in all; what is above the machine's share is for operators.
const ENTRIES_MAX: u32 = 256;

/// Why an entry was not written.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There are too many about this key.
    #[error("the journal of this key is full ({ENTRIES_MAX} entries in 90 days)")]
    Full,
    /// It is about no key.
    #[error("an entry must be about a key")]
    NoKey,
    /// It cannot be put into words.
    #[error("the entry cannot be written: {0}")]
    Words(#[from] serde_json::Error),
}

/// Where an entry is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    id: RecordId,
    version: Version,
}

/// An entry with its id.
pub(crate) type Kept = (RecordId, Entry);

/// The keys that an operator's request is changing right now: it writes its own entry.
pub(crate) type InHand = Arc<Mutex<HashSet<RecordId>>>;

/// Reads and writes entries.
pub(crate) struct Journal<S> {
    engine: Engine<S>,
    retention: Duration,
    in_hand: InHand,
}

impl<S> Clone for Journal<S> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            retention: self.retention,
            in_hand: Arc::clone(&self.in_hand),
        }
    }
}

impl<S: Store + ListStore> Journal<S> {
    pub(crate) fn new(engine: Engine<S>, retention: Duration, in_hand: InHand) -> Self {
        Self {
            engine,
            retention,
            in_hand,
        }
    }

    /// Writes an entry, durably.
    pub(crate) async fn append(&self, entry: &Entry) -> Result<Place, JournalError> {
        let Some(key) = RecordId::from_hex(&entry.key) else {
            return Err(JournalError::NoKey);
        };
        let note = self.note(entry)?;
        let period = period(note.at);
        let most = match entry.source {
            Kind::Machine => MACHINE_ENTRIES_MAX,
            Kind::Operator => ENTRIES_MAX,
        };
        let mut number = 0;
        while number < most {
            let (id, _) = self.place(&key, period, number);
            // Reading first: most entries but the first find their predecessors there.
            if self.is_free(&id).await?
                && let Some(version) = self.engine.write_note(&id, None, &note).await?
            {
                return Ok(Place { id, version });
            }
            number += 1;
        }
        Err(JournalError::Full)
    }

    /// Whether nothing is kept under an id, not even something that cannot be read.
    async fn is_free(&self, id: &RecordId) -> Result<bool, EngineError> {
        match self.engine.inspect(id).await {
            Ok(row) => Ok(row.is_none()),
            Err(EngineError::Store(StoreError::Corrupt { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes an entry again, with what came of it.
    pub(crate) async fn amend(&self, place: Place, entry: &Entry) -> Result<(), JournalError> {
        let note = self.note(entry)?;
        let over = Some(place.version);
        self.engine.write_note(&place.id, over, &note).await?;
        Ok(())
    }

    fn note(&self, entry: &Entry) -> Result<Note, JournalError> {
        let at = Timestamp::from_millis(entry.at_ms);
        let end = period(at).saturating_add(1).saturating_mul(period_ms());
        Ok(Note {
            route: entry.source.route(),
            body: serde_json::to_vec(entry)?.into(),
            at,
            expires_at: Timestamp::from_millis(end).after(self.retention),
        })
    }

    fn place(&self, key: &RecordId, period: u64, number: u32) -> (RecordId, Option<RecordId>) {
        let (period, number) = (period.to_be_bytes(), number.to_be_bytes());
        self.engine
            .note_id(&[b"journal", key.as_bytes(), &period, &number])
    }

    /// Marks a key as being changed by a request that writes its own entry.
    pub(crate) fn take_in_hand(&self, key: RecordId) -> Held {
        let mut keys = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(key);
        Held {
            key,
            in_hand: Arc::clone(&self.in_hand),
        }
    }
}

/// A key in hand, until it is dropped.
pub(crate) struct Held {
    key: RecordId,
    in_hand: InHand,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut keys = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        keys.remove(&self.key);
    }
}

fn period_ms() -> u64 {
    u64::try_from(PERIOD.as_millis()).unwrap_or(u64::MAX)
}

fn period(at: Timestamp) -> u64 {
    at.as_millis() / period_ms()
}

/// The names under which entries are kept.
fn route(name: &str) -> RouteName {
    RouteName::new(name).unwrap_or_default()
}
