//! HTTP/2 connections, each of which several requests share.
//!
//! Executions and requests that merely pass have connections apart. What passes is as its client
//! wants it: dripped, stalled, taken back a thousand times, never read. A connection suffers for that,
//! or is ended by the API, and every execution on it would be of unknown outcome.
//!
//! Of several requests that find no room one makes a connection; the others wait for it, or share the
//! reason why there is none. A connection that nobody needs is closed like any idle one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use hyper::client::conn::http2;
use onlyonce_http::Execution;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::io::Written;
use super::place::{Placed, Places, Stay};
use super::pool::{Connection, Patience};
use super::{Sender, lock};

/// How many requests one HTTP/2 connection has at once. RFC 9113 asks servers to allow no fewer. One
/// more would wait within the connection, and whether it was sent when its time is over nobody knows.
const STREAMS_MAX: usize = 100;

/// The shortest time between two looks at connections in use, however impatient the settings.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// How much of one answer may wait for a client that does not read. Of answers to executions that is
/// only what is not stored: events, what is too large, refusals. The others are read as they come.
const PASSING_WINDOW_BYTES: u32 = 64 * 1024;
const EXECUTED_WINDOW_BYTES: u32 = 256 * 1024;

/// With whom a request shares a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// Executions, whose bodies are whole. Their clients may go away without a consequence for as long
    /// as the answer is read to be stored. Of one that is passed on instead, the rest is read up to a
    /// bound without them; more of it, or a stream of events, is taken back.
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

/// The connections of one crowd. The first ones are filled first, so that the others grow old.
pub(crate) struct Shares {
    connections: Mutex<Connections>,
    /// Whoever makes a connection.
    turn: tokio::sync::Mutex<()>,
    failed: Mutex<Failed>,
    patience: Patience,
}

#[derive(Default)]
struct Connections {
    all: Vec<Share>,
    /// Whether a task is there to close them when they are old.
    are_watched: bool,
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
    places: Arc<Places>,
    /// Whether it takes no further requests.
    is_retired: bool,
}

impl Share {
    fn taken(&self) -> usize {
        Arc::strong_count(&self.places).saturating_sub(1)
    }

    fn has_room(&self, patience: Patience) -> bool {
        !self.is_retired
            && !self.sender.is_closed()
            && self.taken() < STREAMS_MAX
            && !self.is_old(patience)
    }

    /// Whether it takes no further requests and has none. One that the API wants to end may have some.
    fn is_over(&self) -> bool {
        self.sender.is_closed() && self.taken() == 0
    }

    /// Since when it has not been needed for too long, or when that will be; `None` while somebody
    /// wants an answer.
    fn old_at(&self, patience: Patience) -> Option<Instant> {
        let kept = match self.taken() {
            0 if self.is_retired => Duration::ZERO,
            0 => patience.idle,
            _ => patience.silent,
        };
        Some(self.places.unwanted_since()? + kept)
    }

    fn is_old(&self, patience: Patience) -> bool {
        let at = self.old_at(patience);
        at.is_some_and(|at| at <= Instant::now())
    }

    /// Closes it. What its requests still want to send, the API does not take: with nobody to read the
    /// answer, nothing else would ever end it.
    fn end(&self) {
        if self.taken() > 0 {
            self.task.abort();
        }
    }

    fn join(&self) -> (Connection, Stay) {
        let connection = Connection {
            sender: Sender::Http2(self.sender.clone()),
            written: self.written.clone(),
            task: self.task.clone(),
        };
        (connection, Stay::new(&self.places))
    }
}

impl Shares {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            connections: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            patience,
        }
    }

    /// A place on a connection that has room, if there is one.
    pub(crate) fn join(&self) -> Option<(Connection, Stay)> {
        let mut connections = lock(&self.connections);
        connections.all.retain(|one| !one.is_over());
        let mut all = connections.all.iter();
        all.find(|one| one.has_room(self.patience)).map(Share::join)
    }

    /// The first place on a connection that was just made.
    pub(crate) fn begin(&self, connection: &Connection) -> Option<Stay> {
        let Sender::Http2(sender) = &connection.sender else {
            return None;
        };
        let share = Share {
            sender: sender.clone(),
            written: connection.written.clone(),
            task: connection.task.clone(),
            places: Arc::new(Places::new()),
            is_retired: false,
        };
        let (_, stay) = share.join();
        lock(&self.connections).all.push(share);
        Some(stay)
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

    /// Takes a connection out of use for further requests. It is closed when its last one is done.
    pub(crate) fn retire(&self, connection: &Connection) {
        let mut connections = lock(&self.connections);
        let mut all = connections.all.iter_mut();
        if let Some(one) = all.find(|one| one.written.is(&connection.written)) {
            one.is_retired = true;
        }
    }

    /// Whether connections are there that nobody looks after: whoever asks has to.
    pub(crate) fn begin_watch(&self) -> bool {
        let mut connections = lock(&self.connections);
        let is_needed = !connections.are_watched && !connections.all.is_empty();
        connections.are_watched |= is_needed;
        is_needed
    }

    /// Closes what nobody has needed for too long, and says when to look again.
    pub(crate) fn close_old(&self) -> Option<Instant> {
        let patience = self.patience;
        let mut connections = lock(&self.connections);
        connections.all.retain(|one| {
            let is_old = one.is_old(patience);
            if is_old {
                one.end();
            }
            !is_old && !one.is_over()
        });
        let pause = patience.idle.min(patience.silent).max(LOOK_PAUSE_MIN);
        let later = Instant::now() + pause;
        let old_at = connections.all.iter().map(|one| one.old_at(patience));
        let next = old_at.map(|at| at.unwrap_or(later).min(later)).min();
        connections.are_watched = next.is_some();
        next
    }
}
