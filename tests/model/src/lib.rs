//! The shipped rules, `onlyonce_core::step`, against every interleaving of a small world.
//!
//! The world is one key's row in one store, [`WORKERS`] executors, a sweeper, reconcilers, an
//! operator and an upstream. Executors claim, send, lose answers, crash, stall past their lease
//! and wake; requests stay on the wire after their sender is gone; writes succeed without being
//! acknowledged; verdicts are written long after they were asked for. The model decides nothing
//! about idempotency: every decision is `step`'s, called in one place, `Variant::decide`, which
//! can also be told to break a rule on purpose, so that a passing run means something.
//!
//! # What makes the state space small, and why that loses nothing
//! - **Time is relative.** Rows hold the ticks *left* to a deadline, at most down to zero: `step`
//!   only compares deadlines with `now`, and a deadline once passed stays passed. The clock is
//!   therefore unbounded: runs of any length are covered.
//! - **Versions are what they are compared for.** A read that will be swapped is kept with the row
//!   that `step` wants written. Any write by another throws it away, since its swap would lose and
//!   the loser reads again. One case survives others' writes, as it does in a real store: a read
//!   that found *no* row wins whenever there is no row (see [`state::Base`]).
//! - **Workers come back.** An executor that is over and that nothing refers to any more is a
//!   fresh client with a fresh fence. So the number of clients and grants is unbounded, too; at
//!   most [`WORKERS`] of them matter at the same time.
//! - **Workers are alike.** States that differ only by who is who are one state ([`canonical`]).
//! - **What is final is read at once.** A settlement that is refused for good is refused before
//!   anything else happens; see `World::read_what_is_final`.
//! - Claims, settlements and sweeps read and swap in two actions, with the world moving in
//!   between. Renewals, verdicts and a person's resolutions do both in one: a lost swap decides
//!   again from the row as it is then, and their stall is before the read.
//!
//! # What it asks of those who call the rules
//! A fence is drawn for one execution. A claim whose swap was not acknowledged reads again and
//! may go on only if the row is its own; otherwise it is over, and the client's next claim
//! brings another fence. [`Variant::FenceKept`] shows why.
//!
//! Left out: other payloads under the same key and `Forget`, with which a person gives up the
//! promise knowingly.
//!
//! Start reading at [`properties`] for what is promised, and at [`actions`] for what can happen.

pub mod actions;
pub mod canonical;
mod keeper;
mod mirror;
pub mod model;
pub mod properties;
pub mod report;
pub mod state;
pub mod upstream;
pub mod variants;
mod worker;

pub use model::World;
pub use state::WORKERS;
pub use upstream::Kind;
pub use variants::Variant;
