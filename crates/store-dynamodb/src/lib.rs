//! The DynamoDB store: many instances, one table, no server to run.
//!
//! Every claim and every completion is one conditional `PutItem`. DynamoDB returns the item that
//! stood in the way, so a loser learns the row it lost to in the same round trip. Reads are
//! consistent. What is too large for its row is kept in pieces that become visible with the one
//! conditional write of the row.
//!
//! ```no_run
//! # async fn example() -> Result<(), onlyonce_store_dynamodb::OpenError> {
//! use onlyonce_store_dynamodb::{DynamoOptions, DynamoStore, migrate};
//!
//! let options = DynamoOptions::from_url("dynamodb://onlyonce?region=eu-central-1")?;
//! migrate(&options).await?; // once: creates the table, or checks it
//! let store = DynamoStore::open(&options).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | here | what it is |
//! |---|---|
//! | `options.rs` | the URL, and the limits |
//! | `connect.rs` | region, credentials, HTTP client |
//! | `table.rs`, `migrate.rs` | the table's shape, made and checked |
//! | `item.rs` | a record as an item |
//! | `chunks.rs` | large records, in pieces |
//! | `call.rs` | one request: throttling, deadlines, and whether it may have written |
//! | `clock.rs` | time, from DynamoDB's answers |
//! | `store.rs`, `due.rs`, `list.rs` | the port |
//!
//! It never uses a transaction, an eventually consistent read of a row, or the SDK's own retries:
//! a conditional write that is sent again after its answer was lost would lose to itself.
#![allow(clippy::doc_markdown, reason = "DynamoDB is a name, not code")]

mod call;
mod chunks;
mod clock;
mod connect;
mod due;
mod error;
mod item;
mod list;
mod migrate;
mod options;
mod store;
mod table;

pub use error::OpenError;
pub use migrate::{Migrated, migrate};
pub use options::{DynamoCredentials, DynamoOptions};
pub use store::DynamoStore;
