//! An upstream's answer on its way to the client, with a limit on silence.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce_http::{BodyTimeout, BoxError};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::pool::Lease;
use super::room::Room;
use crate::forward::strip_own;

/// How much of an answer to an execution is read once nobody wants it any more. To take it back
/// instead counts against the connection at some APIs, and others wait there for what their execution
/// came to.
const UNWANTED_BYTES_MAX: u64 = 1024 * 1024;

/// How long an answer is read of which only the head was wanted.
const UNWANTED_MAX: Duration = Duration::from_secs(5);

/// A body that fails after too long a silence, and when it is cut off.
pub(crate) struct Timed<B> {
    body: B,
    // hyper takes some resets of an HTTP/2 stream for the end of its body.
    tells_its_end: bool,
    timeout: Duration,
    // Made when the body first has nothing to say, so that a body that is there costs no timer.
    silence: Option<Pin<Box<Sleep>>>,
}

impl<B> Timed<B> {
    pub(crate) fn new(body: B, version: Version, timeout: Duration) -> Self {
        Self {
            body,
            tells_its_end: version == Version::HTTP_2,
            timeout,
            silence: None,
        }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.silence = None;
            if frame.is_none() && self.tells_its_end && !self.body.is_end_stream() {
                return Poll::Ready(Some(Err("the stream was reset".into())));
            }
            let passed_on = |frame: Result<_, B::Error>| match frame {
                Ok(frame) => Ok(without_own_trailers(frame)),
                Err(error) => Err(error.into()),
            };
            return Poll::Ready(frame.map(passed_on));
        }
        let timeout = self.timeout;
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        std::task::ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyTimeout::Silent(timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The gateway's own words are no more for others to say at the end of a body than in a head.
fn without_own_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip_own(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

/// An upstream's answer. Its connection is given back when the end was read.
pub(crate) struct AnswerBody {
    // Until it is dropped.
    body: Option<Timed<Incoming>>,
    lease: Option<Lease>,
    early: bool,
    end: Option<Instant>,
    // Made when the body first has nothing to say, as above.
    ending: Option<Pin<Box<Sleep>>>,
    room: Option<Room>,
}

impl AnswerBody {
    /// An answer to a request of which `unsent` tells whether a part was still unsent.
    pub(crate) fn of(
        mut answer: Response<Incoming>,
        lease: Lease,
        unsent: bool,
        timeout: Duration,
    ) -> Response<Self> {
        let version = answer.version();
        // Of the upstream's connection, and no part of the answer: hyper would tell the client.
        *answer.version_mut() = Version::HTTP_11;
        answer.map(|body| Self::new(Timed::new(body, version, timeout), lease, unsent))
    }

    fn new(body: Timed<Incoming>, lease: Lease, unsent: bool) -> Self {
        let mut body = Self {
            body: Some(body),
            lease: Some(lease),
            early: unsent,
            end: None,
            ending: None,
            room: None,
        };
        body.give_back_at_end();
        body
    }

    /// Whether it came before the request was sent to its end.
    pub(crate) fn is_early(&self) -> bool {
        self.early
    }

    /// Keeps the room that its request takes, until it has ended.
    pub(crate) fn keep(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// Gives that room to what goes on in its place.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// Reads to the end what nobody wants, so that the connection is of further use.
    pub(crate) fn let_go(self) {
        if !self.is_end_stream() {
            let reading = read_unwanted(self);
            tokio::spawn(tokio::time::timeout(UNWANTED_MAX, reading));
        }
    }

    /// Sets a limit on all of it. One that drips would keep every silence short and never end.
    pub(crate) fn must_end_at(&mut self, end: Instant) {
        self.end = Some(end);
    }

    fn poll_in_time(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(body).poll_frame(context);
        match (self.end, frame.is_pending()) {
            (Some(end), true) => self
                .ending
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)))
                .as_mut()
                .poll(context)
                .map(|()| Some(Err("the answer did not end in time".into()))),
            (None, _) | (_, false) => frame,
        }
    }

    fn give_back_at_end(&mut self) {
        if self.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        match self.lease.take() {
            Some(lease) if self.early => lease.leave_early(),
            Some(lease) => lease.give_back(),
            None => {}
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(self.poll_in_time(context));
        match &frame {
            Some(Ok(_)) => self.give_back_at_end(),
            // The end; an error closes the connection instead, by dropping it.
            None => self.give_back(),
            Some(Err(_)) => self.lease = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(Body::size_hint);
        hint.unwrap_or_default()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        if self.early {
            return lease.leave_early();
        }
        if !lease.is_shared() {
            return;
        }
        // Only answers to executions have an end, and streams of events have none.
        let (Some(end), Some(body)) = (self.end, self.body.take()) else {
            return;
        };
        let is_short = body.size_hint().lower() <= UNWANTED_BYTES_MAX;
        if let Some(runtime) = Handle::try_current().ok().filter(|_| is_short) {
            runtime.spawn(async move {
                let reading = read_unwanted(body);
                // In time or not, it is over.
                let _ = tokio::time::timeout_at(end, reading).await;
                drop(lease);
            });
        }
    }
}

/// Reads a body to its end, or as much of it as is read for nobody.
async fn read_unwanted<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut bytes = 0_u64;
    while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        if bytes > UNWANTED_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    /// An API could take it for the gateway's word about an execution.
    #[test]
    fn words_of_the_gateways_own_are_not_passed_on_as_trailers() {
        let mut trailers = HeaderMap::new();
        trailers.insert("onlyonce-execution", HeaderValue::from_static("forged"));
        trailers.insert("x-checksum", HeaderValue::from_static("1"));
        let kept = without_own_trailers(Frame::trailers(trailers)).into_trailers();
        let kept = kept.unwrap();
        assert_eq!(kept.len(), 1);
        assert!(kept.contains_key("x-checksum"));
    }
}
