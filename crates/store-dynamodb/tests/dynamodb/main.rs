//! The DynamoDB store against a DynamoDB-compatible server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::doc_markdown,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests; DynamoDB is a name"
)]

mod bad_input;
mod chunks;
mod clock;
mod cost;
mod faults;
mod front;
mod kit;
mod migrating;
mod suite;
mod ttl;
