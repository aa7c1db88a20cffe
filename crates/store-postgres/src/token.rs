//! The token with which an app settles its key from inside its own transaction.

use std::time::Duration;

use onlyonce_core::{Fence, RecordId};

/// `v1.<id>.<fence>.<retention in ms>`: what the SQL functions `onlyonce_complete`,
/// `onlyonce_release` and `onlyonce_unknown` take as `execution`.
///
/// Whoever has it can settle that one execution, so it is for the upstream alone.
#[must_use]
pub fn execution_token(id: &RecordId, fence: Fence, retention: Duration) -> String {
    // What the clock of the store can add without running over.
    let millis = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    format!("v1.{id}.{fence}.{millis}")
}
