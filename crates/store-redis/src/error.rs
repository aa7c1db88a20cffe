//! Why the store did not open, and which setting to change.

use thiserror::Error;

/// Why the store did not open: one line that names the setting to change. Never has a password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one of a Redis store.
    #[error("the store's URL is wrong: {0}")]
    Url(String),
    /// A certificate or key cannot be used.
    #[error("the store's TLS settings are wrong: {0}")]
    Tls(String),
    /// No server answered.
    #[error("Redis cannot be reached: {0}")]
    Unreachable(String),
    /// The server answered, and it or its settings cannot be used.
    #[error("Redis cannot be used: {0}")]
    Refused(String),
}
