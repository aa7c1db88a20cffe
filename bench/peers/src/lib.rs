//! What the handlers of the peers have in common: the answer, the port and the runtime.
//!
//! Each peer runs in a process of its own that the benchmark starts with a port and ends itself.

use std::net::{Ipv4Addr, SocketAddr};

/// What every handler of the benchmark answers: 1 KB.
pub static ANSWER: [u8; 1024] = [b'x'; 1024];

/// Runs a server on the loopback port that the only argument names.
///
/// # Panics
/// Without a port, or when there can be no runtime.
pub fn serve<F: Future>(server: impl FnOnce(SocketAddr) -> F) {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port = port.expect("the only argument is a port");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(server((Ipv4Addr::LOCALHOST, port).into()));
}
