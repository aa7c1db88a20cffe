//! An upstream that plays a provider: it misbehaves once, and otherwise keeps its promises.
//!
//! Each effect is on the disk before its answer is on the wire. As the real providers do, it
//! dedupes by the key: a key that has had its effect gets the same object again. So the witness
//! counts two effects if one operation came with two keys. One that does not dedupe has an effect
//! for every request that arrives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onlyonce_conformance::Witness;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::dialects::{Dialect, Reply};
use crate::front::Attempts;
use crate::kit::{Message, Wire, soon};

/// What becomes of the first request. All later ones are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It is executed, and the connection is closed without an answer.
    Drop,
    /// It is executed, and the connection is reset.
    Reset,
    /// It is executed, and answered when the client has come back.
    Slow,
    /// It is not executed, and answered with a 500.
    FailBefore,
    /// It is executed, and answered with a 500.
    FailAfter,
}

/// A provider that is running.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    dialect: Dialect,
    dedupes: bool,
    fault: Fault,
    attempts: Attempts,
    witness: Witness,
    dispatches: AtomicUsize,
    refusals: Mutex<Vec<String>>,
    done: Mutex<BTreeMap<String, Reply>>,
    _folder: TempDir,
}

impl Provider {
    pub(crate) async fn start(
        dialect: Dialect,
        dedupes: bool,
        fault: Fault,
        attempts: Attempts,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let folder = tempfile::tempdir().expect("a folder");
        let inner = Arc::new(Inner {
            dialect,
            dedupes,
            fault,
            attempts,
            witness: Witness::open(folder.path().join("effects")).expect("a witness"),
            dispatches: AtomicUsize::new(0),
            refusals: Mutex::default(),
            done: Mutex::default(),
            _folder: folder,
        });
        let serving = Arc::clone(&inner);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inner = Arc::clone(&serving);
                tokio::spawn(async move { inner.serve(Wire::new(stream)).await });
            }
        });
        Self { address, inner }
    }

    /// How much was executed in all.
    pub(crate) fn effects(&self) -> usize {
        self.inner.witness.total().expect("a count")
    }

    /// How many writes arrived.
    pub(crate) fn dispatches(&self) -> usize {
        self.inner.dispatches.load(Ordering::SeqCst)
    }

    /// Why requests were not let in.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.inner.refusals.lock().unwrap().clone()
    }
}

impl Inner {
    async fn serve(&self, mut wire: Wire) -> Option<()> {
        loop {
            let request = wire.message().await?;
            let reply = if let Err(refusal) = self.dialect.admits(&request) {
                self.refusals.lock().unwrap().push(refusal);
                self.dialect.refused()
            } else if let Some(found) = self.dialect.fetched(&request) {
                found
            } else {
                let number = self.dispatches.fetch_add(1, Ordering::SeqCst);
                let fault = if number == 0 { self.fault } else { Fault::None };
                match fault {
                    Fault::FailBefore => self.dialect.failed(),
                    Fault::FailAfter => {
                        self.execute(&request);
                        self.dialect.failed()
                    }
                    Fault::Drop => {
                        self.execute(&request);
                        return None;
                    }
                    Fault::Reset => {
                        self.execute(&request);
                        wire.reset();
                        return None;
                    }
                    Fault::Slow => {
                        let reply = self.execute(&request);
                        let mut attempts = self.attempts.subscribe();
                        let back = attempts.wait_for(|count| *count > 1);
                        soon(back).await.expect("a front");
                        reply
                    }
                    Fault::None => self.execute(&request),
                }
            };
            if !wire.send(reply.bytes()).await {
                return None;
            }
        }
    }

    /// The effect, unless this key had it, and what the provider says about it.
    fn execute(&self, request: &Message) -> Reply {
        let key = self.dialect.key(request);
        let mut done = self.done.lock().unwrap();
        if let Some(first) = done.get(&key).filter(|_| self.dedupes) {
            return self.dialect.repeated(first);
        }
        self.witness.record(&key).expect("a record");
        let reply = self.dialect.created(request);
        done.insert(key, reply.clone());
        reply
    }
}
