//! Every preset through the layer, against the facts that it was made after.
//!
//! `facts.rs` is the table of facts; the tests here ask a guarded service, preset by preset, and
//! compare.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a panic is how a test speaks"
)]

#[path = "../common/mod.rs"]
mod common;
mod facts;
mod presets;
mod special;
mod stage;
