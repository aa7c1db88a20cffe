//! The table: its keys, its index, and what stands where.
//!
//! | `pk` | `sk` | what |
//! |---|---|---|
//! | `r#` and the id's first six bits | the id | a record |
//! | `c#`, the id and a number | token | a piece of a large record |
//! | `c#` and the id | token and number | the same, as earlier builds wrote it |
//! | `meta` | `clock` | the latest time that was given out |
//! | `meta` | `secret` | the deployment's hashing secret |
//! | `meta` | `layout` | the version of all this |
//!
//! Records are spread over [`RECORD_PARTITIONS`] partitions, within which they are in the order of their ids.
//! The index `due` has the rows that have a deadline, in the order of their deadlines, spread over
//! [`DUE_SHARDS`] partitions.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, GlobalSecondaryIndex, KeySchemaElement, KeyType,
    Projection, ProjectionType, ScalarAttributeType, TableDescription,
};
use onlyonce_core::RecordId;

/// An item, or a key.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// The layout that this build writes.
pub(crate) const LAYOUT: u64 = 1;

pub(crate) const PK: &str = "pk";
pub(crate) const SK: &str = "sk";
pub(crate) const DUE_INDEX: &str = "due";
pub(crate) const DUE_SHARD: &str = "due_shard";
pub(crate) const DEADLINE: &str = "deadline";
pub(crate) const TTL: &str = "ttl";

/// Partitions of the records. A partition takes about 1,000 writes in a second, and DynamoDB
/// divides a hotter one; a list asks every partition.
pub(crate) const RECORD_PARTITIONS: u8 = 64;

/// Partitions of the index of deadlines. A partition takes about 1,000 changes in a second.
pub(crate) const DUE_SHARDS: u8 = 16;

/// The partition key of what is there once.
const META: &str = "meta";

/// How tokens of pieces with a partition key each begin. Those before were only hexadecimal.
const APART: char = 'p';

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn key(pk: String, sk: String) -> Item {
    HashMap::from([(PK.into(), text(pk)), (SK.into(), text(sk))])
}

pub(crate) fn record_key(id: &RecordId) -> Item {
    key(record_name(record_partition(id)), id.to_string())
}

/// The partition of a record. Partitions are in the order of ids too.
pub(crate) fn record_partition(id: &RecordId) -> u8 {
    let [first, ..] = *id.as_bytes();
    first / (u8::MAX / RECORD_PARTITIONS + 1)
}

/// The key of a partition of records.
pub(crate) fn record_name(partition: u8) -> String {
    format!("r#{partition:02x}")
}

/// The partition of a row in the index of deadlines.
pub(crate) fn due_shard(id: &RecordId) -> u8 {
    let [_, second, ..] = *id.as_bytes();
    second % DUE_SHARDS
}

/// What the pieces of one write are called, from random bits that nobody has seen.
pub(crate) fn chunk_token(random: u128) -> String {
    format!("{APART}{random:032x}")
}

/// Every piece has a partition key of its own: a partition takes 1,000 KB in a second, and all
/// pieces of a large record in one would be throttled for longer than a write may take.
pub(crate) fn chunk_key(id: &RecordId, token: &str, chunk: usize) -> Item {
    if token.starts_with(APART) {
        key(format!("c#{id}#{chunk:05}"), token.into())
    } else {
        key(format!("c#{id}"), format!("{token}#{chunk:05}"))
    }
}

pub(crate) fn meta_key(name: &str) -> Item {
    key(META.into(), name.into())
}

/// The id in a key.
pub(crate) fn id_of(item: &Item) -> Option<RecordId> {
    RecordId::from_hex(item.get(SK)?.as_s().ok()?)
}

pub(crate) fn number_in(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub(crate) fn attributes() -> Vec<AttributeDefinition> {
    let attribute = |name: &str, kind| {
        let builder = AttributeDefinition::builder().attribute_name(name);
        builder.attribute_type(kind).build().ok()
    };
    [
        attribute(PK, ScalarAttributeType::S),
        attribute(SK, ScalarAttributeType::S),
        attribute(DUE_SHARD, ScalarAttributeType::N),
        attribute(DEADLINE, ScalarAttributeType::N),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The key schema of the table, or of its index.
pub(crate) fn keys(hash: &str, range: &str) -> Vec<KeySchemaElement> {
    let element = |name: &str, kind| {
        let builder = KeySchemaElement::builder().attribute_name(name);
        builder.key_type(kind).build().ok()
    };
    let keys = [element(hash, KeyType::Hash), element(range, KeyType::Range)];
    keys.into_iter().flatten().collect()
}

/// The index of deadlines. It holds keys only: whoever acts on a row reads it first.
pub(crate) fn due_index() -> Option<GlobalSecondaryIndex> {
    let projection = Projection::builder().projection_type(ProjectionType::KeysOnly);
    GlobalSecondaryIndex::builder()
        .index_name(DUE_INDEX)
        .set_key_schema(Some(keys(DUE_SHARD, DEADLINE)))
        .projection(projection.build())
        .build()
        .ok()
}

/// What is different about a table that is not one of onlyonce's.
pub(crate) fn difference(table: &TableDescription) -> Option<String> {
    let shown = |keys: &[KeySchemaElement]| -> String {
        let names = keys.iter().map(|key| {
            let kind = table
                .attribute_definitions()
                .iter()
                .find(|attribute| attribute.attribute_name() == key.attribute_name())
                .map_or("?", |attribute| attribute.attribute_type().as_str());
            format!("{} {kind} {}", key.attribute_name(), key.key_type())
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let own = "pk S HASH, sk S RANGE";
    let found = shown(table.key_schema());
    if found != own {
        return Some(format!("its key is ({found}), not ({own})"));
    }
    let own = "due_shard N HASH, deadline N RANGE";
    let index = table
        .global_secondary_indexes()
        .iter()
        .find(|index| index.index_name() == Some(DUE_INDEX));
    match index.map(|index| shown(index.key_schema())) {
        None => Some(format!("it has no index `{DUE_INDEX}`")),
        Some(found) if found != own => Some(format!(
            "the key of its index `{DUE_INDEX}` is ({found}), not ({own})"
        )),
        Some(_) => None,
    }
}
