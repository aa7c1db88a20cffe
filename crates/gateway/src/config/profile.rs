//! `profile = "NAME"`: a preset, or one of the file's own `[profiles.NAME]`, and what it makes of a
//! route.

use std::sync::Arc;

use onlyonce_http::{
    Caller, InFlight, KeyPlace, KeyRule, KeySource, OnReuse, Profile, ProfileReuse, ResponsePolicy,
    Statuses,
};

use super::error::did_you_mean;
use super::field::{Field, Wrong, quoted, text};
use super::raw::Value;
use super::route::Route;
use super::sections::{Limits, Top, Upstream};
use super::types::{InFlightKind, KeyNeed, Source};

/// A profile by its name. One of the file's own is found once the file was read.
#[derive(Debug, Clone)]
pub(crate) struct ProfileChoice {
    name: String,
    found: Option<Arc<Profile>>,
}

impl ProfileChoice {
    /// The preset of this name, if there is one.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            found: Profile::preset(name).map(Arc::new),
        }
    }

    /// The preset of this name, or one of these.
    pub(crate) fn among(name: &str, own: &[Arc<Profile>]) -> Self {
        let mut choice = Self::new(name);
        let found = own.iter().find(|profile| profile.name == name);
        choice.found = choice.found.or_else(|| found.cloned());
        choice
    }

    /// As it was written.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it says; nothing while it is not found.
    pub(crate) fn profile(&self) -> Arc<Profile> {
        self.found.clone().unwrap_or_default()
    }

    /// Looks for it among the file's own.
    ///
    /// # Errors
    /// When there is none, with the name that was meant.
    pub(crate) fn find(&mut self, own: &[Arc<Profile>]) -> Result<(), String> {
        *self = Self::among(&self.name, own);
        if self.found.is_some() {
            return Ok(());
        }
        let mut names: Vec<&str> = Profile::presets().collect();
        names.extend(own.iter().map(|profile| profile.name.as_str()));
        let near = did_you_mean(&self.name, names);
        let fix = near.unwrap_or_else(|| {
            "`onlyonce profiles list` shows them, and [profiles.NAME] makes one".to_owned()
        });
        Err(format!("there is no profile \"{}\": {fix}", self.name))
    }
}

impl Default for ProfileChoice {
    fn default() -> Self {
        Self::new("ietf")
    }
}

impl Field for ProfileChoice {
    fn read(value: &Value) -> Result<Self, Wrong> {
        text(value, "ietf").map(Self::new)
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.name))
    }
}

impl Route {
    /// A route with a profile of its own, which wins over the choices that hold for all.
    pub(crate) fn with_profile(
        top: &Top,
        upstream: &Upstream,
        limits: &Limits,
        profile: &ProfileChoice,
    ) -> Self {
        let mut top = Top {
            profile: profile.clone(),
            key_header: None,
            key_from: Vec::new(),
            ..top.clone()
        };
        top.adopt(&profile.profile());
        Self::new(&top, upstream, limits)
    }

    /// What a profile says about the keys that only routes have.
    pub(super) fn adopt(&mut self, profile: &Profile) {
        if let Some(methods) = &profile.methods {
            self.methods.clone_from(methods);
        }
        self.scope = profile.scope.unwrap_or(self.scope);
        self.compare = profile.compare.unwrap_or(self.compare);
        self.cookies = profile.cookies.unwrap_or(self.cookies);
        self.single_use = profile.reuse == Some(ProfileReuse::SingleUse);
    }

    /// Everything in which the route and its profile decide together.
    pub(super) fn speaking(
        &self,
        profile: &Profile,
        source: &Source,
        route: onlyonce_http::Route,
    ) -> onlyonce_http::Route {
        onlyonce_http::Route {
            key: self.key_rule(profile),
            caller: match &profile.caller {
                Some(caller) if *source == Source::Authorization => caller.clone(),
                Some(_) | None => Caller::Configured,
            },
            compare: self.compare,
            on_reuse: match profile.reuse {
                Some(ProfileReuse::Conflict) => OnReuse::Conflict,
                Some(ProfileReuse::Replay | ProfileReuse::SingleUse) | None => OnReuse::Replay,
            },
            dialect: Arc::clone(&profile.dialect),
            in_flight: match self.in_flight {
                InFlightKind::Reject => InFlight::Reject,
                InFlightKind::Wait => InFlight::Wait(self.wait),
                InFlightKind::Accepted => InFlight::Accepted,
            },
            statuses: self.statuses.table(profile.table(Statuses::default())),
            response: ResponsePolicy {
                body_bytes_max: self.stored_response,
                allow: self.store_headers.clone(),
                deny: [&*self.drop_headers, &*profile.drop_headers].concat(),
                cookies: self.cookies,
            },
            ..route
        }
    }

    /// Where the key is: as the route says, or else as its profile does. A header by another
    /// name keeps the form that the profile gives it.
    pub(crate) fn key_rule(&self, profile: &Profile) -> KeyRule {
        let given = profile.sources.clone();
        let given = given.unwrap_or_else(|| KeyRule::default().sources);
        let sources = match &self.key_header {
            _ if !self.key_from.is_empty() => {
                self.key_from.iter().cloned().map(KeySource::at).collect()
            }
            None => given,
            Some(header) => {
                let mut given = given.into_iter();
                let renamed = given.find_map(|mut source| match &mut source.place {
                    KeyPlace::Header { name, .. } => {
                        name.clone_from(header);
                        Some(source)
                    }
                    KeyPlace::Json { .. } | KeyPlace::Form { .. } | KeyPlace::Query { .. } => None,
                });
                match renamed {
                    Some(source) => vec![source],
                    None => KeyRule::header(header.clone()).sources,
                }
            }
        };
        KeyRule {
            sources,
            required: self.key == KeyNeed::Required,
            first_sent: profile.first_sent.clone(),
        }
    }
}
