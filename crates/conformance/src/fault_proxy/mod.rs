//! A TCP proxy on loopback that fails on command.
//!
//! It stands between a client and a server of a test, and does what a network does on a bad day:
//! see [`Fault`] and [`Plan`]. A plan can be changed at any time, and holds for whatever is sent
//! from then on, also on connections that are already open. What the proxy did can be awaited
//! ([`FaultProxy::until`]), so a test need not sleep.
//!
//! It understands no protocol, and it is no model of latency: it is there to break things at an
//! exact place.

mod plan;
mod relay;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

pub use plan::{Fault, Plan, Way};

/// Connections that wait to be accepted. More than a test opens at once.
const BACKLOG: u32 = 1_024;

/// What the proxy has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that reached the server.
    pub connections: u64,
    /// Those of them that are over.
    pub ended: u64,
    /// Bytes that the server was sent.
    pub bytes_to_server: u64,
    /// Bytes that the client was sent.
    pub bytes_to_client: u64,
    /// How often a fault did something: a piece held, slowed or thrown away, a connection reset
    /// or closed, a port closed.
    pub faults: u64,
}

/// A proxy that is running. Dropping it ends every connection and frees its port.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Shared,
    acceptor: JoinHandle<()>,
    /// Asks the acceptor to look at the plan, and tells when it has.
    applied: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

/// What the acceptor and the connections share.
#[derive(Clone)]
struct Shared {
    plan: watch::Sender<Plan>,
    counts: watch::Sender<Counts>,
}

impl Shared {
    fn fault_fired(&self) {
        self.counts.send_modify(|counts| counts.faults += 1);
    }
}

impl FaultProxy {
    /// Starts a proxy to `target` on a port of its own. Everything passes until told otherwise.
    ///
    /// # Errors
    /// When no port can be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        // A socket that is bound and never listens keeps the port while connections are
        // refused; nobody else can take it meanwhile.
        let reserved = socket((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = reserved.local_addr()?;
        let listener = socket(address)?.listen(BACKLOG)?;
        let shared = Shared {
            plan: watch::Sender::new(Plan::PASS),
            counts: watch::Sender::new(Counts::default()),
        };
        let (applied, asked) = mpsc::unbounded_channel();
        let acceptor = Acceptor {
            target,
            reserved,
            shared: shared.clone(),
            asked,
            connections: JoinSet::new(),
        };
        Ok(Self {
            address,
            shared,
            acceptor: tokio::spawn(acceptor.run(listener)),
            applied,
        })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the plan, and returns when it holds: for every byte sent from now on, and for
    /// every connection made from now on.
    pub async fn set(&self, plan: Plan) {
        self.shared.plan.send_replace(plan);
        let (done, applied) = oneshot::channel();
        // Either fails only when the acceptor is gone, with the runtime that it ran on.
        if self.applied.send(done).is_ok() {
            let _ = applied.await;
        }
    }

    /// Lets everything pass again.
    pub async fn mend(&self) {
        self.set(Plan::PASS).await;
    }

    /// The plan that holds now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        *self.shared.plan.borrow()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until what happened meets a condition.
    pub async fn until(&self, condition: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        let met = counts.wait_for(condition).await;
        *met.expect("the proxy holds the sender")
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The connections are the acceptor's, and end with it.
        self.acceptor.abort();
    }
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultProxy")
            .field("address", &self.address)
            .field("plan", &self.plan())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

struct Acceptor {
    target: SocketAddr,
    reserved: TcpSocket,
    shared: Shared,
    asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    connections: JoinSet<()>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let mut listener = Some(listener);
        let mut plan = self.shared.plan.subscribe();
        loop {
            tokio::select! {
                biased;
                asked = self.asked.recv() => {
                    self.apply(&mut listener);
                    match asked {
                        // Nobody may be waiting any more; the plan holds all the same.
                        Some(done) => { let _ = done.send(()); }
                        None => return,
                    }
                }
                Ok(()) = plan.changed() => self.apply(&mut listener),
                accepted = accept(listener.as_ref()) => {
                    if let Ok((client, _)) = accepted {
                        let connection = connection(client, self.target, self.shared.clone());
                        self.connections.spawn(connection);
                    }
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    /// Listens, or does not, as the plan says.
    fn apply(&self, listener: &mut Option<TcpListener>) {
        let refuse = self.shared.plan.borrow().refuse;
        if refuse && listener.take().is_some() {
            self.shared.fault_fired();
        }
        if !refuse && listener.is_none() {
            let address = self.reserved.local_addr().expect("a bound socket");
            let again = socket(address).and_then(|socket| socket.listen(BACKLOG));
            *listener = Some(again.expect("the port is reserved"));
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn connection(client: TcpStream, target: SocketAddr, shared: Shared) {
    match TcpStream::connect(target).await {
        Ok(server) => relay::run(client, server, &shared).await,
        // As far as a proxy can say it: what a client sees that connected to nothing.
        Err(_) => drop(client.set_zero_linger()),
    }
}
