//! The memory store under a profile that promises durability.

use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{
    Cursor, Filter, ListStore, MemoryStore, Page, Row, Store, StoreError, StoreProfile, Swap,
    Version,
};

#[derive(Clone, Default)]
pub(crate) struct Kept(MemoryStore);

impl Store for Kept {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "kept",
            durable: true,
            ..self.0.profile()
        }
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

impl ListStore for Kept {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, after, limit).await
    }
}
