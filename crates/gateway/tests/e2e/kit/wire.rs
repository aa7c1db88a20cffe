//! HTTP/1.1 by hand, on either side of the gateway: what is written is exactly what is sent.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::soon;

/// Long enough for an answer that would come at once.
const SILENCE: Duration = Duration::from_millis(300);

/// A connection that reads messages and writes bytes.
pub(crate) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A request or an answer, as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) start: String,
    /// The other lines, names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The status of an answer.
    pub(crate) fn status(&self) -> u16 {
        let status = self.start.split(' ').nth(1).expect("a status");
        status.parse().expect("a status")
    }

    /// All values of a header.
    pub(crate) fn lines(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// A header's only value, or the empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.lines(name);
        assert!(lines.len() < 2, "{name} is there {} times", lines.len());
        lines.first().copied().unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn parse(head: &[u8]) -> Self {
        let head = String::from_utf8_lossy(head).into_owned();
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let start = lines.next().expect("a first line").to_owned();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').expect("a header line");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        let headers = headers.collect();
        Self {
            start,
            headers,
            body: Vec::new(),
        }
    }

    fn has_no_body(&self) -> bool {
        self.start.starts_with("HTTP/") && (self.status() < 200 || self.status() == 204)
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let read = Vec::new();
        Self { stream, read }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = soon(TcpStream::connect(address)).await;
        Self::new(stream.expect("somebody listens"))
    }

    /// Writes bytes. Whoever should read them may be gone: that is for the test to notice.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        soon(self.stream.write_all(bytes.as_ref())).await.is_ok()
    }

    /// The next message; `None` if the connection ends before it is whole.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        soon(async {
            let end = self.find(b"\r\n\r\n").await?;
            let mut message = Message::parse(&self.take(end + 4));
            if message.has_no_body() {
                return Some(message);
            }
            message.body = if message.header("transfer-encoding") == "chunked" {
                self.chunks().await?
            } else if let [length] = message.lines("content-length")[..] {
                let length = length.parse().expect("a length");
                self.fill(length).await?;
                self.take(length)
            } else if message.start.starts_with("HTTP/") {
                while self.more().await.is_some() {}
                std::mem::take(&mut self.read)
            } else {
                Vec::new()
            };
            Some(message)
        })
        .await
    }

    /// Waits until the other side has closed or reset, and gives what it still sent.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        soon(async { while self.more().await.is_some() {} }).await;
        std::mem::take(&mut self.read)
    }

    /// The next message, if there is one before the connection is closed or falls silent.
    pub(crate) async fn rest_or_message(&mut self) -> Option<Message> {
        let next = tokio::time::timeout(SILENCE, self.message()).await;
        next.ok().flatten()
    }

    /// The next message, if it comes within this time. What came of it is kept.
    pub(crate) async fn message_within(&mut self, time: Duration) -> Option<Message> {
        let _ = tokio::time::timeout(time, self.find(b"\r\n\r\n")).await;
        let has_head = self.read.windows(4).any(|window| window == b"\r\n\r\n");
        if has_head { self.message().await } else { None }
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish(&mut self) {
        // The other side may have reset meanwhile.
        let _ = self.stream.shutdown().await;
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().expect("a socket option");
    }

    /// The socket. What was read already is forgotten.
    pub(crate) fn into_inner(self) -> TcpStream {
        self.stream
    }

    /// The next bytes, as many as asked for.
    pub(crate) async fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        soon(self.fill(count)).await?;
        Some(self.take(count))
    }

    async fn more(&mut self) -> Option<()> {
        let count = self.stream.read_buf(&mut self.read).await.ok()?;
        (count > 0).then_some(())
    }

    async fn find(&mut self, mark: &[u8]) -> Option<usize> {
        loop {
            let mut windows = self.read.windows(mark.len());
            if let Some(at) = windows.position(|window| window == mark) {
                return Some(at);
            }
            self.more().await?;
        }
    }

    async fn fill(&mut self, count: usize) -> Option<()> {
        while self.read.len() < count {
            self.more().await?;
        }
        Some(())
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.find(b"\r\n").await?;
            let line = String::from_utf8(self.take(end + 2)).expect("text");
            let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
            self.fill(length + 2).await?;
            body.extend(self.take(length));
            self.take(2);
            if length == 0 {
                return Some(body);
            }
        }
    }
}
