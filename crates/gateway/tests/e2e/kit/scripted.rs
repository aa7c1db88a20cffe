//! An upstream that does what a test tells it to, byte by byte.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;

use super::{Message, Wire};

/// The requests that a scripted upstream has read whole: its effects.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Message>>>);

impl Seen {
    /// Reads the next request and remembers it.
    pub(crate) async fn request(&self, wire: &mut Wire) -> Option<Message> {
        let request = wire.message().await?;
        self.0.lock().unwrap().push(request.clone());
        Some(request)
    }

    /// All requests so far.
    pub(crate) fn all(&self) -> Vec<Message> {
        self.0.lock().unwrap().clone()
    }

    /// How often a key was executed.
    pub(crate) fn count(&self, key: &str) -> usize {
        let all = self.all();
        let with_key = all
            .iter()
            .filter(|request| request.header("idempotency-key") == key);
        with_key.count()
    }
}

/// A scripted upstream. Runs until the test ends.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Seen,
}

impl Scripted {
    /// Plays the script on every connection.
    pub(crate) async fn start<F, Playing>(script: F) -> Self
    where
        F: Fn(Wire, Seen) -> Playing + Send + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self::on(listener, script)
    }

    /// The same where the port is known already.
    pub(crate) fn on<F, Playing>(listener: TcpListener, script: F) -> Self
    where
        F: Fn(Wire, Seen) -> Playing + Send + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("an address");
        let seen = Seen::default();
        let kept = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(script(Wire::new(stream), kept.clone()));
            }
        });
        Self { address, seen }
    }
}
