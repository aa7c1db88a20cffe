//! How an observed answer ends, told while it passes.
//!
//! Enforcing reads an answer before anybody sees it. Observing sees it go by: it counts the bytes
//! and keeps none, and tells the key's watcher at the true end of the body, where enforcing would
//! have known. A body that is dropped before that tells nothing; the watcher hears the silence.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body::{Frame, SizeHint};
use onlyonce_core::TombstoneReason;
use tokio::sync::oneshot;

/// How an observed request ended, as enforcing would see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Executed, with an answer that would be stored.
    Completed,
    /// Executed, with an answer that would not.
    NotReplayable(TombstoneReason),
    /// Rejected before execution.
    NotStored,
    /// Proven not executed.
    Released,
    /// There is no complete answer, or none that says what happened.
    Unknown,
}

/// Tells a watcher how the body of a completed answer ends.
#[derive(Debug)]
pub(crate) struct Ending {
    /// There until it was told.
    tell: Option<oneshot::Sender<End>>,
    /// What the head says of the length.
    announced: Option<u64>,
    passed: u64,
    /// The largest body that would be stored.
    bytes_max: u64,
}

impl Ending {
    pub(crate) fn new(tell: oneshot::Sender<End>, head: &HeaderMap, bytes_max: usize) -> Self {
        // A length that cannot be read is one that no body has.
        let length = |value: &HeaderValue| value.to_str().ok()?.parse().ok();
        let announced = head.get(header::CONTENT_LENGTH);
        Self {
            tell: Some(tell),
            announced: announced.map(|value| length(value).unwrap_or(u64::MAX)),
            passed: 0,
            bytes_max: bytes_max.try_into().unwrap_or(u64::MAX),
        }
    }

    /// Nothing passed yet. A server does not even look at a body that is over before it begins.
    pub(crate) fn begins(&mut self, hint: &SizeHint, is_over: bool) {
        if hint.lower() > self.bytes_max {
            self.tell(End::NotReplayable(TombstoneReason::TooLarge));
        } else if is_over || self.announced == Some(0) {
            self.ends();
        }
    }

    /// Something came: a frame, an error, or nothing more. `is_over` if nothing follows; a server
    /// may then not ask for more, and neither if all that was announced has passed.
    pub(crate) fn saw<E>(&mut self, next: Option<&Result<Frame<Bytes>, E>>, is_over: bool) {
        match next {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.passed = self.passed.saturating_add(length as u64);
                if self.passed > self.bytes_max {
                    self.tell(End::NotReplayable(TombstoneReason::TooLarge));
                } else if is_over || frame.is_trailers() || self.announced == Some(self.passed) {
                    self.ends();
                }
            }
            Some(Err(_)) => self.tell(End::Unknown),
            None => self.ends(),
        }
    }

    /// A body that is shorter than announced ended early, whatever its end looked like.
    fn ends(&mut self) {
        let is_whole = self.announced.is_none_or(|length| length == self.passed);
        self.tell(if is_whole {
            End::Completed
        } else {
            End::Unknown
        });
    }

    fn tell(&mut self, end: End) {
        if let Some(tell) = self.tell.take() {
            // The watcher may have had nothing to wait for.
            let _ = tell.send(end);
        }
    }
}
