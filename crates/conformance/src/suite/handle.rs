//! A store as the cases use it: errors end the case, and tasks share it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{Cursor, Filter, ListStore, Listed, Page, Row, Store, Swap, Version};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// A store's handle. Clones share it.
pub struct Handle<S>(Arc<S>);

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl<S: Store + ListStore> Handle<S> {
    pub(super) fn new(store: S) -> Self {
        Self(Arc::new(store))
    }

    pub(super) fn into_store(self) -> S {
        Arc::into_inner(self.0).expect("a case gives back its last handle")
    }

    /// The store itself, where a case wants its errors.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.0
    }

    /// [`Store::load`]
    pub async fn load(&self, id: &RecordId) -> Option<Row> {
        self.0.load(id).await.expect("load")
    }

    /// The row that must be there.
    pub async fn row(&self, id: &RecordId) -> Row {
        self.load(id).await.expect("the row is there")
    }

    /// [`Store::swap`]
    pub async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Swap {
        self.0.swap(id, expected, next).await.expect("swap")
    }

    /// Writes a row where there must be none.
    pub async fn put(&self, id: &RecordId, record: &Record) -> Version {
        won(self.swap(id, None, Some(record)).await)
    }

    /// Writes over a row that must be at this version.
    pub async fn replace(&self, id: &RecordId, version: Version, record: &Record) -> Version {
        won(self.swap(id, Some(version), Some(record)).await)
    }

    /// Removes a row that must be at this version.
    pub async fn remove(&self, id: &RecordId, version: Version) -> Version {
        won(self.swap(id, Some(version), None).await)
    }

    /// Writes, reads back, and compares.
    pub async fn round_trip(&self, id: &RecordId, record: &Record) {
        let version = self.put(id, record).await;
        let row = self.row(id).await;
        same(&row.record, record);
        assert_eq!(row.version, version, "the version that the swap gave");
    }

    /// [`Store::due`]
    pub async fn due(&self, now: Timestamp, limit: usize) -> Vec<RecordId> {
        self.0.due(now, limit).await.expect("due")
    }

    /// [`Store::now`]
    pub async fn now(&self) -> Timestamp {
        self.0.now().await.expect("now")
    }

    /// [`Store::secret`]
    pub async fn secret(&self, candidate: [u8; 32]) -> [u8; 32] {
        self.0.secret(candidate).await.expect("secret")
    }

    /// [`ListStore::list`]
    pub async fn page(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Page {
        let page = self.0.list(filter, after, limit).await.expect("list");
        assert!(page.entries.len() <= limit, "a page keeps to its limit");
        page
    }

    /// Every page of a list. Ends also when the store's cursor does not.
    pub async fn pages(&self, filter: &Filter, limit: usize) -> Vec<Listed> {
        /// More pages than any case has rows.
        const PAGES_MAX: usize = 5_000;
        let mut entries = Vec::new();
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let page = self.page(filter, after, limit).await;
            entries.extend(page.entries);
            after = page.next;
            if after.is_none() {
                return entries;
            }
        }
        panic!("the list has no last page");
    }

    /// The ids of every page of a list.
    pub async fn ids(&self, filter: &Filter, limit: usize) -> Vec<RecordId> {
        let entries = self.pages(filter, limit).await;
        entries.into_iter().map(|entry| entry.id).collect()
    }
}

/// The version of a write that must have won.
#[track_caller]
#[must_use]
pub fn won(swap: Swap) -> Version {
    match swap {
        Swap::Won(version) => version,
        Swap::Lost(row) => panic!(
            "the swap should have won, and lost to {:?}",
            row.map(|row| row.version)
        ),
    }
}

/// The row that a write must have lost to.
#[track_caller]
#[must_use]
pub fn lost(swap: Swap) -> Option<Row> {
    match swap {
        Swap::Won(version) => panic!("the swap should have lost, and won as {version}"),
        Swap::Lost(row) => row,
    }
}

/// Compares records without printing a large body.
#[track_caller]
pub fn same(got: &Record, expected: &Record) {
    assert!(
        got == expected,
        "another record came back: {}",
        shortened(got, expected)
    );
}

fn shortened(got: &Record, expected: &Record) -> String {
    const CHARS_MAX: usize = 1_000;
    let text = |record: &Record| -> String {
        let text = format!("{record:?}");
        text.chars().take(CHARS_MAX).collect()
    };
    format!("{}\ninstead of {}", text(got), text(expected))
}

/// Runs tasks that start at the same moment, and gives their results in order.
pub async fn together<T, Task>(tasks: impl IntoIterator<Item = Task>) -> Vec<T>
where
    T: Send + 'static,
    Task: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = tasks.into_iter().collect();
    let start = Arc::new(Barrier::new(tasks.len()));
    let mut running = JoinSet::new();
    for (index, task) in tasks.into_iter().enumerate() {
        let start = Arc::clone(&start);
        running.spawn(async move {
            start.wait().await;
            (index, task.await)
        });
    }
    let mut results = running.join_all().await;
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
