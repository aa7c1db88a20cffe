//! What the stores answered under faults, checked for linearizability.
//!
//! Workers load and swap a few rows of one store, through two handles, while the network and the
//! server fail. Every call is written down with the moments it began and ended. Afterwards the
//! history of each row must have an order of its calls in which every answer is that of the
//! port's sequential specification, and in which a call that ended before another began comes
//! before it.
//!
//! # What an answer proves
//! - A swap that was won or lost, and a load, took place between their two moments.
//! - A swap whose error [may have written](onlyonce_store::StoreError::may_have_written), or whose
//!   caller went away, may take effect at any later time, once, or never.
//! - Any other error proves that nothing was written: the call is left out, and if its row is ever
//!   seen the history is rejected.
//!
//! | here | what it is |
//! |---|---|
//! | [`history`] | calls and answers, as they were seen |
//! | [`steps`] | the same with versions replaced by the writes that they stand for |
//! | [`check()`] | the search for an order |
//! | [`recorder`] | a store's handle that writes down what it is asked |
//! | [`workers`] | who asks, and what |
//! | [`trouble`] | what goes wrong meanwhile |
//! | [`run`] | all of it together, and what a run must have seen to count |
//! | [`rng`] | the one source of chance |
//!
//! The checker must be able to fail: this crate's tests give it histories with one thing wrong,
//! stores with a planted bug, and the verdicts of another checker.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "this is test support: a panic is how a test speaks"
)]

pub mod check;
pub mod history;
pub mod recorder;
pub mod rng;
pub mod run;
pub mod steps;
pub mod trouble;
pub mod workers;

pub use check::{Violation, check};
pub use run::{Run, Summary};
