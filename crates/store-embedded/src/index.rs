//! Where every row is, and the unsettled rows.
//!
//! [`Index`] is the truth: a row exists if and only if it is there. The writer alone changes it,
//! and only after the record it points to is durable, so a look-up never finds anything that
//! could still be lost, and one look-up is one consistent answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::Version;

use crate::ids::IdMap;
use crate::segment::Place;

/// The first byte of an id chooses the shard: readers then rarely meet the writer, a shard grows
/// in a moment, and a list in the order of ids reads one shard at a time.
const SHARDS: usize = 256;

type Shard = IdMap<Place>;

/// The place of every row.
pub(crate) struct Index {
    shards: Box<[RwLock<Shard>]>,
}

impl Default for Index {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default());
        Self {
            shards: shards.collect(),
        }
    }
}

impl Index {
    fn shard(&self, id: &RecordId) -> &RwLock<Shard> {
        let [first, ..] = id.as_bytes();
        #[expect(
            clippy::indexing_slicing,
            reason = "there is a shard for every value of a byte"
        )]
        &self.shards[usize::from(*first)]
    }

    fn read(&self, id: &RecordId) -> RwLockReadGuard<'_, Shard> {
        let shard = self.shard(id).read();
        shard.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: &RecordId) -> RwLockWriteGuard<'_, Shard> {
        let shard = self.shard(id).write();
        shard.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &RecordId) -> Option<Place> {
        self.read(id).get(id).copied()
    }

    /// Sets the place, and gives the one before.
    pub(crate) fn set(&self, id: RecordId, place: Option<Place>) -> Option<Place> {
        let mut shard = self.write(&id);
        match place {
            Some(place) => shard.insert(id, place),
            None => shard.remove(&id),
        }
    }

    /// The rows whose ids are above `after` and in the first shard that has any, in order, at
    /// most `limit`.
    pub(crate) fn range(&self, after: Option<RecordId>, limit: usize) -> Vec<RecordId> {
        let start = after.map_or(0, |id| {
            let [first, ..] = id.as_bytes();
            usize::from(*first)
        });
        for shard in self.shards.iter().skip(start) {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let ids = shard.keys().copied();
            let mut ids: Vec<_> = ids
                .filter(|id| after.is_none_or(|after| *id > after))
                .collect();
            drop(shard);
            if !ids.is_empty() {
                if ids.len() > limit {
                    ids.select_nth_unstable(limit);
                    ids.truncate(limit);
                }
                ids.sort_unstable();
                return ids;
            }
        }
        Vec::new()
    }

    /// The rows in one segment, in the order of the file.
    pub(crate) fn in_segment(&self, number: u32) -> Vec<(RecordId, Place)> {
        let mut rows = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let inside = shard.iter().filter(|(_, place)| place.segment == number);
            rows.extend(inside.map(|(id, place)| (*id, *place)));
        }
        rows.sort_unstable_by_key(|(_, place)| place.offset);
        rows
    }
}

/// The unsettled rows: what runs now, and what waits for an answer or for a person. They are few,
/// and cost about 200 bytes each.
#[derive(Default)]
pub(crate) struct OpenRows {
    rows: RwLock<Rows>,
}

#[derive(Default)]
struct Rows {
    by_id: BTreeMap<RecordId, OpenRow>,
    deadlines: BTreeSet<(Timestamp, RecordId)>,
}

#[derive(Clone, Copy)]
struct OpenRow {
    version: Version,
    deadline: Option<Timestamp>,
}

impl OpenRows {
    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Rows> {
        self.rows.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self, id: &RecordId) -> Option<Version> {
        self.read().by_id.get(id).map(|row| row.version)
    }

    /// At most `limit` ids above `after`, in order.
    pub(crate) fn range(&self, after: Option<RecordId>, limit: usize) -> Vec<RecordId> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.read();
        let ids = rows.by_id.range((start, Bound::Unbounded));
        ids.take(limit).map(|(id, _)| *id).collect()
    }

    /// At most `limit` deadlines at or before `now`, earliest first.
    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Vec<(Timestamp, RecordId)> {
        let rows = self.read();
        let due = rows.deadlines.iter();
        due.take_while(|(deadline, _)| deadline.has_passed(now))
            .take(limit)
            .copied()
            .collect()
    }

    pub(crate) fn put(&self, id: RecordId, version: Version, deadline: Option<Timestamp>) {
        let mut rows = self.write();
        let row = OpenRow { version, deadline };
        let before = rows.by_id.insert(id, row).and_then(|row| row.deadline);
        if before != deadline {
            before.map(|deadline| rows.deadlines.remove(&(deadline, id)));
            rows.deadlines
                .extend(deadline.map(|deadline| (deadline, id)));
        }
    }

    pub(crate) fn remove(&self, id: &RecordId) {
        let mut rows = self.write();
        let before = rows.by_id.remove(id).and_then(|row| row.deadline);
        before.map(|deadline| rows.deadlines.remove(&(deadline, *id)));
    }
}
