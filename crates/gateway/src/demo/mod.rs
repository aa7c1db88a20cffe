//! `onlyonce demo`: what retries do to a payments API, with the gateway and without.
//!
//! Everything runs in this process, on free ports of this machine and in one folder: two copies
//! of a payments API with a ledger each, the gateway in front of one of them, and clients on a bad
//! network that send every order both ways. The ledgers decide what was charged twice.
//!
//! | to see | read |
//! |---|---|
//! | what goes wrong, and how often | `faults` |
//! | how a careful client retries | `client`, and its requests in `wire` |
//! | the API, and the book that is the truth | `api`, `ledger` |
//! | what is counted, shown and reported | `tally`, `view`, `screen`, `report` |

mod api;
mod client;
mod faults;
mod folder;
mod gateway;
mod ledger;
mod paint;
mod report;
mod screen;
mod tally;
mod view;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use self::api::PaymentsApi;
use self::client::{Target, Traffic};
use self::faults::Fault;
use self::folder::Folder;
use self::gateway::RunningGateway;
use self::report::Report;
use self::screen::Screen;
use self::tally::{Side, Tally};
use self::view::{Addresses, Moment};
use crate::USAGE;

/// The longest that the end waits for open orders: a client that was told to come back in four
/// seconds does so once more.
const SETTLE_MAX: Duration = Duration::from_secs(6);

/// The longest that the end waits for the gateway, and then for charges whose client has gone.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// Shows what retries do to a payments API, with onlyonce and without.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// End after this many seconds; otherwise Ctrl-C ends it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,

    /// What the orders and their misfortunes follow from: the same seed, the same traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many clients place orders
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,

    /// Orders per second, of all clients together
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// Keep ledgers and store in this folder, which must be empty or new
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs it: 0 when the gateway let nothing happen twice, 1 when it did or did not start, 2 when
/// the folder cannot be used.
pub(crate) async fn run(args: DemoArgs) -> ExitCode {
    let folder = match &args.keep {
        Some(path) => Folder::kept(path)
            .map_err(|error| (USAGE, format!("--keep {}: {error}", path.display()))),
        None => Folder::temporary().map_err(|error| (1, format!("a temporary folder: {error}"))),
    };
    let outcome = match folder {
        Ok(folder) => Box::pin(show(&args, &folder))
            .await
            .map_err(|error| (1, error)),
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(report) => report.exit_code(),
        Err((code, error)) => {
            eprintln!("onlyonce demo: {error}");
            ExitCode::from(code)
        }
    }
}

async fn show(args: &DemoArgs, folder: &Folder) -> Result<Report, String> {
    let mut interrupts = Interrupts::listen().map_err(|error| format!("signals: {error}"))?;
    let traffic = Traffic {
        seed: args.seed,
        workers: args.workers,
        rate: args.rate,
    };
    let stage = Stage::set(folder).await?;
    let screen = Screen::open(args.json, traffic, stage.addresses());
    let last = stage.play(args, traffic, &screen, &mut interrupts).await;
    drop(screen);
    let report = Report {
        traffic,
        last: last?,
    };
    if args.json {
        screen::write(&format!("{}\n", report.json()));
    } else {
        screen::write(&report.text(folder.stays()));
    }
    Ok(report)
}

/// Everything that listens.
struct Stage<'a> {
    folder: &'a Folder,
    guarded: PaymentsApi,
    unguarded: PaymentsApi,
    gateway: RunningGateway,
    through: Arc<Target>,
    straight: Arc<Target>,
}

const GUARDED_LEDGER: &str = "through-onlyonce.jsonl";
const UNGUARDED_LEDGER: &str = "straight-to-the-api.jsonl";

impl<'a> Stage<'a> {
    async fn set(folder: &'a Folder) -> Result<Self, String> {
        let api = async |name| {
            let started = PaymentsApi::start(&folder.path().join(name)).await;
            started.map_err(|error| format!("the payments API: {error}"))
        };
        let (guarded, unguarded) = (api(GUARDED_LEDGER).await?, api(UNGUARDED_LEDGER).await?);
        let gateway = gateway::start(guarded.address, folder.path())
            .await
            .map_err(|error| format!("the gateway: {error}"))?;
        let target = |address| {
            Arc::new(Target {
                address,
                tally: Tally::default(),
            })
        };
        Ok(Self {
            folder,
            through: target(gateway.address),
            straight: target(unguarded.address),
            guarded,
            unguarded,
            gateway,
        })
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            gateway: self.gateway.address,
            admin: self.gateway.admin,
            api: self.unguarded.address,
        }
    }

    /// From the first order to the last count.
    async fn play(
        self,
        args: &DemoArgs,
        traffic: Traffic,
        screen: &Screen,
        interrupts: &mut Interrupts,
    ) -> Result<Moment, String> {
        let began = Instant::now();
        let (stop, stopped) = watch::channel(false);
        let targets = [Arc::clone(&self.through), Arc::clone(&self.straight)];
        let mut orders = tokio::spawn(client::run(traffic, targets, stopped));

        let end = args
            .seconds
            .map(|seconds| began + Duration::from_secs(seconds.into()));
        tokio::select! {
            () = self.keep_showing(screen, began, "Ctrl-C ends it") => {}
            () = until(end) => {}
            () = interrupts.next() => {}
        }
        let elapsed = began.elapsed();
        // The receivers are gone only when all orders are settled.
        let _ = stop.send(true);
        tokio::select! {
            () = self.keep_showing(screen, began, "finishing orders") => {}
            () = until(Some(Instant::now() + SETTLE_MAX)) => {}
            () = interrupts.next() => {}
            _ = &mut orders => {}
        }
        orders.abort();
        self.close(elapsed).await
    }

    /// Refreshes the screen for ever.
    async fn keep_showing(&self, screen: &Screen, began: Instant, note: &str) {
        let every = screen.refresh();
        let mut refresh = tokio::time::interval_at(Instant::now() + every, every);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            refresh.tick().await;
            screen.show(&self.moment(began.elapsed()), note);
        }
    }

    fn moment(&self, elapsed: Duration) -> Moment {
        let side = |target: &Target, api: &PaymentsApi| {
            let mut counts = target.tally.counts();
            counts.set_fault(Fault::BrokeOff, api.broke_off());
            let effects = api.effects();
            Side { counts, effects }
        };
        Moment {
            elapsed,
            gateway: side(&self.through, &self.guarded),
            direct: side(&self.straight, &self.unguarded),
        }
    }

    /// Ends everything, then counts what is on the disk.
    async fn close(self, elapsed: Duration) -> Result<Moment, String> {
        let mut last = self.moment(elapsed);
        if tokio::time::timeout(IDLE_MAX, self.gateway.stop())
            .await
            .is_err()
        {
            tracing::warn!("the gateway was still busy at the end");
        }
        let idle = async { tokio::join!(self.guarded.idle(), self.unguarded.idle()) };
        if tokio::time::timeout(IDLE_MAX, idle).await.is_err() {
            tracing::warn!("charges were still under way at the end");
        }
        let audit = |name: &str| {
            let path = self.folder.path().join(name);
            ledger::audit(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        last.gateway.effects = audit(GUARDED_LEDGER)?;
        last.direct.effects = audit(UNGUARDED_LEDGER)?;
        Ok(last)
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Ctrl-C, or a supervisor that asks to end.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interrupts {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
