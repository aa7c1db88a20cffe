//! Counts round trips: a proxy that sees whose turn it is.
//!
//! With one caller a round trip begins when the client sends after the server has spoken, or
//! first on a connection. That holds for every protocol, and sees what a store does in secret.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A proxy before one server, for as long as the runtime lives.
pub(crate) struct Turns {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Turns {
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        tokio::spawn(accept(listener, server, Arc::clone(&count)));
        Self { address, count }
    }

    /// How many there were since the last time.
    pub(crate) fn take(&self) -> u64 {
        self.count.swap(0, Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, count: Arc<AtomicU64>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(server).await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (count, clients_turn) = (Arc::clone(&count), Arc::new(AtomicBool::new(true)));
        let turn = Arc::clone(&clients_turn);
        tokio::spawn(copy(from_client, to_server, move || {
            count.fetch_add(
                u64::from(turn.swap(false, Ordering::SeqCst)),
                Ordering::SeqCst,
            );
        }));
        tokio::spawn(copy(from_server, to_client, move || {
            clients_turn.store(true, Ordering::SeqCst);
        }));
    }
}

/// Passes everything on, after it was noted.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, note: impl Fn() + Send) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer).await {
        note();
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
