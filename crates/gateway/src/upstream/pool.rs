//! The connections to one address, of one worker: idle ones, and those that several requests share
//! ([`shares`](super::shares)).
//!
//! The most recently used idle one is taken first, so that the others grow old, and those are closed. A
//! connection is used for a request only if it is known to be alive at that moment; the idle
//! time is kept shorter than what servers commonly allow, because a server that closes while a
//! request is on its way leaves an unknown outcome.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connect::Connector;
use super::failure::Failure;
use super::io::Written;
use super::place::{Place, Placed, Stay};
use super::shares::{Crowd, Shares};
use super::{RequestBody, Sender, lock};

/// How long a connection may take to end its last request. It has ended but for a moment; one
/// that has not is left alone.
const READY_MAX: Duration = Duration::from_millis(100);

/// The connections of one address, of one worker.
pub(crate) struct Pool {
    idle: Mutex<Idles>,
    executions: Shares,
    passing: Shares,
    idle_max: usize,
    patience: Patience,
}

/// How long connections are kept that nobody wants anything of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Idle ones.
    pub(crate) idle: Duration,
    /// Those over which a request still goes out, since its last part.
    pub(crate) silent: Duration,
}

/// A connection that was made.
pub(crate) struct Connection {
    pub(crate) sender: Sender,
    /// What was written to it.
    pub(crate) written: Written,
    /// What reads and writes: without it the connection is closed, and whatever waits there fails.
    pub(crate) task: AbortHandle,
}

/// How much of a request has gone out, and maybe more.
pub(crate) enum Progress {
    /// It has its connection to itself: what the operating system has taken.
    Alone(Written),
    /// Others write to its connection, too: what the connection has taken of its body.
    AmongOthers(Arc<Place>),
}

impl Progress {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Alone(written) => written.bytes(),
            Self::AmongOthers(place) => place.taken_bytes(),
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
    crowd: Crowd,
    /// On a connection of several.
    stay: Option<Stay>,
    is_new: bool,
    /// Whether no other request may follow on the connection.
    is_for_one: bool,
    /// Whether the request is not to be sent to its end.
    is_cut_off: bool,
}

impl Pool {
    pub(crate) fn new(idle_max: usize, patience: Patience) -> Self {
        Self {
            idle: Mutex::default(),
            executions: Shares::new(patience),
            passing: Shares::new(patience),
            idle_max,
            patience,
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
        if let Some((connection, stay)) = self.shares(crowd).join() {
            return Some(self.lease(crowd, connection, Some(stay)));
        }
        while let Some(idle) = self.pop() {
            let fresh = idle.since.elapsed() < self.patience.idle;
            let mut lease = self.lease(crowd, idle.connection, None);
            let ready = tokio::time::timeout(READY_MAX, lease.connection.sender.ready());
            if fresh && ready.await == Ok(true) {
                return Some(lease);
            }
        }
        None
    }

    /// A new connection, or a place on one that was made meanwhile, or that became free.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        crowd: Crowd,
        connector: &Connector,
    ) -> Result<Lease, Failure> {
        let shares = self.shares(crowd);
        let turn = if connector.http2 {
            Some(shares.turn().await)
        } else {
            None
        };
        let joined = |(connection, stay)| self.lease(crowd, connection, Some(stay));
        if let Some(place) = shares.join() {
            return Ok(joined(place));
        }
        let _turn = turn.transpose().map_err(Failure::NeverSent)?;
        match connector.connect(crowd).await {
            Ok(connection) => {
                let stay = shares.begin(&connection);
                self.watch(crowd);
                Ok(Lease {
                    is_new: true,
                    ..self.lease(crowd, connection, stay)
                })
            }
            Err(why) => {
                shares.note_failure(why.clone());
                // Trying may have taken long enough for a place to become free.
                shares.join().map(joined).ok_or(Failure::NeverSent(why))
            }
        }
    }

    /// Has the shared connections of a crowd looked after, if there are any.
    fn watch(self: &Arc<Self>, crowd: Crowd) {
        if self.shares(crowd).begin_watch() {
            let look = move |pool: &Self| pool.shares(crowd).close_old();
            let first = self.patience.idle.min(self.patience.silent);
            tokio::spawn(watch(Arc::downgrade(self), first, look));
        }
    }

    fn lease(self: &Arc<Self>, crowd: Crowd, connection: Connection, stay: Option<Stay>) -> Lease {
        Lease {
            connection,
            pool: Arc::clone(self),
            crowd,
            stay,
            is_new: false,
            is_for_one: false,
            is_cut_off: false,
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
            let first = self.patience.idle;
            tokio::spawn(watch(Arc::downgrade(self), first, Self::close_old));
        }
    }

    /// Closes what has been idle for too long, and says when the next one will have been.
    fn close_old(&self) -> Option<Instant> {
        let mut idle = lock(&self.idle);
        let is_old = |one: &Idle| one.since.elapsed() >= self.patience.idle;
        let old = idle.connections.partition_point(is_old);
        let old: Vec<_> = idle.connections.drain(..old).collect();
        let next = idle.connections.first().map(|one| one.since);
        idle.are_watched = next.is_some();
        drop(idle);
        drop(old);
        next.map(|since| since + self.patience.idle)
    }
}

/// Closes connections of a pool as they grow old, until there are none.
async fn watch(pool: Weak<Pool>, first: Duration, close_old: impl Fn(&Pool) -> Option<Instant>) {
    let mut next = Instant::now() + first;
    loop {
        tokio::time::sleep_until(next).await;
        match pool.upgrade().and_then(|pool| close_old(&pool)) {
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

    /// What tells how far the request is that it is for.
    pub(crate) fn progress(&self) -> Progress {
        match &self.stay {
            Some(stay) => Progress::AmongOthers(stay.place()),
            None => Progress::Alone(self.connection.written.clone()),
        }
    }

    /// Notes that the request's answer has begun.
    pub(crate) fn note_answer(&mut self) {
        if let Some(stay) = &mut self.stay {
            stay.note_answer();
        }
    }

    /// Whether others may use the connection at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.stay.is_some()
    }

    /// Sends a request.
    pub(crate) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Placed>>>> + use<>
    {
        let place = self.stay.as_ref().map(Stay::place);
        let room = request.extensions().get().cloned();
        let request = request.map(|body| Placed::new(body, place, room));
        self.connection.sender.send(request)
    }

    /// Takes a connection that has gone silent out of use. What was still to be written to it would
    /// keep its request, and with it a client's upload, for as long as nobody reads.
    pub(crate) fn discard(self) {
        match self.connection.sender {
            Sender::Http1(_) => self.connection.task.abort(),
            Sender::Http2(_) => self.pool.shares(self.crowd).retire(&self.connection),
        }
    }

    /// The same connection, for no further request.
    pub(crate) fn for_one(self) -> Self {
        Self {
            is_for_one: true,
            ..self
        }
    }

    /// The same connection, with a request of which nothing more is sent once its answer was read.
    pub(crate) fn cut_off_at_end(self) -> Self {
        Self {
            is_cut_off: true,
            ..self
        }
    }

    /// Ends a connection that still sends an old request, which is no good for a new one. Of several,
    /// nothing of this one: whoever has a place there gives it up unless its answer was noted.
    ///
    /// hyper ends a connection of its own once everything is written: never, where the API reads no more.
    pub(crate) fn leave_early(self) {
        let Sender::Http1(_) = self.connection.sender else {
            return;
        };
        let (task, written) = (self.connection.task, self.connection.written);
        let runtime = Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| !self.is_cut_off) else {
            return task.abort();
        };
        let silent = self.pool.patience.silent;
        runtime.spawn(async move {
            let mut bytes = None;
            while !task.is_finished() && bytes != Some(written.bytes()) {
                bytes = Some(written.bytes());
                tokio::time::sleep(silent).await;
            }
            task.abort();
        });
    }

    /// Gives the connection back for the next request.
    pub(crate) fn give_back(self) {
        let Self {
            connection,
            pool,
            stay,
            is_for_one,
            ..
        } = self;
        let of_no_use = is_for_one || connection.sender.is_closed();
        if stay.is_some() || of_no_use || pool.idle_max == 0 {
            return;
        }
        pool.push(Idle {
            connection,
            since: Instant::now(),
        });
    }
}
