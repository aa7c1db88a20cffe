//! Idle connections to one address, of one worker.
//!
//! The most recently used one is taken first, so that the others grow old, and those are closed. A
//! connection is used for a request only if it is known to be alive at that moment; the idle
//! time is kept shorter than what servers commonly allow, because a server that closes while a
//! request is on its way leaves an unknown outcome.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::io::Written;
use super::{RequestBody, Sender};

/// How long a connection may take to end its last request. It has ended but for a moment; one
/// that has not is left alone.
const READY_MAX: Duration = Duration::from_millis(100);

/// How many requests one HTTP/2 connection has at once. RFC 9113 asks servers to allow no fewer. One
/// more would wait within the connection, and whether it was sent when its time is over nobody knows.
const STREAMS_MAX: usize = 100;

/// The idle connections of one address, of one worker.
pub(crate) struct Pool {
    idle: Mutex<Idles>,
    /// HTTP/2 connections. The first ones are filled first, so that the others can be closed.
    shared: Mutex<Vec<Shared>>,
    idle_max: usize,
    idle_timeout: Duration,
}

/// A connection that was made.
pub(crate) struct Connection {
    pub(crate) sender: Sender,
    /// What was written to it.
    pub(crate) written: Written,
    /// What drives it.
    pub(crate) task: AbortHandle,
}

/// A connection of several requests, each of which has a clone of `streams`.
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    written: Written,
    task: AbortHandle,
    streams: Arc<()>,
}

impl Shared {
    fn has_room(&self) -> bool {
        !self.sender.is_closed() && Arc::strong_count(&self.streams) <= STREAMS_MAX
    }

    fn connection(&self) -> Connection {
        Connection {
            sender: Sender::Http2(self.sender.clone()),
            written: self.written.clone(),
            task: self.task.clone(),
        }
    }
}

/// In the order in which they were given back.
#[derive(Default)]
struct Idles {
    connections: Vec<Idle>,
    /// Whether a task is there to close them when they are old.
    are_watched: bool,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection in use. Given back when its answer has been read to the end.
pub(crate) struct Lease {
    connection: Connection,
    pool: Arc<Pool>,
    /// Its place on a connection of several.
    _stream: Option<Arc<()>>,
    /// Whether no other request may follow on the connection.
    is_for_one: bool,
}

impl Pool {
    pub(crate) fn new(idle_max: usize, idle_timeout: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            shared: Mutex::default(),
            idle_max,
            idle_timeout,
        }
    }

    /// A connection that is alive and has room, if there is one.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Lease> {
        if let Some(lease) = self.shared() {
            return Some(lease);
        }
        while let Some(idle) = self.pop() {
            let fresh = idle.since.elapsed() < self.idle_timeout;
            let mut lease = self.lease(idle.connection, None);
            let ready = tokio::time::timeout(READY_MAX, lease.connection.sender.ready());
            if fresh && ready.await == Ok(true) {
                return Some(lease);
            }
        }
        None
    }

    /// A new connection, for use now. An HTTP/2 one serves others at the same time, unless another one
    /// has room for them.
    pub(crate) fn begin(self: &Arc<Self>, connection: Connection) -> Lease {
        let Sender::Http2(http2) = &connection.sender else {
            return self.lease(connection, None);
        };
        let new = Shared {
            sender: http2.clone(),
            written: connection.written.clone(),
            task: connection.task.clone(),
            streams: Arc::default(),
        };
        let stream = Arc::clone(&new.streams);
        let mut shared = lock(&self.shared);
        if !shared.iter().any(Shared::has_room) {
            shared.push(new);
        }
        drop(shared);
        self.lease(connection, Some(stream))
    }

    fn lease(self: &Arc<Self>, connection: Connection, stream: Option<Arc<()>>) -> Lease {
        Lease {
            connection,
            pool: Arc::clone(self),
            _stream: stream,
            is_for_one: false,
        }
    }

    fn shared(self: &Arc<Self>) -> Option<Lease> {
        let mut shared = lock(&self.shared);
        shared.retain(|one| !one.sender.is_closed());
        let one = shared.iter().find(|one| one.has_room())?;
        Some(self.lease(one.connection(), Some(Arc::clone(&one.streams))))
    }

    /// Lets go of what was needed for a crowd that has gone: all without a request but the first.
    fn shrink(&self) {
        let mut place = 0;
        lock(&self.shared).retain(|one| {
            place += 1;
            place == 1 || Arc::strong_count(&one.streams) > 1
        });
    }

    fn pop(&self) -> Option<Idle> {
        lock(&self.idle).connections.pop()
    }

    /// Keeps a connection for the next request.
    fn push(self: &Arc<Self>, connection: Idle) {
        let mut idle = lock(&self.idle);
        let mut oldest = None;
        if idle.connections.len() >= self.idle_max {
            // It has waited longest for nothing.
            oldest = Some(idle.connections.remove(0));
        }
        idle.connections.push(connection);
        let was_watched = std::mem::replace(&mut idle.are_watched, true);
        drop(idle);
        drop(oldest);
        if !was_watched {
            tokio::spawn(close_old(Arc::downgrade(self), self.idle_timeout));
        }
    }

    /// Closes what has been idle for too long, and says when the next one will have been.
    fn close_old(&self) -> Option<Instant> {
        let mut idle = lock(&self.idle);
        let is_old = |one: &Idle| one.since.elapsed() >= self.idle_timeout;
        let old = idle.connections.partition_point(is_old);
        let old: Vec<_> = idle.connections.drain(..old).collect();
        let next = idle.connections.first().map(|one| one.since);
        idle.are_watched = next.is_some();
        drop(idle);
        drop(old);
        next.map(|since| since + self.idle_timeout)
    }
}

/// Closes the idle connections of a pool as they grow old, until there are none.
async fn close_old(pool: Weak<Pool>, first: Duration) {
    let mut next = Instant::now() + first;
    loop {
        tokio::time::sleep_until(next).await;
        match pool.upgrade().and_then(|pool| pool.close_old()) {
            Some(later) => next = later,
            None => return,
        }
    }
}

impl Lease {
    pub(crate) fn sender(&self) -> &Sender {
        &self.connection.sender
    }

    pub(crate) fn written(&self) -> &Written {
        &self.connection.written
    }

    /// Sends a request.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + use<>
    {
        self.connection.sender.send(request)
    }

    /// Takes a connection that has gone silent out of use. What was still to be written to it would
    /// keep its request, and with it a client's upload, for as long as nobody reads.
    pub(crate) fn discard(self) {
        if let Sender::Http1(_) = self.connection.sender {
            self.connection.task.abort();
            return;
        }
        let mut shared = lock(&self.pool.shared);
        shared.retain(|one| !one.written.is(&self.connection.written));
    }

    /// The same connection, for no further request.
    pub(crate) fn for_one(self) -> Self {
        Self {
            is_for_one: true,
            ..self
        }
    }

    /// Gives the connection back for the next request.
    pub(crate) fn give_back(self) {
        let Self {
            connection,
            pool,
            _stream: stream,
            is_for_one,
        } = self;
        if let Some(stream) = stream {
            drop(stream);
            pool.shrink();
            return;
        }
        if connection.sender.is_closed() || pool.idle_max == 0 || is_for_one {
            return;
        }
        pool.push(Idle {
            connection,
            since: Instant::now(),
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
