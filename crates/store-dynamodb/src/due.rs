//! What is due: the index of deadlines, read in parts and put together.
//!
//! DynamoDB brings the index up to date a moment after the row. Whoever acts on a row reads it
//! first, so an id that is no longer due is looked at in vain, and one that is not there yet is
//! found by the next sweep.

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::try_join_all;
use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::StoreError;

use crate::call::{Effect, call};
use crate::store::DynamoStore;
use crate::table::{DEADLINE, DUE_INDEX, DUE_SHARDS, Item, id_of, number, number_in};

impl DynamoStore {
    /// The ids of at most `limit` rows whose deadline is at or before `now`, earliest first.
    pub(crate) async fn due_ids(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RecordId>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let shards = (0..DUE_SHARDS).map(|shard| self.due_in(shard, now, limit));
        let mut due = try_join_all(shards).await?.concat();
        due.sort_unstable();
        due.truncate(limit);
        Ok(due.into_iter().map(|(_, id)| id).collect())
    }

    async fn due_in(
        &self,
        shard: u8,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(u64, RecordId)>, StoreError> {
        let mut due = Vec::new();
        let mut after: Option<Item> = None;
        loop {
            let left = i32::try_from(limit - due.len()).unwrap_or(i32::MAX);
            let page = self.due_page(shard, now, left, after).await?;
            let rows = page.0.iter();
            due.extend(rows.filter_map(|row| Some((number_in(row, DEADLINE)?, id_of(row)?))));
            after = page.1;
            if after.is_none() || due.len() >= limit {
                return Ok(due);
            }
        }
    }

    async fn due_page(
        &self,
        shard: u8,
        now: Timestamp,
        limit: i32,
        after: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let send = || {
            self.client()
                .query()
                .table_name(self.table())
                .index_name(DUE_INDEX)
                .key_condition_expression("due_shard = :shard AND deadline <= :now")
                .expression_attribute_values(":shard", AttributeValue::N(shard.to_string()))
                .expression_attribute_values(":now", number(now.as_millis()))
                .set_exclusive_start_key(after.clone())
                .limit(limit)
                .send()
        };
        let page = call(self.options().deadline, Effect::Reads, send).await;
        let page = page.map_err(|failure| failure.into_store_error(self.table()))?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }
}
