//! Why a store cannot be opened: one line each, naming the setting to change.

use thiserror::Error;

/// A store that cannot be opened, or a table that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL makes no sense.
    #[error("{reason}; write dynamodb://TABLE?region=REGION")]
    Url {
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// Nobody said which region.
    #[error("no AWS region: add ?region=REGION to --store, or set AWS_REGION")]
    NoRegion,
    /// Nobody said who asks.
    #[error(
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or \
         give the machine a role ({reason})"
    )]
    NoCredentials {
        /// What the search for them said.
        reason: Box<str>,
    },
    /// There is no such table.
    #[error("there is no table {table} in {region}: run `onlyonce migrate --store {url}`")]
    NoTable {
        /// Its name.
        table: Box<str>,
        /// Where it was looked for.
        region: Box<str>,
        /// The store's URL.
        url: Box<str>,
    },
    /// There is a table, and it is another one.
    #[error("the table {table} is not one of onlyonce's: {reason}; use another table in --store")]
    OtherTable {
        /// Its name.
        table: Box<str>,
        /// What is different.
        reason: Box<str>,
    },
    /// A newer onlyonce made the table.
    #[error(
        "the table {table} has layout {layout}, and this build knows up to {known}: upgrade \
         onlyonce"
    )]
    NewerTable {
        /// Its name.
        table: Box<str>,
        /// Its layout.
        layout: u64,
        /// The newest layout known here.
        known: u64,
    },
    /// The credentials may not do this.
    #[error("AWS denies {action} on the table {table}: allow dynamodb:{action} ({reason})")]
    Denied {
        /// The API's action.
        action: &'static str,
        /// The table's name.
        table: Box<str>,
        /// What AWS said.
        reason: Box<str>,
    },
    /// The credentials are wrong, or this machine's clock is.
    #[error(
        "AWS does not accept the credentials: check AWS_ACCESS_KEY_ID and this machine's clock ({reason})"
    )]
    BadCredentials {
        /// What AWS said.
        reason: Box<str>,
    },
    /// Nobody answers.
    #[error(
        "DynamoDB does not answer at {endpoint}: check region and endpoint in --store ({reason})"
    )]
    Unreachable {
        /// Where it was looked for.
        endpoint: Box<str>,
        /// What happened.
        reason: Box<str>,
    },
    /// DynamoDB refused for another reason.
    #[error("DynamoDB refuses {action} on the table {table}: {reason}")]
    Refused {
        /// The API's action.
        action: &'static str,
        /// The table's name.
        table: Box<str>,
        /// What it said.
        reason: Box<str>,
    },
    /// The table is being made or changed for too long.
    #[error("the table {table} is still {status} after {seconds} s: try again later")]
    NotReady {
        /// Its name.
        table: Box<str>,
        /// Its status.
        status: Box<str>,
        /// How long it was waited for.
        seconds: u64,
    },
}
