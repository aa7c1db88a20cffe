//! What single keys cannot know: values that contradict each other.

use std::collections::BTreeMap;

use onlyonce_core::RouteName;
use onlyonce_http::{KeyPlace, Mode, Routes};

use super::Config;
use super::error::{Finding, Place};
use super::route::{DEFAULT_NAME, Route};
use super::types::{InFlightKind, Source, StoreUrl, UpstreamKind};
use crate::forward::is_rewritten;

/// Headers and bookkeeping of a stored response, over its body.
const RECORD_OVERHEAD_BYTES: u64 = 1024 * 1024;
const GIB: u64 = 1024 * 1024 * 1024;

/// Collects what is wrong, each with the place of the key that is to blame.
pub(super) struct Rules<'a> {
    pub(super) config: &'a Config,
    routes: Vec<onlyonce_http::Route>,
    errors: Vec<Finding>,
}

impl<'a> Rules<'a> {
    /// The routes as the HTTP layer takes them.
    ///
    /// # Errors
    /// Everything that is wrong with these values together.
    pub(super) fn check(config: &'a Config) -> Result<Routes, Vec<Finding>> {
        let mut rules = Self {
            config,
            routes: Vec::new(),
            errors: Vec::new(),
        };
        rules.counts();
        rules.upstream();
        rules.tls();
        rules.principal();
        rules.operators();
        rules.secrets();
        rules.embedded();
        rules.cache();
        rules.names();
        rules.probes();
        rules.webhooks();
        rules.last_route();
        for (index, route) in config.routes.iter().enumerate() {
            rules.own_route(index, route);
        }
        rules.caller_header();
        if !rules.errors.is_empty() {
            return Err(rules.errors);
        }
        // The default route was first to be checked, and is the last to be asked.
        rules.routes.rotate_left(1);
        Ok(Routes::new(rules.routes))
    }

    pub(super) fn wrong(&mut self, key: &str, text: impl Into<String>) {
        self.errors.push(self.config.finding(key, text));
    }

    pub(super) fn is_set(&self, key: &str) -> bool {
        self.config.place(key) != Place::Default
    }

    /// Limits of nothing refuse everything.
    fn counts(&mut self) {
        let (limits, embedded) = (&self.config.limits, &self.config.embedded);
        let counts = [
            ("limits.connections", limits.connections),
            ("limits.executions", limits.executions),
            ("limits.passing", limits.passing),
            ("limits.waiters", limits.waiters),
            ("limits.waiters_per_key", limits.waiters_per_key),
            ("limits.key_chars_max", limits.key_chars_max),
            ("embedded.queue_swaps_max", embedded.queue_swaps_max),
            ("embedded.batch_swaps_max", embedded.batch_swaps_max),
        ];
        let chars = limits.key_chars_max;
        for (key, count) in counts {
            if count == 0 {
                self.wrong(key, "0 refuses everything: write at least 1");
            }
        }
        if chars > 255 {
            self.wrong(
                "limits.key_chars_max",
                format!("{chars} is too many: write 255 at most"),
            );
        }
    }

    fn upstream(&mut self) {
        let config = self.config;
        let top = &config.top;
        if top.listen == top.admin && top.listen.port() != 0 {
            let text = format!(
                "{} is also the address of `listen`: write another port",
                top.admin
            );
            self.wrong("admin", text);
        }
        let urls = &config.upstream.urls;
        for (at, url) in urls.iter().enumerate() {
            if urls.iter().take(at).any(|other| other == url) {
                self.wrong(
                    "upstream.urls",
                    format!("\"{url}\" is there twice: remove one"),
                );
            }
            if url.port() == top.listen.port() && url.is_loopback() && top.listen.port() != 0 {
                let text = format!("\"{url}\" is the gateway itself: write the API's own address");
                self.wrong("upstream.urls", text);
            }
        }
    }

    fn cache(&mut self) {
        let cache = &self.config.cache;
        if cache.bytes > 0 && cache.redis.is_some() {
            let text = "there is a cache in this process as well: remove `redis` or `bytes`";
            self.wrong("cache.redis", text);
        }
    }

    fn tls(&mut self) {
        let tls = &self.config.tls;
        let (cert, key, ca) = (
            tls.cert_file.is_some(),
            tls.key_file.is_some(),
            tls.client_ca_file.is_some(),
        );
        if cert && !key {
            self.wrong(
                "tls.cert_file",
                "a certificate needs its key: add `key_file`",
            );
        }
        if key && !cert {
            self.wrong(
                "tls.key_file",
                "a key needs its certificate: add `cert_file`",
            );
        }
        if ca && !cert {
            let text = "client certificates need TLS: add `cert_file` and `key_file`";
            self.wrong("tls.client_ca_file", text);
        }
    }

    fn principal(&mut self) {
        let principal = &self.config.principal;
        if principal.source == Source::Mtls && self.config.tls.client_ca_file.is_none() {
            let text = "\"mtls\" needs verified client certificates: add `client_ca_file` to [tls]";
            self.wrong("principal.source", text);
        }
        if !matches!(principal.source, Source::Jwt(_)) {
            let jwt_keys = [
                "jwt_key_file",
                "jwks_file",
                "jwt_algorithms",
                "jwt_issuer",
                "jwt_audience",
                "jwt_leeway",
            ];
            for key in jwt_keys.map(|key| format!("principal.{key}")) {
                // As printed, the defaults are there too, and say nothing.
                let empty = (key.ends_with("algorithms") && principal.jwt_algorithms.is_empty())
                    || (key.ends_with("audience") && principal.jwt_audience.is_empty())
                    || key.ends_with("leeway");
                if self.is_set(&key) && !empty {
                    self.wrong(
                        &key,
                        "no token is verified, because `source` is not \"jwt:CLAIM\": change \
                         `source`, or remove this",
                    );
                }
            }
            return;
        }
        match (&principal.jwt_key_file, &principal.jwks_file) {
            (None, None) => self.wrong(
                "principal.source",
                "tokens need a key to be verified with: add `jwt_key_file` or `jwks_file`",
            ),
            (Some(_), Some(_)) => {
                let text = "`jwt_key_file` is there too, and only one can count: remove one";
                self.wrong("principal.jwks_file", text);
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
    }

    /// A header that cannot say who the caller is: one that the gateway removes or writes itself,
    /// or the one that carries the key.
    fn caller_header(&mut self) {
        let Source::Header(name) = &self.config.principal.source else {
            return;
        };
        let mut sources = self.routes.iter().flat_map(|route| &route.key.sources);
        let is_key = name == "idempotency-key"
            || sources.any(
                |source| matches!(&source.place, KeyPlace::Header { name: key, .. } if key == name),
            );
        let why = if is_rewritten(name) {
            "is removed or written by the gateway itself"
        } else if is_key {
            "carries the key, so whoever sends a key would be its caller"
        } else {
            return;
        };
        let text = format!("`{name}` {why}: name a header that the proxy in front sets");
        self.wrong("principal.source", text);
    }

    /// Whoever may not be seen must be asked.
    fn operators(&mut self) {
        let config = self.config;
        if config.operators.tokens_file.is_none() && !config.top.admin.ip().is_loopback() {
            let text = "operators are reachable from the network, and would be asked nothing: \
                        write `tokens_file` under [operators], or listen on 127.0.0.1";
            self.wrong("admin", text);
        }
    }

    fn secrets(&mut self) {
        let secrets = &self.config.secrets;
        let has = |id: &u32| secrets.encryption_keys.contains_key(id);
        match secrets.encryption_write {
            Some(id) if !has(&id) => {
                let text =
                    format!("the key {id} is not among `keys`: add it, or write with another");
                self.wrong("encryption.write", text);
            }
            None if !secrets.encryption_keys.is_empty() => {
                self.wrong(
                    "encryption.keys",
                    "none of the keys writes: add `write = ID`",
                );
            }
            Some(_) | None => {}
        }
        if secrets.secret_previous_file.is_some() && secrets.secret_file.is_none() {
            let text = "a previous secret without a present one: add `file`";
            self.wrong("secret.previous_file", text);
        }
    }

    fn embedded(&mut self) {
        let options = &self.config.embedded;
        if options.record_bytes_max > options.queue_bytes_max {
            self.wrong(
                "embedded.record_bytes_max",
                "the largest record could never be queued: make it at most `queue_bytes_max`",
            );
        }
        let bounded = [
            ("embedded.segment_bytes_max", options.segment_bytes_max),
            ("embedded.batch_bytes_max", options.batch_bytes_max),
            ("embedded.record_bytes_max", options.record_bytes_max),
        ];
        for (key, bytes) in bounded {
            if bytes > GIB {
                self.wrong(key, "this is too large: write \"1GiB\" at most");
            }
        }
    }

    /// Records find their rules by the route's name.
    fn names(&mut self) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (index, route) in self.config.routes.iter().enumerate() {
            let name = route.label();
            if name == DEFAULT_NAME {
                self.wrong(
                    &format!("route[{index}].name"),
                    "\"default\" is the route that comes last by itself: write another name",
                );
            } else if name.starts_with(RouteName::RESERVED) {
                self.wrong(
                    &format!("route[{index}].name"),
                    "names that begin with \"onlyonce.\" are for the gateway's own rows: write \
                     another name",
                );
            } else if route.path.is_some() && RouteName::new(&name).is_some() {
                if let Some(first) = seen.get(&name) {
                    let line = self.config.place(&format!("route[{first}].path"));
                    self.wrong(
                        &format!("route[{index}].name"),
                        format!(
                            "another route is named \"{name}\" too ({line}): give one of them \
                             another `name`"
                        ),
                    );
                }
                seen.entry(name).or_insert(index);
            }
        }
    }

    /// The route that guards the rest, from the keys that hold for all.
    fn last_route(&mut self) {
        let last = Route::last(&self.config.top, &self.config.upstream, &self.config.limits);
        self.route(&last, &|name| match name {
            "request_body" | "stored_response" => format!("limits.{name}"),
            _ => name.to_owned(),
        });
    }

    /// A value that holds for all and is wrong is wrong once, not once for every route.
    fn own_route(&mut self, index: usize, route: &Route) {
        let before = self.errors.len();
        self.route(route, &|name| format!("route[{index}].{name}"));
        let (known, new) = self.errors.split_at(before);
        let new = new.iter().filter(|error| {
            let inherited = !self.is_set(&format!("route[{index}].{}", error.key));
            !(inherited && known.iter().any(|known| known.text == error.text))
        });
        let new: Vec<_> = new.cloned().collect();
        self.errors.truncate(before);
        self.errors.extend(new);
    }

    fn route(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let config = self.config;
        match route.build(config) {
            Ok(mut built) => {
                built.notes = self.notes(route, key);
                self.routes.push(built);
            }
            Err(reasons) => {
                for (name, text) in reasons {
                    let key = if name.contains('.') {
                        name.to_owned()
                    } else {
                        key(name)
                    };
                    // A path that cannot be read is not missing; that it cannot was said.
                    if name != "path" || !self.is_set(&key) {
                        self.wrong(&key, text);
                    }
                }
            }
        }
        if route.reexecute && route.upstream != UpstreamKind::Dedupes {
            self.wrong(
                &key("reexecute"),
                "running again at once is safe only where the upstream honours the key: write \
                 `upstream = \"dedupes\"`, or remove this",
            );
        }
        if route.release_after.is_some() && route.upstream != UpstreamKind::Opaque {
            self.wrong(
                &key("release_after"),
                "only an opaque upstream needs it: remove it, or `upstream`",
            );
        }
        let own_wait = route.wait != config.top.wait && self.is_set(&key("wait"));
        if own_wait && route.in_flight != InFlightKind::Wait {
            let text = "nobody waits: write `in_flight = \"wait\"`, or remove this";
            self.wrong(&key("wait"), text);
        }
        self.sizes(route, key);
    }

    /// What a route lets through must find room.
    fn sizes(&mut self, route: &Route, key: &dyn Fn(&str) -> String) {
        let config = self.config;
        if route.mode != Mode::Off && route.request_body > config.limits.request_bodies {
            let (all, own) = ("limits.request_bodies", key("request_body"));
            if self.is_set(all) && !self.is_set(&own) {
                let text = "a body as large as `request_body` never finds room, and is told to \
                            come again: make this at least as large, or that smaller";
                self.wrong(all, text);
            } else {
                let text = "a body of this size never finds room, and is told to come again: make \
                            it at most `request_bodies` of [limits], or raise that";
                self.wrong(&own, text);
            }
        }
        let bytes = u64::try_from(route.stored_response).unwrap_or(u64::MAX);
        let embedded = matches!(config.top.store, StoreUrl::Embedded(_));
        let record_bytes = bytes.saturating_add(RECORD_OVERHEAD_BYTES);
        if embedded && record_bytes > config.embedded.record_bytes_max {
            self.wrong(
                &key("stored_response"),
                "a response of this size with its headers does not fit a record: make it at \
                 least 1 MiB smaller than `record_bytes_max` of [embedded]",
            );
        }
    }
}
