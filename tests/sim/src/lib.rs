//! The production engine over a simulated clock, store, upstream and network.
//!
//! A seed gives a schedule: some processes that share a store, some requests for a few keys, and
//! trouble. A seeded scheduler chooses at every await who goes on, who is cancelled and who
//! crashes; the wires lose, delay and repeat nothing that a real one would not. Then the faults
//! stop, and five questions must be answered with zero (see [`Kind`]).
//!
//! | to see | read |
//! |---|---|
//! | what happens in one schedule | `schedule.rs` |
//! | what goes wrong | [`Fault`], `work.rs`, `trouble.rs` |
//! | what is counted | `checks.rs`, `report.rs` |
//! | what must be caught | [`Bug`] |
//!
//! It refuses to read a real clock or real entropy: the same seed is the same schedule for ever.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::missing_panics_doc,
    reason = "a test harness: when it is wrong about itself it should fall over"
)]

mod bugs;
mod checks;
mod client;
mod executor;
mod faults;
mod node;
mod report;
mod resolver;
mod rng;
mod run;
mod runtime;
mod schedule;
mod shape;
mod store;
mod table;
mod trouble;
mod upstream;
mod wire;
mod work;
mod world;

pub use bugs::Bug;
pub use checks::Kind;
pub use faults::Fault;
pub use report::Counts;
pub use run::{Config, Failure, Summary, run_many};
pub use schedule::{Outcome, run};
