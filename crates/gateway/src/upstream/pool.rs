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
use hyper::client::conn::TrySendError;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connect::Connector;
use super::failure::Failure;
use super::io::Written;
use super::shares::{Crowd, Place, Placed, Shares};
use super::{RequestBody, Sender};

/// How long a connection may take to end its last request. It has ended but for a moment; one
/// that has not is left alone.
const READY_MAX: Duration = Duration::from_millis(100);

/// The connections of one address, of one worker.
pub(crate) struct Pool {
    idle: Mutex<Idles>,
    executions: Shares,
    passing: Shares,
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
    crowd: Crowd,
    /// Its place on a connection of several.
    place: Option<Arc<Place>>,
    is_new: bool,
    /// Whether no other request may follow on the connection.
    is_for_one: bool,
}

impl Pool {
    pub(crate) fn new(idle_max: usize, idle_timeout: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            executions: Shares::default(),
            passing: Shares::default(),
            idle_max,
            idle_timeout,
        }
    }

    fn shares(&self, crowd: Crowd) -> &Shares {
        match crowd {
            Crowd::Executions => &self.executions,
            Crowd::Passing => &self.passing,
        }
    }

    /// A connection that is alive and has room, if there is one.
    pub(crate) async fn take(self: &Arc<Self>, crowd: Crowd) -> Option<Lease> {
        if let Some((connection, place)) = self.shares(crowd).join() {
            return Some(self.lease(crowd, connection, Some(place)));
        }
        while let Some(idle) = self.pop() {
            let fresh = idle.since.elapsed() < self.idle_timeout;
            let mut lease = self.lease(crowd, idle.connection, None);
            let ready = tokio::time::timeout(READY_MAX, lease.connection.sender.ready());
            if fresh && ready.await == Ok(true) {
                return Some(lease);
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        crowd: Crowd,
        connector: &Connector,
    ) -> Result<Lease, Failure> {
        let shares = self.shares(crowd);
        let _turn = if connector.http2 {
            Some(shares.turn().await.map_err(Failure::NeverSent)?)
        } else {
            None
        };
        if let Some((connection, place)) = shares.join() {
            return Ok(self.lease(crowd, connection, Some(place)));
        }
        match connector.connect(crowd).await {
            Ok(connection) => {
                let place = shares.begin(&connection);
                Ok(Lease {
                    is_new: true,
                    ..self.lease(crowd, connection, place)
                })
            }
            Err(why) => {
                shares.note_failure(why.clone());
                Err(Failure::NeverSent(why))
            }
        }
    }

    fn lease(
        self: &Arc<Self>,
        crowd: Crowd,
        connection: Connection,
        place: Option<Arc<Place>>,
    ) -> Lease {
        Lease {
            connection,
            pool: Arc::clone(self),
            crowd,
            place,
            is_new: false,
            is_for_one: false,
        }
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

    /// Whether nobody has used the connection before.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Sends a request.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Placed>>>> + use<>
    {
        let place = self.place.clone();
        let request = request.map(|body| Placed::new(body, place));
        self.connection.sender.send(request)
    }

    /// Takes a connection that has gone silent out of use. What was still to be written to it would
    /// keep its request, and with it a client's upload, for as long as nobody reads.
    pub(crate) fn discard(self) {
        match self.connection.sender {
            Sender::Http1(_) => self.connection.task.abort(),
            Sender::Http2(_) => self.pool.shares(self.crowd).discard(&self.connection),
        }
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
            crowd,
            place,
            is_new: _,
            is_for_one,
        } = self;
        if let Some(place) = place {
            drop(place);
            pool.shares(crowd).shrink();
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
