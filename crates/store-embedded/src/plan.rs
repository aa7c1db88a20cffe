//! Many swaps, decided in order, become one batch.
//!
//! A swap is checked against the row as the earlier swaps of the same batch leave it. Of every id
//! that is touched only the first and the last state matter to the engine, so each key is written
//! once in a batch however often it changed.

use std::collections::HashMap;

use fjall::{OwnedWriteBatch, Slice};
use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::{StoreError, Version};

use crate::index::Flip;
use crate::layout::{NewRow, StoredRow, expiry_key};
use crate::shared::Shared;

/// Where a row is.
#[derive(Clone)]
enum Place {
    Absent,
    Open(StoredRow),
    Settled(StoredRow),
}

impl Place {
    fn row(&self) -> Option<&StoredRow> {
        match self {
            Self::Absent => None,
            Self::Open(row) | Self::Settled(row) => Some(row),
        }
    }

    fn expiry(&self) -> Option<Timestamp> {
        match self {
            Self::Absent | Self::Open(_) => None,
            Self::Settled(row) => row.deadline(),
        }
    }
}

/// What became of a swap, once the batch is durable.
#[derive(Debug)]
pub(crate) enum Outcome {
    Won(Version),
    Lost(Option<StoredRow>),
}

/// What is to change when the batch is durable.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) flips: Vec<Flip>,
    pub(crate) expiries: Vec<Timestamp>,
    pub(crate) removed_bytes: u64,
}

/// The swaps of one batch.
pub(crate) struct Plan<'a> {
    shared: &'a Shared,
    touched: HashMap<RecordId, Touched>,
}

struct Touched {
    before: Place,
    after: Place,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(shared: &'a Shared, swaps: usize) -> Self {
        Self {
            shared,
            touched: HashMap::with_capacity(swaps),
        }
    }

    /// Decides one swap. `version` is the one it gets if it wins.
    pub(crate) fn swap(
        &mut self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<NewRow>,
        version: Version,
    ) -> Result<Outcome, StoreError> {
        let place = match self.touched.get(id) {
            Some(touched) => &touched.after,
            None => &find(self.shared, id)?,
        };
        if place.row().map(StoredRow::version) != expected {
            return Ok(Outcome::Lost(place.row().cloned()));
        }
        let after = match next {
            None => Place::Absent,
            Some(row) if row.is_settled => Place::Settled(row.at(version)),
            Some(row) => Place::Open(row.at(version)),
        };
        match self.touched.get_mut(id) {
            Some(touched) => touched.after = after,
            None => {
                let before = place.clone();
                self.touched.insert(*id, Touched { before, after });
            }
        }
        Ok(Outcome::Won(version))
    }

    /// Writes everything into the engine's batch.
    pub(crate) fn write(self, batch: &mut OwnedWriteBatch) -> Effects {
        let mut effects = Effects::default();
        for (id, touched) in self.touched {
            write_one(self.shared, batch, &mut effects, id, touched);
        }
        effects
    }
}

fn find(shared: &Shared, id: &RecordId) -> Result<Place, StoreError> {
    if let Some(row) = shared.index.get(id) {
        return Ok(Place::Open(row));
    }
    match shared.tables.settled.get(id.as_bytes()) {
        Ok(Some(value)) => Ok(Place::Settled(StoredRow(value.into()))),
        Ok(None) => Ok(Place::Absent),
        Err(error) => Err(Shared::unreadable(&error)),
    }
}

fn write_one(
    shared: &Shared,
    batch: &mut OwnedWriteBatch,
    effects: &mut Effects,
    id: RecordId,
    Touched { before, after }: Touched,
) {
    let tables = &shared.tables;
    let key = Slice::from(id.as_bytes());
    let (expiry_before, expiry_after) = (before.expiry(), after.expiry());
    if expiry_before != expiry_after {
        if let Some(deadline) = expiry_before {
            batch.remove(&tables.expiry, expiry_key(deadline, &id));
        }
        if let Some(deadline) = expiry_after {
            batch.insert(&tables.expiry, expiry_key(deadline, &id), Slice::empty());
            effects.expiries.push(deadline);
        }
    }
    let was_open = matches!(before, Place::Open(_));
    match (before, after) {
        (Place::Absent, Place::Absent) => {}
        // A settled row stays below the open one: see `layout`.
        (_, Place::Open(row)) => {
            batch.insert(&tables.open, key, row.0.clone());
            effects.flips.push(Flip::Open(id, row));
        }
        (_, Place::Settled(row)) => {
            if was_open {
                batch.remove(&tables.open, key.clone());
                effects.flips.push(Flip::Gone(id));
            }
            batch.insert(&tables.settled, key, row.0);
        }
        (Place::Open(_), Place::Absent) => {
            batch.remove(&tables.open, key.clone());
            effects.flips.push(Flip::Gone(id));
            // There may be a settled row below it.
            batch.remove(&tables.settled, key);
        }
        (Place::Settled(row), Place::Absent) => {
            effects.removed_bytes += row.len();
            batch.remove(&tables.settled, key);
        }
    }
}
