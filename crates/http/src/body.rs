//! Bodies that are whole, streaming, or begun and then streaming.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::select;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use onlyonce_engine::Runtime;
use onlyonce_store::Store;
use pin_project_lite::pin_project;

use crate::ending::Ending;
use crate::room::Room;
use crate::service::Guard;

/// Any error of a body or a service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that did not come in time. A request whose body fails with it is answered with 408.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyTimeout {
    /// Nothing came for so long.
    Silent(Duration),
    /// It was not all there after so long.
    Total(Duration),
}

impl std::fmt::Display for BodyTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent(time) => write!(f, "nothing came for {time:?}"),
            Self::Total(time) => write!(f, "the body was not all there after {time:?}"),
        }
    }
}

impl std::error::Error for BodyTimeout {}

pin_project! {
    /// A body that may have been read already: whole, streaming, or a beginning and a stream.
    #[derive(Debug)]
    pub struct Body<B> {
        // What was read and not yet given on.
        read: VecDeque<Bytes>,
        trailers: Option<HeaderMap>,
        // What was not read.
        #[pin]
        rest: Option<B>,
        // Who wants to know how it ends.
        ending: Option<Box<Ending>>,
    }
}

impl<B> Body<B> {
    /// A body that has not been touched.
    #[must_use]
    pub fn streaming(body: B) -> Self {
        Self {
            read: VecDeque::new(),
            trailers: None,
            rest: Some(body),
            ending: None,
        }
    }

    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self::whole(Bytes::new(), None)
    }

    /// A body that is all there.
    pub(crate) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        let read = if data.is_empty() {
            VecDeque::new()
        } else {
            VecDeque::from([data])
        };
        Self {
            read,
            trailers,
            rest: None,
            ending: None,
        }
    }

    /// A body that has not been touched, and whose end somebody wants to know.
    pub(crate) fn watched(body: B, mut ending: Ending) -> Self
    where
        B: HttpBody,
    {
        ending.begins(&body.size_hint(), body.is_end_stream());
        Self {
            ending: Some(Box::new(ending)),
            ..Self::streaming(body)
        }
    }

    /// Whether all of it is there, so that sending it waits for nobody.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    /// A body whose beginning was read.
    pub(crate) fn begun(read: VecDeque<Bytes>, rest: B) -> Self {
        Self {
            read,
            trailers: None,
            rest: Some(rest),
            ending: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        if let Some(data) = this.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match this.rest.as_mut().as_pin_mut() {
            Some(mut rest) => {
                let polled = rest.as_mut().poll_frame(context);
                if let (Some(ending), Poll::Ready(frame)) = (this.ending, &polled) {
                    ending.saw(frame.as_ref(), rest.is_end_stream());
                }
                polled
            }
            None => Poll::Ready(
                this.trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            ),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self.read.iter().map(|data| data.len() as u64).sum();
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(read + rest.lower());
        // An exact length makes HTTP/1.1 leave out the chunks, and with them the trailers.
        if let Some(upper) = rest.upper().filter(|_| self.trailers.is_none()) {
            hint.set_upper(read + upper);
        }
        hint
    }
}

/// What reading a body up to a limit came to.
pub(crate) enum Collected<B> {
    /// All of it.
    Whole(Bytes, Option<HeaderMap>),
    /// More than the limit: what was read, and the rest.
    TooLarge(VecDeque<Bytes>, B),
    /// More than there is room for: the same.
    NoRoom(VecDeque<Bytes>, B),
}

impl<S: Store, R: Runtime> Guard<S, R> {
    /// Reads the body of a guarded request, within its limits of size and time.
    pub(crate) async fn read<B>(
        &self,
        body: B,
        bytes_max: usize,
        room: &mut Room,
    ) -> Result<Collected<B>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let limit = self.config.body_total_timeout;
        let mut reading = pin!(collect(body, bytes_max, |bytes| room.holds(bytes)));
        // Made when there is something to wait for, so that a body that is there costs no timer.
        let mut end = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(read) = reading.as_mut().poll(context) {
                return Poll::Ready(read.map_err(Into::into));
            }
            let end = end.get_or_insert_with(|| Box::pin(self.engine.sleep(limit)));
            let late = || Err(BodyTimeout::Total(limit).into());
            end.as_mut().poll(context).map(|()| late())
        })
        .await
    }
}

/// How much of a refused request is still read, and for how long.
const HEARD_BYTES_MAX: usize = 64 * 1024;
const HEARD_TIME_MAX: Duration = Duration::from_secs(1);

impl<S: Store, R: Runtime> Guard<S, R> {
    /// Goes on reading a small request that is refused, while its client is answered. A connection that
    /// is closed while somebody still sends takes the refusal along, and many never see why.
    pub(crate) fn hear_out<B>(&self, request: &Parts, body: B)
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        // Whoever asks before sending is told to send by the first who reads.
        let asks_first = request.headers.contains_key(header::EXPECT);
        if body.is_end_stream() || announced > HEARD_BYTES_MAX || asks_first {
            return;
        }
        let engine = self.engine.clone();
        self.engine.spawn(async move {
            select(pin!(drain(body)), pin!(engine.sleep(HEARD_TIME_MAX))).await;
        });
    }
}

async fn drain<B: HttpBody<Data = Bytes> + Unpin>(mut body: B) {
    let mut heard = 0_usize;
    while let Some(Ok(frame)) = next_frame(&mut body).await {
        heard += frame.data_ref().map_or(0, Bytes::len);
        if heard > HEARD_BYTES_MAX {
            return;
        }
    }
}

/// Smaller pieces are copied together. A piece is a part of the buffer that it was read into, and keeps
/// all of it: a body that comes byte by byte would take many times the memory that it has bytes.
const PIECE_BYTES_MIN: usize = 4 * 1024;

/// The pieces of a body, in order.
#[derive(Default)]
struct Pieces {
    whole: VecDeque<Bytes>,
    /// Of small ones.
    last: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        self.bytes = self.bytes.saturating_add(piece.len());
        // Most bodies are one piece, which nobody copies.
        let is_first = self.whole.is_empty();
        if piece.len() >= PIECE_BYTES_MIN || is_first {
            self.end_last();
            self.whole.push_back(piece);
        } else {
            self.last.extend_from_slice(&piece);
        }
    }

    fn end_last(&mut self) {
        if !self.last.is_empty() {
            self.whole.push_back(self.last.split().freeze());
        }
    }

    fn all(mut self) -> VecDeque<Bytes> {
        self.end_last();
        self.whole
    }
}

/// Reads a body, but not more than `bytes_max`, and no more than `has_room` allows. A body that
/// announces too much is not read at all.
pub(crate) async fn collect<B>(
    mut body: B,
    bytes_max: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<Collected<B>, B::Error>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let (mut read, mut trailers) = (Pieces::default(), None);
    if announced > bytes_max {
        return Ok(Collected::TooLarge(VecDeque::new(), body));
    }
    while let Some(frame) = next_frame(&mut body).await {
        match frame?.into_data() {
            Ok(data) => {
                read.push(data);
                if read.bytes > bytes_max {
                    return Ok(Collected::TooLarge(read.all(), body));
                }
                if !has_room(read.bytes) {
                    return Ok(Collected::NoRoom(read.all(), body));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let bytes = read.bytes;
    Ok(Collected::Whole(join(read.all(), bytes), trailers))
}

async fn next_frame<B: HttpBody + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// One piece, copied only if there were several.
fn join(mut read: VecDeque<Bytes>, length: usize) -> Bytes {
    if read.len() <= 1 {
        return read.pop_front().unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(length);
    for data in &read {
        joined.extend_from_slice(data);
    }
    joined.freeze()
}

/// A body that is all there.
impl<B> From<Bytes> for Body<B> {
    fn from(data: Bytes) -> Self {
        Self::whole(data, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(sizes: impl IntoIterator<Item = usize>) -> VecDeque<Bytes> {
        let (mut pieces, mut next) = (Pieces::default(), 0_u8);
        for size in sizes {
            let piece: Vec<u8> = (0..size)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            pieces.push(piece.into());
        }
        pieces.all()
    }

    fn numbered(bytes: usize) -> Vec<u8> {
        (1..=bytes)
            .map(|at| u8::try_from(at % 256).unwrap_or_default())
            .collect()
    }

    /// Whoever sends a body byte by byte must not get forty times its memory for it.
    #[test]
    fn many_small_pieces_are_kept_as_few() {
        for (sizes, kept) in [
            (vec![1; 100_000], 2),
            (vec![PIECE_BYTES_MIN; 5], 5),
            (vec![10, 1, PIECE_BYTES_MIN, 1, 1, PIECE_BYTES_MIN, 1], 6),
            (vec![75], 1),
            (vec![], 0),
        ] {
            let bytes = sizes.iter().sum();
            let pieces = pieces(sizes);
            assert_eq!(pieces.len(), kept);
            assert_eq!(join(pieces, bytes), numbered(bytes));
        }
    }
}
