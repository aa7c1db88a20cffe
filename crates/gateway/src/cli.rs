//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::demo::DemoArgs;
use crate::operate::{DlqArgs, KeysArgs};

/// Makes writes safe to retry: a gateway in front of any HTTP API.
#[derive(Debug, Parser)]
#[command(name = "onlyonce", version, about, arg_required_else_help = true)]
#[command(after_help = "Try it without any set-up:  onlyonce demo\n\
    Put it in front of an API:  onlyonce serve --upstream http://127.0.0.1:9000\n\n\
    Exit codes: 0 done, 1 failed, 2 usage.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stand in front of an API and make its writes safe to retry
    Serve(ServeArgs),
    /// See it work: a payments API, the gateway, and clients with a bad network
    Demo(DemoArgs),
    /// Say what is wrong or risky in a configuration file
    Check(CheckArgs),
    /// Show whose conventions can be followed
    #[command(subcommand)]
    Profiles(ProfilesCommand),
    /// Make or update what a store needs on its server: tables, functions, indexes
    Migrate(MigrateArgs),
    /// Copy every record from one store to another; gateways may go on using the first, unless it
    /// is embedded
    Copy(CopyArgs),
    /// Look at the keys of a running gateway, and decide about them
    Keys(KeysArgs),
    /// Dead letters: keys whose outcome nobody could find out
    Dlq(DlqArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without a file the defaults are: POST and PATCH need an Idempotency-Key, \
    callers differ by their Authorization header, answers are kept for 24 hours in \
    ./onlyonce-data. config.default.toml, in the project's sources, says everything that can be \
    set; `--print-config` shows what is in force. The keys of all sections but [[route]], \
    [[probe]], [[webhook]] and [profiles] can also be set by an environment variable, such as \
    ONLYONCE_UPSTREAM_URLS. Flags win over the environment, which wins over the file."
)]
pub(crate) struct ServeArgs {
    /// The API's address, such as `http://127.0.0.1:9000`; repeat for several
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Vec<String>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Where operators connect [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Where keys are kept: `embedded:DIR`, `postgres://…`, `redis://…`, `redis-cluster://…`,
    /// `redis-sentinel://…`, `dynamodb://TABLE` or `memory:` [default: `embedded:./onlyonce-data`]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Make or update the store's tables first
    #[arg(long)]
    pub(crate) migrate: bool,
    /// Whose conventions to follow; `onlyonce profiles list` shows them [default: ietf]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Whether a write must have a key: required or optional [default: required]
    #[arg(long, value_name = "NEED")]
    pub(crate) key: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "ONLYONCE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print the configuration in force, without keys that have no value, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfilesCommand {
    /// All of them, one a line
    List(ProfileArgs),
    /// What one of them says
    Show {
        /// Its name
        name: String,
        /// Print it as a part of a configuration file, to begin one of your own with
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        #[command(flatten)]
        args: ProfileArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// A configuration file, for its own profiles
    #[arg(long, value_name = "FILE", env = "ONLYONCE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Safe to run twice, and by several processes at once. A password is best \
    given in ONLYONCE_STORE, which other users of the machine do not see."
)]
pub(crate) struct MigrateArgs {
    /// The store, as for `serve`
    #[arg(
        long,
        value_name = "URL",
        env = "ONLYONCE_STORE",
        hide_env_values = true
    )]
    pub(crate) store: String,
}

#[derive(Debug, Args)]
#[command(after_help = "To move to another store with little interruption:\n\
    1. copy while the gateways serve from the first store (not from an embedded one, whose folder \
    belongs to its gateway: leave this step out);\n\
    2. stop the gateways, copy again: only what changed is written;\n\
    3. start the gateways on the second store.\n\n\
    Rows that the second store already has in a newer form are left alone. A copy that was \
    interrupted goes on with --after and the id that it printed, or simply begins again. Passwords \
    are best given in ONLYONCE_COPY_FROM and ONLYONCE_COPY_TO, which other users of the machine do \
    not see.")]
pub(crate) struct CopyArgs {
    /// The store to read
    #[arg(
        long,
        value_name = "URL",
        env = "ONLYONCE_COPY_FROM",
        hide_env_values = true
    )]
    pub(crate) from: String,
    /// The store to write
    #[arg(
        long,
        value_name = "URL",
        env = "ONLYONCE_COPY_TO",
        hide_env_values = true
    )]
    pub(crate) to: String,
    /// Begin after this record: the id that an interrupted copy printed
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// Print one JSON object at the end instead of a progress bar
    #[arg(long)]
    pub(crate) json: bool,
}
