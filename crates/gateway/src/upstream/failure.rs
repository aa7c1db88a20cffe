//! What a failure proves: nothing was sent, or nobody knows.
//!
//! Everything that follows from a failed request hangs on this. "Never sent" gives the key back;
//! so it is said only on evidence: no connection was made, the connection gave the request back,
//! not one byte was written since the request was handed over, or an HTTP/2 peer declared that it
//! did not process the stream.
//!
//! On HTTP/2 the bytes of one request cannot be told from those of others on the connection, and
//! what is queued may still be sent after the request has failed here. So a count is no proof
//! there, and a GOAWAY is one only for a request whose end was not in its head: whatever of it is
//! still sent is half a request.

use std::error::Error as _;

use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Nothing of the request reached the upstream.
    #[error("the upstream was not reached: {0}")]
    NeverSent(String),
    /// The same: there were too many already.
    #[error("{0} requests merely pass already, which is the limit (limits.passing)")]
    Crowded(usize),
    /// Something of the request may have.
    #[error("the upstream gave no complete answer: {0}")]
    MaybeSent(String),
    /// The same, and time ran out.
    #[error("the upstream did not answer within {0:?}")]
    TimedOut(std::time::Duration),
}

impl Failure {
    /// Sorts a hyper error by what it proves.
    pub(crate) fn of(error: &hyper::Error, sent: Sent) -> Self {
        let text = describe(error);
        let never = match sent {
            Sent::Alone { wrote } => !wrote,
            Sent::AmongOthers { ends_in_head } => is_unprocessed(error, ends_in_head),
        };
        if never {
            return Self::NeverSent(text);
        }
        Self::MaybeSent(text)
    }
}

/// How a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// On a connection of its own; whether any byte was written to it since.
    Alone {
        /// See above.
        wrote: bool,
    },
    /// As one HTTP/2 stream of several; whether its head alone is the whole request.
    AmongOthers {
        /// See above.
        ends_in_head: bool,
    },
}

/// Whether an HTTP/2 peer declared the stream unprocessed: `REFUSED_STREAM`, or a GOAWAY whose
/// last stream is an earlier one. A stream that has not begun is told of any GOAWAY, also of a
/// graceful one, and its head may still go out.
fn is_unprocessed(error: &hyper::Error, ends_in_head: bool) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            let refused = h2.is_reset() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
            let told = h2.is_go_away() && !ends_in_head;
            return h2.is_remote() && (refused || told);
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
