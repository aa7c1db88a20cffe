//! The command line of `keys` and `dlq`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::client::encoded;
use crate::config::parse_time;

/// The heading of what every command has. Without it, clap mixes these with a command's own.
const EVERYWHERE: &str = "Which gateway, and how to print";

/// Which gateway to ask, and how to print.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The gateway's admin address
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8081",
        global = true,
        help_heading = EVERYWHERE
    )]
    pub(crate) admin: String,
    /// An operator's token, where the gateway asks for one
    #[arg(
        long,
        value_name = "TOKEN",
        env = "ONLYONCE_TOKEN",
        hide_env_values = true,
        global = true,
        help_heading = EVERYWHERE
    )]
    pub(crate) token: Option<String>,
    /// Print the API's answer as one line of JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "ID is a record's id, as lists, logs and problem answers show it; a unique beginning \
    is enough. A key that clients sent is found by `search`.\n\n\
    `resolve` and `forget` are written to the audit trail with the reason."
)]
pub(crate) struct KeysArgs {
    #[command(flatten)]
    pub(crate) at: Where,
    #[command(subcommand)]
    pub(crate) command: Keys,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List keys by state, route, caller and age
    List(Listing),
    /// Find the record of a key that a client sent
    Search(Found),
    /// One key: its state, its timeline, its stored response
    Show {
        /// The record's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Decide about a key whose outcome nobody knows
    Resolve(Resolving),
    /// Make a key as if it had never been used: the next request with it executes
    Forget {
        /// The record's id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "A dead letter is a key whose outcome nobody could find out. Look at the API's own \
    records, then say what happened:\n\
    \x20 onlyonce dlq resolve ID --completed answer.json --status 201 --reason 'charge ch_1 exists'\n\
    \x20 onlyonce dlq resolve ID --released --reason 'no such charge, and none can come any more'\n\
    or have the API asked again, if it could not tell before:\n\
    \x20 onlyonce dlq retry ID"
)]
pub(crate) struct DlqArgs {
    #[command(flatten)]
    pub(crate) at: Where,
    #[command(subcommand)]
    pub(crate) command: Dlq,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List the dead letters
    List {
        /// How many at most
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Go on after the place that an earlier list printed
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
    },
    /// One dead letter: its state, its timeline
    Show {
        /// The record's id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Say what happened
    Resolve(Resolving),
    /// Have the API asked again, from the first attempt on
    Retry {
        /// The record's id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// In this state
    #[arg(long, value_name = "STATE", value_parser = ["executing", "unknown", "dead_letter", "released", "completed", "expired"])]
    state: Option<String>,
    /// Of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Of this caller, by the digest that `keys show` and `--json` have as `principal`
    #[arg(long, value_name = "DIGEST")]
    principal: Option<String>,
    /// Unchanged for this long, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    older_than: Option<Duration>,
    /// Changed within this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    newer_than: Option<Duration>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Go on after the place that an earlier list printed
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<String>,
}

impl Listing {
    pub(crate) fn tells_an_age(&self) -> bool {
        self.older_than.is_some() || self.newer_than.is_some()
    }

    /// The API's path and query, but for the place to go on from.
    pub(crate) fn path(&self, now_ms: u64) -> String {
        let ago = |time: Duration| {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            now_ms.saturating_sub(ms).to_string()
        };
        let conditions = [
            ("state", self.state.clone()),
            ("route", self.route.clone()),
            ("principal", self.principal.clone()),
            ("updated_before_ms", self.older_than.map(ago)),
            ("updated_from_ms", self.newer_than.map(ago)),
        ];
        let mut path = format!("/api/v1/keys?limit={}", self.limit);
        for (name, value) in conditions {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", encoded(&value));
            }
        }
        path
    }
}

#[derive(Debug, Args)]
pub(crate) struct Found {
    /// The key, as the client sent it
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The method of its request
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    pub(crate) method: String,
    /// The path of its request, such as /payments
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) path: String,
    /// Who sent it: the Authorization value, claim or header that tells callers apart; nothing
    /// for anonymous
    #[arg(long, value_name = "CALLER")]
    pub(crate) caller: Option<String>,
}

/// Why, and about which execution.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The reason, for the audit trail
    #[arg(long, value_name = "TEXT", default_value = "by the command line")]
    pub(crate) reason: String,
    /// Only if this execution still holds the key, as `show` prints it
    #[arg(long, value_name = "EXECUTION")]
    pub(crate) execution: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Resolving {
    /// The record's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) outcome: Choice,
    /// With --completed: the status that retries get
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: u16,
    /// With --completed: a header that retries get, such as 'Location: /payments/7'; repeat for
    /// several
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    #[command(flatten)]
    pub(crate) why: Why,
}

impl Resolving {
    /// The headers, by name and value.
    ///
    /// # Errors
    /// The first that has no name.
    pub(crate) fn headers(&self) -> Result<Vec<(String, String)>, String> {
        let split = |line: &String| match line.split_once(':') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!(
                "--header {line:?}: write it as 'Location: /payments/7'"
            )),
        };
        self.headers.iter().map(split).collect()
    }
}

/// What happened, in the person's judgement.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("outcome").required(true))]
pub(crate) struct Choice {
    /// It happened, and retries get this file as the body of their answer; - for standard input
    #[arg(long, value_name = "FILE", group = "outcome")]
    completed: Option<PathBuf>,
    /// It happened, and there is no answer to give: retries are refused
    #[arg(long, group = "outcome")]
    without_response: bool,
    /// It did not happen and cannot any more: the next retry executes
    #[arg(long, group = "outcome")]
    released: bool,
    /// Have the API asked again
    #[arg(long, group = "outcome")]
    ask_again: bool,
}

/// One of the choices.
pub(crate) enum Outcome<'a> {
    Completed(&'a Path),
    WithoutResponse,
    Released,
    AskAgain,
}

impl Choice {
    pub(crate) fn choice(&self) -> Outcome<'_> {
        match &self.completed {
            Some(file) => Outcome::Completed(file),
            None if self.released => Outcome::Released,
            None if self.ask_again => Outcome::AskAgain,
            None => Outcome::WithoutResponse,
        }
    }
}
