//! The admin API, asked as operators and others ask it.
//!
//! | to see | read |
//! |---|---|
//! | how a test asks | `kit.rs` |
//! | who may | `access.rs` |
//! | keys, pages, masks, timelines | `keys.rs` |
//! | changes | `resolve.rs` |
//! | the audit trail and the journal | `audit.rs` |
//! | hostile input | `hostile.rs` |
//! | health and counts | `health.rs` |
//! | the `OpenAPI` document | `document.rs` |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

mod access;
mod audit;
mod document;
mod health;
mod hostile;
mod keys;
mod kit;
mod resolve;
mod schema;
