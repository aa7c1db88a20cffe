//! A request's place on a connection of several: who has one, who wants an answer, and how far each
//! request has gone out.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use onlyonce_http::BoxError;
use tokio::time::Instant;

use super::{RequestBody, Room, lock};

/// What the requests on a connection have in common.
pub(crate) struct Places {
    /// How many answers somebody wants.
    wanted: AtomicUsize,
    /// When an answer was last done with, or a request last went on.
    moved_at: Mutex<Instant>,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicUsize::new(0),
            moved_at: Mutex::new(Instant::now()),
        }
    }

    /// When an answer was last done with, or a request last went on, if nobody wants any answer now.
    pub(crate) fn unwanted_since(&self) -> Option<Instant> {
        let is_wanted = self.wanted.load(Ordering::Acquire) > 0;
        (!is_wanted).then(|| *lock(&self.moved_at))
    }

    fn note_move(&self) {
        *lock(&self.moved_at) = Instant::now();
    }
}

/// A request's place on a connection. It takes it for as long as its answer or its own body goes on.
pub(crate) struct Place {
    all: Arc<Places>,
    /// Of its body, by the connection, to be written next.
    taken_bytes: AtomicU64,
    /// Whether the request's answer is waited for no more, and never came.
    is_given_up: AtomicBool,
}

impl Place {
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// What has not been sent of the request by now is not to be sent. It may wait within the
    /// connection for an API that takes fewer requests at once, long after it was given up.
    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    fn note_taken(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.all.note_move();
    }
}

/// The place of a request whose answer somebody wants.
pub(crate) struct Stay {
    place: Arc<Place>,
    is_answered: bool,
}

impl Stay {
    pub(crate) fn new(places: &Arc<Places>) -> Self {
        places.wanted.fetch_add(1, Ordering::AcqRel);
        let place = Place {
            all: Arc::clone(places),
            taken_bytes: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
        };
        Self {
            place: Arc::new(place),
            is_answered: false,
        }
    }

    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.place)
    }

    /// Notes that the answer has begun: the request may go on now, whoever reads it.
    pub(crate) fn note_answer(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if !self.is_answered {
            self.place.give_up();
        }
        // In this order: whoever sees that nothing is wanted looks at the time.
        self.place.all.note_move();
        self.place.all.wanted.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request body that keeps its request's place on the connection, counts there, and keeps its room.
pub(crate) struct Placed {
    body: RequestBody,
    /// The rest of what came of it.
    rest: Bytes,
    has_begun: bool,
    place: Option<Arc<Place>>,
    _room: Option<Room>,
}

impl Placed {
    pub(crate) fn new(body: RequestBody, place: Option<Arc<Place>>, room: Option<Room>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            has_begun: false,
            place,
            _room: room,
        }
    }

    pub(crate) fn into_body(self) -> RequestBody {
        self.body
    }
}

impl Body for Placed {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        let Some(place) = self.place.clone() else {
            let alone = |bytes| Piece { bytes, place: None };
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
            return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(alone))));
        };
        if place.is_given_up.load(Ordering::Acquire) {
            return Poll::Ready(Some(Err("the request was given up".into())));
        }
        if self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => {
                        let other = frame.into_trailers().map(Frame::trailers);
                        return Poll::Ready(other.ok().map(Ok));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        self.has_begun = true;
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        let piece = Piece {
            bytes: self.rest.split_to(length),
            place: Some(place),
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        // Among others its end goes out by itself, so that it does not go with what waits for room.
        !self.has_begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// A connection of several gets a body in parts of this size: of what it has been given, nothing can be
/// taken back.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// A part of a body. Counted when it leaves, and not when it is asked for: what the API gives no room for
/// waits within the connection, and may never leave.
pub(crate) struct Piece {
    bytes: Bytes,
    place: Option<Arc<Place>>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(place) = &self.place {
            place.note_taken(count);
        }
    }
}
