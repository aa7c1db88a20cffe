//! Redis: one server, a primary with replicas, Sentinel, and a cluster of three and three.
//!
//! Every server keeps an append-only file and syncs it before it answers, unless a test says
//! otherwise. `redis-cli` comes in the same package, and is how a test gives orders. The variable
//! `REDIS_SERVER` names another server to start, such as `valkey-server`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Process, free_port};

/// The package that brings `redis-server`, `redis-cli` and `redis-benchmark`.
const PACKAGE: &str = "redis-server";

/// How long a condition between servers (a replica in step, a failover) may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// After this long without an answer a node or a primary counts as lost. Short, so that tests of
/// failovers are; long enough for a busy machine.
const NODE_TIMEOUT_MS: u32 = 2_000;

/// How many hash slots a cluster has.
const SLOTS: u32 = 16_384;

/// One server. Killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    folder: TempDir,
    port: u16,
    /// Of [`with`](Self::with), for a restart.
    settings: Vec<String>,
}

impl RedisServer {
    /// A server that loses nothing it acknowledged.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with other settings, as in `redis.conf`: a name and its value.
    #[must_use]
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let settings: Vec<_> = settings
            .iter()
            .flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()])
            .collect();
        let process = launch(folder.path(), port, &settings);
        Self {
            process,
            folder,
            port,
            settings,
        }
    }

    /// A replica of another server, in step with it.
    #[must_use]
    pub fn replica_of(primary: &Self, settings: &[(&str, &str)]) -> Self {
        let replicated = format!("127.0.0.1 {}", primary.port);
        let mut all = vec![("replicaof", replicated.as_str())];
        all.extend(settings);
        let replica = Self::with(&all);
        replica.until_in_step();
        primary.until_confirmed();
        replica
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL, without a user and a database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process: to freeze it, for example.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it without killing it: it answers nothing any more.
    pub fn freeze(&self) {
        self.process.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.signal("CONT");
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, on the same port and with the same files.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.folder.path(), self.port, &self.settings);
    }

    /// What `redis-cli` prints for a command.
    #[must_use]
    pub fn cli(&self, arguments: &[&str]) -> String {
        cli(self.port, arguments)
    }

    /// Gives an order that must be answered with `OK`.
    pub fn order(&self, arguments: &[&str]) {
        let answer = self.cli(arguments);
        assert_eq!(answer, "OK", "{arguments:?}");
    }

    /// One line of `INFO`, without its name.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<String> {
        let all = self.cli(&["INFO", "everything"]);
        all.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim().to_owned())
        })
    }

    /// Waits until a replica has everything that its primary had.
    pub fn until_in_step(&self) {
        until("the replica is in step", || {
            self.info("master_link_status").as_deref() == Some("up")
                && self.info("master_sync_in_progress").as_deref() == Some("0")
        });
    }

    /// Waits until a replica confirms what this primary has.
    pub fn until_confirmed(&self) {
        until("a replica confirms", || {
            self.cli(&["WAIT", "1", "1000"]) != "0"
        });
    }

    /// Makes it a primary.
    pub fn promote(&self) {
        self.order(&["REPLICAOF", "NO", "ONE"]);
    }
}

/// `redis-server`, or what the variable `REDIS_SERVER` names: Valkey, or another version.
fn program() -> std::ffi::OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn launch(folder: &Path, port: u16, settings: &[String]) -> Process {
    let mut command = Command::new(program());
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .arg("--dir")
        .arg(folder)
        .args(["--save", "", "--appendonly", "yes"])
        .args([
            "--appendfsync",
            "always",
            "--maxmemory-policy",
            "noeviction",
        ])
        .args(["--repl-diskless-sync-delay", "0", "--loglevel", "notice"])
        .args(settings);
    Process::start(&mut command, PACKAGE, &folder.join("log"), || answers(port))
}

/// Whether a server answers, be it that it wants a password.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<[u8; 5]> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        socket.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        socket.read_exact(&mut answer)?;
        Ok(answer)
    };
    matches!(ask(), Ok(answer) if &answer == b"+PONG" || &answer == b"-NOAU")
}

fn cli(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("redis-cli does not start ({error}): install {PACKAGE}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Waits until a condition between servers holds.
///
/// # Panics
/// When it does not in time.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < PATIENCE,
            "not after {PATIENCE:?}: {what}"
        );
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A primary, its replicas, and the sentinels that replace it.
#[derive(Debug)]
pub struct RedisSentinels {
    /// The primary first. Which one is the primary later is for the sentinels to say.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<(Process, u16)>,
    _folder: TempDir,
}

impl RedisSentinels {
    /// The name of the primary for the sentinels.
    pub const SERVICE: &'static str = "payments";

    /// Starts a primary with one replica and three sentinels that know each other.
    #[must_use]
    pub fn start() -> Self {
        let primary = RedisServer::start();
        let replica = RedisServer::replica_of(&primary, &[]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sentinels = (0..3)
            .map(|number| sentinel(folder.path(), number, primary.port))
            .collect();
        let all = Self {
            servers: vec![primary, replica],
            sentinels,
            _folder: folder,
        };
        all.until_known();
        all
    }

    /// The store's URL, without options.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .sentinels
            .iter()
            .map(|(_, port)| format!("127.0.0.1:{port}"))
            .collect();
        format!("redis-sentinel://{}/{}", hosts.join(","), Self::SERVICE)
    }

    /// The port of the primary, as the first sentinel sees it.
    #[must_use]
    pub fn primary(&self) -> Option<u16> {
        let (_, port) = self.sentinels.first()?;
        let answer = cli(
            *port,
            &["SENTINEL", "get-master-addr-by-name", Self::SERVICE],
        );
        answer.lines().nth(1)?.trim().parse().ok()
    }

    /// Waits until the sentinels have made another server the primary.
    pub fn until_moved_from(&self, port: u16) {
        until("the sentinels chose another primary", || {
            self.primary().is_some_and(|now| now != port)
        });
    }

    fn until_known(&self) {
        for (_, port) in &self.sentinels {
            until("the sentinels know each other and the replica", || {
                let answer = cli(*port, &["SENTINEL", "master", Self::SERVICE]);
                let lines: Vec<_> = answer.lines().map(str::trim).collect();
                let value = |name: &str| {
                    let at = lines.iter().position(|line| *line == name)?;
                    lines.get(at + 1).copied()
                };
                value("num-slaves") == Some("1") && value("num-other-sentinels") == Some("2")
            });
        }
    }
}

fn sentinel(folder: &Path, number: u8, primary: u16) -> (Process, u16) {
    let port = free_port();
    let name = RedisSentinels::SERVICE;
    let folder = folder.join(number.to_string());
    std::fs::create_dir(&folder).expect("a folder");
    let config = folder.join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor {name} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {name} {NODE_TIMEOUT_MS}\n\
         sentinel failover-timeout {name} 10000\n",
        folder.display()
    );
    std::fs::write(&config, text).expect("a configuration file");
    let mut command = Command::new(program());
    command.arg(&config).arg("--sentinel");
    let process = Process::start(&mut command, PACKAGE, &folder.join("log"), || answers(port));
    (process, port)
}

/// Three primaries with a third of the slots each, and a replica of each.
#[derive(Debug)]
pub struct RedisCluster {
    /// Primaries first, then the replica of each, in the same order.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    const PRIMARIES: u32 = 3;

    /// Starts the six nodes and waits until each sees a whole cluster.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with more settings for every node.
    #[must_use]
    pub fn with(settings: &[(&str, &str)]) -> Self {
        let nodes: Vec<_> = (0..2 * Self::PRIMARIES)
            .map(|_| cluster_node(settings))
            .collect();
        let cluster = Self { nodes };
        cluster.meet();
        cluster.share_slots();
        cluster.replicate();
        cluster
    }

    /// The store's URL, without options, naming the first three nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .nodes
            .iter()
            .take(3)
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// A node's name inside the cluster.
    #[must_use]
    pub fn name(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }

    /// Waits until this node is a primary that sees a whole cluster.
    pub fn until_primary(&self, node: usize) {
        let node = &self.nodes[node];
        until("the replica was made primary", || {
            node.info("role").as_deref() == Some("master") && is_whole(node)
        });
    }

    /// Has a replica take over from a primary that is well, as an operator does.
    pub fn fail_over_to(&self, node: usize) {
        // An attempt that the others did not vote for in time ends by itself after 5 seconds.
        const ATTEMPT: Duration = Duration::from_secs(6);
        let mut asked: Option<Instant> = None;
        until("the replica took over", || {
            if asked.is_none_or(|asked| asked.elapsed() > ATTEMPT) {
                let _ = self.nodes[node].cli(&["CLUSTER", "FAILOVER"]);
                asked = Some(Instant::now());
            }
            self.nodes[node].info("role").as_deref() == Some("master")
        });
        self.until_primary(node);
    }

    /// The node (of the first three) that was given this slot at the start.
    #[must_use]
    pub fn first_owner(slot: u16) -> usize {
        let share = SLOTS.div_ceil(Self::PRIMARIES);
        usize::try_from(u32::from(slot) / share).expect("a small number")
    }

    /// Moves one slot with its keys, step by step, as an operator does.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (slot, target) = (slot.to_string(), self.nodes[to].port.to_string());
        let names = (self.name(from), self.name(to));
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.order(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &names.0]);
        from.order(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &names.1]);
        loop {
            let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &target, "", "0", "5000", "KEYS"];
            migrate.extend(keys);
            let answer = from.cli(&migrate);
            assert!(answer == "OK" || answer == "NOKEY", "{answer}");
        }
        for node in [to, from] {
            node.order(&["CLUSTER", "SETSLOT", &slot, "NODE", &names.1]);
        }
    }

    fn meet(&self) {
        let Some((first, others)) = self.nodes.split_first() else {
            return;
        };
        for node in others {
            let bus = node.cli(&["CONFIG", "GET", "cluster-port"]);
            let bus = bus.lines().nth(1).expect("a port").to_owned();
            let port = node.port.to_string();
            first.order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        for node in &self.nodes {
            until("every node knows the others", || {
                node.cli(&["CLUSTER", "INFO"])
                    .contains("cluster_known_nodes:6")
            });
        }
    }

    fn share_slots(&self) {
        let share = SLOTS.div_ceil(Self::PRIMARIES);
        for (node, number) in self.nodes.iter().zip(0..Self::PRIMARIES) {
            let first = (number * share).to_string();
            let last = ((number + 1) * share - 1).min(SLOTS - 1).to_string();
            node.order(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        self.until_whole();
    }

    fn replicate(&self) {
        let primaries = usize::try_from(Self::PRIMARIES).expect("a small number");
        for number in 0..primaries {
            let name = self.name(number);
            let replica = &self.nodes[primaries + number];
            until("the replica knows its primary", || {
                replica.cli(&["CLUSTER", "REPLICATE", &name]) == "OK"
            });
        }
        for replica in self.nodes.iter().skip(primaries) {
            replica.until_in_step();
        }
        for primary in self.nodes.iter().take(primaries) {
            primary.until_confirmed();
        }
        self.until_whole();
    }

    fn until_whole(&self) {
        for node in &self.nodes {
            until("the cluster is whole", || is_whole(node));
        }
    }
}

/// Whether a node sees every slot with somebody, too: one that may serve a part is well without.
fn is_whole(node: &RedisServer) -> bool {
    let info = node.cli(&["CLUSTER", "INFO"]);
    let slots = format!("cluster_slots_assigned:{SLOTS}");
    info.contains("cluster_state:ok") && info.lines().any(|line| line.trim() == slots)
}

fn cluster_node(settings: &[(&str, &str)]) -> RedisServer {
    let (bus, timeout) = (free_port().to_string(), NODE_TIMEOUT_MS.to_string());
    let mut all = vec![
        ("cluster-enabled", "yes"),
        ("cluster-port", bus.as_str()),
        ("cluster-node-timeout", timeout.as_str()),
    ];
    all.extend(settings);
    RedisServer::with(&all)
}

/// The files of a server that speaks TLS, in a folder of the test's.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate of the authority, which signed the next.
    pub authority: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The settings of a server that listens for TLS on this port too, asking no client for a
    /// certificate.
    #[must_use]
    pub fn settings(&self, port: u16) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("tls-port", port.to_string()),
            ("tls-ca-cert-file", text(&self.authority)),
            ("tls-cert-file", text(&self.certificate)),
            ("tls-key-file", text(&self.key)),
            ("tls-auth-clients", "no".to_owned()),
        ]
    }
}
