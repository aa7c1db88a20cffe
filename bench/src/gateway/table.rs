//! Rounds become medians, and medians become the tables that are printed.

use crate::gateway::load::{Exchange, Measured};
use crate::machine::median;
use crate::process::Process;

/// Ratios that the design aims at: what, of which, target.
const TARGETS: [(&str, &str, Option<f64>); 13] = [
    (
        "onlyonce, new keys, durable",
        "nginx, plain proxy",
        Some(0.6),
    ),
    ("onlyonce, replays", "handler, bare", Some(0.65)),
    ("onlyonce, unguarded", "nginx, plain proxy", Some(0.8)),
    (
        "onlyonce, new keys, durable",
        "axum + Redis, new, always",
        None,
    ),
    ("onlyonce, replays", "axum + Redis, replays", None),
    (
        "onlyonce, new keys, durable",
        "idempotent-proxy, new, memory",
        Some(1.5),
    ),
    ("onlyonce, replays", "idempotent-proxy, replays", None),
    (
        "onlyonce, new keys, durable",
        "axum-idempotent, new, memory",
        None,
    ),
    ("onlyonce, replays", "axum-idempotent, replays", None),
    (
        "onlyonce, new keys, durable",
        "Restate, new, durable",
        Some(15.0),
    ),
    ("onlyonce, replays", "Restate, replays", None),
    ("onlyonce, replays", "nginx, static file", None),
    ("nginx, plain proxy", "handler, bare", None),
];

/// Somebody who takes part in every round.
pub(crate) struct Contestant<'a> {
    pub(crate) name: &'static str,
    pub(crate) exchange: Exchange,
    pub(crate) servers: Vec<&'a Process>,
    /// What the server passes requests on to, or keeps its keys in.
    pub(crate) behind: Vec<&'a Process>,
    pub(crate) rounds: Vec<Measured>,
}

impl<'a> Contestant<'a> {
    pub(crate) fn new(name: &'static str, exchange: Exchange, server: &'a Process) -> Self {
        Self {
            name,
            exchange,
            servers: vec![server],
            behind: Vec::new(),
            rounds: Vec::new(),
        }
    }

    pub(crate) fn before(mut self, process: &'a Process) -> Self {
        self.behind.push(process);
        self
    }

    pub(crate) fn round(&mut self, measure: impl FnOnce(&Self) -> Measured) {
        let measured = measure(self);
        self.rounds.push(measured);
    }

    pub(crate) fn middle(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    /// The least memory of all rounds, in bytes: a process seldom gives back what it once had.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let bytes = self.rounds.iter().map(|round| round.resident_bytes);
        bytes.min().unwrap_or(0) as f64
    }

    pub(crate) fn errors(&self) -> u64 {
        self.rounds.iter().map(|round| round.errors).sum()
    }

    /// The median of the rounds' own ratios: what disturbs a round disturbs both.
    pub(crate) fn ratio(&self, other: &Self, of: impl Fn(&Measured) -> f64) -> f64 {
        let both = self.rounds.iter().zip(&other.rounds);
        median(both.map(|(one, other)| of(one) / of(other)).collect())
    }
}

/// What each contestant did.
pub(crate) fn print(contestants: &[Contestant<'_>]) {
    println!(
        "{:<30} {:>10} {:>8} {:>8} {:>8} {:>12} {:>10} {:>7} {:>10}",
        "",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU µs",
        "with behind",
        "memory MB",
        "errors",
        "generator"
    );
    for one in contestants {
        println!(
            "{:<30} {:>10.0} {:>8.2} {:>8.2} {:>8.1} {:>12.1} {:>10.1} {:>7} {:>10.2}",
            one.name,
            one.middle(|round| round.rate),
            one.middle(|round| round.p50_us) / 1e3,
            one.middle(|round| round.p99_us) / 1e3,
            one.middle(|round| round.cpu_us),
            one.middle(|round| round.cpu_all_us),
            one.middle(|round| round.resident_bytes as f64) / 1e6,
            one.errors(),
            one.middle(|round| round.generator)
        );
    }
}

/// What the columns are.
pub(crate) fn legend() {
    println!(
        "\nCPU µs: of the server, per request; with behind: and of the handler or Redis that it uses.\n\
         memory: of the server's processes, at the end of a round. errors: must be 0.\n\
         generator: its share of one processor. It and the handler have their part of the machine.\n\
         not measured here: middleware for other languages than Rust."
    );
}

/// What counts.
pub(crate) fn ratios(contestants: &[Contestant<'_>]) {
    println!(
        "\n{:<60} {:>8} {:>8} {:>8}",
        "requests/s, ratio", "", "target", "CPU ÷"
    );
    let find = |name: &str| contestants.iter().find(|one| one.name == name);
    for (what, of, target) in TARGETS {
        let name = format!("{what} ÷ {of}");
        let (Some(what), Some(of)) = (find(what), find(of)) else {
            continue;
        };
        let target = target.map_or(String::new(), |target| format!("≥ {target:.2}"));
        println!(
            "{name:<60} {:>8.2} {target:>8} {:>8.2}",
            what.ratio(of, |round| round.rate),
            what.ratio(of, |round| round.cpu_us)
        );
    }
}
