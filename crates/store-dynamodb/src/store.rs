//! The port on DynamoDB.

use std::fmt;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use bytes::Bytes;
use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{Row, Store, StoreError, StoreProfile, Swap, Version};
use tokio::time::Instant;

use crate::call::{Effect, Failure, call, random};
use crate::chunks::ROW_BYTES_MAX;
use crate::connect::{Connection, connect};
use crate::item::{Content, chunks_of, decode, encode, found, item, version_of};
use crate::migrate::check;
use crate::table::{Item, meta_key, number, record_key};
use crate::{DynamoOptions, OpenError};

/// How often a row in pieces is read anew because it was replaced meanwhile.
const ROUNDS_MAX: usize = 8;

/// The part of a write's time that is kept for the row, after its pieces.
const ROW_SHARE: u32 = 4;

const SECRET: &str = "secret";

/// What a swap asks of the row that is there.
const EXPECT_NONE: &str = "attribute_not_exists(pk)";
const EXPECT_VERSION: &str = "v = :v";

/// A table in DynamoDB. Clones share the connection.
#[derive(Clone)]
pub struct DynamoStore {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    options: DynamoOptions,
}

/// What a conditional write came to.
enum Written {
    /// It is written, over this item.
    Over(Option<Item>),
    /// It is not: this item was there. DynamoDB leaves it out when there is none.
    Lost(Option<Item>),
}

impl DynamoStore {
    /// Connects, and checks that the table is there and of the right shape.
    ///
    /// # Errors
    /// When anything is missing or wrong. Nothing is written.
    pub async fn open(options: &DynamoOptions) -> Result<Self, OpenError> {
        let Connection { client, region } = connect(options).await?;
        check(&client, options, &region).await?;
        let options = options.clone();
        Ok(Self {
            inner: Arc::new(Inner { client, options }),
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn options(&self) -> &DynamoOptions {
        &self.inner.options
    }

    pub(crate) fn table(&self) -> &str {
        &self.inner.options.table
    }

    /// The item under a key, as it is at this moment.
    pub(crate) async fn get(&self, key: Item) -> Result<Option<Item>, StoreError> {
        let send = || {
            let get = self.client().get_item().table_name(self.table());
            let get = get.set_key(Some(key.clone()));
            get.consistent_read(true).send()
        };
        let answer = call(self.options().deadline, Effect::Reads, send).await;
        let answer = answer.map_err(|failure| failure.into_store_error(self.table()))?;
        Ok(answer.item)
    }

    /// The row that an item is, wherever its bytes are.
    pub(crate) async fn row(
        &self,
        id: &RecordId,
        mut item: Item,
    ) -> Result<Option<Row>, StoreError> {
        for _ in 0..ROUNDS_MAX {
            let found = found(item)?;
            let version = found.version;
            let bytes = match found.content {
                Content::Whole(bytes) => Some(bytes),
                Content::Chunked(chunks) => self.read_chunks(id, &chunks).await?,
            };
            if let Some(bytes) = bytes {
                return decode(id, version, &bytes).map(Some);
            }
            // A piece is missing. Either the row was replaced meanwhile, or it is damaged.
            match self.get(record_key(id)).await? {
                None => return Ok(None),
                Some(same) if version_of(&same) == Some(version) => {
                    return Err(StoreError::Corrupt {
                        version,
                        reason: "a piece of it is missing".into(),
                    });
                }
                Some(newer) => item = newer,
            }
        }
        Err(StoreError::unavailable(
            "the row changes faster than it can be read",
        ))
    }

    /// Writes a record, in pieces if need be.
    async fn put(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        record: &Record,
        version: Version,
    ) -> Result<Written, StoreError> {
        let bytes = Bytes::from(encode(id, record, self.options().record_bytes_max)?);
        let deadline = self.options().deadline;
        let until = Instant::now() + deadline;
        if bytes.len() <= ROW_BYTES_MAX {
            let item = self.item(id, record, version, Content::Whole(bytes));
            return self.put_item(expected, item, until).await;
        }
        let pieces_until = until - deadline / ROW_SHARE;
        let pieces = self.write_chunks(id, record, bytes, pieces_until).await?;
        let chunks = pieces.refer();
        let item = self.item(id, record, version, Content::Chunked(chunks.clone()));
        let written = self.put_item(expected, item, until).await;
        let is_unused = match &written {
            Ok(Written::Over(_)) => false,
            Ok(Written::Lost(_)) => true,
            Err(error) => !error.may_have_written(),
        };
        if is_unused {
            self.discard_chunks(id, chunks);
        }
        written
    }

    fn item(&self, id: &RecordId, record: &Record, version: Version, content: Content) -> Item {
        item(id, record, version, content, self.options().ttl_grace)
    }

    async fn put_item(
        &self,
        expected: Option<Version>,
        item: Item,
        until: Instant,
    ) -> Result<Written, StoreError> {
        let send = || {
            let put = self.client().put_item().table_name(self.table());
            let put = put
                .set_item(Some(item.clone()))
                .return_values(ReturnValue::AllOld)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            match expected {
                None => put.condition_expression(EXPECT_NONE).send(),
                Some(version) => put
                    .condition_expression(EXPECT_VERSION)
                    .expression_attribute_values(":v", number(version.0))
                    .send(),
            }
        };
        let patience = until.saturating_duration_since(Instant::now());
        match call(patience, Effect::Writes, send).await {
            Ok(won) => Ok(Written::Over(won.attributes)),
            Err(Failure::Refused(PutItemError::ConditionalCheckFailedException(lost))) => {
                Ok(Written::Lost(lost.item))
            }
            Err(failure) => Err(failure.into_store_error(self.table())),
        }
    }

    async fn delete_item(
        &self,
        id: &RecordId,
        expected: Option<Version>,
    ) -> Result<Written, StoreError> {
        let send = || {
            let delete = self.client().delete_item().table_name(self.table());
            let delete = delete
                .set_key(Some(record_key(id)))
                .return_values(ReturnValue::AllOld)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            match expected {
                None => delete.condition_expression(EXPECT_NONE).send(),
                Some(version) => delete
                    .condition_expression(EXPECT_VERSION)
                    .expression_attribute_values(":v", number(version.0))
                    .send(),
            }
        };
        match call(self.options().deadline, Effect::Writes, send).await {
            Ok(won) => Ok(Written::Over(won.attributes)),
            Err(Failure::Refused(DeleteItemError::ConditionalCheckFailedException(lost))) => {
                Ok(Written::Lost(lost.item))
            }
            Err(failure) => Err(failure.into_store_error(self.table())),
        }
    }
}

impl fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoStore({})", self.options().url())
    }
}

impl Store for DynamoStore {
    fn profile(&self) -> StoreProfile {
        StoreProfile {
            name: "dynamodb",
            durable: true,
            shared: true,
            cheap_reads: false,
        }
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        match self.get(record_key(id)).await? {
            Some(item) => self.row(id, item).await,
            None => Ok(None),
        }
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let version = Version(u64::from_be_bytes(random()?));
        let written = match next {
            Some(record) => self.put(id, expected, record, version).await?,
            None => self.delete_item(id, expected).await?,
        };
        match written {
            Written::Over(old) => {
                if let Some(chunks) = old.as_ref().and_then(chunks_of) {
                    self.discard_chunks(id, chunks);
                }
                Ok(Swap::Won(version))
            }
            Written::Lost(Some(item)) => self.row(id, item).await.map(Swap::Lost),
            // Nothing was there, or the server does not say what.
            Written::Lost(None) => self.load(id).await.map(Swap::Lost),
        }
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.due_ids(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.time().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let mut item = meta_key(SECRET);
        let value = AttributeValue::B(Blob::new(candidate));
        item.insert(SECRET.into(), value);
        let send = || {
            let put = self.client().put_item().table_name(self.table());
            put.set_item(Some(item.clone()))
                .condition_expression(EXPECT_NONE)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
        };
        // Written twice, the second time loses to the first and brings it back.
        let kept = match call(self.options().deadline, Effect::WritesAgain, send).await {
            Ok(_) => return Ok(candidate),
            Err(Failure::Refused(PutItemError::ConditionalCheckFailedException(lost))) => lost.item,
            Err(failure) => return Err(failure.into_store_error(self.table())),
        };
        let kept = match kept {
            Some(item) => Some(item),
            None => self.get(meta_key(SECRET)).await?,
        };
        let kept = kept.and_then(|mut item| item.remove(SECRET));
        let bytes = kept.as_ref().and_then(|value| value.as_b().ok());
        bytes
            .and_then(|bytes| bytes.as_ref().try_into().ok())
            .ok_or_else(|| StoreError::unavailable("the secret in the table cannot be read"))
    }
}
