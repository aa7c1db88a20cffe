//! The providers' own SDKs, through the gateway, against an upstream that misbehaves.
//!
//! Every test runs one program of `tests/sdk` with a fault on its way. The SDK retries by its own
//! rules, or its caller does where the SDK gives up; the witness must have seen one effect, and
//! the caller must get a normal object. `scripts/sdk` runs just these and prints a table.
//!
//! ```text
//! SDK program ── front.rs ── onlyonce serve ── provider.rs ── witness
//!                counts attempts,              plays Stripe, Square, …, misbehaves once,
//!                cuts answers                  and dedupes by the key as they do
//! ```
//!
//! | to see | read |
//! |---|---|
//! | which SDK gets what from which fault | `cases.rs` |
//! | how one test runs | `stage.rs` |
//! | where the SDKs come from | `install.rs` |
//! | what the providers answer | `dialects.rs` |
//! | how a signed request must arrive | `signed.rs`, `sigv4.rs` |
//! | the tower layer instead of the gateway | `layer.rs` |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and owns its clock"
)]

mod cases;
mod dialects;
mod front;
mod install;
#[path = "../e2e/kit/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the tests of the binary"
)]
mod kit;
mod layer;
mod provider;
mod signed;
mod sigv4;
mod stage;
