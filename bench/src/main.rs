//! Measures onlyonce beside its limits and its peers, in one run.
//!
//! ```text
//! cargo run --release -p onlyonce-bench -- store    the embedded store, the raw disk, Redis
//! cargo run --release -p onlyonce-bench -- stores   PostgreSQL, Redis, DynamoDB beside their limits
//! cargo run --release -p onlyonce-bench -- size     memory and reopening at a million records
//! cargo run --release -p onlyonce-bench -- rules    step, fingerprint and codec, per call
//! cargo run --release -p onlyonce-bench -- gateway  the gateway beside proxies and the usual recipe
//! cargo run --release -p onlyonce-bench -- train    nothing measured: the work that scripts/ship learns from
//! ```
//!
//! Machines are noisy: rounds of all contestants are interleaved, the medians are printed, and
//! what counts are the ratios between them. Nothing is asserted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a program for people: it stops at the first surprise and prints what it measured"
)]

mod gateway;
mod machine;
mod process;
mod raw;
mod records;
mod redis;
mod rules;
mod size;
mod store;
mod stores;

use std::path::Path;

const USAGE: &str = "\
Usage: onlyonce-bench store [--rounds N] [--seconds N]
       onlyonce-bench stores [--rounds N] [--seconds N] [--rows N]
       onlyonce-bench size  [--records N]
       onlyonce-bench rules
       onlyonce-bench gateway [--rounds N] [--seconds N] [--connections N] [--keys N] [--only NAMES]
                              [--peers FOLDER] [--gateway BINARY]
       onlyonce-bench train --gateway BINARY

store  claim+complete pairs and replay reads per second, durable, at 1, 64 and 256 callers,
       beside the raw append+fdatasync limit of the same disk and Redis with appendfsync always
stores claims, completions and replays per second of the stores on PostgreSQL, Redis and
       DynamoDB (a test server) with 64 callers, beside pgbench and redis-benchmark; their round
       trips; and the cost when many rows are stored (2,000,000; --rows 200000 is faster)
size   memory per record, disk per record and reopening time at a million records
rules  nanoseconds and allocations per call of the pure parts
gateway  requests per second, latency, processor time and memory of the gateway beside nginx,
       haproxy, a bare handler and axum with Redis; those that sync, and nginx, once more with
       four times as many connections; then the cost of a request when many keys are
       stored (500,000; try --keys 5000000) and many connections are open. Needs the gateway's
       own release build: cargo build --release. With --peers also beside idempotent-proxy,
       axum-idempotent and Restate, which scripts/bench-peers installs in FOLDER. --only measures
       those whose names contain NAMES, or one of them: --only 'nginx, plain|new keys'; --gateway
       another build than the one beside this program
train  measures nothing: has a gateway do what gateways mostly do, so that scripts/ship learns
       from it which of its code runs often. Needs PostgreSQL and Redis";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let text = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        Some(&*arguments.get(at + 1)?.clone().leak())
    };
    let port = |name: &str| u16::try_from(option(name, 0)).unwrap();
    let asks_for_help = |argument: &String| matches!(argument.as_str(), "--help" | "-h");
    if arguments.iter().any(asks_for_help) {
        println!("{USAGE}");
        return;
    }
    match arguments.first().map(String::as_str) {
        Some("store") => store::run(option("--rounds", 3), option("--seconds", 2)),
        Some("stores") => stores::run(&stores::Options {
            rounds: option("--rounds", 3),
            seconds: option("--seconds", 3),
            rows: option("--rows", 2_000_000),
        }),
        Some("size") => size::run(option("--records", 1_000_000)),
        Some("rules") => rules::run(),
        Some("gateway") => gateway::run(gateway::Options {
            gateway: text("--gateway"),
            only: text("--only"),
            rounds: option("--rounds", 3),
            seconds: option("--seconds", 3),
            connections: option("--connections", 64),
            keys: option("--keys", 500_000),
            peers: text("--peers"),
        }),
        Some("train") => gateway::train::run(Path::new(text("--gateway").expect("--gateway"))),
        // The benchmark starts itself with these, so that each server is a process of its own.
        Some("serve-handler") => gateway::handlers::bare(port("--port")),
        Some("serve-redis-peer") => {
            gateway::handlers::with_redis(port("--port"), port("--redis"));
        }
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}
