//! Applies the rules to a store: claims, leases, waiting, settling, sweeping.
//!
//! [`onlyonce_core::step`] decides and the [`Store`](onlyonce_store::Store) remembers; the engine
//! is what happens between the two. It promises that
//!
//! - work starts only after its claim is durable, and its answer is shown only after its
//!   completion is;
//! - work goes on in a task of its own when its caller goes away, which never cancels it;
//! - whatever cannot be known (a panic, a lost answer, a store that does not reply) becomes an
//!   unknown outcome, never a second execution.
//!
//! | to see | read |
//! |---|---|
//! | the life of one request | [`Engine::run`] in `run.rs` |
//! | read, decide, swap, again | `apply.rs` |
//! | the work, its task and its lease | `execute.rs` |
//! | what happens when nobody asks | `sweep.rs` |
//! | finding an operation by what somebody else calls it | `reference.rs` |
//! | refusing a store whose keys were made with another secret | `marks.rs`, `estranged.rs` |
//! | rows that are no client's keys: the audit trail | [`Note`] |
//! | running a plain async function under a key | [`Guard`] |

mod apply;
mod claim;
mod clock;
mod config;
mod engine;
mod entropy;
mod error;
mod estranged;
mod event;
mod execute;
mod execution;
mod guard;
mod lanes;
mod locate;
mod marks;
mod note;
mod reference;
mod reply;
mod resolver;
mod retired;
mod run;
mod runtime;
mod settle;
mod sweep;
mod tasks;
mod turns;
mod unreadable;
mod waiting;

pub use config::EngineConfig;
pub use engine::{Engine, EngineBuilder, Policies};
pub use error::{EngineError, SecretError};
pub use event::{Event, Observer, Source, StoreOperation};
pub use execution::{ChildKeys, Execution, Finished, Outcome};
pub use guard::{Guard, GuardError};
pub use lanes::Lanes;
pub use marks::{MARKS_ROUTE, Marks, has_keys};
pub use note::{KeptNote, Note};
pub use reference::{REFERENCE_KEEP_MIN, REFERENCE_ROUTE, Referred};
pub use reply::{Replay, Reply};
pub use resolver::{NoResolver, Resolver};
pub use run::{Identity, Request};
pub use runtime::{Carried, Runtime, TokioRuntime};
pub use sweep::SweepReport;
