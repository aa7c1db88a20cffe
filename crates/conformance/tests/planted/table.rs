//! The data of a planted store, and what is wrong with its writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onlyonce_conformance::suite::samples::{at, executing, id as sample_id};
use onlyonce_core::{Record, RecordId, State, StateKind, Timestamp};
use onlyonce_store::{Row, Swap, Version};

use super::{Bug, mangle};

/// What outlives a handle. The fields below the first four are there for bugs only.
#[derive(Default)]
pub(super) struct Table {
    pub(super) rows: BTreeMap<RecordId, Row>,
    pub(super) deadlines: BTreeSet<(Timestamp, RecordId)>,
    pub(super) last_version: u64,
    pub(super) secret: Option<[u8; 32]>,
    pub(super) locked: bool,
    pub(super) ended: bool,
    pub(super) calls: u64,
    pub(super) offsets: HashMap<RecordId, usize>,
    pub(super) first_states: HashMap<RecordId, StateKind>,
    pub(super) removed: BTreeMap<RecordId, Row>,
    opened: u64,
    handle_versions: HashMap<u64, u64>,
    old_deadlines: Vec<(Timestamp, RecordId)>,
    before: HashMap<RecordId, Row>,
    last_written: Option<RecordId>,
}

impl Table {
    /// Opens the table, and says for which time.
    pub(super) fn open(&mut self, bug: Bug) -> u64 {
        self.opened += 1;
        match bug {
            Bug::OpensEmpty => {
                *self = Self {
                    opened: self.opened,
                    ..Self::default()
                }
            }
            Bug::LosesTheLastWrite => self.undo_the_last_write(),
            Bug::RemovedRowsComeBack => self.rows.append(&mut self.removed),
            Bug::LargeBodiesAreLostAtOpen => {
                for row in self.rows.values_mut() {
                    *row.record = mangle::cut(&row.record, 1 << 16);
                }
            }
            Bug::DeadLettersAreLostAtOpen => {
                self.rows
                    .retain(|_, row| row.record.state.kind() != StateKind::DeadLetter);
            }
            Bug::OpeningRenumbersRows => {
                for row in self.rows.values_mut() {
                    self.last_version += 1;
                    row.version = Version(self.last_version);
                }
            }
            Bug::VersionsRestart => self.last_version = 0,
            Bug::VersionsGoOnFromTheHighestRow => {
                let versions = self.rows.values().map(|row| row.version.0);
                self.last_version = versions.max().unwrap_or(0);
            }
            Bug::DeadlinesAreLostAtOpen => self.deadlines.clear(),
            Bug::OldDeadlinesComeBack => self.deadlines.extend(self.old_deadlines.drain(..)),
            Bug::SecretIsForgotten => self.secret = None,
            Bug::OpeningInventsRows if self.opened > 1 => {
                let _ = self.write(bug, 0, &sample_id(1), Some(&executing(1, at(1))));
            }
            Bug::KeepsOnly1000Rows => {
                while self.rows.len() > 1_000 {
                    self.rows.pop_first();
                }
            }
            _ => {}
        }
        self.opened
    }

    fn undo_the_last_write(&mut self) {
        let Some(id) = self.last_written.take() else {
            return;
        };
        match self.before.remove(&id) {
            Some(row) => self.rows.insert(id, row),
            None => self.rows.remove(&id),
        };
    }

    pub(super) fn load(&self, bug: Bug, id: &RecordId, now: Timestamp) -> Option<Row> {
        let row = self.rows.get(id).cloned();
        match bug {
            Bug::LoadFindsNothing => None,
            Bug::LoadInventsRows => row.or(Some(Row {
                record: Box::new(executing(0, at(0))),
                version: Version(0),
            })),
            Bug::LoadedVersionIsAnother => row.map(|row| Row {
                version: Version(row.version.0 + 1_000_000),
                ..row
            }),
            Bug::HidesRowsPastTheirDeadline => row.filter(|row| {
                !row.record
                    .state
                    .deadline()
                    .is_some_and(|at| at.has_passed(now))
            }),
            Bug::ReadsLagBehind => self.before.get(id).cloned().or(row),
            _ => row,
        }
    }

    fn matches(&self, bug: Bug, id: &RecordId, expected: Option<Version>, removes: bool) -> bool {
        let current = self.rows.get(id).map(|row| row.version);
        let right = current == expected;
        match bug {
            Bug::ExpectingNothingAlwaysWins => right || expected.is_none(),
            Bug::ExpectedVersionIsIgnored => right || current.is_some() && expected.is_some(),
            Bug::RemovalIgnoresTheVersion => right || removes,
            Bug::RemovalOfNothingLoses => right && !(removes && expected.is_none()),
            Bug::MissingRowMatchesAnyVersion => right || current.is_none(),
            Bug::VersionZeroMatchesEverything => right || expected == Some(Version(0)),
            _ => right,
        }
    }

    pub(super) fn swap(
        &mut self,
        bug: Bug,
        handle: u64,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Swap {
        if self.matches(bug, id, expected, next.is_none()) {
            return self.write(bug, handle, id, next);
        }
        let current = self.rows.get(id).cloned();
        match (bug, next, self.rows.get_mut(id)) {
            (Bug::LostSwapHidesTheRow, _, _) => return Swap::Lost(None),
            (Bug::LostSwapReturnsTheLosersRecord, Some(next), Some(row)) => {
                let (record, version) = (Box::new(next.clone()), row.version);
                return Swap::Lost(Some(Row { record, version }));
            }
            (Bug::LostSwapReturnsAnotherVersion, _, Some(row)) => {
                let (record, version) = (row.record.clone(), Version(row.version.0 + 1));
                return Swap::Lost(Some(Row { record, version }));
            }
            (Bug::LostSwapCutsTheBody, _, Some(row)) => {
                let (record, version) = (Box::new(mangle::cut(&row.record, 1 << 16)), row.version);
                return Swap::Lost(Some(Row { record, version }));
            }
            (Bug::LostSwapWritesAnyway, Some(next), Some(row)) => *row.record = next.clone(),
            (Bug::LostSwapMovesTheDeadline, Some(next), Some(_)) => {
                self.deadlines
                    .extend(next.state.deadline().map(|at| (at, *id)));
            }
            _ => {}
        }
        Swap::Lost(current)
    }

    /// Writes, whatever is there.
    pub(super) fn write(
        &mut self,
        bug: Bug,
        handle: u64,
        id: &RecordId,
        next: Option<&Record>,
    ) -> Swap {
        let before = self.rows.get(id).cloned();
        let version = self.version(bug, handle, before.as_ref(), next);
        self.unschedule(bug, id, before.as_ref(), next);
        self.last_written = Some(*id);
        match &before {
            Some(row) => self.before.insert(*id, row.clone()),
            None => self.before.remove(id),
        };
        let Some(next) = next else {
            if bug != Bug::RemovalKeepsTheRow {
                self.removed
                    .extend(self.rows.remove(id).map(|row| (*id, row)));
            }
            return Swap::Won(version);
        };
        self.schedule(bug, id, before.as_ref(), next);
        self.first_states.entry(*id).or_insert(next.state.kind());
        let record = match before {
            Some(before) if bug == Bug::PiecesStayBehind => mangle::overlay(&before.record, next),
            Some(_) | None => next.clone(),
        };
        let record = Box::new(record);
        self.rows.insert(*id, Row { record, version });
        Swap::Won(version)
    }

    fn version(
        &mut self,
        bug: Bug,
        handle: u64,
        before: Option<&Row>,
        next: Option<&Record>,
    ) -> Version {
        let current = before.map_or(0, |row| row.version.0);
        match bug {
            Bug::VersionsCountPerRow => return Version(current + 1),
            Bug::IdenticalWriteKeepsTheVersion
                if before.is_some_and(|row| Some(&*row.record) == next) =>
            {
                return Version(current);
            }
            Bug::VersionOfARemovalReturns if next.is_none() => {
                return Version(self.last_version + 1);
            }
            Bug::EveryHandleCountsVersions => {
                let count = self.handle_versions.entry(handle).or_default();
                *count += 1;
                return Version(*count);
            }
            _ => self.last_version += 1,
        }
        match bug {
            Bug::VersionsAreRounded => Version(self.last_version & !1),
            _ => Version(self.last_version),
        }
    }

    fn unschedule(&mut self, bug: Bug, id: &RecordId, before: Option<&Row>, next: Option<&Record>) {
        let Some(old) = before.and_then(|row| row.record.state.deadline()) else {
            return;
        };
        self.old_deadlines.push((old, *id));
        let stays = match bug {
            Bug::OldDeadlinesStay | Bug::FirstDeadlineStays => next.is_some(),
            Bug::DeadlinesOfRemovedRowsStay => next.is_none(),
            _ => false,
        };
        if !stays {
            self.deadlines.remove(&(old, *id));
        }
    }

    fn schedule(&mut self, bug: Bug, id: &RecordId, before: Option<&Row>, next: &Record) {
        let deadline = match (&next.state, next.state.deadline()) {
            (State::DeadLetter { since, .. }, _) if bug == Bug::DeadLettersAreDue => Some(*since),
            (State::Executing { .. }, deadline) => deadline,
            (_, _) if bug == Bug::OnlyLeasesAreDue => None,
            (_, deadline) => deadline,
        };
        if bug == Bug::FirstDeadlineStays && before.is_some() {
            return;
        }
        if bug == Bug::DueHasOneRowPerDeadline {
            self.deadlines.retain(|(at, _)| Some(*at) != deadline);
        }
        self.deadlines.extend(deadline.map(|at| (at, *id)));
    }

    pub(super) fn secret(&mut self, bug: Bug, candidate: [u8; 32]) -> [u8; 32] {
        match bug {
            Bug::LastSecretWins => self.secret = Some(candidate),
            Bug::FirstSecretIsChanged => self.secret = Some([77; 32]),
            Bug::SecretOfZerosIsNone if self.secret == Some([0; 32]) => self.secret = None,
            Bug::SecretIsARow => {
                let row = executing(0, at(0));
                let _ = self.write(bug, 0, &sample_id(u64::MAX), Some(&row));
            }
            _ => {}
        }
        *self.secret.get_or_insert(candidate)
    }
}
