//! Records that are larger than a row should be.
//!
//! Pieces are written first, under a token that nobody has seen. The row's own conditional write
//! then refers to them, so they become visible with it, all at once or not at all. Whoever
//! replaces or removes a row deletes its pieces afterwards. Pieces of a write that lost, failed or
//! was given up are deleted, unless the row may have been written; those of a process that died in
//! between are left to DynamoDB's own clock, as are those whose deletion failed.
//!
//! A piece outlives its row, so a missing piece is damage and never an absent row.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use onlyonce_core::{Record, RecordId};
use onlyonce_store::StoreError;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::call::{Effect, call, random};
use crate::item::{Chunks, ttl_seconds};
use crate::store::DynamoStore;
use crate::table::{Item, TTL, chunk_key, chunk_token, number};

/// The largest record that stands in the row's own item. A retry is a conditional write that fails,
/// and DynamoDB charges it by the size of the item in its way: a few replays of a large answer would
/// use up its partition's 1,000 KB in a second, and throttle every other key there.
pub(crate) const ROW_BYTES_MAX: usize = 32 * 1024;

/// What fits into one item of 400 KiB beside its other attributes.
const CHUNK_BYTES_MAX: usize = 390_000;

/// Pieces under way at once.
const CONCURRENCY: usize = 8;

/// How much longer than its row a piece lives. DynamoDB deletes what has ended within days, and in
/// no order.
const OUTLIVES: Duration = Duration::from_secs(30 * 24 * 3600);

const BYTES: &str = "bytes";

impl DynamoStore {
    /// Writes a record's bytes in pieces that nothing refers to yet.
    pub(crate) async fn write_chunks(
        &self,
        id: &RecordId,
        record: &Record,
        bytes: Bytes,
        until: Instant,
    ) -> Result<Unreferenced, StoreError> {
        let pieces: Vec<_> = pieces(&bytes).collect();
        let chunks = Chunks {
            token: chunk_token(u128::from_be_bytes(random()?)),
            count: pieces.len(),
        };
        let grace = self.options().ttl_grace.saturating_add(OUTLIVES);
        let ttl = ttl_seconds(&record.state, grace);
        let unreferenced = Unreferenced {
            store: self.clone(),
            id: *id,
            chunks: chunks.clone(),
            is_referred_to: false,
        };
        let writes = stream::iter(pieces.into_iter().enumerate()).map(|(number, piece)| {
            let key = chunk_key(id, &chunks.token, number);
            self.write_chunk(key, piece, ttl, until)
        });
        let writing = writes.buffer_unordered(CONCURRENCY).try_collect::<()>();
        match timeout_at(until, writing).await {
            Ok(Ok(())) => Ok(unreferenced),
            // Nothing refers to them, so nothing was written as far as anybody can tell.
            Ok(Err(error)) => Err(StoreError::unavailable(error)),
            Err(_) => Err(StoreError::unavailable(format!(
                "{} pieces of a record were not written in time",
                chunks.count
            ))),
        }
    }

    async fn write_chunk(
        &self,
        key: Item,
        piece: Bytes,
        ttl: Option<u64>,
        until: Instant,
    ) -> Result<(), StoreError> {
        let mut item = key;
        item.insert(BYTES.into(), AttributeValue::B(Blob::new(piece)));
        item.extend(ttl.map(|seconds| (TTL.into(), number(seconds))));
        let send = || {
            let put = self.client().put_item().table_name(self.table());
            put.set_item(Some(item.clone())).send()
        };
        let patience = until.saturating_duration_since(Instant::now());
        let sent = call(patience, Effect::WritesAgain, send).await;
        sent.map(drop)
            .map_err(|failure| failure.into_store_error(self.table()))
    }

    /// The bytes of a record in pieces; `None` when one is missing.
    pub(crate) async fn read_chunks(
        &self,
        id: &RecordId,
        chunks: &Chunks,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut pieces = stream::iter(0..chunks.count)
            .map(|chunk| self.get(chunk_key(id, &chunks.token, chunk)))
            .buffered(CONCURRENCY);
        let mut bytes = BytesMut::new();
        while let Some(item) = pieces.try_next().await? {
            let Some(AttributeValue::B(piece)) = item.and_then(|mut item| item.remove(BYTES))
            else {
                return Ok(None);
            };
            bytes.extend_from_slice(piece.as_ref());
        }
        Ok(Some(bytes.freeze()))
    }

    /// Deletes pieces that nothing refers to any more, in a task of its own: nobody waits for it.
    /// What cannot be deleted ends by itself.
    pub(crate) fn discard_chunks(&self, id: &RecordId, chunks: Chunks) {
        let (store, id) = (self.clone(), *id);
        tokio::spawn(async move { store.remove_chunks(id, chunks).await });
    }

    async fn remove_chunks(&self, id: RecordId, chunks: Chunks) {
        let removals = stream::iter(0..chunks.count)
            .map(|chunk| self.remove_chunk(&id, &chunks.token, chunk))
            .buffer_unordered(CONCURRENCY);
        removals.for_each(|()| async {}).await;
    }

    async fn remove_chunk(&self, id: &RecordId, token: &str, chunk: usize) {
        let send = || {
            let delete = self.client().delete_item().table_name(self.table());
            let key = chunk_key(id, token, chunk);
            delete.set_key(Some(key)).send()
        };
        let sent = call(self.options().deadline, Effect::WritesAgain, send).await;
        if let Err(failure) = sent {
            let error = failure.into_store_error(self.table());
            tracing::warn!(%error, "a piece of a replaced record is left to DynamoDB's clock");
        }
    }
}

/// Pieces that no row refers to yet. Dropped as such, also because nobody waits for the write any
/// more, they are deleted.
pub(crate) struct Unreferenced {
    store: DynamoStore,
    id: RecordId,
    chunks: Chunks,
    is_referred_to: bool,
}

impl Unreferenced {
    /// For a row that is about to be written. From here on it may refer to them, whatever becomes
    /// of whoever writes it.
    pub(crate) fn refer(mut self) -> Chunks {
        self.is_referred_to = true;
        self.chunks.clone()
    }
}

impl Drop for Unreferenced {
    fn drop(&mut self) {
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.is_referred_to) else {
            return;
        };
        let (store, id, chunks) = (self.store.clone(), self.id, self.chunks.clone());
        runtime.spawn(async move {
            // One that is still on its way would come after its deletion.
            tokio::time::sleep(store.options().request_timeout).await;
            store.remove_chunks(id, chunks).await;
        });
    }
}

/// Bytes in pieces that fit.
fn pieces(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..bytes.len()).step_by(CHUNK_BYTES_MAX);
    starts.map(|start| {
        let end = bytes.len().min(start + CHUNK_BYTES_MAX);
        bytes.slice(start..end)
    })
}
