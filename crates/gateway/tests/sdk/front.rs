//! What stands between an SDK and the gateway: it counts attempts, and can lose an answer.
//!
//! Bytes pass as they are. The gateway gets a connection for every request, so that an answer
//! belongs to an attempt; the SDK may keep its own.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How many writes the SDK has sent so far. Reads do not count.
pub(crate) type Attempts = watch::Sender<usize>;

/// A front in front of this gateway. It loses the answer to the first attempt, if told to.
pub(crate) async fn start(
    gateway: SocketAddr,
    attempts: Attempts,
    loses_first: bool,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let attempts = attempts.clone();
            // An error is an end of the connection, which is all that there is to do about it.
            tokio::spawn(async move { relay(client, gateway, &attempts, loses_first).await });
        }
    });
    address
}

async fn relay(
    client: TcpStream,
    gateway: SocketAddr,
    attempts: &Attempts,
    loses_first: bool,
) -> io::Result<()> {
    let mut client = Raw::new(client);
    loop {
        let request = client.message().await?;
        let writes = request.starts_with(b"POST ");
        attempts.send_modify(|count| *count += usize::from(writes));
        let attempt = *attempts.borrow();
        let mut server = Raw::new(TcpStream::connect(gateway).await?);
        server.stream.write_all(&request).await?;
        // A client that has given up takes its connection along, as it would without a front.
        let answer = tokio::select! {
            answer = server.message() => answer?,
            _ = client.stream.readable() => return client.ended().await,
        };
        if loses_first && writes && attempt == 1 {
            return Ok(());
        }
        client.stream.write_all(&answer).await?;
    }
}

/// A connection that is read message by message and byte for byte.
struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    fn new(stream: TcpStream) -> Self {
        let read = Vec::new();
        Self { stream, read }
    }

    /// The next message, head and body, as it came.
    async fn message(&mut self) -> io::Result<Vec<u8>> {
        let head = self.find(0, b"\r\n\r\n").await? + 4;
        let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let header = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find_map(|(known, value)| (known == name).then(|| value.trim().to_owned()))
        };
        let end = if header("transfer-encoding").is_some() {
            // None of these bodies has this within it.
            self.find(head - 2, b"\r\n0\r\n\r\n").await? + 7
        } else {
            let length = header("content-length").unwrap_or_else(|| "0".into());
            head + length.parse::<usize>().expect("a length")
        };
        while self.read.len() < end {
            self.more().await?;
        }
        let rest = self.read.split_off(end);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    /// Whether a readable connection is at its end. None of the SDKs sends before it has an
    /// answer.
    async fn ended(&mut self) -> io::Result<()> {
        let count = self.stream.read_buf(&mut self.read).await?;
        assert_eq!(count, 0, "a request before the answer to the last");
        Ok(())
    }

    async fn find(&mut self, from: usize, mark: &[u8]) -> io::Result<usize> {
        loop {
            let unread = self.read.get(from..).unwrap_or_default();
            let found = unread.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                return Ok(from + at);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
