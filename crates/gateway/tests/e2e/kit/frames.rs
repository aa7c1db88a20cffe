//! An HTTP/2 upstream by hand: it knows frames and no more, so it can break every rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use super::Wire;

const PREFACE_BYTES: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 201`, a literal with the name of index 8.
const CREATED: &[u8] = b"\x08\x03201";

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
}

/// An upstream that does one thing for every request, in order, and answers when it has no more
/// to do.
pub(crate) struct Frames {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Frames {
    pub(crate) async fn start(acts: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let (acts, count) = (acts.to_vec(), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acts, count) = (acts.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    let mut connection = Connection(Wire::new(stream));
                    connection.run(&acts, &count).await;
                });
            }
        });
        Self { address, requests }
    }

    /// How many requests were read to their end.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

struct Connection(Wire);

impl Connection {
    async fn run(&mut self, acts: &[Act], count: &AtomicUsize) -> Option<()> {
        self.0.bytes(PREFACE_BYTES).await?;
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
                _ => {}
            }
        }
    }

    async fn act(&mut self, act: Act, stream: u32) -> Option<()> {
        match act {
            Act::Answer => {
                self.write(HEADERS, END_HEADERS, stream, CREATED).await?;
                self.write(DATA, END_STREAM, stream, b"paid").await
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
                self.0.finish().await;
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
        let head = self.0.bytes(9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        self.0.bytes(length).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], head[4], stream))
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<()> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.send(frame).await.then_some(())
    }
}
