//! Real servers for tests: throwaway processes on free loopback ports, in temporary folders.
//!
//! Each is ended, by its process id, when its value is dropped. A test that cannot start one
//! fails and names the package that brings it.
#![expect(
    clippy::disallowed_methods,
    reason = "how long a real server may take is real time"
)]

pub mod dynamodb;
pub mod postgres;
mod process;
pub mod redis;

pub use process::{Process, free_port};
