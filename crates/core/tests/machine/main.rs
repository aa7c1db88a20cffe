//! The rules, one test for each, in the order of a key's life.
//!
//! What must hold for *any* input is in `machine_properties.rs`; here every test is one rule
//! with its stake, and the rows, fences and times of `common` (lease until second 15, unknown
//! since 15, settled until 100, all under `fence(1)` and `payload(1)`).
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails is a failed test"
)]

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod executor;
mod operator;
mod reconcile;
mod sweep;
