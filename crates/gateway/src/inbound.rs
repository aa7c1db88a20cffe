//! A client's connection as hyper reads it: nothing ambiguous, and nobody who keeps it for nothing.
//!
//! [`Inbound`] follows the requests on their way in ([`Framing`]) and ends waits: for the rest of a
//! head that has begun, for the next request of a connection that has none, and for a client that
//! does not take its answer. An HTTP/2 client without requests answers pings for as long as it likes:
//! it is told first, and has as long as for a head to end the connection by itself. [`Talk`] is what it
//! must know of the requests themselves; each of them is an [`Open`] until its answer was sent.

use std::collections::BTreeSet;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::framing::{Framing, Phase, SPOILT};

/// How many requests more than it let come to an answer a client may take back. As many as it may
/// have open at once: a client that leaves takes all of them back.
const RESETS_MAX: u64 = 256;

/// An HTTP/2 client gets its answers in pieces of at most this size, each of which it has to take in
/// time. The connection keeps as much again of each answer.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// How much more time there is for each piece that waits: those of many answers share one line, and
/// the last of them is not late because it has to queue.
const QUEUE_TIME: Duration = Duration::from_secs(1);

/// What is known of the requests on one connection.
#[derive(Debug)]
pub(crate) struct Talk {
    began: Instant,
    asked: AtomicU64,
    /// Requests that have come to their end, and those of them that were taken back before.
    ended: AtomicU64,
    taken_back: AtomicU64,
    /// When the last request ended, in milliseconds since the beginning.
    last_end_ms: AtomicU64,
    /// Whether the connection speaks another protocol by now.
    switched: AtomicBool,
    flooded: AtomicBool,
    /// Whether the client is to be told that the connection ends.
    is_over: AtomicBool,
    /// Whether something waits for the client to take it.
    is_writing: AtomicBool,
    /// Since when each answer waits for its client, told apart by numbers.
    waits: Mutex<BTreeSet<(Instant, u64)>>,
    next_wait: AtomicU64,
}

impl Talk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            asked: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            last_end_ms: AtomicU64::new(0),
            switched: AtomicBool::new(false),
            flooded: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            waits: Mutex::default(),
            next_wait: AtomicU64::new(0),
        })
    }

    /// A request has come.
    pub(crate) fn open(self: &Arc<Self>, version: Version) -> Open {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Open {
            talk: Arc::clone(self),
            answered: false,
            is_http2: version == Version::HTTP_2,
        }
    }

    /// From now on it is the client's turn, until this is dropped.
    fn wait(self: &Arc<Self>) -> Wait {
        let number = self.next_wait.fetch_add(1, Ordering::Relaxed);
        let since = (Instant::now(), number);
        self.waits().insert(since);
        Wait {
            talk: Arc::clone(self),
            since,
        }
    }

    /// Until when the client has to take something of the answer that has waited longest.
    fn must_take_until(&self, patience: Duration) -> Option<Instant> {
        let waits = self.waits();
        let (since, _) = waits.first()?;
        let queued = u32::try_from(waits.len()).unwrap_or(u32::MAX);
        Some(*since + patience + QUEUE_TIME.saturating_mul(queued))
    }

    fn waits(&self) -> MutexGuard<'_, BTreeSet<(Instant, u64)>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any request has come.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Whether the client is to be told that the connection ends: it has had no request for too long.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether the client has taken back too many requests.
    fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }

    fn is_switched(&self) -> bool {
        self.switched.load(Ordering::Acquire)
    }

    /// When the last request ended; `None` while one is open.
    fn quiet_since(&self) -> Option<Instant> {
        let ended = self.ended.load(Ordering::Acquire);
        let quiet = self.asked.load(Ordering::Relaxed) == ended;
        let last_end = Duration::from_millis(self.last_end_ms.load(Ordering::Relaxed));
        quiet.then(|| self.began + last_end)
    }

    /// Whether no request has been open for this long, and no answer waits for its client.
    pub(crate) fn is_quiet_for(&self, time: Duration) -> bool {
        let waits = self.is_writing.load(Ordering::Relaxed) || !self.waits().is_empty();
        let is_quiet = |since: Instant| since.elapsed() >= time;
        !waits && !self.is_switched() && self.quiet_since().is_some_and(is_quiet)
    }

    fn end(&self, answered: bool) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_end_ms.store(now, Ordering::Relaxed);
        let ended = self.ended.fetch_add(1, Ordering::Release) + 1;
        if answered {
            return;
        }
        let taken_back = self.taken_back.fetch_add(1, Ordering::Relaxed) + 1;
        if taken_back > ended.saturating_sub(taken_back).saturating_add(RESETS_MAX) {
            self.flooded.store(true, Ordering::Relaxed);
        }
    }
}

/// An answer that waits for its client.
#[derive(Debug)]
struct Wait {
    talk: Arc<Talk>,
    since: (Instant, u64),
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.talk.waits().remove(&self.since);
    }
}

/// A piece of an answer, which waits until the connection has let go of it.
struct Piece {
    bytes: Bytes,
    _wait: Wait,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request, until its answer was sent or nobody wants it any more.
#[derive(Debug)]
pub(crate) struct Open {
    talk: Arc<Talk>,
    answered: bool,
    is_http2: bool,
}

impl Open {
    /// From now on the bytes are those of another protocol.
    pub(crate) fn switch(&self) {
        self.talk.switched.store(true, Ordering::Release);
    }

    /// An answer that keeps the request open until all of it was taken.
    pub(crate) fn over<B: Body>(mut self, body: B) -> Answering<B> {
        self.answered = body.is_end_stream();
        // What HTTP/1.1 does not get rid of is seen where it is written.
        let waits = self.is_http2 && !self.answered;
        Answering {
            body,
            rest: Bytes::new(),
            wait: waits.then(|| self.talk.wait()),
            open: self,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.talk.end(self.answered);
    }
}

/// The body of an answer on its way out.
///
/// On an HTTP/2 connection every answer has a window of its own, and one that a client keeps shut
/// holds its answer in memory while the connection looks alive.
pub(crate) struct Answering<B> {
    body: B,
    /// What is left of a frame that goes out in pieces.
    rest: Bytes,
    /// While the client has no room for more.
    wait: Option<Wait>,
    open: Open,
}

impl<B: Body> Answering<B> {
    /// The next piece of what is left.
    fn piece(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        let talk = &self.open.talk;
        let is_over = self.rest.is_empty() && self.body.is_end_stream();
        self.open.answered = is_over;
        self.wait = (!is_over).then(|| talk.wait());
        Bytes::from_owner(Piece {
            bytes,
            _wait: talk.wait(),
        })
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answering<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // Whoever asks for more has room for it.
        self.wait = None;
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.piece()))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if self.open.is_http2
            && let Some(Ok(data)) = frame
        {
            return Poll::Ready(Some(Ok(match data.into_data() {
                Ok(data) => {
                    self.rest = data;
                    Frame::data(self.piece())
                }
                Err(trailers) => {
                    self.open.answered = true;
                    trailers
                }
            })));
        }
        // An error is the upstream's doing: the client has not taken anything back.
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.open.answered = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// How long a client may keep others waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a head, from its first byte.
    pub(crate) head: Duration,
    /// For the next request.
    pub(crate) idle: Duration,
    /// For a client that takes nothing of its answer.
    pub(crate) answer: Duration,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The rest of a head.
    Head,
    /// The next request. Without one the connection ends.
    Request,
    /// The same of an HTTP/2 client: without one it is told that the connection ends.
    Http2Request,
    /// A client that takes something of its answer.
    Taking,
}

/// A connection from a client.
pub(crate) struct Inbound<I> {
    stream: I,
    framing: Framing,
    talk: Arc<Talk>,
    patience: Patience,
    /// When the head that is on its way began.
    head_began: Instant,
    /// How much of what follows a spoilt byte was given to hyper.
    end_given: usize,
    /// Made when there is something to wait for; set again only when it has gone off.
    timer: Option<Pin<Box<Sleep>>>,
    /// While nothing can be written.
    write_timer: Option<Pin<Box<Sleep>>>,
    /// Its place among the connections, also when it speaks another protocol by now.
    _place: OwnedSemaphorePermit,
}

impl<I> Inbound<I> {
    pub(crate) fn new(
        stream: I,
        talk: Arc<Talk>,
        patience: Patience,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            stream,
            framing: Framing::new(),
            head_began: talk.began,
            end_given: 0,
            talk,
            patience,
            timer: None,
            write_timer: None,
            _place: place,
        }
    }

    /// Looks at what was read behind `before`, and spoils it where it is ambiguous.
    fn look(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        if self.framing.phase() == Phase::Over {
            return;
        }
        if self.talk.is_switched() {
            self.framing = Framing::other();
            return;
        }
        let was = self.framing.phase();
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some(at) = self.framing.look(read) {
            tracing::debug!("a request that can be read in two ways is refused");
            if let Some(byte) = buffer.filled_mut().get_mut(before + at) {
                *byte = SPOILT;
            }
            buffer.set_filled(before + at + 1);
        }
        if was != Phase::Head && self.framing.phase() == Phase::Head {
            self.head_began = Instant::now();
        }
    }

    /// What hyper reads after a spoilt byte.
    fn end(&mut self, end: &[u8], buffer: &mut ReadBuf<'_>) {
        let rest = end.get(self.end_given..).unwrap_or_default();
        let some = rest.get(..buffer.remaining()).unwrap_or(rest);
        buffer.put_slice(some);
        self.end_given += some.len();
    }

    /// When the wait for the next byte ends, if it has an end, and what it is for.
    fn deadline(&self) -> Option<(Instant, Awaited)> {
        if self.talk.is_switched() {
            return None;
        }
        if let Some(end) = self.talk.must_take_until(self.patience.answer) {
            return Some((end, Awaited::Taking));
        }
        let quiet_since = self.talk.quiet_since()?;
        match self.framing.phase() {
            // hyper reads on while a request is answered: a head waits for that, too.
            Phase::Head => {
                let began = self.head_began.max(quiet_since);
                Some((began + self.patience.head, Awaited::Head))
            }
            Phase::Between => Some((quiet_since + self.patience.idle, Awaited::Request)),
            Phase::Body => None,
            // HTTP/2: what has switched is out already, and what was refused reads no more. An upload
            // that goes on after its answer is no request any more, and ends with the connection.
            Phase::Over => Some(self.last_call(quiet_since + self.patience.idle)),
        }
    }

    /// A client that was told has as long as for a head to end the connection by itself.
    fn last_call(&self, end: Instant) -> (Instant, Awaited) {
        if self.talk.is_over() {
            return (end + self.patience.head, Awaited::Request);
        }
        (end, Awaited::Http2Request)
    }

    /// Waits for the deadline. The end of a connection that nobody uses is an end; a head or a client
    /// that did not come is an error.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some((end, awaited)) = self.deadline() else {
                return Poll::Pending;
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            if timer.deadline() > end {
                timer.as_mut().reset(end);
            }
            ready!(timer.as_mut().poll(context));
            if Instant::now() < end {
                // It was set for an earlier request.
                timer.as_mut().reset(end);
                continue;
            }
            return Poll::Ready(match awaited {
                Awaited::Head => Err(late("the head did not come in time")),
                Awaited::Taking => Err(late(NOT_TAKEN)),
                Awaited::Request => Ok(()),
                Awaited::Http2Request => {
                    self.talk.is_over.store(true, Ordering::Relaxed);
                    // Whoever polls this looks, and tells the client.
                    context.waker().wake_by_ref();
                    continue;
                }
            });
        }
    }

    /// What came of a write, or the end of a client that takes nothing any more. Other protocols have
    /// other ideas of that.
    fn wrote<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() || self.talk.is_switched() {
            if self.write_timer.take().is_some() {
                self.talk.is_writing.store(false, Ordering::Relaxed);
            }
            return written;
        }
        self.talk.is_writing.store(true, Ordering::Relaxed);
        let patience = self.patience.answer;
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(late(NOT_TAKEN)))
    }
}

const NOT_TAKEN: &str = "the client did not take its answer in time";

fn late(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<I: AsyncRead + Unpin> AsyncRead for Inbound<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(end) = self.framing.refusal() {
            self.end(end, buffer);
            return Poll::Ready(Ok(()));
        }
        if self.talk.is_flooded() {
            tracing::warn!("a client took back too many requests; its connection is closed");
            let flood = io::Error::new(io::ErrorKind::ConnectionAborted, "too many resets");
            return Poll::Ready(Err(flood));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                self.look(buffer, before);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => self.poll_deadline(context),
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Inbound<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.wrote(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wrote(context, shut_down)
    }
}
