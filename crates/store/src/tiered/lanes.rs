//! Who is reading and writing which row at this moment, in this process.
//!
//! Two things need to know. A row that was read while somebody wrote must not be cached after
//! that write took it out. And a hundred readers of one row need one read.
//!
//! Rows enter and leave the cache only under the lock of this table, so the two cannot overtake
//! each other.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_core::RecordId;
use tokio::sync::watch;

use crate::{Row, StoreError};

/// What a read of the durable store gave.
pub(super) type Answer = Result<Option<Row>, StoreError>;

/// The ids with an operation under way.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<HashMap<RecordId, Lane>>);

/// One id with an operation under way.
#[derive(Debug, Default)]
struct Lane {
    /// How many operations.
    users: usize,
    /// How many writes ended since the lane was made.
    writes: u64,
    /// The read that others may join.
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// [`Lane::writes`] when it began.
    writes: u64,
    answer: watch::Receiver<Option<Answer>>,
}

/// What a reader has to do.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// Read, for everybody.
    Lead(Leading<'a>),
    /// Wait for a read that is under way.
    Join(Joined),
}

impl Lanes {
    fn table(&self) -> MutexGuard<'_, HashMap<RecordId, Lane>> {
        // The table's own code does not panic. A cache that does loses its own row at most.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to read or to wait for somebody who does.
    pub(super) fn turn(&self, id: &RecordId) -> Turn<'_> {
        let mut table = self.table();
        let lane = table.entry(*id).or_default();
        // What a finished write replaced must not be seen any more.
        let current = lane
            .reading
            .as_ref()
            .filter(|reading| reading.writes == lane.writes);
        if let Some(reading) = current {
            return Turn::Join(Joined(reading.answer.clone()));
        }
        let (sender, answer) = watch::channel(None);
        lane.users += 1;
        lane.reading = Some(Reading {
            writes: lane.writes,
            answer,
        });
        Turn::Lead(Leading {
            lanes: self,
            id: *id,
            writes: lane.writes,
            answer: sender,
        })
    }

    /// A write begins. `doubt` takes the row out of the cache unless the write is known to have
    /// changed nothing.
    pub(super) fn write<D: Fn(&RecordId)>(&self, id: &RecordId, doubt: D) -> Writing<'_, D> {
        let mut table = self.table();
        let lane = table.entry(*id).or_default();
        lane.users += 1;
        Writing {
            lanes: self,
            id: *id,
            writes: lane.writes,
            doubt,
            has_lost: false,
        }
    }
}

/// One operation less in a lane.
fn leave(table: &mut HashMap<RecordId, Lane>, id: &RecordId) {
    if let Some(lane) = table.get_mut(id) {
        lane.users = lane.users.saturating_sub(1);
        if lane.users == 0 {
            table.remove(id);
        }
    }
}

/// A read that others may join. Dropped without an answer, it sends them to read themselves.
#[derive(Debug)]
pub(super) struct Leading<'a> {
    lanes: &'a Lanes,
    id: RecordId,
    writes: u64,
    answer: watch::Sender<Option<Answer>>,
}

impl Leading<'_> {
    pub(super) const fn id(&self) -> &RecordId {
        &self.id
    }

    /// Gives the answer to all who joined. `keep` runs if nobody wrote since the read began.
    pub(super) fn finish(self, answer: &Answer, keep: impl FnOnce(&RecordId)) {
        let mut table = self.lanes.table();
        if let Some(lane) = table.get_mut(&self.id) {
            if lane.writes == self.writes {
                keep(&self.id);
            }
            // Whoever comes from now on is not to find a read that is over.
            self.end(lane);
        }
        // Nobody may have joined.
        self.answer.send_replace(Some(answer.clone()));
    }

    /// Takes this read out of its lane, unless a later one has taken its place.
    fn end(&self, lane: &mut Lane) {
        let own = self.answer.subscribe();
        lane.reading
            .take_if(|reading| reading.answer.same_channel(&own));
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut table = self.lanes.table();
        if let Some(lane) = table.get_mut(&self.id) {
            self.end(lane);
        }
        leave(&mut table, &self.id);
    }
}

/// A read of somebody else's.
#[derive(Debug)]
pub(super) struct Joined(watch::Receiver<Option<Answer>>);

impl Joined {
    /// What it gave; `None` if it was given up.
    pub(super) async fn answer(&mut self) -> Option<Answer> {
        let answer = self.0.wait_for(Option::is_some).await.ok()?;
        answer.clone()
    }
}

/// A write under way. However it ends, also by being dropped, the cached row goes, unless it
/// [lost](Self::lost).
#[derive(Debug)]
pub(super) struct Writing<'a, D: Fn(&RecordId)> {
    lanes: &'a Lanes,
    id: RecordId,
    writes: u64,
    doubt: D,
    has_lost: bool,
}

impl<D: Fn(&RecordId)> Writing<'_, D> {
    /// It changed nothing, and learned the row. `keep` runs if no other write ended meanwhile.
    pub(super) fn lost(mut self, keep: impl FnOnce(&RecordId)) {
        self.has_lost = true;
        let table = self.lanes.table();
        let lane = table.get(&self.id);
        if lane.is_some_and(|lane| lane.writes == self.writes) {
            keep(&self.id);
        }
    }
}

impl<D: Fn(&RecordId)> Drop for Writing<'_, D> {
    fn drop(&mut self) {
        let mut table = self.lanes.table();
        if !self.has_lost {
            if let Some(lane) = table.get_mut(&self.id) {
                lane.writes += 1;
            }
            (self.doubt)(&self.id);
        }
        leave(&mut table, &self.id);
    }
}
