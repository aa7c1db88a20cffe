//! The rows, as they durably are: a map with a conditional write and versions that never return.
//!
//! Planted bugs make it forget exactly those promises.

use std::collections::BTreeMap;

use onlyonce_core::{Record, RecordId, State, Timestamp};
use onlyonce_store::{Row, Swap, Version};

use crate::bugs::Bug;

/// How long a crash takes acknowledged writes with it, when that bug is planted.
const UNSYNCED_MS: u64 = 100;
/// How long unknown outcomes are kept, when forgetting them is planted.
const UNKNOWN_KEPT_MS: u64 = 300;

/// One write, as the journal has it.
#[derive(Debug)]
struct Written {
    at_ms: u64,
    node: usize,
    id: RecordId,
    before: Option<Row>,
    version: Version,
}

/// The rows.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<RecordId, Row>,
    last_version: u64,
    /// What a lagging replica still has. Kept only where a bug reads it.
    stale: BTreeMap<RecordId, Option<Row>>,
    journal: Vec<Written>,
    bug: Option<Bug>,
}

impl Table {
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        Self {
            bug,
            ..Self::default()
        }
    }

    /// The row as it is.
    pub(crate) fn get(&self, id: &RecordId) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Every row of a client's key.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&RecordId, &Row)> {
        let rows = self.rows.iter();
        rows.filter(|(_, row)| !row.record.route.is_reserved())
    }

    /// The row as a reader gets it.
    pub(crate) fn load(&mut self, id: &RecordId, now_ms: u64, chance: u64) -> Option<Row> {
        self.forget(id, now_ms);
        let unlucky = chance.is_multiple_of(4);
        match self.bug {
            Some(Bug::StaleLoads) if unlucky => self
                .stale
                .get(id)
                .cloned()
                .unwrap_or_else(|| self.rows.get(id).cloned()),
            Some(Bug::SwappedResponses) if unlucky => self.swapped(id),
            _ => self.rows.get(id).cloned(),
        }
    }

    /// The row with the response of another one.
    fn swapped(&self, id: &RecordId) -> Option<Row> {
        let mut row = self.rows.get(id).cloned()?;
        let other = self
            .rows
            .iter()
            .find_map(|(other, row)| match &row.record.state {
                State::Completed { response, .. } if other != id => Some(response.clone()),
                _ => None,
            });
        if let (State::Completed { response, .. }, Some(other)) = (&mut row.record.state, other) {
            *response = other;
        }
        Some(row)
    }

    /// What a planted time-to-live removes.
    fn forget(&mut self, id: &RecordId, now_ms: u64) {
        let now = Timestamp::from_millis(now_ms);
        let gone = self
            .rows
            .get(id)
            .is_some_and(|row| match (self.bug, &row.record.state) {
                (Some(Bug::LeaseIsTimeToLive), State::Executing { lease_until, .. }) => {
                    lease_until.has_passed(now)
                }
                (Some(Bug::ForgetsUnknown), State::Unknown { since, .. }) => {
                    since.as_millis() + UNKNOWN_KEPT_MS <= now_ms
                }
                _ => false,
            });
        if gone {
            self.rows.remove(id);
        }
    }

    /// Whether the row is at the expected version.
    pub(crate) fn matches(&self, id: &RecordId, expected: Option<Version>) -> bool {
        self.rows.get(id).map(|row| row.version) == expected
    }

    /// Writes if the row is at the expected version, or without looking where `checked` says so.
    pub(crate) fn swap(
        &mut self,
        (node, now_ms): (usize, u64),
        id: &RecordId,
        expected: Option<Version>,
        next: Option<Record>,
        checked: Option<bool>,
    ) -> Swap {
        self.forget(id, now_ms);
        if !checked.unwrap_or_else(|| self.matches(id, expected)) {
            return Swap::Lost(self.rows.get(id).cloned());
        }
        self.last_version += 1;
        let mut version = Version(self.last_version);
        if self.bug == Some(Bug::VersionsReturn) {
            version = Version(self.rows.get(id).map_or(0, |row| row.version.0) + 1);
        }
        let before = match next {
            Some(record) => {
                let record = Box::new(record);
                self.rows.insert(*id, Row { record, version })
            }
            None => self.rows.remove(id),
        };
        match self.bug {
            Some(Bug::StaleLoads) => {
                self.stale.insert(*id, before);
            }
            Some(Bug::LosesAcknowledged) => self.journal.push(Written {
                at_ms: now_ms,
                node,
                id: *id,
                before,
                version,
            }),
            _ => {}
        }
        Swap::Won(version)
    }

    /// Ids whose deadline has passed, earliest first.
    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Vec<RecordId> {
        let mut due: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| {
                self.bug != Some(Bug::LosesLeaseDeadlines)
                    || !matches!(row.record.state, State::Executing { .. })
            })
            .filter_map(|(id, row)| Some((row.record.state.deadline()?, *id)))
            .filter(|(deadline, _)| deadline.has_passed(now))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// A node crashes. Takes what it wrote last with it, if that is the bug.
    pub(crate) fn crash(&mut self, node: usize, now_ms: u64) {
        while let Some(written) = self.journal.pop() {
            if written.node != node || written.at_ms + UNSYNCED_MS < now_ms {
                continue;
            }
            if self
                .rows
                .get(&written.id)
                .is_some_and(|row| row.version == written.version)
            {
                match written.before {
                    Some(before) => self.rows.insert(written.id, before),
                    None => self.rows.remove(&written.id),
                };
            }
        }
    }
}
