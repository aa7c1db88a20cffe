//! `onlyonce-sim`: runs schedules, prints what happened, and fails if a promise was broken.

use std::process::ExitCode;
use std::time::Instant;

use onlyonce_sim::{Bug, Config, Kind, Summary, run, run_many};

const USAGE: &str =
    "usage: onlyonce-sim [--schedules N] [--seed S] [--threads N] [--bug NAME] [--trace]
  --schedules N   how many schedules to run (default 1000000; billions are welcome)
  --seed S        the first seed (default 1); schedule i has the seed S + i
  --threads N     default: one per core
  --bug NAME      plant a bug and stop when it is caught; `all` for each in turn
  --trace         print every event of the one schedule with the seed S";

struct Options {
    config: Config,
    all_bugs: bool,
    trace: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.trace {
        return trace(options.config);
    }
    if options.all_bugs {
        let uncaught = Bug::ALL
            .into_iter()
            .filter(|bug| !caught(options.config, *bug))
            .count();
        return ExitCode::from(u8::from(uncaught > 0));
    }
    simulate(options.config)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut options = Options {
        config: Config {
            seed: 1,
            schedules: 1_000_000,
            threads,
            bug: None,
            stops_at_first: false,
        },
        all_bugs: false,
        trace: false,
    };
    while let Some(flag) = arguments.next() {
        if flag == "--trace" {
            options.trace = true;
            continue;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{flag} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{flag}: not a number: {value}"))
        };
        match flag.as_str() {
            "--schedules" => options.config.schedules = number()?,
            "--seed" => options.config.seed = number()?,
            "--threads" => {
                options.config.threads = usize::try_from(number()?).map_err(|e| e.to_string())?;
            }
            "--bug" if value == "all" => options.all_bugs = true,
            "--bug" => {
                let bug = Bug::from_name(&value).ok_or_else(|| {
                    format!(
                        "no bug is called {value}; there are {}",
                        Bug::ALL.map(Bug::name).join(", ")
                    )
                })?;
                options.config.bug = Some(bug);
                options.config.stops_at_first = true;
            }
            _ => return Err(format!("unknown option {flag}")),
        }
    }
    Ok(options)
}

fn trace(config: Config) -> ExitCode {
    let outcome = run(config.seed, config.bug, true);
    print!("{}", outcome.trace.unwrap_or_default());
    for (kind, words) in &outcome.violations {
        println!("{}: {words}", kind.name());
    }
    println!("seed {}, trace hash {:016x}", config.seed, outcome.hash);
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}

/// Plants a bug and says whether it was caught.
fn caught(config: Config, bug: Bug) -> bool {
    let one = Config {
        bug: Some(bug),
        stops_at_first: true,
        // One thread, so that "after how many" is exact.
        threads: 1,
        ..config
    };
    let summary = run_many(one);
    let schedules = summary.counts.schedules;
    let caught = summary.failures.first();
    match caught.map(|failure| failure.kind.name()) {
        Some(kind) => println!("{bug:<26} caught after {schedules:>7} schedules: {kind}"),
        None => println!("{bug:<26} NOT CAUGHT in {schedules} schedules"),
    }
    caught.is_some()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how fast the run was, not what happens in it"
)]
fn simulate(config: Config) -> ExitCode {
    println!(
        "seed {}, {} schedules, {} threads",
        config.seed, config.schedules, config.threads
    );
    let started = Instant::now();
    let summary = run_many(config);
    let seconds = started.elapsed().as_secs_f64();
    print!("{}", summary.counts);
    #[expect(clippy::cast_precision_loss, reason = "a rate, for people")]
    let rate = summary.counts.schedules as f64 / seconds;
    println!("{seconds:.1} s, {rate:.0} schedules/s");
    let [double, lost, false_success, wrong, stuck] =
        Kind::ALL.map(|kind| summary.counts.violations(kind));
    println!(
        "seed {}: {} schedules, {double} doubles, {lost} lost, {false_success} false successes, {wrong} wrong replays, {stuck} stuck",
        config.seed, summary.counts.schedules
    );
    verdict(config, &summary)
}

fn verdict(config: Config, summary: &Summary) -> ExitCode {
    for failure in &summary.failures {
        let bug = config
            .bug
            .map_or_else(String::new, |bug| format!(" --bug {bug}"));
        println!(
            "{}, seed {}: {}",
            failure.kind.name(),
            failure.seed,
            failure.words
        );
        println!(
            "  replay: cargo run --release -p onlyonce-sim -- --seed {} --schedules 1 --trace{bug}",
            failure.seed
        );
    }
    if config.bug.is_none() && summary.counts.schedules >= 100_000 {
        for missing in summary.counts.missing() {
            println!("vacuous: never happened: {missing}");
        }
        for impossible in summary.counts.impossible() {
            println!("impossible: {impossible}");
        }
    }
    let vacuous = config.bug.is_none()
        && summary.counts.schedules >= 100_000
        && !(summary.counts.missing().is_empty() && summary.counts.impossible().is_empty());
    ExitCode::from(u8::from(vacuous || !summary.failures.is_empty()))
}
