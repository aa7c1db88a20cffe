//! Makes the table, or checks the one that is there.
//!
//! Safe to run twice and by several at once: whoever finds the table being made waits for it. A
//! table of another shape is refused, and nothing in it is changed.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{
    BillingMode, IndexStatus, TableDescription, TableStatus, TimeToLiveDescription,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use tokio::time::Instant;

use crate::call::{Effect, Failure, call, refusal};
use crate::connect::{Connection, connect};
use crate::table::{
    DUE_INDEX, LAYOUT, PK, SK, TTL, attributes, difference, due_index, keys, meta_key, number,
    number_in,
};
use crate::{DynamoOptions, OpenError};

/// How long DynamoDB may take to make a table.
const READY_PATIENCE: Duration = Duration::from_secs(300);

/// Between two looks whether it is made, at first and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(50);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(2);

const LAYOUT_ITEM: &str = "layout";

/// What became of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrated {
    /// The table was made.
    Created,
    /// It was there already, as it should be.
    Unchanged,
}

/// Makes the table with its index and its end of items, or checks the one that is there.
///
/// # Errors
/// When it cannot be made, or another table has its name.
pub async fn migrate(options: &DynamoOptions) -> Result<Migrated, OpenError> {
    let Connection { client, region } = connect(options).await?;
    let admin = Admin {
        client: &client,
        options,
        region: &region,
    };
    let is_new = match admin.describe().await {
        Err(OpenError::NoTable { .. }) => admin.create().await?,
        found => {
            admin.accept(&found?)?;
            false
        }
    };
    admin.accept(&admin.until_ready().await?)?;
    admin.check_layout().await?;
    admin.end_items().await?;
    admin.write_layout().await?;
    Ok(if is_new {
        Migrated::Created
    } else {
        Migrated::Unchanged
    })
}

/// Whether the table is there and of the right shape.
pub(crate) async fn check(
    client: &Client,
    options: &DynamoOptions,
    region: &str,
) -> Result<(), OpenError> {
    let admin = Admin {
        client,
        options,
        region,
    };
    let table = admin.describe().await?;
    admin.accept(&table)?;
    if let Some(status) = unready(&table) {
        return Err(admin.not_ready(status, Duration::ZERO));
    }
    admin.check_layout().await
}

/// One table's administration.
struct Admin<'a> {
    client: &'a Client,
    options: &'a DynamoOptions,
    region: &'a str,
}

impl Admin<'_> {
    fn table(&self) -> &str {
        &self.options.table
    }

    async fn describe(&self) -> Result<TableDescription, OpenError> {
        let send = || {
            let describe = self.client.describe_table();
            describe.table_name(self.table()).send()
        };
        let answer = call(self.options.deadline, Effect::Reads, send).await;
        let answer = answer.map_err(|failure| self.error("DescribeTable", failure))?;
        answer.table.ok_or_else(|| OpenError::Refused {
            action: "DescribeTable",
            table: self.table().into(),
            reason: "it describes nothing".into(),
        })
    }

    fn accept(&self, table: &TableDescription) -> Result<(), OpenError> {
        difference(table).map_or(Ok(()), |reason| Err(self.other(reason)))
    }

    fn other(&self, reason: impl Into<Box<str>>) -> OpenError {
        OpenError::OtherTable {
            table: self.table().into(),
            reason: reason.into(),
        }
    }

    /// Whether this call made it. Somebody else may have, a moment before.
    async fn create(&self) -> Result<bool, OpenError> {
        let send = || {
            self.client
                .create_table()
                .table_name(self.table())
                .set_attribute_definitions(Some(attributes()))
                .set_key_schema(Some(keys(PK, SK)))
                .set_global_secondary_indexes(due_index().map(|index| vec![index]))
                .billing_mode(BillingMode::PayPerRequest)
                .send()
        };
        match call(self.options.deadline, Effect::WritesAgain, send).await {
            Ok(_) => Ok(true),
            Err(Failure::Refused(error)) if error.is_resource_in_use_exception() => Ok(false),
            Err(failure) => Err(self.error("CreateTable", failure)),
        }
    }

    async fn until_ready(&self) -> Result<TableDescription, OpenError> {
        let deadline = Instant::now() + READY_PATIENCE;
        let mut pause = LOOK_PAUSE_MIN;
        loop {
            let status = match self.describe().await {
                Ok(table) => match unready(&table) {
                    None => return Ok(table),
                    Some(status) => status,
                },
                // DynamoDB may take a moment to know a table that it has just begun to make.
                Err(OpenError::NoTable { .. }) => "not there".into(),
                Err(error) => return Err(error),
            };
            if Instant::now() >= deadline {
                return Err(self.not_ready(status, READY_PATIENCE));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    fn not_ready(&self, status: String, waited: Duration) -> OpenError {
        OpenError::NotReady {
            table: self.table().into(),
            status: status.into(),
            seconds: waited.as_secs(),
        }
    }

    async fn check_layout(&self) -> Result<(), OpenError> {
        let send = || {
            let get = self.client.get_item().table_name(self.table());
            let get = get.set_key(Some(meta_key(LAYOUT_ITEM)));
            get.consistent_read(true).send()
        };
        let answer = call(self.options.deadline, Effect::Reads, send).await;
        let answer = answer.map_err(|failure| self.error("GetItem", failure))?;
        let layout = answer.item().and_then(|item| number_in(item, LAYOUT_ITEM));
        match layout {
            Some(layout) if layout > LAYOUT => Err(OpenError::NewerTable {
                table: self.table().into(),
                layout,
                known: LAYOUT,
            }),
            _ => Ok(()),
        }
    }

    async fn write_layout(&self) -> Result<(), OpenError> {
        let mut item = meta_key(LAYOUT_ITEM);
        item.insert(LAYOUT_ITEM.into(), number(LAYOUT));
        let send = || {
            let put = self.client.put_item().table_name(self.table());
            put.set_item(Some(item.clone()))
                .condition_expression("attribute_not_exists(pk)")
                .send()
        };
        match call(self.options.deadline, Effect::WritesAgain, send).await {
            Ok(_) | Err(Failure::Refused(PutItemError::ConditionalCheckFailedException(_))) => {
                Ok(())
            }
            Err(failure) => Err(self.error("PutItem", failure)),
        }
    }

    /// Lets DynamoDB delete items whose `ttl` has passed.
    async fn end_items(&self) -> Result<(), OpenError> {
        if let Some(found) = self.ttl().await? {
            return match found.attribute_name() {
                Some(TTL) => Ok(()),
                other => Err(self.other(format!(
                    "its items end by `{}`, not by `{TTL}`",
                    other.unwrap_or("?")
                ))),
            };
        }
        let wanted = TimeToLiveSpecification::builder().attribute_name(TTL);
        let wanted = wanted.enabled(true).build().ok();
        let send = || {
            let update = self.client.update_time_to_live().table_name(self.table());
            update.set_time_to_live_specification(wanted.clone()).send()
        };
        match call(self.options.deadline, Effect::WritesAgain, send).await {
            Ok(_) => Ok(()),
            // Somebody else was faster.
            Err(_) if self.ttl().await?.is_some() => Ok(()),
            Err(failure) => Err(self.error("UpdateTimeToLive", failure)),
        }
    }

    /// How items end, if they do.
    async fn ttl(&self) -> Result<Option<TimeToLiveDescription>, OpenError> {
        let send = || {
            let describe = self.client.describe_time_to_live();
            describe.table_name(self.table()).send()
        };
        let answer = call(self.options.deadline, Effect::Reads, send).await;
        let answer = answer.map_err(|failure| self.error("DescribeTimeToLive", failure))?;
        let is_on = |found: &TimeToLiveDescription| {
            let status = found.time_to_live_status();
            status == Some(&TimeToLiveStatus::Enabled)
                || status == Some(&TimeToLiveStatus::Enabling)
        };
        Ok(answer.time_to_live_description.filter(is_on))
    }

    /// A failure, as the line that says what to change.
    fn error<E: ProvideErrorMetadata>(
        &self,
        action: &'static str,
        failure: Failure<E>,
    ) -> OpenError {
        let table: Box<str> = self.table().into();
        let refused = match failure {
            Failure::Refused(refused) => refused,
            Failure::Store(error) => {
                let endpoint = self.options.endpoint.as_deref();
                return OpenError::Unreachable {
                    endpoint: endpoint.unwrap_or(self.region).into(),
                    reason: error.to_string().into(),
                };
            }
        };
        let reason: Box<str> = refusal(&refused).into();
        match refused.code().unwrap_or_default() {
            "ResourceNotFoundException" => OpenError::NoTable {
                table,
                region: self.region.into(),
                url: self.options.url().into(),
            },
            "AccessDeniedException" => OpenError::Denied {
                action,
                table,
                reason,
            },
            "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationTokenException"
            | "MissingAuthenticationToken"
            | "ExpiredTokenException" => OpenError::BadCredentials { reason },
            _ => OpenError::Refused {
                action,
                table,
                reason,
            },
        }
    }
}

/// What the table is still doing that keeps it from being used.
fn unready(table: &TableDescription) -> Option<String> {
    let is_usable =
        |status: &TableStatus| *status == TableStatus::Active || *status == TableStatus::Updating;
    if let Some(status) = table.table_status().filter(|status| !is_usable(status)) {
        return Some(status.to_string());
    }
    let index = table
        .global_secondary_indexes()
        .iter()
        .find(|index| index.index_name() == Some(DUE_INDEX));
    let status = index.and_then(|index| index.index_status());
    status
        .filter(|status| **status == IndexStatus::Creating)
        .map(|status| format!("{status} its index `{DUE_INDEX}`"))
}
