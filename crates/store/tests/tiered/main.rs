//! A cache in front of a durable store changes no answer, and saves reads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests"
)]

mod budget;
mod kit;
mod reading;
mod redis;
mod staleness;
mod suite;
