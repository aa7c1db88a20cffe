//! The gateway beside plain proxies, a bare handler, a static file and the usual recipe.
//!
//! | here | what it is |
//! |---|---|
//! | `wire` | the bytes of a request, and the check of every answer |
//! | `load` | the generator: closed loop, one thread |
//! | `servers` | how each server is started |
//! | `handlers` | the handler behind everything, and the hand-written peer |
//! | `peers` | the peers that come from a registry, if they are installed |
//! | `table` | rounds, medians, ratios |
//! | `scale` | the cost per request with many stored keys and many idle connections |
//! | `train` | no measurement: what a build with a profile learns from |
//!
//! Contestants take turns within a round, so that whatever else the machine does meets all of
//! them; a ratio is the median of the rounds' own ratios. The generator, the server and the
//! handler share the machine: rates are those of the whole chain, and processor time per request
//! is what the server itself costs.

pub(crate) mod handlers;
mod load;
mod peers;
mod scale;
mod servers;
mod table;
pub(crate) mod train;
mod wire;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::process::{Process, end_with_signals, remove_at_signal};
use crate::redis::Redis;
use load::{Exchange, Keys, measure, prepare};
use peers::Peers;
use servers::{ANSWER_BYTES, Gateway};
use table::Contestant;
use wire::{Answer, Request};

/// How many completed keys are replayed.
const REPLAYED_KEYS: u64 = 10_000;

/// How many times as many connections there are in the second table, and who is in it.
const CROWD: usize = 4;
const CROWDED: [&str; 4] = [
    "nginx, plain proxy",
    "onlyonce, new keys, durable",
    "axum + Redis, new, always",
    "Restate, new, durable",
];

/// What was asked for on the command line.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// The gateway that is measured, if not the one beside this program.
    pub(crate) gateway: Option<&'static str>,
    /// Of the first table, only contestants whose name contains one of these, separated by `|`; then
    /// no second table.
    pub(crate) only: Option<&'static str>,
    pub(crate) rounds: u64,
    pub(crate) seconds: u64,
    pub(crate) connections: u64,
    pub(crate) keys: u64,
    /// Where the peers from registries are installed.
    pub(crate) peers: Option<&'static str>,
}

/// How much load, for how long.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u64,
    length: Duration,
    connections: usize,
}

/// The servers of the first table.
struct Stage {
    upstream: Process,
    onlyonce: Process,
    nginx: Option<Process>,
    haproxy: Option<Process>,
    peer: Option<(Process, Redis)>,
    peers: Peers,
}

pub(crate) fn run(options: Options) {
    end_with_signals();
    // Beside the caller's own files and not in /tmp, which is often kept in memory.
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = std::path::absolute(folder.path()).unwrap();
    remove_at_signal(&path);
    let effort = Effort {
        rounds: options.rounds,
        length: Duration::from_secs(options.seconds),
        connections: usize::try_from(options.connections).unwrap(),
    };
    // Numbers of keys: low ones are replayed, so new ones begin above them.
    let next = Rc::new(Cell::new(1 << 32));
    let beside = std::env::current_exe().unwrap().with_file_name("onlyonce");
    let binary = options.gateway.map_or(beside, PathBuf::from);
    println!(
        "{} rounds of {} s each, interleaved, {} connections; medians; onlyonce is {}\n",
        options.rounds,
        options.seconds,
        options.connections,
        binary.display()
    );
    let stage = Stage::start(&binary, &path, options.peers);
    let mut contestants = stage.contestants(&next);
    let wanted = |name: &str, only: &str| only.split('|').any(|part| name.contains(part));
    contestants.retain(|one| options.only.is_none_or(|only| wanted(one.name, only)));
    take_turns(&mut contestants, effort);
    table::print(&contestants);
    table::legend();
    table::ratios(&contestants);
    if options.only.is_some() {
        return;
    }
    crowded(stage.contestants(&next), effort);
    drop(contestants);
    let upstream = stage.leave_upstream();
    scale::run(&binary, &upstream, &path, effort, options.keys, &next);
}

/// Rounds of all of them.
fn take_turns(contestants: &mut [Contestant<'_>], effort: Effort) {
    for _ in 0..effort.rounds {
        for contestant in &mut *contestants {
            contestant.round(|one| {
                let (servers, behind) = (&one.servers, &one.behind);
                measure(
                    &one.exchange,
                    effort.connections,
                    effort.length,
                    servers,
                    behind,
                )
            });
        }
    }
}

/// Those that sync before they answer, and the plain proxy, once more with more connections: a sync is
/// shared by all who wait for one.
fn crowded(mut contestants: Vec<Contestant<'_>>, effort: Effort) {
    let connections = effort.connections * CROWD;
    println!("\n\nthe same with {connections} connections\n");
    contestants.retain(|one| CROWDED.contains(&one.name));
    let effort = Effort {
        connections,
        ..effort
    };
    take_turns(&mut contestants, effort);
    table::print(&contestants);
    table::ratios(&contestants);
}

impl Stage {
    fn start(binary: &Path, path: &Path, peers: Option<&str>) -> Self {
        let told = |why: &String| println!("not measured here: {why}");
        let upstream = servers::upstream(path);
        let store = path.join("store");
        let stage = Self {
            onlyonce: Gateway::new(binary, &upstream, &store).start(path).unwrap(),
            nginx: servers::nginx(&upstream, path).inspect_err(told).ok(),
            haproxy: servers::haproxy(&upstream, path).inspect_err(told).ok(),
            peer: servers::redis_peer(path).inspect_err(told).ok(),
            peers: Peers::start(peers.map(Path::new), &upstream, path),
            upstream,
        };
        let ports = [
            Some(stage.onlyonce.port),
            stage.peer.as_ref().map(|(peer, _)| peer.port),
        ];
        for port in ports.into_iter().flatten() {
            prepare(&replay(port, false), REPLAYED_KEYS).unwrap();
        }
        stage
    }

    /// All contestants, in the order of a round.
    fn contestants<'a>(&'a self, next: &Rc<Cell<u64>>) -> Vec<Contestant<'a>> {
        let (upstream, gateway) = (&self.upstream, &self.onlyonce);
        let new = |port| fresh(port, "/payments", next);
        let mut all = vec![Contestant::new(
            "handler, bare",
            new(upstream.port),
            upstream,
        )];
        if let Some(nginx) = &self.nginx {
            all.push(
                Contestant::new("nginx, plain proxy", new(nginx.port), nginx).before(upstream),
            );
        }
        if let Some(haproxy) = &self.haproxy {
            let one = Contestant::new("haproxy, plain proxy", new(haproxy.port), haproxy);
            all.push(one.before(upstream));
        }
        let open = fresh(gateway.port, "/open", next);
        all.push(Contestant::new("onlyonce, unguarded", open, gateway).before(upstream));
        let guarded = new(gateway.port);
        all.push(Contestant::new("onlyonce, new keys, durable", guarded, gateway).before(upstream));
        let replays = replay(gateway.port, true);
        all.push(Contestant::new("onlyonce, replays", replays, gateway));
        if let Some((peer, redis)) = &self.peer {
            let one = Contestant::new("axum + Redis, new, always", new(peer.port), peer);
            all.push(one.before(&redis.server));
            let one = Contestant::new("axum + Redis, replays", replay(peer.port, true), peer);
            all.push(one.before(&redis.server));
        }
        if let Some(nginx) = &self.nginx {
            all.push(Contestant::new(
                "nginx, static file",
                file(nginx.port),
                nginx,
            ));
        }
        all.extend(self.peers.contestants(upstream, next));
        all
    }

    /// Ends every server but the handler.
    fn leave_upstream(self) -> Process {
        self.upstream
    }
}

/// Writes with keys that nobody has used.
fn fresh(port: u16, path: &str, next: &Rc<Cell<u64>>) -> Exchange {
    Exchange {
        port,
        request: Request::post(path),
        keys: Keys::new_ones(next),
        expected: Answer {
            status: 201,
            body_bytes: ANSWER_BYTES,
            replayed: false,
        },
    }
}

/// Writes with the keys that are used again and again: `again` after they have been used once.
fn replay(port: u16, again: bool) -> Exchange {
    let fresh = fresh(port, "/payments", &Rc::default());
    Exchange {
        keys: Keys::the_first(REPLAYED_KEYS),
        expected: Answer {
            replayed: again,
            ..fresh.expected
        },
        ..fresh
    }
}

fn file(port: u16) -> Exchange {
    let fresh = fresh(port, "/payments", &Rc::default());
    Exchange {
        request: Request::get("/static"),
        expected: Answer {
            status: 200,
            ..fresh.expected
        },
        ..fresh
    }
}
