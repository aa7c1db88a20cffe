//! A store that is right, until a bug is planted in it.
//!
//! Without a bug it passes the whole suite, reopening and sharing included, so that whatever a
//! case catches is the bug and nothing else.

mod bugs;
mod mangle;
mod read;
mod table;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use onlyonce_conformance::Harness;
use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{
    Cursor, Filter, ListStore, Page, Row, Store, StoreClock, StoreError, StoreProfile, Swap,
    Version,
};

pub(crate) use bugs::{ALL, Bug};
use table::Table;

/// Opens stores with one bug in them.
#[derive(Debug, Clone)]
pub(crate) struct Planted(pub(crate) Bug);

/// What outlives a handle.
pub(crate) struct Place {
    table: Arc<Mutex<Table>>,
    clock: StoreClock,
}

/// One handle.
pub(crate) struct PlantedStore {
    bug: Bug,
    table: Arc<Mutex<Table>>,
    clock: StoreClock,
    /// Which handle of its place this is.
    opened: u64,
    cache: Mutex<HashMap<RecordId, Row>>,
    secret: Mutex<Option<[u8; 32]>>,
}

impl Harness for Planted {
    type Place = Place;
    type Store = PlantedStore;
    const DURABLE: bool = true;
    const SHARED: bool = true;

    async fn place(&self) -> Place {
        Place {
            table: Arc::default(),
            clock: StoreClock::start(Timestamp::ZERO),
        }
    }

    async fn open(&self, place: &Place) -> PlantedStore {
        let opened = place.table.lock().unwrap().open(self.0);
        PlantedStore {
            bug: self.0,
            table: Arc::clone(&place.table),
            clock: place.clock.clone(),
            opened,
            cache: Mutex::default(),
            secret: Mutex::default(),
        }
    }

    async fn close(&self, store: PlantedStore) {
        if self.0 == Bug::ClosingEndsOtherHandles {
            store.table().ended = true;
        }
    }
}

impl PlantedStore {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap()
    }

    /// Writes in steps that others can come between, as the planted bug has it.
    async fn swap_in_steps(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Option<Swap> {
        let racy = match self.bug {
            Bug::ChecksThenActs => true,
            Bug::UpdatesCheckThenAct => expected.is_some() && next.is_some(),
            Bug::RemovalChecksThenActs => expected.is_some() && next.is_none(),
            _ => false,
        };
        let current = self.table().rows.get(id).cloned();
        let version = current.as_ref().map(|row| row.version);
        if version != expected {
            return None;
        }
        if racy {
            tokio::task::yield_now().await;
            return Some(self.table().write(self.bug, self.opened, id, next));
        }
        match (self.bug, current, next) {
            (Bug::RemovesThenWrites, Some(_), Some(_)) => {
                let _ = self.table().write(self.bug, self.opened, id, None);
            }
            (Bug::ClaimsInTwoSteps, None, Some(next)) => {
                let mut half = next.clone();
                half.attempt = 0;
                let _ = self.table().write(self.bug, self.opened, id, Some(&half));
            }
            (Bug::WritesInTwoHalves, Some(old), Some(next)) => {
                let half = mangle::half(&old.record, next);
                let _ = self.table().write(self.bug, self.opened, id, Some(&half));
            }
            (Bug::OneWriterAtATimeElseLost, current, _) => {
                let before = self.table().last_version;
                tokio::task::yield_now().await;
                let busy = self.table().last_version != before;
                return busy.then_some(Swap::Lost(current));
            }
            _ => return None,
        }
        tokio::task::yield_now().await;
        Some(self.table().write(self.bug, self.opened, id, next))
    }
}

impl Store for PlantedStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: if self.bug == Bug::HasNoName {
                ""
            } else {
                "planted"
            },
            durable: self.bug != Bug::SaysItIsNotDurable,
            shared: self.bug != Bug::SaysItIsNotShared,
            cheap_reads: true,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        let id = &mangle::id(self.bug, id);
        if self.bug == Bug::DroppedReadsKeepTheLock {
            self.table().locked = true;
            tokio::task::yield_now().await;
            self.table().locked = false;
        }
        if self.bug == Bug::EveryHandleCachesReads
            && let Some(row) = self.cache.lock().unwrap().get(id)
        {
            return Ok(Some(row.clone()));
        }
        let row = self.table().load(self.bug, id, self.clock.now());
        if let Some(row) = &row {
            self.cache.lock().unwrap().insert(*id, row.clone());
        }
        Ok(row)
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let id = &mangle::id(self.bug, id);
        let next = next.map(|next| mangle::record(self.bug, next));
        if let Some(swap) = self.swap_in_steps(id, expected, next.as_ref()).await {
            return Ok(swap);
        }
        let mut table = self.table();
        if table.locked || table.ended {
            return Err(StoreError::unavailable("planted"));
        }
        let swap = table.swap(self.bug, self.opened, id, expected, next.as_ref());
        match swap {
            Swap::Lost(_) if self.bug == Bug::LostSwapIsAnError => {
                Err(StoreError::unavailable("planted"))
            }
            Swap::Won(_) | Swap::Lost(_) => Ok(swap),
        }
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        Ok(read::due(&mut self.table(), self.bug, now, limit))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.clock.now().as_millis();
        let mut table = self.table();
        table.calls += 1;
        Ok(Timestamp::from_millis(match self.bug {
            Bug::ClockGoesBack if table.calls.is_multiple_of(10) => now - 60_000,
            Bug::ClockStands => 1_800_000_000_000,
            Bug::ClockCountsSeconds => now / 1_000,
            Bug::ClockIsEachHandlesOwn => now - 3_600_000 * self.opened,
            Bug::ClockRestarts => now + 3_600_000 / self.opened,
            _ => now,
        }))
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        if self.bug == Bug::SecretIsEachHandlesOwn {
            return Ok(*self.secret.lock().unwrap().get_or_insert(candidate));
        }
        if self.bug == Bug::SecretIsCheckedThenSet && self.table().secret.is_none() {
            tokio::task::yield_now().await;
            self.table().secret = Some(candidate);
            return Ok(candidate);
        }
        Ok(self.table().secret(self.bug, candidate))
    }
}

impl ListStore for PlantedStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        Ok(read::list(
            &mut self.table(),
            self.bug,
            filter,
            after,
            limit,
        ))
    }
}
