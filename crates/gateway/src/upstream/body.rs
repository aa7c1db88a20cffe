//! An upstream's answer on its way to the client, with a limit on silence.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce_http::BoxError;
use tokio::time::Sleep;

use super::pool::Lease;

/// A body that fails after too long a silence.
pub(crate) struct Timed<B> {
    body: B,
    timeout: Duration,
    // Made when the body first has nothing to say, so that a body that is there costs no timer.
    silence: Option<Pin<Box<Sleep>>>,
}

impl<B> Timed<B> {
    pub(crate) fn new(body: B, timeout: Duration) -> Self {
        Self {
            body,
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
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timeout = self.timeout;
        let silence = self
            .silence
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        std::task::ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(format!("nothing came for {timeout:?}").into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An upstream's answer. Its connection is given back when the end was read.
pub(crate) struct AnswerBody {
    body: Timed<Incoming>,
    lease: Option<Lease>,
}

impl AnswerBody {
    pub(crate) fn new(body: Incoming, lease: Lease, timeout: Duration) -> Self {
        let mut body = Self {
            body: Timed::new(body, timeout),
            lease: Some(lease),
        };
        body.give_back_at_end();
        body
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
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
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(_)) => self.give_back_at_end(),
            // The end; an error closes the connection instead, by dropping it.
            None => {
                if let Some(lease) = self.lease.take() {
                    lease.give_back();
                }
            }
            Some(Err(_)) => self.lease = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
