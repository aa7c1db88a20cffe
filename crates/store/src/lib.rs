//! The port every backend implements: a map with a conditional write, and no rules.
//!
//! A store decides nothing about idempotency (that is [`onlyonce_core::step`]). It promises only
//! that of two writers expecting the same [`Version`] exactly one wins, that what it acknowledged
//! survives a crash, and that its clock is the same for everybody who asks.
//!
//! | here | what it is |
//! |---|---|
//! | [`Store`] | the port |
//! | [`ListStore`] | what operators look at |
//! | [`StoreError`] | answers "may it have written?" |
//! | [`BoxStore`] | a store chosen at run time |
//! | [`MemoryStore`] | for tests and development; forgets everything at exit |
//! | `Tiered` | a durable store behind a cache of its completed rows (feature `tiered`) |
//! | [`StoreClock`] | wall-clock time that never runs backwards |

mod boxed;
mod clock;
mod error;
mod list;
mod memory;
mod port;
#[cfg(feature = "tiered")]
pub mod tiered;

pub use boxed::BoxStore;
pub use clock::StoreClock;
pub use error::StoreError;
pub use list::{Cursor, Filter, ListStore, Listed, Page};
pub use memory::MemoryStore;
pub use port::{Row, Store, StoreProfile, Swap, Version};
#[cfg(feature = "tiered")]
pub use tiered::Tiered;
