//! The peers that anybody can install, each as its own documentation sets it up, with answers
//! kept for a day and logs off.
//!
//! | peer | where its answers are | what is behind it |
//! |---|---|---|
//! | idempotent-proxy | in memory | the handler of all proxies |
//! | axum-idempotent | in memory, a session for each key | nothing: the handler is in it |
//! | Restate | on disk, synced | the handler as a Restate service, in a process of its own |
//!
//! `scripts/bench-peers` installs them. idempotent-proxy does not mark its replays: that their
//! processor time "with behind" is its own shows that no handler ran.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use crate::gateway::REPLAYED_KEYS;
use crate::gateway::load::{Exchange, Keys, prepare};
use crate::gateway::servers::{ANSWER_BYTES, folder};
use crate::gateway::table::Contestant;
use crate::gateway::wire::{Answer, Request};
use crate::process::{Process, free_port};

/// Until a server that listens does its work: so often, after this time again.
const TRIES: u32 = 600;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The first of the keys that are used while a peer starts: above those that are replayed, below
/// the new ones of the rounds.
const PROBES: u64 = 1 << 31;

/// The peers that have started and hold the keys that are replayed.
pub(crate) struct Peers(Vec<Peer>);

struct Peer {
    /// With new keys, and with known ones.
    names: [&'static str; 2],
    server: Process,
    behind: Behind,
    request: Request,
    /// The status of every answer.
    status: u16,
    marks_replays: bool,
}

/// What a peer relies on.
enum Behind {
    Nothing,
    Upstream,
    Service(Process),
}

impl Peers {
    /// Starts what is installed in the folder, and says what is not measured.
    pub(crate) fn start(installed: Option<&Path>, upstream: &Process, parent: &Path) -> Self {
        let Some(installed) = installed else {
            println!(
                "not measured here: idempotent-proxy, axum-idempotent and Restate; \
                 try: scripts/bench gateway --peers"
            );
            return Self(Vec::new());
        };
        let bin = std::path::absolute(installed.join("bin")).unwrap();
        let all = [
            idempotent_proxy(&bin, upstream, parent),
            axum_idempotent(&bin, parent),
            restate(&bin, parent),
        ];
        let ready = all.into_iter().filter_map(|peer| {
            peer.and_then(Peer::prepared)
                .inspect_err(|why| println!("not measured here: {why}"))
                .ok()
        });
        Self(ready.collect())
    }

    /// All of them, with new keys and with known ones.
    pub(crate) fn contestants<'a>(
        &'a self,
        upstream: &'a Process,
        next: &Rc<Cell<u64>>,
    ) -> Vec<Contestant<'a>> {
        let both = |peer: &'a Peer| {
            let exchanges = [
                peer.exchange(Keys::new_ones(next), false),
                peer.exchange(Keys::the_first(REPLAYED_KEYS), true),
            ];
            let both = peer.names.into_iter().zip(exchanges);
            both.map(|(name, exchange)| {
                let one = Contestant::new(name, exchange, &peer.server);
                match &peer.behind {
                    Behind::Nothing => one,
                    Behind::Upstream => one.before(upstream),
                    Behind::Service(service) => one.before(service),
                }
            })
        };
        self.0.iter().flat_map(both).collect()
    }
}

impl Peer {
    fn exchange(&self, keys: Keys, again: bool) -> Exchange {
        Exchange {
            port: self.server.port,
            request: self.request.clone(),
            keys,
            expected: Answer {
                status: self.status,
                body_bytes: ANSWER_BYTES,
                replayed: again && self.marks_replays,
            },
        }
    }

    /// Waits until it answers, and uses the keys that are replayed for the first time.
    fn prepared(self) -> Result<Self, String> {
        let [name, _] = self.names;
        let first = self.exchange(Keys::the_first(REPLAYED_KEYS), false);
        // Another key for each try.
        let probe = self.exchange(Keys::new_ones(&Rc::new(Cell::new(PROBES))), false);
        eventually(|| prepare(&probe, 1))
            .and_then(|()| prepare(&first, REPLAYED_KEYS))
            .map_err(|why| format!("{name}: {why}"))?;
        Ok(self)
    }
}

/// idempotent-proxy reads its settings from a file where it starts. What it calls the timeout of a
/// request is also how long it keeps an answer.
fn idempotent_proxy(bin: &Path, upstream: &Process, parent: &Path) -> Result<Peer, String> {
    let (port, folder) = (free_port(), folder(parent, "idempotent-proxy"));
    let settings = format!(
        "SERVER_ADDR=127.0.0.1:{port}
URL_PAYMENTS=http://127.0.0.1:{}/payments
REQUEST_TIMEOUT=86400000
LOG_LEVEL=error
",
        upstream.port
    );
    std::fs::write(folder.join(".env"), settings).unwrap();
    let mut command = Command::new(bin.join("idempotent-proxy-server"));
    command.env_clear().current_dir(&folder);
    Ok(Peer {
        names: ["idempotent-proxy, new, memory", "idempotent-proxy, replays"],
        server: Process::start(&mut command, port, &folder.join("log"))?,
        behind: Behind::Upstream,
        request: Request::post("/URL_PAYMENTS"),
        status: 201,
        marks_replays: false,
    })
}

fn axum_idempotent(bin: &Path, parent: &Path) -> Result<Peer, String> {
    let server = program(bin, "axum-idempotent-peer", parent)?;
    Ok(Peer {
        names: ["axum-idempotent, new, memory", "axum-idempotent, replays"],
        server,
        behind: Behind::Nothing,
        request: Request::post_in_session("/payments"),
        status: 201,
        marks_replays: true,
    })
}

/// Restate with its defaults, which sync before every answer. It answers 200, whatever a service
/// does. At its start it asks GitHub for its newest release, which no setting prevents.
fn restate(bin: &Path, parent: &Path) -> Result<Peer, String> {
    let service = program(bin, "restate-service", parent)?;
    let folder = folder(parent, "restate");
    let [ingress, admin, fabric] = [(); 3].map(|()| free_port());
    let settings = format!(
        "base-dir = \"{}\"
node-name = \"bench\"
listen-mode = \"tcp\"
bind-ip = \"127.0.0.1\"
bind-port = {fabric}
advertised-host = \"127.0.0.1\"
disable-telemetry = true
log-filter = \"error\"
[ingress]
bind-port = {ingress}
[admin]
bind-port = {admin}
",
        folder.display()
    );
    let path = folder.join("restate.toml");
    std::fs::write(&path, settings).unwrap();
    let mut command = Command::new(bin.join("restate-server"));
    command.env_clear().current_dir(&folder);
    command.args(["--no-logo", "--config-file", &path.display().to_string()]);
    let server = Process::start(&mut command, ingress, &folder.join("log"))?;
    eventually(|| register(admin, service.port)).map_err(|why| format!("Restate: {why}"))?;
    Ok(Peer {
        names: ["Restate, new, durable", "Restate, replays"],
        server,
        behind: Behind::Service(service),
        request: Request::post("/Payments/pay"),
        status: 200,
        marks_replays: true,
    })
}

/// A program of `bench/peers`.
fn program(bin: &Path, name: &str, parent: &Path) -> Result<Process, String> {
    let port = free_port();
    let mut command = Command::new(bin.join(name));
    command.arg(port.to_string());
    Process::start(&mut command, port, &parent.join(format!("{name}.log")))
}

/// Tells Restate where its service is.
fn register(admin: u16, service: u16) -> Result<(), String> {
    let body = format!("{{\"uri\":\"http://127.0.0.1:{service}\"}}");
    let request = format!(
        "POST /deployments HTTP/1.1\r\nHost: 127.0.0.1:{admin}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = exchange().map_err(|error| error.to_string())?;
    let status = answer.lines().next().unwrap_or_default();
    if status.starts_with("HTTP/1.1 201") {
        return Ok(());
    }
    Err(format!("no deployment ({status})"))
}

/// Tries until it works, or says why it did not.
fn eventually(attempt: impl Fn() -> Result<(), String>) -> Result<(), String> {
    for _ in 1..TRIES {
        if attempt().is_ok() {
            return Ok(());
        }
        std::thread::sleep(TRY_AGAIN);
    }
    attempt()
}
