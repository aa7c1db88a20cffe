//! The cases. Each says in its first lines what is at stake; its name is the promise.

pub mod claim;
pub mod clock;
pub mod concurrency;
pub mod deadlines;
pub mod durability;
pub mod identity;
pub mod listing;
pub mod paging;
pub mod secret;
pub mod sharing;
pub mod sweeping;
pub mod values;
pub mod versions;
