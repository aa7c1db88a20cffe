//! A record as an item: its bytes, and beside them what a person looks for.
//!
//! The bytes are [`codec`]'s, with its checksum, and they alone are read back. The other
//! attributes are for DynamoDB (the version, the deadline, the end) and for people (state, route,
//! times).

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use onlyonce_core::{Record, RecordId, Response, State, Timestamp, codec};
use onlyonce_store::{Row, StoreError, Version};

use crate::table::{
    DEADLINE, DUE_SHARD, Item, TTL, due_shard, number, number_in, record_key, text,
};

/// The version: what a writer expects.
pub(crate) const VERSION: &str = "v";
const RECORD: &str = "record";
const CHUNKS: &str = "chunks";
const CHUNK_TOKEN: &str = "chunk_token";

/// DynamoDB's end of an item is in seconds; one past the year 9999 is none.
const TTL_SECONDS_MAX: u64 = 253_402_300_799;

/// Where a record's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// In the item itself.
    Whole(Bytes),
    /// In so many other items.
    Chunked(Chunks),
}

/// The pieces of one write of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// Different for every write.
    pub(crate) token: String,
    pub(crate) count: usize,
}

/// An item that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) version: Version,
    pub(crate) content: Content,
}

/// The bytes of a record.
pub(crate) fn encode(
    id: &RecordId,
    record: &Record,
    bytes_max: usize,
) -> Result<Vec<u8>, StoreError> {
    let too_large = |bytes: usize| StoreError::TooLarge {
        bytes: bytes.try_into().unwrap_or(u64::MAX),
        bytes_max: bytes_max.try_into().unwrap_or(u64::MAX),
    };
    let bytes = codec::encode(id, record).map_err(|_| too_large(usize::MAX))?;
    if bytes.len() > bytes_max {
        return Err(too_large(bytes.len()));
    }
    Ok(bytes)
}

/// The record in these bytes.
pub(crate) fn decode(id: &RecordId, version: Version, bytes: &Bytes) -> Result<Row, StoreError> {
    let record = codec::decode(id, bytes).map_err(|error| StoreError::Corrupt {
        version,
        reason: error.to_string().into(),
    })?;
    let record = Box::new(record);
    Ok(Row { record, version })
}

/// The item of a record.
pub(crate) fn item(
    id: &RecordId,
    record: &Record,
    version: Version,
    content: Content,
    ttl_grace: Duration,
) -> Item {
    let mut item = record_key(id);
    let mut set = |name: &str, value| {
        item.insert(name.into(), value);
    };
    set(VERSION, number(version.0));
    match content {
        Content::Whole(bytes) => set(RECORD, AttributeValue::B(Blob::new(bytes))),
        Content::Chunked(chunks) => {
            set(
                CHUNKS,
                number(u64::try_from(chunks.count).unwrap_or(u64::MAX)),
            );
            set(CHUNK_TOKEN, text(chunks.token));
        }
    }
    if let Some(deadline) = indexed_deadline(&record.state) {
        set(DUE_SHARD, number(due_shard(id).into()));
        set(DEADLINE, number(deadline.as_millis()));
    }
    if let Some(seconds) = ttl_seconds(&record.state, ttl_grace) {
        set(TTL, number(seconds));
    }
    set("state", text(record.state.kind().as_str()));
    set("route", text(record.route.as_str()));
    set("principal", text(record.principal.to_string()));
    set("attempt", number(record.attempt.into()));
    set("created_ms", number(record.created_at.as_millis()));
    set("updated_ms", number(record.updated_at.as_millis()));
    if let State::Completed {
        response: Response::Plain(answer),
        ..
    } = &record.state
    {
        set("status", number(answer.status.into()));
    }
    item
}

/// The deadline, unless it never passes.
fn indexed_deadline(state: &State) -> Option<Timestamp> {
    state
        .deadline()
        .filter(|deadline| deadline.has_passed(Timestamp::from_millis(u64::MAX)))
}

/// When DynamoDB may delete the row, if nobody did: settled rows only, well after their deadline.
pub(crate) fn ttl_seconds(state: &State, grace: Duration) -> Option<u64> {
    let deadline = state.deadline().filter(|_| state.kind().is_settled())?;
    let seconds = deadline.after(grace).as_millis().div_ceil(1_000);
    (seconds <= TTL_SECONDS_MAX).then_some(seconds)
}

/// What an item says. An item that says nothing that can be read is a row all the same.
pub(crate) fn found(mut item: Item) -> Result<Found, StoreError> {
    let version = version_of(&item);
    let corrupt = |reason: &str| StoreError::Corrupt {
        version: version.unwrap_or(Version(0)),
        reason: reason.into(),
    };
    let version = version.ok_or_else(|| corrupt("it has no version"))?;
    if let Some(chunks) = chunks_of(&item) {
        let content = Content::Chunked(chunks);
        return Ok(Found { version, content });
    }
    match item.remove(RECORD) {
        Some(AttributeValue::B(bytes)) => Ok(Found {
            version,
            content: Content::Whole(bytes.into_inner().into()),
        }),
        _ => Err(corrupt("it has no content")),
    }
}

pub(crate) fn version_of(item: &Item) -> Option<Version> {
    number_in(item, VERSION).map(Version)
}

/// The pieces that an item refers to.
pub(crate) fn chunks_of(item: &Item) -> Option<Chunks> {
    Some(Chunks {
        count: number_in(item, CHUNKS)?.try_into().ok()?,
        token: item.get(CHUNK_TOKEN)?.as_s().ok()?.clone(),
    })
}
