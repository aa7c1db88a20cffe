//! How an unknown outcome is asked about, and how what the other side says is read.
//!
//! Nothing here opens a connection or reads a clock. The gateway asks with it (its probes and
//! webhooks); a service that uses the library builds its own
//! [`Resolver`](onlyonce_engine::Resolver) on it.
//!
//! | to see | read |
//! |---|---|
//! | the question: a URL or header with places for what it is about | [`Template`] |
//! | what is noted of a request at its claim, and kept while its outcome is open | [`Notes`], [`Memo`] |
//! | the answer: completed, not found or pending, and the response to replay | [`Mapping`] |
//! | whether a webhook is genuine and fresh | [`Verifier`] |

mod json;
mod mapping;
mod memo;
mod signature;
mod template;

pub use json::Json;
pub use mapping::{Answer, Mapping, Read, ResponseRule, Rule, Scalar, StatusFrom, Test, Why};
pub use memo::{MEMO_BYTES_MAX, Memo, Noted, Notes, Subject};
pub use signature::{Scheme, SecretError, SignatureError, Signed, Verifier};
pub use template::{Known, NotRendered, Template, TemplateError, Variable, operation};
