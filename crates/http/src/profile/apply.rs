//! What a profile makes of a route.

use std::sync::Arc;

use http::Method;
use onlyonce_core::fingerprint::FingerprintRules;
use onlyonce_core::{FingerprintPolicy, Policy, PolicyError, Reuse, RouteName};

use super::{Profile, ProfileReuse};
use crate::{Caller, OnReuse, Pattern, Route, Routes, Statuses};

impl Route {
    /// Takes over everything that a profile says.
    ///
    /// # Errors
    /// When its times do not fit those of the route.
    pub fn profile(mut self, profile: &Profile) -> Result<Self, PolicyError> {
        if let Some(methods) = &profile.methods {
            self.methods.clone_from(methods);
        }
        if let Some(sources) = &profile.sources {
            self.key.sources.clone_from(sources);
        }
        self.key.required = profile.required.unwrap_or(self.key.required);
        self.key.first_sent = profile.first_sent.clone().or(self.key.first_sent);
        self.caller = profile.caller.clone().unwrap_or(self.caller);
        self.compare = profile.compare.unwrap_or(self.compare);
        self.in_flight = profile.in_flight.unwrap_or(self.in_flight);
        self.statuses = profile.table(self.statuses);
        self.response.cookies = profile.cookies.unwrap_or(self.response.cookies);
        self.response
            .deny
            .extend(profile.drop_headers.iter().cloned());
        if profile.reuse == Some(ProfileReuse::Conflict) {
            self.on_reuse = OnReuse::Conflict;
        }
        self.dialect = Arc::clone(&profile.dialect);
        self.policy = profile.policy(&self.policy, &self.pattern)?;
        Ok(self)
    }
}

impl Routes {
    /// Everything that a profile is about, under one set of routes: those of its own paths, and
    /// one for the rest.
    ///
    /// # Errors
    /// As [`Route::profile`].
    pub fn of(profile: &Profile) -> Result<Self, PolicyError> {
        let route = |name: &str, pattern: &Pattern| {
            let name = RouteName::new(name).unwrap_or_default();
            let methods = [Method::POST, Method::PATCH];
            Route::new(name, methods, pattern.clone()).profile(profile)
        };
        let own = profile.paths.iter();
        let own = own.map(|(pattern, _)| route(&pattern.to_string(), pattern));
        let routes = own.chain([route("default", &Pattern::any())]);
        Ok(Self::new(routes.collect::<Result<_, _>>()?))
    }
}

impl Profile {
    /// What statuses mean, over another table.
    #[must_use]
    pub fn table(&self, base: Statuses) -> Statuses {
        let rules = self.statuses.iter().cloned();
        rules.fold(base, |table, (range, settle)| table.set(range, settle))
    }

    /// Whether callers are told apart by something that anybody can write.
    #[must_use]
    pub fn trusts_callers(&self) -> bool {
        self.caller == Some(Caller::AwsAccessKey)
    }

    fn policy(&self, base: &Policy, pattern: &Pattern) -> Result<Policy, PolicyError> {
        let reuse = match self.reuse {
            Some(ProfileReuse::SingleUse) => Reuse::SingleUse,
            Some(ProfileReuse::Replay | ProfileReuse::Conflict) => Reuse::Replay,
            None => base.reuse(),
        };
        let retention = self.retention_of(pattern).unwrap_or(base.retention());
        let builder = Policy::builder()
            .key(*base.key())
            .scope(self.scope.unwrap_or(base.scope()))
            .fingerprint(self.fingerprint(base.fingerprint()))
            .lease(base.lease())
            .retention(retention)
            .reuse(reuse)
            .expiry(base.expiry())
            .upstream(base.upstream())
            .reconcile(base.reconcile())
            .response_schema(base.response_schema());
        builder.build()
    }

    fn fingerprint(&self, base: &FingerprintPolicy) -> FingerprintPolicy {
        if self.fingerprint_headers.is_empty() {
            return base.clone();
        }
        let mut rules: FingerprintRules = base.rules().clone();
        let names = self.fingerprint_headers.iter();
        rules
            .headers
            .extend(names.map(|name| name.as_str().to_owned()));
        // The names are header names, and the rest was accepted before.
        FingerprintPolicy::new(rules).unwrap_or_else(|_| base.clone())
    }
}
