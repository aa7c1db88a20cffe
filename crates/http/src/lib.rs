//! A tower layer that makes HTTP writes safe to retry.
//!
//! A client sends an `Idempotency-Key`; the handler behind the layer runs once, and every retry
//! gets the first answer, byte for byte. The life of a request is in `service.rs`, from the route
//! to the reply; start there.
//!
#![cfg_attr(feature = "axum", doc = "```")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use axum::{Router, routing::post};
//! use onlyonce_engine::Engine;
//! use onlyonce_http::{Config, Execution, IdempotencyLayer};
//! use onlyonce_store::MemoryStore;
//!
//! async fn pay(execution: Execution) -> String {
//!     format!("charged under {}", execution.child_key("card"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::default(); // every POST and PATCH, with a key
//! let engine = Engine::builder(MemoryStore::new())
//!     .policies(config.routes.policies())
//!     .open()
//!     .await?;
//! let app = Router::new()
//!     .route("/payments", post(pay))
//!     .layer(IdempotencyLayer::new(engine, config));
//! # use axum::body::{Body, to_bytes};
//! # use tower::ServiceExt;
//! # let pay_once = async || {
//! #     let request = http::Request::post("/payments").header("idempotency-key", "order-42");
//! #     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
//! # };
//! # let (first, again) = (pay_once().await, pay_once().await);
//! # assert_eq!(again.headers()["idempotency-replayed"], "true");
//! # let (first, again) = (first.into_body(), again.into_body());
//! # assert_eq!(to_bytes(first, 99).await?, to_bytes(again, 99).await?);
//! # Ok(())
//! # }
//! ```
//!
//! | to see | read |
//! |---|---|
//! | the life of a request | `service.rs`, then `work.rs` |
//! | which requests are guarded, and how | [`Route`], [`Routes`] |
//! | what of a request counts | `asked.rs` |
//! | watching without guarding | `observe.rs`, [`Observations`] |
//! | who the caller is | [`Principals`] |
//! | what a response means for its key | [`Statuses`], [`Settle`] |
//! | what is stored of a response | [`ResponsePolicy`] |
//! | where a key is | [`KeyRule`] |
//! | every refusal | [`Problem`]; in another shape, [`Dialect`] |
//! | the conventions of known APIs | [`Profile`] |
//! | what a handler gets | [`Execution`] |
//! | asking about unknown outcomes | [`reconcile`] |

mod asked;
mod body;
mod choice;
mod config;
// Without profiles there is only the default dialect.
#[cfg_attr(not(feature = "profiles"), allow(dead_code))]
mod dialect;
mod ending;
mod execution;
mod first_sent;
mod forward;
mod host;
mod key;
mod layer;
mod observe;
mod operation;
mod pattern;
mod principal;
mod problem;
#[cfg(feature = "profiles")]
mod profile;
pub mod reconcile;
mod reply;
mod room;
mod route;
mod service;
mod settling;
mod spelling;
mod statuses;
mod stored;
mod work;

pub use asked::METHOD_OVERRIDES;
pub use body::{Body, BodyTimeout, BoxError};
pub use config::{Config, PROBLEM_BASE, ReplayCheck};
pub use dialect::Dialect;
pub use execution::Execution;
pub use first_sent::FirstSent;
pub use forward::{ForwardKey, ForwardKeyError};
pub use key::{KeyPattern, KeyPatternError, KeyPlace, KeyRule, KeySource, KeySyntax};
pub use layer::{IdempotencyLayer, IdempotencyService};
pub use observe::{Observation, Observations};
pub use pattern::{Pattern, PatternError};
pub use principal::{
    Anonymous, Authorization, Caller, Principal, PrincipalError, Principals, TrustedHeader,
};
pub use problem::{Code, Problem};
#[cfg(feature = "profiles")]
pub use profile::{Profile, ProfileError, ProfileReuse};
pub use route::{Compare, InFlight, Mode, OnReuse, ReplayOlder, Route, Routes};
pub use statuses::{Settle, Statuses};
pub use stored::{ExecutionTrace, ResponsePolicy, is_event_stream};
