//! Which table holds what, and the bytes of a row.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | a name | the secret, the version ceiling, the latest time |
//! | `open` | id | an unsettled row |
//! | `settled` | id | a settled row |
//! | `expiry` | deadline, id | nothing: the settled rows by deadline |
//!
//! An unsettled row **shadows** a settled one of the same id. A claim of a key that was settled
//! before therefore leaves the old row where it is, and only the next settlement overwrites it.
//! Readers depend on that; see `reader`.
//!
//! Unsettled rows are few and short-lived. Keeping them apart makes the table that a start must
//! read small, and a claim one insert.

use bytes::Bytes;
use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy};
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use onlyonce_core::{Record, RecordId, Timestamp, codec};
use onlyonce_store::{Row, StoreError, Version};

use crate::EmbeddedOptions;

/// Behind the record's bytes stand its deadline and its version, so that the writer need not
/// decode a row to replace it, and a row whose record is unreadable can still be removed.
const DEADLINE_BYTES: usize = 8;
const VERSION_BYTES: usize = 8;
const TRAILER_BYTES: usize = DEADLINE_BYTES + VERSION_BYTES;
const NO_DEADLINE: u64 = u64::MAX;

/// What `meta` holds.
pub(crate) mod meta {
    /// The hashing secret: 32 bytes.
    pub(crate) const SECRET: &str = "secret";
    /// No version at or above this was ever given out: 8 bytes.
    pub(crate) const VERSION_CEILING: &str = "version-ceiling";
    /// The store's time when this was written, in milliseconds: 8 bytes.
    pub(crate) const LATEST_TIME: &str = "latest-time";
}

/// The engine's tables.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) db: Database,
    pub(crate) meta: Keyspace,
    pub(crate) open: Keyspace,
    pub(crate) settled: Keyspace,
    pub(crate) expiry: Keyspace,
}

impl Tables {
    /// Opens the engine in `path`, and makes the tables that are not there yet.
    pub(crate) fn open(path: &std::path::Path, options: &EmbeddedOptions) -> fjall::Result<Self> {
        let db = Database::builder(path)
            .cache_size(options.cache_bytes)
            .max_journaling_size(options.journal_bytes_max)
            .worker_threads(options.worker_threads)
            .manual_journal_persist(true)
            .open()?;
        let table = |name, memtable_bytes| {
            db.keyspace(name, || table_options().max_memtable_size(memtable_bytes))
        };
        Ok(Self {
            meta: table("meta", SMALL_MEMTABLE_BYTES)?,
            open: table("open", options.memtable_bytes / 2)?,
            settled: table("settled", options.memtable_bytes)?,
            expiry: table("expiry", options.memtable_bytes / 2)?,
            db,
        })
    }

    /// Whether the engine is behind with writing files. It would then block inside a commit, and
    /// block for ever if its workers have died; so the writer waits outside, with open eyes.
    pub(crate) fn is_behind(&self) -> bool {
        [&self.open, &self.settled, &self.expiry]
            .into_iter()
            .any(|table| {
                table.sealed_memtable_count() >= SEALED_MEMTABLES_MAX
                    || table.tree.l0_run_count() >= L0_RUNS_MAX
            })
    }

    /// Whether the engine has refused all further writes after a failure in the background.
    pub(crate) fn has_failed(&self) -> bool {
        // With nothing buffered this touches no file; it asks for the engine's own verdict.
        self.db.persist(PersistMode::Buffer).is_err()
    }

    pub(crate) fn meta_u64(&self, name: &str) -> fjall::Result<u64> {
        let value = self.meta.get(name)?;
        let bytes = value.and_then(|value| value.as_ref().try_into().ok());
        Ok(bytes.map_or(0, u64::from_be_bytes))
    }
}

const SMALL_MEMTABLE_BYTES: u64 = 1024 * 1024;

/// The engine blocks at 4 and at 20; one commit can add one of each.
const SEALED_MEMTABLES_MAX: usize = 3;
const L0_RUNS_MAX: usize = 18;

/// Most look-ups are of ids that are not there, so every level has a filter, and the filters of
/// all levels stay in memory: 10 bits for each row.
fn table_options() -> KeyspaceCreateOptions {
    let bloom = |bits| FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits));
    KeyspaceCreateOptions::default()
        .manual_journal_persist(true)
        .filter_policy(FilterPolicy::new([bloom(16.0), bloom(10.0)]))
        .filter_block_pinning_policy(PinningPolicy::all(true))
}

/// The bytes of a row: the record, its deadline, its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow(pub(crate) Bytes);

impl StoredRow {
    fn trailer(&self) -> Option<(Bytes, u64, u64)> {
        let (rest, version) = self.0.split_last_chunk::<VERSION_BYTES>()?;
        let (record, deadline) = rest.split_last_chunk::<DEADLINE_BYTES>()?;
        Some((
            self.0.slice_ref(record),
            u64::from_be_bytes(*deadline),
            u64::from_be_bytes(*version),
        ))
    }

    /// Its version. Bytes too short to have one are at version 0, which no write ever gets.
    pub(crate) fn version(&self) -> Version {
        Version(self.trailer().map_or(0, |(_, _, version)| version))
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let (_, deadline, _) = self.trailer()?;
        (deadline != NO_DEADLINE).then_some(Timestamp::from_millis(deadline))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn decode(&self, id: &RecordId) -> Result<Row, StoreError> {
        let corrupt = |version, reason: String| StoreError::Corrupt {
            version: Version(version),
            reason: reason.into(),
        };
        let (record, _, version) = self
            .trailer()
            .ok_or_else(|| corrupt(0, "the row is cut short".to_owned()))?;
        match codec::decode(id, &record) {
            Ok(record) => Ok(Row {
                record,
                version: Version(version),
            }),
            Err(error) => Err(corrupt(version, error.to_string())),
        }
    }
}

/// A row that has no version yet. Encoded by the caller, so that the writer only has to fill in
/// the version.
#[derive(Debug)]
pub(crate) struct NewRow {
    bytes: Vec<u8>,
    pub(crate) is_settled: bool,
}

impl NewRow {
    pub(crate) fn encode(
        id: &RecordId,
        record: &Record,
        bytes_max: u64,
    ) -> Result<Self, StoreError> {
        let too_large = |bytes| StoreError::TooLarge { bytes, bytes_max };
        let mut bytes = codec::encode(id, record).map_err(|_| too_large(u64::MAX))?;
        let deadline = record.state.deadline().map(Timestamp::as_millis);
        bytes.extend_from_slice(&deadline.unwrap_or(NO_DEADLINE).to_be_bytes());
        bytes.extend_from_slice(&[0; VERSION_BYTES]);
        let length = (bytes.len() - TRAILER_BYTES) as u64;
        if length > bytes_max {
            return Err(too_large(length));
        }
        Ok(Self {
            bytes,
            is_settled: record.state.kind().is_settled(),
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn at(mut self, version: Version) -> StoredRow {
        if let Some(place) = self.bytes.last_chunk_mut::<VERSION_BYTES>() {
            *place = version.0.to_be_bytes();
        }
        StoredRow(self.bytes.into())
    }
}

/// The key of a settled row's deadline.
pub(crate) fn expiry_key(deadline: Timestamp, id: &RecordId) -> [u8; 40] {
    let mut key = [0; 40];
    let (time, rest) = key.split_at_mut(8);
    time.copy_from_slice(&deadline.as_millis().to_be_bytes());
    rest.copy_from_slice(id.as_bytes());
    key
}

/// The deadline and the id in such a key.
pub(crate) fn split_expiry_key(key: &[u8]) -> Option<(Timestamp, RecordId)> {
    let (time, id) = key.split_first_chunk::<8>()?;
    let time = Timestamp::from_millis(u64::from_be_bytes(*time));
    Some((time, RecordId::from_bytes(id.try_into().ok()?)))
}
