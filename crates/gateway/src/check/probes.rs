//! The risks of probes and webhooks.

use std::path::Path;

use onlyonce_http::reconcile::{Template, Variable};

use super::Checker;
use crate::config::{By, Probe, Route, Source, UpstreamKind};
use crate::reconcile::{credential, verifier};

impl Checker<'_> {
    pub(super) fn probes(&mut self) {
        let config = self.config;
        for (index, probe) in config.probes.iter().enumerate() {
            let key = |name: &str| format!("probe[{index}].{name}");
            self.question(probe, &key);
            let asks = |route: &Route| route.probe.is_some() && route.probe == probe.name;
            if !config.routes.iter().any(asks) {
                self.warn(
                    &key("name"),
                    "no route names it, so it is never asked: add `probe`",
                );
            }
            for (_, file) in &probe.headers_file.0 {
                self.secret_file(&key("headers_file"), file, credential(file).err());
            }
            self.trusted(&key("ca_file"), "ca_file", probe.ca_file.as_deref());
        }
        for (index, route) in config.routes.iter().enumerate() {
            self.asking(route, &|name: &str| format!("route[{index}].{name}"));
        }
    }

    fn question(&mut self, probe: &Probe, key: &dyn Fn(&str) -> String) {
        let places = || probe.templates().flat_map(Template::variables);
        let has = |wanted: &Variable| places().any(|place| place == wanted);
        let one_caller = self.config.principal.source == Source::None;
        if has(&Variable::Key) && !has(&Variable::Principal) && !one_caller {
            self.warn(
                &key("url"),
                "two callers may use the same key, and {key} alone finds the payment of either: \
                 whoever is asked must answer for one caller only; ask by {operation} or \
                 {child:NAME}, or add {principal}",
            );
        }
        let is_chosen = |place: &Variable| matches!(place, Variable::Body(_) | Variable::Path(_));
        let is_own = |place: &Variable| {
            matches!(
                place,
                Variable::Operation | Variable::Child(_) | Variable::Principal
            )
        };
        if places().any(is_chosen) && !places().any(is_own) && !has(&Variable::Key) && !one_caller {
            self.warn(
                &key("url"),
                "what the client chose finds whatever else is called so, also another caller's: \
                 ask by {operation} or {child:NAME}, or add {principal}",
            );
        }
        if probe.about.is_none() {
            self.warn(
                &key("url"),
                "an API that ignores a parameter of the question answers with somebody else's \
                 object: add `about`",
            );
        }
        let in_the_clear = probe.url.as_ref().and_then(|url| url.0.authority());
        if let Some((false, host)) = in_the_clear
            && !is_loopback(host)
        {
            let text = "the question and its credentials can be read on the way; use https";
            self.warn(&key("url"), text);
        }
    }

    fn asking(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let named = |probe: &&Probe| route.probe.is_some() && route.probe == probe.name;
        let Some(probe) = self.config.probes.iter().find(named) else {
            return;
        };
        if route.upstream == UpstreamKind::Opaque && route.release_after.is_none() {
            self.warn(
                &key("probe"),
                "the API guarantees nothing here (`upstream = \"opaque\"`), so \"not found\" frees \
                 no key: it leads to a dead letter, and a person decides",
            );
        }
        if probe.timeout > route.reconcile_delay {
            self.warn(
                &key("reconcile_delay"),
                "the next question ends the one before: make it at least `timeout` of the probe",
            );
        }
    }

    pub(super) fn webhooks(&mut self) {
        let config = self.config;
        for (index, webhook) in config.webhooks.iter().enumerate() {
            let key = |name: &str| format!("webhook[{index}].{name}");
            let tells = |route: &Route| route.webhook.is_some() && route.webhook == webhook.name;
            if !config.routes.iter().any(tells) {
                self.warn(
                    &key("name"),
                    "no route names it, so it decides nothing: add `webhook`",
                );
            }
            if let Some(file) = &webhook.secret_file {
                self.secret_file(&key("secret_file"), file, verifier(webhook).err());
            }
            if webhook.find.as_ref().is_some_and(|find| find.by == By::Key) {
                self.warn(
                    &key("match"),
                    "a key that two callers use, or one caller after the other, names neither's \
                     operation: its webhooks are refused; use \"operation\" or \"child:NAME\"",
                );
            }
        }
        let listen = config.webhook_listener.listen;
        if listen.is_none() && !config.webhooks.is_empty() {
            let text = "webhooks have nowhere to come in: add `listen` to [webhooks]";
            self.warn("webhook[0].name", text);
        }
        if listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            self.warn(
                "webhooks.listen",
                "webhooks come in the clear, and can be read on the way: listen on 127.0.0.1 \
                 behind a proxy that has TLS",
            );
        }
    }

    /// A file with a secret in it, and what is wrong with what it holds.
    fn secret_file(&mut self, key: &str, file: &Path, wrong: Option<String>) {
        if let Some(reason) = wrong {
            self.error(key, reason);
        } else if super::readable_by_all(file) {
            let file = file.display();
            let text = format!("{file} can be read by everybody: `chmod 600 {file}`");
            self.warn(key, text);
        }
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = authority.parse::<http::uri::Authority>();
    host.is_ok_and(|host| {
        let host = host.host().trim_matches(['[', ']']);
        let ip = host.parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
    })
}
