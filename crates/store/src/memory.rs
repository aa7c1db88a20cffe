//! The memory store: for tests and development. Everything is forgotten at exit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::{Record, RecordId, Timestamp};

use crate::{
    Cursor, Filter, ListStore, Listed, Page, Row, Store, StoreClock, StoreError, StoreProfile,
    Swap, Version,
};

/// Rows in a map behind a lock. Clones share the map.
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<RecordId, Row>,
    deadlines: BTreeSet<(Timestamp, RecordId)>,
    last_version: u64,
    secret: Option<[u8; 32]>,
}

impl MemoryStore {
    /// An empty store on the wall clock.
    #[must_use]
    pub fn new() -> Self {
        let clock = StoreClock::start(Timestamp::ZERO);
        Self::with_clock(move || clock.now())
    }

    /// An empty store on a clock of the caller's.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            table: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that can panic runs under the lock, so a poisoned table is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore({} rows)", self.table().rows.len())
    }
}

impl Table {
    fn swap(&mut self, id: &RecordId, expected: Option<Version>, next: Option<&Record>) -> Swap {
        let current = self.rows.get(id);
        if current.map(|row| row.version) != expected {
            return Swap::Lost(current.cloned());
        }
        if let Some(deadline) = current.and_then(|row| row.record.state.deadline()) {
            self.deadlines.remove(&(deadline, *id));
        }
        self.last_version += 1;
        let version = Version(self.last_version);
        match next {
            None => {
                self.rows.remove(id);
            }
            Some(record) => {
                self.deadlines
                    .extend(record.state.deadline().map(|deadline| (deadline, *id)));
                self.rows.insert(
                    *id,
                    Row {
                        record: Box::new(record.clone()),
                        version,
                    },
                );
            }
        }
        Swap::Won(version)
    }
}

impl Store for MemoryStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "memory",
            durable: false,
            shared: false,
            cheap_reads: true,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        Ok(self.table().rows.get(id).cloned())
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        Ok(self.table().swap(id, expected, next))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        let table = self.table();
        let due = table
            .deadlines
            .iter()
            .take_while(|(deadline, _)| deadline.has_passed(now));
        Ok(due.take(limit).map(|(_, id)| *id).collect())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok((self.clock)())
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        Ok(*self.table().secret.get_or_insert(candidate))
    }
}

impl ListStore for MemoryStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let table = self.table();
        let start = after.map_or(Bound::Unbounded, |Cursor(id)| Bound::Excluded(id));
        let mut matching = table
            .rows
            .range((start, Bound::Unbounded))
            .filter(|(_, row)| filter.matches(&row.record))
            .map(|(id, row)| Listed {
                id: *id,
                row: Ok(row.clone()),
            });
        let entries: Vec<_> = matching.by_ref().take(limit).collect();
        let more = matching.next().is_some();
        let next = entries.last().filter(|_| more).map(|last| Cursor(last.id));
        Ok(Page { entries, next })
    }
}
