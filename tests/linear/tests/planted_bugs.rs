//! Stores with one bug each, run and recorded like the real ones: every one is found out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test speaks"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_linear::Run;
use onlyonce_linear::trouble::calm;
use onlyonce_store::{
    BoxStore, Cursor, Filter, ListStore, MemoryStore, Page, Row, Store, StoreError, StoreProfile,
    Swap, Version,
};

/// Each bug shows once in so many times: a store that is nearly right is the hard one to catch.
const ONCE_IN: u64 = 20;

/// Far above every version that the store below gives out.
const INVENTED: u64 = 1 << 32;

/// A bug must have made a difference this often: once can be hidden, by a caller that went away
/// and whose write then explains what is seen.
const WRONG_MIN: usize = 4;

/// How many stretches of work a bug is given for that.
const STRETCHES_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A write is acknowledged and forgotten.
    Forgets,
    /// A read is answered with what was there before.
    ReadsOld,
    /// The expected version is not looked at.
    TwoWinners,
    /// A new row has the version of one that was removed.
    VersionReturns,
    /// An error says that nothing was written, and it was.
    RefusesAndWrites,
    /// An unanswered write is sent again, and loses to itself.
    SendsTwice,
    /// A write that lost is not told to its caller as lost.
    LosesAndSaysWon,
}

const BUGS: [Bug; 7] = [
    Bug::Forgets,
    Bug::ReadsOld,
    Bug::TwoWinners,
    Bug::VersionReturns,
    Bug::RefusesAndWrites,
    Bug::SendsTwice,
    Bug::LosesAndSaysWon,
];

#[derive(Clone)]
struct Buggy {
    store: MemoryStore,
    bug: Bug,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: u64,
    /// How often the bug made a difference.
    wrong: usize,
    before: HashMap<RecordId, Option<Row>>,
    /// For versions that count the writes of a row since it was made: what the caller knows.
    shown: HashMap<Version, Version>,
    writes: HashMap<RecordId, u64>,
}

impl Buggy {
    fn new(bug: Bug) -> Self {
        Self {
            store: MemoryStore::new(),
            bug,
            state: Arc::default(),
        }
    }

    /// Whether the bug shows this time.
    fn shows(&self, bug: Bug) -> bool {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        self.bug == bug && state.calls.is_multiple_of(ONCE_IN)
    }

    fn went_wrong(&self) {
        self.state.lock().unwrap().wrong += 1;
    }

    fn times_wrong(&self) -> usize {
        self.state.lock().unwrap().wrong
    }

    fn renamed(&self, row: Option<Row>) -> Option<Row> {
        let state = self.state.lock().unwrap();
        row.map(|row| Row {
            version: state
                .shown
                .get(&row.version)
                .copied()
                .unwrap_or(row.version),
            ..row
        })
    }

    /// Versions that start again with every new row.
    async fn swap_counting(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let current = self.store.load(id).await?;
        let shown = self.renamed(current.clone());
        if shown.as_ref().map(|row| row.version) != expected {
            return Ok(Swap::Lost(shown));
        }
        let current = current.map(|row| row.version);
        match self.store.swap(id, current, next).await? {
            Swap::Lost(row) => Ok(Swap::Lost(self.renamed(row))),
            Swap::Won(version) => {
                let mut state = self.state.lock().unwrap();
                let writes = state.writes.entry(*id).or_default();
                let again = expected.is_none() && *writes > 0;
                *writes = if expected.is_none() { 1 } else { *writes + 1 };
                let count = Version(INVENTED + *writes);
                state.wrong += usize::from(again);
                state.shown.insert(version, count);
                Ok(Swap::Won(count))
            }
        }
    }

    /// Does what a correct store does.
    async fn swap_rightly(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let before = self.store.load(id).await?;
        let swapped = self.store.swap(id, expected, next).await?;
        if matches!(swapped, Swap::Won(_)) {
            self.state.lock().unwrap().before.insert(*id, before);
        }
        Ok(swapped)
    }
}

impl Store for Buggy {
    fn profile(&self) -> StoreProfile {
        self.store.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        if self.shows(Bug::ReadsOld) {
            let before = self.state.lock().unwrap().before.get(id).cloned();
            let before = before.flatten();
            if before != self.store.load(id).await? {
                self.went_wrong();
            }
            return Ok(before);
        }
        Ok(self.renamed(self.store.load(id).await?))
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        if self.bug == Bug::VersionReturns {
            return self.swap_counting(id, expected, next).await;
        }
        if !self.shows(self.bug) {
            return self.swap_rightly(id, expected, next).await;
        }
        let current = self.store.load(id).await?;
        let fits = current.as_ref().map(|row| row.version) == expected;
        let invented = Version(INVENTED + self.state.lock().unwrap().calls);
        match self.bug {
            Bug::Forgets if fits => {
                self.went_wrong();
                Ok(Swap::Won(invented))
            }
            Bug::LosesAndSaysWon if !fits => {
                self.went_wrong();
                Ok(Swap::Won(invented))
            }
            Bug::TwoWinners if !fits => {
                self.went_wrong();
                let current = current.map(|row| row.version);
                self.swap_rightly(id, current, next).await
            }
            Bug::RefusesAndWrites if fits => {
                self.went_wrong();
                let _ = self.swap_rightly(id, expected, next).await?;
                Err(StoreError::unavailable("not reached"))
            }
            Bug::SendsTwice if fits => {
                self.went_wrong();
                let _ = self.swap_rightly(id, expected, next).await?;
                self.swap_rightly(id, expected, next).await
            }
            Bug::None
            | Bug::ReadsOld
            | Bug::VersionReturns
            | Bug::Forgets
            | Bug::LosesAndSaysWon
            | Bug::TwoWinners
            | Bug::RefusesAndWrites
            | Bug::SendsTwice => self.swap_rightly(id, expected, next).await,
        }
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.store.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.store.secret(candidate).await
    }
}

impl ListStore for Buggy {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, after, limit).await
    }
}

/// Runs a store and says whether its histories were rejected.
async fn is_rejected(bug: Bug, seed: u64) -> bool {
    let mut run = Run::with_seed(seed);
    let store = Buggy::new(bug);
    let stores = [&store, &store].map(|store| BoxStore::new(store.clone()));
    let recorder = run.recorder.clone();
    let meanwhile = async {
        for _ in 0..STRETCHES_MAX {
            calm(&recorder).await;
            if bug == Bug::None || store.times_wrong() >= WRONG_MIN {
                return;
            }
        }
        panic!("{bug:?} made too little difference");
    };
    run.work(stores.clone(), meanwhile).await;
    run.verdict(stores).await.is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_planted_bug_is_found_by_every_seed() {
    for seed in 0..3 {
        assert!(!is_rejected(Bug::None, seed).await, "seed {seed}");
        for bug in BUGS {
            assert!(is_rejected(bug, seed).await, "{bug:?}, seed {seed}");
        }
    }
}
