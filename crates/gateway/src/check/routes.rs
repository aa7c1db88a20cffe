//! The risks of routes.

use std::time::Duration;

use http::Method;
use onlyonce_http::{Mode, Pattern, Settle};

use super::Checker;
use crate::config::{InFlightKind, KeyNeed, Place, Route, Source, UpstreamKind};

/// A client that retries from a queue or by hand does so within hours, not minutes.
const RETENTION_SHORT: Duration = Duration::from_secs(60 * 60);

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
                    self.warn("mode", "nothing is guarded: a retry can run twice");
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

    fn outcomes(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        if route.upstream == UpstreamKind::Opaque && route.release_after.is_some() {
            self.warn(
                &key("release_after"),
                "a dispatch delayed for longer than this executes twice: keep it only if that \
                 cannot happen",
            );
        }
        let forgotten = [Settle::NotStored, Settle::Released];
        for (range, settle) in route
            .statuses
            .iter()
            .filter(|(_, to)| forgotten.contains(to))
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

    /// A later route that an earlier one hides never decides anything.
    fn shadowed(&mut self, index: usize, route: &Route) {
        let earlier = self.config.routes.iter().take(index).find(|earlier| {
            let methods = route
                .methods
                .iter()
                .all(|method| earlier.methods.contains(method));
            let paths = earlier.path.as_ref().zip(route.path.as_ref());
            methods && paths.is_some_and(|(outer, inner)| covers(outer, inner))
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

/// Whether every path of `inner` is one of `outer`.
fn covers(outer: &Pattern, inner: &Pattern) -> bool {
    let (outer, inner) = (outer.to_string(), inner.to_string());
    let (mut outer, mut inner) = (outer.split('/').skip(1), inner.split('/').skip(1));
    loop {
        match (outer.next(), inner.next()) {
            (Some(rest), _) if rest.starts_with("{*") => return true,
            (_, Some(rest)) if rest.starts_with("{*") => return false,
            (Some(one), Some(part)) if one.starts_with('{') && !part.is_empty() => {}
            (Some(literal), Some(part)) if literal == part => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_another_when_it_matches_every_path_of_it() {
        let covers = |outer, inner| {
            let pattern = |text| Pattern::parse(text).unwrap();
            covers(&pattern(outer), &pattern(inner))
        };
        for (outer, inner) in [
            ("/a", "/a"),
            ("/{x}", "/a"),
            ("/{x}", "/{y}"),
            ("/{*x}", "/a/{b}"),
            ("/a/{*x}", "/a/{*y}"),
            ("/a/{*x}", "/a"),
            ("/{*x}", "/"),
        ] {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("/a", "/{x}"),
            ("/{x}", "/"),
            ("/{x}", "/{*y}"),
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("/a/{*x}", "/{*y}"),
        ] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }
}
