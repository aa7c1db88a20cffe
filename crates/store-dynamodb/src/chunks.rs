//! Records that are larger than an item.
//!
//! Pieces are written first, under a token that nobody has seen. The row's own conditional write
//! then refers to them, so they become visible with it, all at once or not at all. Whoever
//! replaces or removes a row deletes its pieces afterwards. Pieces of a write that lost are
//! deleted; those of a process that died in between are left to DynamoDB's own clock, as are
//! those whose deletion failed.
//!
//! A piece outlives its row, so a missing piece is damage and never an absent row.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use onlyonce_core::{Record, RecordId};
use onlyonce_store::StoreError;

use crate::call::{Effect, call, random};
use crate::item::{Chunks, ttl_seconds};
use crate::store::DynamoStore;
use crate::table::{TTL, chunk_key, number};

/// What fits into one item of 400 KiB beside its other attributes.
pub(crate) const CHUNK_BYTES_MAX: usize = 390_000;

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
    ) -> Result<Chunks, StoreError> {
        let pieces: Vec<_> = pieces(&bytes).collect();
        let chunks = Chunks {
            token: format!("{:032x}", u128::from_be_bytes(random()?)),
            count: pieces.len(),
        };
        let grace = self.options().ttl_grace.saturating_add(OUTLIVES);
        let ttl = ttl_seconds(&record.state, grace);
        let writes = stream::iter(pieces.into_iter().enumerate())
            .map(|(number, piece)| self.write_chunk(id, &chunks.token, number, piece, ttl));
        // All of them end before any is deleted: one still on its way would come after that.
        let written: Vec<_> = writes.buffer_unordered(CONCURRENCY).collect().await;
        if let Some(error) = written.into_iter().find_map(Result::err) {
            self.discard_chunks(id, chunks);
            // Nothing refers to them, so nothing was written as far as anybody can tell.
            return Err(StoreError::unavailable(error));
        }
        Ok(chunks)
    }

    async fn write_chunk(
        &self,
        id: &RecordId,
        token: &str,
        chunk: usize,
        piece: Bytes,
        ttl: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut item = chunk_key(id, token, chunk);
        item.insert(BYTES.into(), AttributeValue::B(Blob::new(piece)));
        item.extend(ttl.map(|seconds| (TTL.into(), number(seconds))));
        let send = || {
            let put = self.client().put_item().table_name(self.table());
            put.set_item(Some(item.clone())).send()
        };
        let sent = call(self.options().deadline, Effect::WritesAgain, send).await;
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
        tokio::spawn(async move {
            let removals = stream::iter(0..chunks.count)
                .map(|chunk| store.remove_chunk(&id, &chunks.token, chunk))
                .buffer_unordered(CONCURRENCY);
            removals.for_each(|()| async {}).await;
        });
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

/// Bytes in pieces that fit.
fn pieces(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..bytes.len()).step_by(CHUNK_BYTES_MAX);
    starts.map(|start| {
        let end = bytes.len().min(start + CHUNK_BYTES_MAX);
        bytes.slice(start..end)
    })
}
