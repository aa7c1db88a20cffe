//! A tower layer that makes HTTP writes safe to retry.
//!
//! A client sends an `Idempotency-Key`; the handler behind the layer runs once, and every retry
//! gets the first answer, byte for byte. The life of a request is in `service.rs`, from the route
//! to the reply; start there.
//!
//! | to see | read |
//! |---|---|
//! | the life of a request | `service.rs`, then `work.rs` |
//! | which requests are guarded, and how | [`Route`], [`Routes`] |
//! | who the caller is | [`Principals`] |
//! | what a response means for its key | [`Statuses`], [`Settle`] |
//! | what is stored of a response | [`ResponsePolicy`] |
//! | every refusal | [`Problem`] |
//! | what a handler gets | [`Execution`] |

mod body;
mod execution;
mod layer;
mod observe;
mod operation;
mod pattern;
mod principal;
mod problem;
mod reply;
mod route;
mod service;
mod statuses;
mod stored;
mod work;

pub use body::{Body, BoxError};
pub use execution::Execution;
pub use layer::{IdempotencyLayer, IdempotencyService};
pub use observe::{Observation, Observations};
pub use pattern::{Pattern, PatternError};
pub use principal::{
    Anonymous, Authorization, Principal, PrincipalError, Principals, TrustedHeader,
};
pub use problem::{Code, Problem};
pub use route::{InFlight, KeyRule, Mode, Route, Routes};
pub use service::{Config, PROBLEM_BASE, ReplayCheck};
pub use statuses::{Settle, Statuses};
pub use stored::ResponsePolicy;
