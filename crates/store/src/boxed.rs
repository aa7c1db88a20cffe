//! A store chosen at run time.
//!
//! [`Store`] returns plain futures, so code that knows its store pays for no indirection. A
//! program that reads the store's name from a URL uses [`BoxStore`] instead: one allocation and
//! one virtual call per operation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onlyonce_core::{Record, RecordId, Timestamp};

use crate::{Cursor, Filter, ListStore, Page, Row, Store, StoreError, StoreProfile, Swap, Version};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The object-safe twin of the port.
trait DynStore: Send + Sync {
    fn profile(&self) -> StoreProfile;
    fn load<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Option<Row>>;
    fn swap<'a>(
        &'a self,
        id: &'a RecordId,
        expected: Option<Version>,
        next: Option<&'a Record>,
    ) -> BoxFuture<'a, Swap>;
    fn due(&self, now: Timestamp, limit: usize) -> BoxFuture<'_, Vec<RecordId>>;
    fn now(&self) -> BoxFuture<'_, Timestamp>;
    fn secret(&self, candidate: [u8; 32]) -> BoxFuture<'_, [u8; 32]>;
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Page>;
}

impl<S: Store + ListStore> DynStore for S {
    fn profile(&self) -> StoreProfile {
        Store::profile(self)
    }

    fn load<'a>(&'a self, id: &'a RecordId) -> BoxFuture<'a, Option<Row>> {
        Box::pin(Store::load(self, id))
    }

    fn swap<'a>(
        &'a self,
        id: &'a RecordId,
        expected: Option<Version>,
        next: Option<&'a Record>,
    ) -> BoxFuture<'a, Swap> {
        Box::pin(Store::swap(self, id, expected, next))
    }

    fn due(&self, now: Timestamp, limit: usize) -> BoxFuture<'_, Vec<RecordId>> {
        Box::pin(Store::due(self, now, limit))
    }

    fn now(&self) -> BoxFuture<'_, Timestamp> {
        Box::pin(Store::now(self))
    }

    fn secret(&self, candidate: [u8; 32]) -> BoxFuture<'_, [u8; 32]> {
        Box::pin(Store::secret(self, candidate))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Page> {
        Box::pin(ListStore::list(self, filter, after, limit))
    }
}

/// Any store, behind one type. Clones share it.
#[derive(Clone)]
pub struct BoxStore(Arc<dyn DynStore>);

impl BoxStore {
    /// Boxes a store.
    pub fn new(store: impl Store + ListStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoxStore({})", self.0.profile().name)
    }
}

impl Store for BoxStore {
    fn profile(&self) -> StoreProfile {
        self.0.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.0.load(id).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        self.0.swap(id, expected, next).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.0.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.0.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.0.secret(candidate).await
    }
}

impl ListStore for BoxStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, after, limit).await
    }
}
