//! Time, from DynamoDB's answers.
//!
//! DynamoDB has no operation that tells the time, but every answer carries its date, in whole
//! seconds. Its many servers may differ, so the latest time that was given out is kept in the
//! table, and nobody is told an earlier one: a time is written there before it is given out. That
//! is at most one write in a second for all instances together, and one read for each that asks.
//!
//! The time is at or behind DynamoDB's, by up to a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use onlyonce_core::Timestamp;
use onlyonce_store::StoreError;

use crate::call::{Effect, Failure, call};
use crate::store::DynamoStore;
use crate::table::{meta_key, number, number_in};

const CLOCK: &str = "clock";
const LATEST: &str = "latest_ms";

/// The date of an answer, in milliseconds; zero before there was one.
#[derive(Debug, Clone, Default)]
struct DateOfAnswer(Arc<AtomicU64>);

impl Intercept for DateOfAnswer {
    fn name(&self) -> &'static str {
        "DateOfAnswer"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        let millis = date.and_then(|date| u64::try_from(date.to_millis().ok()?).ok());
        self.0
            .fetch_max(millis.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }
}

impl DynamoStore {
    /// The time, not earlier than any that was ever given out.
    pub(crate) async fn time(&self) -> Result<Timestamp, StoreError> {
        let date = DateOfAnswer::default();
        let send = || {
            let get = self.client().get_item().table_name(self.table());
            let get = get.set_key(Some(meta_key(CLOCK))).consistent_read(true);
            get.customize().interceptor(date.clone()).send()
        };
        let answer = call(self.options().deadline, Effect::Reads, send).await;
        let answer = answer.map_err(|failure| failure.into_store_error(self.table()))?;
        let latest = answer.item().and_then(|item| number_in(item, LATEST));
        let date = date.0.load(Ordering::Relaxed);
        if date == 0 {
            return Err(StoreError::unavailable(
                "the endpoint's answers have no date",
            ));
        }
        let now = match latest {
            Some(latest) if latest >= date => latest,
            _ => self.advance(date).await?,
        };
        Ok(Timestamp::from_millis(now))
    }

    /// Moves the latest time on to `date`, unless somebody moved it further.
    async fn advance(&self, date: u64) -> Result<u64, StoreError> {
        let mut item = meta_key(CLOCK);
        item.insert(LATEST.into(), number(date));
        let send = || {
            self.client()
                .put_item()
                .table_name(self.table())
                .set_item(Some(item.clone()))
                .condition_expression("attribute_not_exists(pk) OR latest_ms < :date")
                .expression_attribute_values(":date", number(date))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
        };
        // Written twice, the second time loses to the first, which is as good.
        match call(self.options().deadline, Effect::WritesAgain, send).await {
            Ok(_) => Ok(date),
            Err(Failure::Refused(PutItemError::ConditionalCheckFailedException(lost))) => {
                let later = lost.item().and_then(|item| number_in(item, LATEST));
                Ok(later.unwrap_or(date).max(date))
            }
            Err(failure) => Err(failure.into_store_error(self.table())),
        }
    }
}
