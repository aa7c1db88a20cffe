//! An HTTP/2 upstream by hand: it knows frames and no more, so it can break every rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::Wire;

const PREFACE_BYTES: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 201`, a literal with the name of index 8.
const CREATED: &[u8] = b"\x08\x03201";

/// `:status: 400`, index 12.
const REFUSED: &[u8] = b"\x8c";

/// `:status: 206`, index 10.
const PARTIAL: &[u8] = b"\x8a";

/// What a connection takes of every body, and of all, once it is opened.
const OPEN_BYTES: u32 = 1 << 20;

/// How often it goes on with requests that nobody wants any more.
const LATE_ROUNDS: usize = 200;

/// What becomes of one request, once it was read to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// 201, "paid".
    Answer,
    /// Its stream is reset with this code.
    Reset(u32),
    /// The head of an answer and half of its body, then the same.
    HalfThenReset(u32),
    /// The connection ends; the last stream that was processed is so far below this one.
    GoAway { below: u32 },
    /// The connection is closed without a word.
    Close,
    /// Nothing.
    Hold,
    /// The head of an answer that nobody stores, and the beginning of its body.
    Begin,
    /// An answer, after the word that the connection takes no further requests, until it is opened.
    Shut,
    /// An answer, and from then on answers to heads, whatever follows them.
    Haste,
    /// The same with refusals.
    HastyRefusal,
    /// Once so many other requests were taken back: more for each of them, again and again, then an
    /// answer.
    Outlast { taken_back: usize },
}

/// An upstream that does one thing for every request, in order, and answers when it has no more
/// to do.
pub(crate) struct Frames {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    taken_back: Arc<AtomicUsize>,
    opened: Arc<Notify>,
}

impl Frames {
    pub(crate) async fn start(acts: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let taken_back = Arc::new(AtomicUsize::new(0));
        let one = Self {
            address,
            requests: Arc::clone(&requests),
            taken_back: Arc::clone(&taken_back),
            opened: Arc::default(),
        };
        let (acts, opened) = (acts.to_vec(), Arc::clone(&one.opened));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("an option");
                let stream = stream.into_std().expect("a socket");
                let other = stream.try_clone().expect("a handle");
                tokio::spawn(open(other, Arc::clone(&opened)));
                let stream = TcpStream::from_std(stream).expect("a socket");
                let mut connection = Connection {
                    wire: Wire::new(stream),
                    taken_back: Vec::new(),
                    hasty: None,
                    outlasting: None,
                    rounds: 0,
                };
                let (acts, count, taken_back) =
                    (acts.clone(), Arc::clone(&requests), Arc::clone(&taken_back));
                tokio::spawn(async move { connection.run(&acts, &count, &taken_back).await });
            }
        });
        one
    }

    /// Has connections that are shut take requests again, and all of them more of every body.
    pub(crate) fn open(&self) {
        self.opened.notify_waiters();
    }

    /// How many requests were taken back.
    pub(crate) fn taken_back(&self) -> usize {
        self.taken_back.load(Ordering::SeqCst)
    }

    /// How many requests were read to their end.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// How many requests there may be at once.
fn streams_max(count: u32) -> [u8; 6] {
    let [a, b, c, d] = count.to_be_bytes();
    [0, 3, a, b, c, d]
}

/// How much of every body is taken.
fn window(bytes: u32) -> [u8; 6] {
    let [a, b, c, d] = bytes.to_be_bytes();
    [0, 4, a, b, c, d]
}

/// Opens a connection when it is told to, beside whoever reads and writes there.
async fn open(socket: std::net::TcpStream, opened: Arc<Notify>) {
    opened.notified().await;
    let stream = TcpStream::from_std(socket).expect("a socket");
    let settings = [streams_max(100), window(OPEN_BYTES)].concat();
    let settings = frame(SETTINGS, 0, 0, &settings);
    let all = frame(WINDOW_UPDATE, 0, 0, &OPEN_BYTES.to_be_bytes());
    Wire::new(stream).send([settings, all].concat()).await;
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

struct Connection {
    wire: Wire,
    /// Streams.
    taken_back: Vec<u32>,
    /// What it answers heads with, if it does.
    hasty: Option<&'static [u8]>,
    /// How many others it waits for, and its stream.
    outlasting: Option<(usize, u32)>,
    /// How often it has gone on with them.
    rounds: usize,
}

impl Connection {
    async fn run(
        &mut self,
        acts: &[Act],
        count: &AtomicUsize,
        taken_back: &AtomicUsize,
    ) -> Option<()> {
        self.wire.bytes(PREFACE_BYTES).await?;
        self.write(SETTINGS, 0, 0, &[]).await?;
        loop {
            let (kind, flags, stream) = self.read().await?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.write(SETTINGS, ACK, 0, &[]).await?,
                PING if flags & ACK == 0 => self.write(PING, ACK, 0, &[0; 8]).await?,
                HEADERS | DATA if flags & END_STREAM != 0 => {
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    let act = acts.get(number).copied().unwrap_or(Act::Answer);
                    self.act(act, stream).await?;
                }
                HEADERS if self.hasty.is_some() => {
                    let head = self.hasty.unwrap_or_default();
                    self.answer_with(head, stream).await?;
                }
                RST_STREAM => {
                    taken_back.fetch_add(1, Ordering::SeqCst);
                    self.taken_back.push(stream);
                    self.begin_rounds().await?;
                }
                PING if self.rounds > 0 => self.go_on().await?,
                _ => {}
            }
        }
    }

    async fn begin_rounds(&mut self) -> Option<()> {
        match self.outlasting {
            Some((count, _)) if self.rounds == 0 && self.taken_back.len() == count => {
                self.go_on().await
            }
            _ => Some(()),
        }
    }

    /// One round, and a question that is answered when all of it was read.
    async fn go_on(&mut self) -> Option<()> {
        let (count, waiting) = self.outlasting?;
        if self.rounds == LATE_ROUNDS {
            self.rounds = 0;
            self.outlasting = None;
            return self.answer(waiting).await;
        }
        self.rounds += 1;
        for number in 0..count {
            self.write(DATA, 0, self.taken_back[number], b"x").await?;
        }
        self.write(PING, 0, 0, &[1; 8]).await
    }

    async fn answer(&mut self, stream: u32) -> Option<()> {
        self.answer_with(CREATED, stream).await
    }

    async fn answer_with(&mut self, head: &[u8], stream: u32) -> Option<()> {
        self.write(HEADERS, END_HEADERS, stream, head).await?;
        self.write(DATA, END_STREAM, stream, b"paid").await
    }

    async fn act(&mut self, act: Act, stream: u32) -> Option<()> {
        match act {
            Act::Answer => self.answer(stream).await,
            Act::Hold => Some(()),
            Act::Shut => {
                self.write(SETTINGS, 0, 0, &streams_max(0)).await?;
                self.answer(stream).await
            }
            Act::Haste | Act::HastyRefusal => {
                let head = if matches!(act, Act::Haste) {
                    CREATED
                } else {
                    REFUSED
                };
                self.hasty = Some(head);
                self.answer_with(head, stream).await
            }
            Act::Begin => {
                self.write(HEADERS, END_HEADERS, stream, PARTIAL).await?;
                self.write(DATA, 0, stream, b"pa").await
            }
            Act::Outlast { taken_back } => {
                self.outlasting = Some((taken_back, stream));
                Some(())
            }
            Act::Reset(code) => self.reset(stream, code).await,
            Act::HalfThenReset(code) => {
                self.write(HEADERS, END_HEADERS, stream, CREATED).await?;
                self.write(DATA, 0, stream, b"pa").await?;
                self.reset(stream, code).await
            }
            Act::GoAway { below } => {
                let last = (stream - below.min(stream)).to_be_bytes();
                let payload = [last, [0; 4]].concat();
                self.write(GOAWAY, 0, 0, &payload).await?;
                self.wire.finish().await;
                None
            }
            Act::Close => None,
        }
    }

    async fn reset(&mut self, stream: u32, code: u32) -> Option<()> {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes()).await
    }

    /// The next frame's kind, flags and stream.
    async fn read(&mut self) -> Option<(u8, u8, u32)> {
        let head = self.wire.bytes(9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        self.wire.bytes(length).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream))
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<()> {
        let frame = frame(kind, flags, stream, payload);
        self.wire.send(frame).await.then_some(())
    }
}
