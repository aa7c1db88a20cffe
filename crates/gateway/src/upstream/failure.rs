//! What a failure proves: nothing was sent, or nobody knows.
//!
//! Everything that follows from a failed request hangs on this. "Never sent" gives the key back;
//! so it is said only on evidence: no connection was made, the connection gave the request back,
//! not one byte was written since the request was handed over, or an HTTP/2 peer declared that it
//! did not process the stream.

use std::error::Error as _;

use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Nothing of the request reached the upstream.
    #[error("the upstream was not reached: {0}")]
    NeverSent(String),
    /// Something of the request may have.
    #[error("the upstream gave no complete answer: {0}")]
    MaybeSent(String),
    /// The same, and time ran out.
    #[error("the upstream did not answer within {0:?}")]
    TimedOut(std::time::Duration),
}

impl Failure {
    /// Sorts a hyper error by what it proves. `wrote` tells whether any byte was written to the
    /// connection since the request was handed over.
    pub(crate) fn of(error: &hyper::Error, wrote: bool) -> Self {
        let text = describe(error);
        if !wrote || is_unprocessed(error) {
            return Self::NeverSent(text);
        }
        Self::MaybeSent(text)
    }
}

/// Whether an HTTP/2 peer declared the stream unprocessed: `REFUSED_STREAM`, or a GOAWAY whose
/// last stream is an earlier one (only such streams are told of the GOAWAY itself; the others go on
/// and fail with the connection).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            let refused = h2.is_reset() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
            return h2.is_remote() && (refused || h2.is_go_away());
        }
        source = cause.source();
    }
    false
}

/// The error and its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
