//! The risks of routes.

use std::time::Duration;

use http::Method;
use onlyonce_http::{Compare, KeyPlace, KeySyntax, Mode, Settle, Statuses};

use super::Checker;
use crate::config::{InFlightKind, KeyNeed, Place, Route, Source, StoreUrl, UpstreamKind};

/// A client that retries from a queue or by hand does so within hours, not minutes.
const RETENTION_SHORT: Duration = Duration::from_secs(60 * 60);

/// After these, the next attempt runs.
const FORGOTTEN: [Settle; 2] = [Settle::NotStored, Settle::Released];

impl Checker<'_> {
    /// Every route; the default one first, because others inherit its risks.
    pub(super) fn routes(&mut self) {
        let config = self.config;
        let last = Route::last(&config.top, &config.upstream, &config.limits);
        self.route(&last, &ToString::to_string);
        let known: Vec<_> = self
            .report
            .warnings
            .iter()
            .map(|found| found.text.clone())
            .collect();
        for (index, route) in config.routes.iter().enumerate() {
            let before = self.report.warnings.len();
            self.route(route, &|name| format!("route[{index}].{name}"));
            let own = self
                .report
                .warnings
                .split_off(before)
                .into_iter()
                .filter(|found| {
                    let key = format!("route[{index}].{}", found.key);
                    config.place(&key) != Place::Default || !known.contains(&found.text)
                });
            self.report.warnings.extend(own);
            self.shadowed(index, route);
        }
    }

    /// The risks of one route; `key` says where its values are written.
    fn route(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        match route.mode {
            Mode::Off => {
                // A route that is off was meant to be; everything being off was not.
                if key("mode") == "mode" {
                    self.off_by_default();
                }
                return;
            }
            Mode::Observe => {
                self.warn(
                    &key("mode"),
                    "nothing is protected here, only reported: a retry can run twice",
                );
            }
            Mode::Enforce => {}
        }
        if route.key == KeyNeed::Optional {
            self.warn(
                &key("key"),
                "a request without a key is not protected: a retry of it runs twice",
            );
        }
        self.times(route, key);
        self.outcomes(route, key);
        self.conventions(route, key);
        if route.cookies {
            let text =
                "a stored cookie is given again to every retry: a session may outlive its end";
            self.warn(&key("cookies"), text);
        }
        if !route.scope.principal && self.config.principal.source != Source::None {
            self.warn(
                &key("scope"),
                "callers share keys: one gets the stored response of another; add \"principal\"",
            );
        }
        if route.methods.iter().any(Method::is_safe) {
            let text = "reading needs no key: a guarded GET answers with what was true once";
            self.warn(&key("methods"), text);
        }
    }

    fn off_by_default(&mut self) {
        let guards = |route: &Route| route.mode == Mode::Enforce;
        let text = if self.config.routes.iter().any(guards) {
            "only what a route names is guarded, and not what the API may take for it, as \
             `/payments.json` for `/payments`: keep \"enforce\" here, and switch off what needs it by \
             routes"
        } else {
            "nothing is guarded: a retry can run twice"
        };
        self.warn("mode", text);
    }

    fn times(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let (upstream, engine) = (&self.config.upstream, &self.config.engine);
        if route.retention < RETENTION_SHORT {
            let text = "a retry after less than an hour runs again: keep keys for a day";
            self.warn(&key("retention"), text);
        }
        if route.in_flight == InFlightKind::Wait && route.wait > upstream.total_timeout {
            let text = "nothing takes longer than `total_timeout` of [upstream]: wait no longer";
            self.warn(&key("wait"), text);
        }
        if route.lease <= engine.store_timeout {
            self.warn(
                &key("lease"),
                "one slow operation of the store (`store_timeout` of [engine]) outlasts it, and the \
                 outcome becomes unknown: make it longer",
            );
        }
        if route.lease > upstream.total_timeout.saturating_mul(2) {
            self.warn(
                &key("lease"),
                "after a crash, a key is held for longer than any request takes (`total_timeout` of \
                 [upstream]): a shorter one is noticed sooner, and it is renewed",
            );
        }
    }

    /// Whether `release_after` ever releases, and what that means.
    fn releasing(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let Some(release_after) = route.release_after else {
            return;
        };
        if route.upstream != UpstreamKind::Opaque {
            return;
        }
        if route.probe.is_none() {
            self.warn(
                &key("release_after"),
                "only the answer to a question releases, and nobody asks: name a `probe`",
            );
            return;
        }
        if asked_for(route) < release_after {
            self.warn(
                &key("release_after"),
                "the last question is asked before, so nothing is released: raise \
                 `reconcile_attempts` or `reconcile_delay_max`",
            );
            return;
        }
        self.warn(
            &key("release_after"),
            "a dispatch delayed for longer than this executes twice: keep it only if that cannot \
             happen",
        );
    }

    fn has_tokens(&self) -> bool {
        matches!(self.config.top.store, StoreUrl::Postgres(_))
    }

    fn outcomes(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        self.releasing(route, key);
        if route.upstream == UpstreamKind::Transactional && !self.has_tokens() {
            self.warn(
                &key("upstream"),
                "only a PostgreSQL store gives the API a token to complete the key with; without \
                 one a slow dispatch still has its effect after \"not found\" released the key, and \
                 the retry has another: use `store = \"postgres://…\"`, or \"opaque\"",
            );
        }
        for (range, settle) in route
            .statuses
            .iter()
            .filter(|(_, to)| FORGOTTEN.contains(to))
        {
            if *range.start() < 300 {
                self.warn(
                    &key("statuses"),
                    format!(
                        "a success that is \"{}\" is forgotten: its retry runs again",
                        settle.as_str()
                    ),
                );
            }
            if *range.start() < 400 && *range.end() >= 300 {
                self.warn(
                    &key("statuses"),
                    format!(
                        "a redirect may lead to what was made (303); one that is \"{}\" is \
                         forgotten, and its retry runs again",
                        settle.as_str()
                    ),
                );
            }
            if *range.end() >= 500
                && route.upstream == UpstreamKind::Opaque
                && *range != (503..=503)
            {
                self.warn(
                    &key("statuses"),
                    format!(
                        "after a server error the effect may have happened; \"{}\" lets it happen \
                         again: use \"unknown\"",
                        settle.as_str()
                    ),
                );
            }
        }
    }

    /// What a profile chose, and somebody who named it may not expect.
    fn conventions(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let (name, profile) = (route.profile.name(), route.profile.profile());
        if route.compare == Compare::KeyOnly {
            let place = if self.config.place(&key("compare")) == Place::Default {
                "profile"
            } else {
                "compare"
            };
            self.warn(
                &key(place),
                "payloads are not compared: a key that is used for another payload gets the first \
                 answer, as if it had been executed; write `compare = \"payload\"`",
            );
        }
        self.forgotten_by_profile(route, key);
        self.respelt(route, key);
        if profile.trusts_callers() && self.config.principal.source == Source::Authorization {
            self.warn(
                &key("profile"),
                format!(
                    "with \"{name}\" callers differ by their access key id alone, which is not \
                     verified here: whoever knows an id, a token and the payload gets the stored \
                     response"
                ),
            );
        }
    }

    /// Whether the API may get a key in another spelling than its client wrote, and expect that one.
    fn respelt(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let rule = route.key_rule(&route.profile.profile());
        let is_respelt = rule.sources.iter().any(|source| match source.place {
            KeyPlace::Header { syntax, .. } => syntax == KeySyntax::Either,
            KeyPlace::Json { .. } | KeyPlace::Form { .. } | KeyPlace::Query { .. } => false,
        });
        if route.upstream != UpstreamKind::Dedupes || route.forward_key.is_some() || !is_respelt {
            return;
        }
        let instead = if route.key_from.is_empty() {
            "use a profile"
        } else {
            "use, instead of `key_from`, a profile"
        };
        self.warn(
            &key("upstream"),
            format!(
                "the API gets every key without quotes, however clients write it: if it reads keys as \
                 structured fields, in quotes, {instead} whose key has `syntax = \"structured\"`; if \
                 not, `syntax = \"bare\"` says so. Before such a change settle all unknown keys: in \
                 another spelling, a key that runs again is a new one to the API"
            ),
        );
    }

    /// Which answers a profile forgets, so that their retries run again.
    fn forgotten_by_profile(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let (name, profile) = (route.profile.name(), route.profile.profile());
        let statuses = route.statuses.table(profile.table(Statuses::default()));
        // What the route itself says about a status is not the profile's choice.
        let is_said = |status: u16| {
            let mut said = route.statuses.iter();
            said.any(|(range, _)| range.contains(&status))
        };
        let is_forgotten =
            |status: u16| !is_said(status) && FORGOTTEN.contains(&statuses.of(status));
        if (200..=399).any(is_forgotten) {
            self.warn(
                &key("profile"),
                format!(
                    "with \"{name}\" a success or a redirect is forgotten, and its retry runs again: \
                     leave 2xx and 3xx out of the profile's `statuses`"
                ),
            );
        }
        // A 503 says that nothing was done.
        let reruns = (500..=599).any(|status| status != 503 && is_forgotten(status));
        if reruns && route.upstream == UpstreamKind::Opaque {
            self.warn(
                &key("profile"),
                format!(
                    "with \"{name}\" a request runs again after a server error, and its effect may \
                     have happened: write `statuses = {{ \"5xx\" = \"unknown\" }}` unless a 5xx of \
                     this API means that nothing did"
                ),
            );
        }
    }

    /// A later route that an earlier one hides never decides anything.
    fn shadowed(&mut self, index: usize, route: &Route) {
        let earlier = self.config.routes.iter().take(index).find(|earlier| {
            let methods = route
                .methods
                .iter()
                .all(|method| earlier.methods.contains(method));
            let paths = earlier.path.as_ref().zip(route.path.as_ref());
            methods && paths.is_some_and(|(outer, inner)| outer.covers(inner))
        });
        if let Some(earlier) = earlier {
            let text = format!(
                "the route \"{}\" above matches everything that this one does: put this one first",
                earlier.label()
            );
            self.warn(&format!("route[{index}].path"), text);
        }
    }
}

/// How long after an outcome became unknown its last question is asked, about.
fn asked_for(route: &Route) -> Duration {
    // The first two pauses are the same: before the first question, and after it.
    let mut pause = route.reconcile_delay;
    let mut total = pause;
    for _ in 1..route.reconcile_attempts.get() {
        total = total.saturating_add(pause);
        pause = pause.saturating_mul(2).min(route.reconcile_delay_max);
    }
    total
}
