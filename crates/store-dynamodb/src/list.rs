//! Rows for operators, in the order of their ids.
//!
//! Rows are spread over 64 partitions by the first bits of their id, and within each they are in
//! order. A list goes through the partitions one after the other, and looks ahead as long as it
//! finds little. Where no settled row is wanted, those stay where they are that have a time to be
//! deleted at; DynamoDB has them paid for as if they were read.

use std::ops::RangeInclusive;

use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use onlyonce_core::RecordId;
use onlyonce_store::{Cursor, Filter, ListStore, Listed, Page, StoreError};

use crate::call::{Effect, call};
use crate::item::version_of;
use crate::store::DynamoStore;
use crate::table::{Item, RECORD_PARTITIONS, SK, TTL, id_of, record_name, record_partition, text};

/// Partitions that are asked at once, at most.
const LOOK_AHEAD_MAX: u8 = 16;

/// Rows whose pieces are read at once.
const ROWS_AT_ONCE: usize = 8;

/// One answer of one partition.
struct Part {
    partition: u8,
    items: Vec<Item>,
    /// After what there is more in the partition.
    next: Option<String>,
}

impl ListStore for DynamoStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        if limit == 0 {
            return Ok(Page::default());
        }
        let mut list = List {
            store: self,
            filter,
            wanted: limit.saturating_add(1),
            entries: Vec::new(),
        };
        list.fill(after.map(|Cursor(id)| id)).await?;
        let mut entries = list.entries;
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().filter(|_| has_more);
        let next = last.map(|last| Cursor(last.id));
        Ok(Page { entries, next })
    }
}

/// A page being put together.
struct List<'a> {
    store: &'a DynamoStore,
    filter: &'a Filter,
    /// One more than the page has, to know whether there is a next.
    wanted: usize,
    entries: Vec<Listed>,
}

impl List<'_> {
    async fn fill(&mut self, after: Option<RecordId>) -> Result<(), StoreError> {
        let mut first = after.as_ref().map_or(0, record_partition);
        let mut width = 1;
        let mut after = after;
        while first < RECORD_PARTITIONS {
            let last = (first + width).min(RECORD_PARTITIONS) - 1;
            for part in self.parts(first..=last, after.take()).await? {
                self.take(part).await?;
                if self.is_full() {
                    return Ok(());
                }
            }
            first = last + 1;
            width = (width * 2).min(LOOK_AHEAD_MAX);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= self.wanted
    }

    /// The first answers of several partitions; `after` holds in the first of them.
    async fn parts(
        &self,
        partitions: RangeInclusive<u8>,
        after: Option<RecordId>,
    ) -> Result<Vec<Part>, StoreError> {
        let first = *partitions.start();
        let parts = partitions.map(|partition| {
            let after = after.filter(|_| partition == first);
            self.part(partition, after.map(|id| id.to_string()))
        });
        try_join_all(parts).await
    }

    async fn part(&self, partition: u8, after: Option<String>) -> Result<Part, StoreError> {
        // Conditions are checked here, so with any of them more rows must be looked at.
        let is_plain = *self.filter == Filter::default();
        let limit = i32::try_from(self.wanted).ok().filter(|_| is_plain);
        // Ids are hexadecimal, so everything is after nothing at all.
        let after = after.unwrap_or_else(|| "!".into());
        let send = || {
            let query = self
                .store
                .client()
                .query()
                .table_name(self.store.table())
                .key_condition_expression("pk = :pk AND sk > :after")
                .expression_attribute_values(":pk", text(record_name(partition)))
                .expression_attribute_values(":after", text(after.clone()))
                .consistent_read(true)
                .set_limit(limit);
            let query = if self.filter.leaves_settled_out() {
                query
                    .filter_expression("attribute_not_exists(#ttl)")
                    .expression_attribute_names("#ttl", TTL)
            } else {
                query
            };
            query.send()
        };
        let page = call(self.store.options().deadline, Effect::Reads, send).await;
        let page = page.map_err(|failure| failure.into_store_error(self.store.table()))?;
        // Not the last item: what was left out may be all that was looked at.
        let next = page.last_evaluated_key.map(|key| {
            let last = key.get(SK).and_then(|sk| sk.as_s().ok());
            last.cloned()
                .ok_or_else(|| StoreError::unavailable("a page ends at no key"))
        });
        let next = next.transpose()?;
        Ok(Part {
            partition,
            next,
            items: page.items.unwrap_or_default(),
        })
    }

    /// Takes what matches from a partition's answer, and asks it for more while there is room.
    async fn take(&mut self, mut part: Part) -> Result<(), StoreError> {
        loop {
            let (store, filter) = (self.store, self.filter);
            let mut rows = stream::iter(part.items)
                .map(|item| read(store, filter, item))
                .buffered(ROWS_AT_ONCE);
            while let Some(listed) = rows.try_next().await? {
                self.entries.extend(listed);
                if self.is_full() {
                    return Ok(());
                }
            }
            if part.next.is_none() {
                return Ok(());
            }
            part = self.part(part.partition, part.next).await?;
        }
    }
}

/// The row of an item, unless it is of no interest.
async fn read(
    store: &DynamoStore,
    filter: &Filter,
    item: Item,
) -> Result<Option<Listed>, StoreError> {
    // What has no id cannot be asked for, and was not written here.
    let Some(id) = id_of(&item) else {
        tracing::warn!(version = ?version_of(&item), "an item without an id is not listed");
        return Ok(None);
    };
    let row = match store.row(&id, item).await {
        Ok(Some(row)) if filter.matches(&row.record) => Ok(row),
        Err(error @ StoreError::Corrupt { .. }) if filter.matches_unreadable() => Err(error),
        // Removed meanwhile, or of no interest.
        Ok(_) | Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Listed { id, row }))
}
