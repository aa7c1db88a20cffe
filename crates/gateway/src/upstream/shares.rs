//! HTTP/2 connections, each of which several requests share.
//!
//! Executions and requests that merely pass have connections apart. What passes is as its client
//! wants it: dripped, stalled, taken back a thousand times, never read. A connection suffers for that,
//! or is ended by the API, and every execution on it would be of unknown outcome.
//!
//! Of several requests that find no room one makes a connection; the others wait for it, or share the
//! reason why there is none.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http2;
use onlyonce_http::{BoxError, Execution};
use tokio::task::AbortHandle;

use super::io::Written;
use super::pool::Connection;
use super::{RequestBody, Sender};

/// How many requests one HTTP/2 connection has at once. RFC 9113 asks servers to allow no fewer. One
/// more would wait within the connection, and whether it was sent when its time is over nobody knows.
const STREAMS_MAX: usize = 100;

/// How much of one answer may wait for a client that does not read. Answers to executions are read
/// to their end as they come.
const PASSING_WINDOW_BYTES: u32 = 64 * 1024;
const EXECUTED_WINDOW_BYTES: u32 = 256 * 1024;

/// With whom a request shares a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// Executions, whose bodies are whole, and whose clients may go away without a consequence.
    Executions,
    /// Everything else.
    Passing,
}

impl Crowd {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        match request.extensions().get::<Execution>() {
            Some(_) => Self::Executions,
            None => Self::Passing,
        }
    }

    pub(crate) fn stream_window_bytes(self) -> u32 {
        match self {
            Self::Executions => EXECUTED_WINDOW_BYTES,
            Self::Passing => PASSING_WINDOW_BYTES,
        }
    }
}

/// The connections of one crowd. The first ones are filled first, so that the others can be closed.
#[derive(Default)]
pub(crate) struct Shares {
    connections: Mutex<Vec<Share>>,
    /// Whoever makes a connection.
    turn: tokio::sync::Mutex<()>,
    failed: Mutex<Failed>,
}

/// How often no connection could be made, and why not the last time.
#[derive(Default)]
struct Failed {
    times: u64,
    why: String,
}

struct Share {
    sender: http2::SendRequest<Placed>,
    written: Written,
    task: AbortHandle,
    /// One for each place that is taken, and this.
    places: Arc<()>,
}

impl Share {
    fn has_room(&self) -> bool {
        !self.sender.is_closed() && Arc::strong_count(&self.places) <= STREAMS_MAX
    }

    fn join(&self) -> (Connection, Arc<Place>) {
        let connection = Connection {
            sender: Sender::Http2(self.sender.clone()),
            written: self.written.clone(),
            task: self.task.clone(),
        };
        (connection, Arc::new(Place(Arc::clone(&self.places))))
    }
}

/// A request's place on a connection. It takes it for as long as its answer or its own body goes on.
pub(crate) struct Place(#[expect(dead_code, reason = "counted")] Arc<()>);

impl Shares {
    /// A place on a connection that has room, if there is one.
    pub(crate) fn join(&self) -> Option<(Connection, Arc<Place>)> {
        let mut connections = lock(&self.connections);
        connections.retain(|one| !one.sender.is_closed());
        connections
            .iter()
            .find(|one| one.has_room())
            .map(Share::join)
    }

    /// The first place on a connection that was just made.
    pub(crate) fn begin(&self, connection: &Connection) -> Option<Arc<Place>> {
        let Sender::Http2(sender) = &connection.sender else {
            return None;
        };
        let share = Share {
            sender: sender.clone(),
            written: connection.written.clone(),
            task: connection.task.clone(),
            places: Arc::default(),
        };
        let (_, place) = share.join();
        lock(&self.connections).push(share);
        Some(place)
    }

    /// Waits until it is this request's turn to make a connection. Meanwhile others may have made one,
    /// or have found out why that is not possible.
    pub(crate) async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, String> {
        let before = lock(&self.failed).times;
        let turn = self.turn.lock().await;
        let failed = lock(&self.failed);
        if failed.times != before {
            return Err(failed.why.clone());
        }
        drop(failed);
        Ok(turn)
    }

    pub(crate) fn note_failure(&self, why: String) {
        let mut failed = lock(&self.failed);
        failed.times += 1;
        failed.why = why;
    }

    /// Takes a connection out of use for further requests.
    pub(crate) fn discard(&self, connection: &Connection) {
        lock(&self.connections).retain(|one| !one.written.is(&connection.written));
    }

    /// Lets go of what was needed for a crowd that has gone: all without a request but the first.
    pub(crate) fn shrink(&self) {
        let mut number = 0;
        lock(&self.connections).retain(|one| {
            number += 1;
            number == 1 || Arc::strong_count(&one.places) > 1
        });
    }
}

/// A request body that keeps its request's place on the connection.
pub(crate) struct Placed {
    body: RequestBody,
    _place: Option<Arc<Place>>,
}

impl Placed {
    pub(crate) fn new(body: RequestBody, place: Option<Arc<Place>>) -> Self {
        Self {
            body,
            _place: place,
        }
    }

    pub(crate) fn into_body(self) -> RequestBody {
        self.body
    }
}

impl Body for Placed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
