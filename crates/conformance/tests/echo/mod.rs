//! A server that answers with what it was sent, a proxy before it, and a client.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use onlyonce_conformance::FaultProxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Far more than loopback takes. What must *not* arrive is checked by counts, not by waiting.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that answers every byte with itself, and tells what it was sent.
pub(crate) struct Echo {
    address: SocketAddr,
    received: watch::Receiver<Vec<u8>>,
    ended: watch::Receiver<u32>,
}

impl Echo {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received_sender, received) = watch::channel(Vec::new());
        let (ended_sender, ended) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (received, ended) = (received_sender.clone(), ended_sender.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 1_024];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        received.send_modify(|all| all.extend_from_slice(&bytes[..count]));
                        if stream.write_all(&bytes[..count]).await.is_err() {
                            break;
                        }
                    }
                    ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self {
            address,
            received,
            ended,
        }
    }

    /// Waits until the server was sent exactly this.
    pub(crate) async fn until_received(&mut self, expected: &[u8]) {
        let met = self.received.wait_for(|received| received == expected);
        drop(
            timeout(PATIENCE, met)
                .await
                .expect("sent to the server")
                .unwrap(),
        );
    }

    pub(crate) async fn until_ended(&mut self, connections: u32) {
        let met = self.ended.wait_for(|ended| *ended == connections);
        drop(
            timeout(PATIENCE, met)
                .await
                .expect("ended at the server")
                .unwrap(),
        );
    }
}

pub(crate) async fn start() -> (Echo, FaultProxy) {
    let echo = Echo::start().await;
    let proxy = FaultProxy::start(echo.address).unwrap();
    (echo, proxy)
}

pub(crate) async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Everything until the end of the stream, and how it ended.
pub(crate) async fn rest(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut bytes));
    let end = end.await.expect("an end");
    (bytes, end.err().map(|error| error.kind()))
}

pub(crate) async fn exact(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    let all = timeout(PATIENCE, stream.read_exact(&mut read));
    all.await.expect("enough bytes").unwrap();
    read
}
