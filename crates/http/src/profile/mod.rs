//! The conventions of known APIs, as data.
//!
//! A profile says where the key is, what is remembered of a request and for how long, and how
//! refusals look. It is read from TOML; the presets are the files in `profiles/`, and one of your
//! own has the same form and may begin where a preset ends (`extends = "stripe"`).
//!
//! ```
//! use onlyonce_core::RouteName;
//! use onlyonce_http::{Config, Pattern, Profile, Route, Routes};
//!
//! let mine = Profile::parse(
//!     r#"
//!     extends = "stripe"
//!     retention = "7d"
//!
//!     [answers.in_flight]
//!     status = 425
//!     body = '{"error":{"type":"busy","message":"{detail}"}}'
//!     "#,
//! )?;
//! let name = RouteName::new("payments").unwrap_or_default();
//! let route = Route::new(name, [], Pattern::parse("/v1/{*rest}")?).profile(&mine)?;
//! let config = Config {
//!     routes: Routes::new(vec![route]),
//!     ..Config::default()
//! };
//! # assert_eq!(config.routes.iter().next().unwrap().policy.retention().as_secs(), 7 * 86_400);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! | here | what it is |
//! |---|---|
//! | `read`, `answers`, `table`, `units` | from TOML, with the line of every mistake |
//! | `apply` | what a profile makes of a route |
//! | `describe` | a profile in words, for `docs/profiles.md` and the command line |

mod answers;
mod apply;
mod describe;
mod read;
mod table;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
mod tests;
mod units;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce_core::ScopeParts;
use thiserror::Error;

use crate::{Caller, Compare, Dialect, FirstSent, InFlight, KeySource, Pattern, Settle};

/// The conventions of an API. What is `None` or empty is left to the route.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Its name; empty for one that was parsed by itself.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// What it was made after.
    pub follows: String,
    /// What somebody who chooses it should know.
    pub notes: Vec<String>,
    /// The methods that are guarded.
    pub methods: Option<Vec<Method>>,
    /// Where the key is.
    pub sources: Option<Vec<KeySource>>,
    /// Whether it must be there.
    pub required: Option<bool>,
    /// The header that says when a request was first sent.
    pub first_sent: Option<FirstSent>,
    /// Who the caller is.
    pub caller: Option<Caller>,
    /// What tells a key from the same key elsewhere.
    pub scope: Option<ScopeParts>,
    /// How long a settled key is remembered.
    pub retention: Option<Duration>,
    /// How long on these paths.
    pub paths: Vec<(Pattern, Duration)>,
    /// What a retry must have in common with the first request.
    pub compare: Option<Compare>,
    /// Headers that count besides those of the route.
    pub fingerprint_headers: Vec<HeaderName>,
    /// What a retry gets while the first request is still at work.
    pub in_flight: Option<InFlight>,
    /// What statuses mean, over the defaults. Widest first: a narrower entry wins.
    pub statuses: Vec<(RangeInclusive<u16>, Settle)>,
    /// What a second use of a completed key gets.
    pub reuse: Option<ProfileReuse>,
    /// Whether cookies are stored and given again.
    pub cookies: Option<bool>,
    /// Headers that are never stored.
    pub drop_headers: Vec<HeaderName>,
    /// How refusals look, and which headers are added.
    pub dialect: Arc<Dialect>,
}

/// What a second use of a completed key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileReuse {
    /// The first answer.
    Replay,
    /// A refusal: the key was a token for one use.
    SingleUse,
    /// A refusal that names what the first request made.
    Conflict,
}

/// Something in a profile that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct ProfileError {
    /// Where, from 1.
    pub line: usize,
    /// Why, and what to write instead.
    pub reason: String,
}

/// Name and text of each preset.
macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),+]
    };
}

const PRESETS: [(&str, &str); 16] = presets![
    "ietf",
    "stripe",
    "stripe-v2",
    "acp",
    "paypal",
    "square",
    "adyen",
    "checkout",
    "gocardless",
    "modern-treasury",
    "telnyx",
    "aws-dynamodb",
    "aws-ec2",
    "azure",
    "single-use",
    "success-only",
];

impl Profile {
    /// The preset of this name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let profile = Self::parse(Self::source(name)?).ok()?;
        Some(Self {
            name: name.to_owned(),
            ..profile
        })
    }

    /// The names of all presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// A preset as it is written.
    #[must_use]
    pub fn source(name: &str) -> Option<&'static str> {
        let preset = PRESETS.iter().find(|(preset, _)| *preset == name);
        preset.map(|(_, text)| *text)
    }

    /// Reads one profile.
    ///
    /// # Errors
    /// The first thing that cannot be used.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        read::one(text).map_err(first)
    }

    /// Reads every `[profiles.NAME]` of a larger file, whose other keys are not looked at. One
    /// may extend another.
    ///
    /// # Errors
    /// Everything that cannot be used.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Vec<ProfileError>> {
        read::all(text)
    }

    /// How long a settled key is remembered on the paths of a pattern.
    #[must_use]
    pub fn retention_of(&self, pattern: &Pattern) -> Option<Duration> {
        let own = self.paths.iter().find(|(paths, _)| paths.covers(pattern));
        own.map(|(_, retention)| *retention).or(self.retention)
    }
}

fn first(errors: Vec<ProfileError>) -> ProfileError {
    let first = errors.into_iter().min_by_key(|error| error.line);
    first.unwrap_or(ProfileError {
        line: 1,
        reason: "this is no profile".to_owned(),
    })
}
