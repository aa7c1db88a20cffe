//! The unsettled rows, in memory, and how far the settled deadlines are known to be gone.
//!
//! Unsettled rows are few: what runs now, and what waits for an answer or for a person. They cost
//! their own bytes and about 200 more each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use onlyonce_core::{RecordId, Timestamp};

use crate::layout::StoredRow;

#[derive(Default)]
struct Rows {
    by_id: BTreeMap<RecordId, OpenRow>,
    deadlines: BTreeSet<(Timestamp, RecordId)>,
}

struct OpenRow {
    row: StoredRow,
    deadline: Option<Timestamp>,
}

/// The unsettled rows. Changed by the writer alone, and only after the change is durable.
#[derive(Default)]
pub(crate) struct OpenIndex {
    rows: RwLock<Rows>,
}

/// One change to the index.
pub(crate) enum Flip {
    Open(RecordId, StoredRow),
    Gone(RecordId),
}

impl OpenIndex {
    pub(crate) fn get(&self, id: &RecordId) -> Option<StoredRow> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.by_id.get(id).map(|open| open.row.clone())
    }

    /// At most `limit` rows whose ids are above `after`, in order.
    pub(crate) fn range(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Vec<(RecordId, StoredRow)> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        rows.by_id
            .range((start, Bound::Unbounded))
            .take(limit)
            .map(|(id, open)| (*id, open.row.clone()))
            .collect()
    }

    /// At most `limit` deadlines at or before `now`, earliest first.
    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Vec<(Timestamp, RecordId)> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.deadlines
            .iter()
            .take_while(|(deadline, _)| deadline.has_passed(now))
            .take(limit)
            .copied()
            .collect()
    }

    pub(crate) fn apply(&self, flips: impl IntoIterator<Item = Flip>) {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        for flip in flips {
            match flip {
                Flip::Open(id, row) => {
                    let deadline = row.deadline();
                    rows.put(id, OpenRow { row, deadline });
                }
                Flip::Gone(id) => rows.remove(&id),
            }
        }
    }

    /// Adds a row that cannot be read. Nobody can tell its deadline, so it has none, and waits
    /// for a person.
    pub(crate) fn add_unreadable(&self, id: RecordId, row: StoredRow) {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let deadline = None;
        rows.put(id, OpenRow { row, deadline });
    }
}

impl Rows {
    fn put(&mut self, id: RecordId, open: OpenRow) {
        let deadline = open.deadline;
        let before = self.by_id.insert(id, open).and_then(|open| open.deadline);
        if before != deadline {
            before.map(|deadline| self.deadlines.remove(&(deadline, id)));
            self.deadlines.extend(deadline.map(|deadline| (deadline, id)));
        }
    }

    fn remove(&mut self, id: &RecordId) {
        let before = self.by_id.remove(id).and_then(|open| open.deadline);
        before.map(|deadline| self.deadlines.remove(&(deadline, *id)));
    }
}

/// No settled row has a deadline below the floor.
///
/// A removed deadline stays in the engine's files for a while, and a scan from the beginning of
/// time would step over every one of them each time. With the floor, a scan starts where the last
/// one found something.
///
/// A scan reads the floor, scans, and raises it to what it found; the writer commits a deadline
/// and then lowers the floor to it. If the commit comes after the scan passed, then so does the
/// lowering, and either it is the later of the two, or the scan notices and does not raise.
#[derive(Default)]
pub(crate) struct ExpiryFloor(Mutex<Floor>);

#[derive(Default, Clone, Copy)]
struct Floor {
    at: Timestamp,
    /// The latest time up to which anybody has scanned. The floor is never more than 1 ms above.
    horizon: Timestamp,
    /// How many deadlines were written at or before the horizon.
    lowered: u64,
}

/// A floor that was read before a scan.
#[derive(Clone, Copy)]
pub(crate) struct FloorSeen(Floor);

impl FloorSeen {
    pub(crate) fn at(self) -> Timestamp {
        self.0.at
    }
}

impl ExpiryFloor {
    fn floor(&self) -> MutexGuard<'_, Floor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before a scan up to `now`.
    pub(crate) fn seen(&self, now: Timestamp) -> FloorSeen {
        let mut floor = self.floor();
        floor.horizon = floor.horizon.max(now);
        FloorSeen(*floor)
    }

    /// To be called after deadlines became visible, and before they are acknowledged.
    pub(crate) fn lower(&self, deadlines: &[Timestamp]) {
        let mut floor = self.floor();
        for deadline in deadlines {
            if deadline.has_passed(floor.horizon) {
                floor.lowered += 1;
                floor.at = floor.at.min(*deadline);
            }
        }
    }

    /// To be called after a scan from the floor up to its `now` found nothing below `to`, which
    /// is at most 1 ms after that `now`.
    pub(crate) fn raise(&self, seen: FloorSeen, to: Timestamp) {
        let mut floor = self.floor();
        if floor.lowered == seen.0.lowered {
            floor.at = floor.at.max(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A floor above a deadline that a scan did not see would keep its row for ever.
    #[test]
    fn a_deadline_written_during_a_scan_is_not_skipped() {
        let floor = ExpiryFloor::default();
        let scan = floor.seen(at(100));
        floor.lower(&[at(50)]);
        floor.raise(scan, at(101));
        assert!(floor.seen(at(100)).at() <= at(50));
    }

    #[test]
    fn a_deadline_written_after_a_scan_lowers_the_floor_again() {
        let floor = ExpiryFloor::default();
        floor.raise(floor.seen(at(100)), at(101));
        assert_eq!(floor.seen(at(100)).at(), at(101));
        floor.lower(&[at(70), at(5000)]);
        assert_eq!(floor.seen(at(100)).at(), at(70));
    }

    /// Under load deadlines far ahead are written all the time; they must not keep the floor low.
    #[test]
    fn deadlines_ahead_do_not_keep_the_floor_from_rising() {
        let floor = ExpiryFloor::default();
        let scan = floor.seen(at(100));
        floor.lower(&[at(101)]);
        floor.raise(scan, at(101));
        assert_eq!(floor.seen(at(100)).at(), at(101));
    }
}
