//! The cases, by what they are about. Each is a function to read and to call.

pub mod concurrency;
pub mod faults;
pub mod keys;
pub mod outcomes;
pub mod payload;
pub mod problems;
pub mod replay;
pub mod scope;
