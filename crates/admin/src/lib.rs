//! What operators see of a running instance.
//!
//! | to see | read |
//! |---|---|
//! | what happened since the start, as numbers | [`stats`] |
//! | how many keys wait, and for how long | [`queues`] |

pub mod queues;
pub mod stats;

pub use queues::QueueCounts;
pub use stats::Stats;
