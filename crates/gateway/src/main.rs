//! The binary `onlyonce`: a gateway that makes the writes of any HTTP API safe to retry.
//!
//! | to see | read |
//! |---|---|
//! | the command line | `cli.rs` |
//! | the gateway, put together | `serve.rs` |
//! | what happens to a request | `onlyonce_http`, then `proxy.rs` and `upstream/` |
//! | what a failure proves | `upstream/failure.rs` |
//! | every setting | `config/`, and `config.default.toml` for people |
//! | whose conventions are followed | `onlyonce_http::Profile`; `profiles.rs` shows them |
//! | who the caller is | `principal/` |
//! | getting unknown outcomes known | `reconcile/` |
//! | the store that a URL means | `store.rs` |
//! | moving to another store | `copy.rs` |
//! | keys and dead letters from the command line | `operate/` |
//! | the threads | `workers.rs` |
//! | who is told what happens | `observers.rs`, `logging.rs`, `telemetry/` |
//! | the demonstration | `demo/` |

mod admin;
mod auth_check;
mod check;
mod cli;
mod config;
mod copy;
mod demo;
mod ending;
mod forward;
mod framing;
mod handles;
mod inbound;
mod listener;
mod log_lines;
mod logging;
mod observers;
mod operate;
mod principal;
mod processors;
mod profiles;
mod proxy;
mod reconcile;
mod request_id;
mod serve;
mod store;
mod telemetry;
mod tls;
mod upstream;
mod workers;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{CheckArgs, Cli, Command, ServeArgs};
use crate::config::{Config, Overrides};
use crate::serve::Gateway;

/// A request makes about a hundred small allocations; this one serves them at a third of the cost
/// of the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for a command line that cannot be used, as clap has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // clap exits with 2 on usage errors, and with 0 after help.
    let cli = Cli::parse();
    // Dropped last, also by a panic: what the runtime still ends has something to say, too.
    let _log = logging::EndsLog;
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string()),
    };
    runtime.block_on(async {
        match cli.command {
            Command::Serve(args) => serve(args).await,
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            Command::Check(args) => check(&args),
            Command::Profiles(command) => report(profiles::run(&command)),
            Command::Migrate(args) => match config::store_url(&args.store) {
                Ok(url) => report(store::migrate(&url).await),
                Err(error) => misused(&format!("--store: {error}")),
            },
            Command::Copy(args) => copied(copy::run(args).await),
            Command::Keys(args) => report(operate::keys(args).await),
            Command::Dlq(args) => report(operate::dlq(args).await),
        }
    })
}

async fn serve(args: ServeArgs) -> ExitCode {
    let overrides = Overrides {
        upstream: args.upstream,
        listen: args.listen,
        admin: args.admin,
        store: args.store,
        profile: args.profile,
        key: args.key,
    };
    let config = match Config::load(args.config.as_deref(), std::env::vars(), overrides) {
        Ok(config) => config,
        Err(errors) if errors.are_of_flags() => return misused(&errors.to_string()),
        Err(errors) => return fail(&errors.to_string()),
    };
    if args.print_config {
        say(&config.to_toml());
        return ExitCode::SUCCESS;
    }
    if config.upstream.urls.is_empty() {
        return misused(
            "there is no API to stand in front of: give --upstream URL, or `urls` of [upstream]",
        );
    }
    let log = &config.running;
    if let Err(error) = logging::start(log.log_format, &log.log_level.to_string()) {
        return fail(&error);
    }
    if args.migrate {
        match store::migrate(&config.top.store).await {
            Ok(done) => tracing::info!("{done}"),
            Err(error) => return fail(&error),
        }
    }
    let gateway = match Gateway::start(config).await {
        Ok(gateway) => gateway,
        Err(error) => return fail(&error),
    };
    // Before anything is announced: whoever reads that may send a signal at once.
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return fail(&error.to_string()),
    };
    for line in &gateway.announcements {
        say(&format!("{line}\n"));
    }
    signals.until_stopped(&gateway).await;
    gateway.stop().await;
    ExitCode::SUCCESS
}

/// The signals that the gateway listens to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT; SIGHUP reloads certificates, the keys of callers' tokens and
    /// operators' tokens.
    async fn until_stopped(mut self, gateway: &Gateway) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => gateway.reload(),
            }
        }
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let config = Config::load(Some(&args.config), std::iter::empty(), Overrides::default());
    let report = check::check(config.as_ref());
    say(&report.render());
    if report.has_errors() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints what was done, or why not.
fn report(done: Result<String, String>) -> ExitCode {
    match done {
        Ok(text) => {
            say(&format!("{text}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

/// Prints what was copied, also where something could not be.
fn copied(done: Result<copy::Copied, String>) -> ExitCode {
    let complaint = match done {
        Ok(copy::Copied { summary, complaint }) => {
            say(&format!("{summary}\n"));
            complaint
        }
        Err(error) => Some(error),
    };
    complaint.map_or(ExitCode::SUCCESS, |complaint| fail(&complaint))
}

/// Prints to standard output; a reader that has gone away is not our failure.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn fail(why: &str) -> ExitCode {
    complain(why);
    ExitCode::FAILURE
}

/// The command line was read, and what it says cannot be used.
fn misused(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(USAGE)
}

fn complain(why: &str) {
    logging::complain(&format!("onlyonce: {why}"));
}
