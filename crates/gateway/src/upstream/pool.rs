//! Idle connections to one address, of one worker.
//!
//! The most recently used one is taken first, so that the others grow old, and those are closed. A
//! connection is used for a request only if it is known to be alive at that moment; the idle
//! time is kept shorter than what servers commonly allow, because a server that closes while a
//! request is on its way leaves an unknown outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::time::Instant;

use super::io::Written;
use super::{RequestBody, Sender};

/// How long a connection may take to end its last request. It has ended but for a moment; one
/// that has not is left alone.
const READY_MAX: Duration = Duration::from_millis(100);

/// The idle connections of one address, of one worker.
pub(crate) struct Pool {
    idle: Mutex<Idles>,
    shared: Mutex<Option<(http2::SendRequest<RequestBody>, Written)>>,
    idle_max: usize,
    idle_timeout: Duration,
}

/// In the order in which they were given back.
#[derive(Default)]
struct Idles {
    connections: Vec<Idle>,
    /// Whether a task is there to close them when they are old.
    are_watched: bool,
}

struct Idle {
    sender: Sender,
    written: Written,
    since: Instant,
}

/// A connection in use. Given back when its answer has been read to the end.
pub(crate) struct Lease {
    pub(crate) sender: Sender,
    pub(crate) written: Written,
    pool: Arc<Pool>,
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

    /// A connection that is alive, if there is one.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Lease> {
        if let Some((sender, written)) = self.shared() {
            return Some(self.lease(Sender::Http2(sender), written));
        }
        while let Some(idle) = self.pop() {
            let fresh = idle.since.elapsed() < self.idle_timeout;
            let mut lease = self.lease(idle.sender, idle.written);
            let ready = tokio::time::timeout(READY_MAX, lease.sender.ready());
            if fresh && ready.await == Ok(true) {
                return Some(lease);
            }
        }
        None
    }

    /// A new connection, for use now. An HTTP/2 one serves others at the same time.
    pub(crate) fn lease(self: &Arc<Self>, sender: Sender, written: Written) -> Lease {
        if let Sender::Http2(http2) = &sender {
            *lock(&self.shared) = Some((http2.clone(), written.clone()));
        }
        Lease {
            sender,
            written,
            pool: Arc::clone(self),
            is_for_one: false,
        }
    }

    fn shared(&self) -> Option<(http2::SendRequest<RequestBody>, Written)> {
        let mut shared = lock(&self.shared);
        if shared
            .as_ref()
            .is_some_and(|(sender, _)| sender.is_closed())
        {
            *shared = None;
        }
        shared.clone()
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
    /// Takes an HTTP/2 connection out of use for further requests. Any other ends with its lease.
    pub(crate) fn discard(self) {
        let mut shared = lock(&self.pool.shared);
        if shared
            .as_ref()
            .is_some_and(|(_, written)| written.is(&self.written))
        {
            *shared = None;
        }
    }

    /// The same, for no further request.
    pub(crate) fn for_one(self) -> Self {
        Self {
            is_for_one: true,
            ..self
        }
    }

    /// Gives the connection back for the next request.
    pub(crate) fn give_back(self) {
        let Self {
            sender,
            written,
            pool,
            is_for_one,
        } = self;
        // An HTTP/2 connection is in the pool already; some keep none at all.
        let is_done_with = matches!(sender, Sender::Http2(_)) || pool.idle_max == 0 || is_for_one;
        if sender.is_closed() || is_done_with {
            return;
        }
        pool.push(Idle {
            sender,
            written,
            since: Instant::now(),
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
