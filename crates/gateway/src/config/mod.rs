//! The configuration: defaults ← file ← environment ← flags, read loosely, then checked once,
//! together.
//!
//! It refuses what it does not understand, and says everything that is wrong at once: the line,
//! the key, the reason, and what to write instead. `config.default.toml` documents every key; a
//! test holds it to the defaults here. What is allowed but risky is `check.rs`'s business.
//!
//! | here | what it is |
//! |---|---|
//! | `raw` | the file: names, values and lines |
//! | `profile` | a profile by its name |
//! | `field`, `values`, `units`, `types`, `choices`, `address`, `statuses`, `questions` | how each type is read and written |
//! | `sections`, `route`, `probes` | the values with their defaults, and the one list of keys |
//! | `reader`, `writer` | the two ways through that list |
//! | `rules`, `rules_probes` | values that contradict each other |
//! | `keys` | files of secret bytes |
//! | `hidden` | what is not shown of probes |

mod address;
mod choices;
mod error;
mod field;
mod hidden;
mod keys;
mod probes;
mod profile;
mod questions;
mod raw;
mod reader;
mod route;
mod rules;
mod rules_probes;
mod sections;
mod statuses;
#[cfg(test)]
mod tests;
mod types;
mod units;
mod values;
mod writer;

use std::path::Path;
use std::sync::Arc;

use onlyonce_core::Keyring;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Profile, Routes};
use onlyonce_store_embedded::EmbeddedOptions;

pub(crate) use address::Endpoint;
pub(crate) use error::{ConfigErrors, Finding, Place};
pub(crate) use field::Visitor;
pub(crate) use probes::{Probe, Webhook, Webhooks};
use profile::ProfileChoice;
pub(crate) use questions::By;
pub(crate) use route::Route;
pub(crate) use sections::{
    Cache, Limits, Operators, Principal, Running, Secrets, Telemetry, Tls, Top, Upstream,
};
pub(crate) use types::{
    CacheUrl, Forwarded, HostRule, InFlightKind, KeyNeed, LogFormat, Network, Source, StoreUrl,
    UpstreamKind,
};

pub(crate) use units::parse_time;

use keys::Secret32;
use reader::{Places, Reader};
use writer::Writer;

/// Every key, its default and its meaning, as a file.
#[cfg(test)]
pub(crate) const DEFAULT_FILE: &str = include_str!("../../config.default.toml");

/// A configuration that was checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) top: Top,
    pub(crate) upstream: Upstream,
    pub(crate) limits: Limits,
    pub(crate) tls: Tls,
    pub(crate) principal: Principal,
    pub(crate) operators: Operators,
    pub(crate) running: Running,
    pub(crate) secrets: Secrets,
    pub(crate) cache: Cache,
    pub(crate) telemetry: Telemetry,
    /// Its folder is the one of `store`.
    pub(crate) embedded: EmbeddedOptions,
    /// With the counts of `limits`.
    pub(crate) engine: EngineConfig,
    pub(crate) webhook_listener: Webhooks,
    /// The `[[probe]]` tables.
    pub(crate) probes: Vec<Probe>,
    /// The `[[webhook]]` tables.
    pub(crate) webhooks: Vec<Webhook>,
    /// The `[[route]]` tables, in order, and the paths of the profile; the default route is not
    /// among them.
    pub(crate) routes: Vec<Route>,
    /// The file's own profiles.
    pub(crate) profiles: Vec<Arc<Profile>>,
    /// The same, as they were written.
    profile_tables: raw::Table,
    /// Those, and the default route, as the HTTP layer takes them.
    built: Routes,
    places: Places,
}

/// The flags of the command line that win over file and environment, as they were typed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--upstream`, any number of them.
    pub(crate) upstream: Vec<String>,
    /// `--listen`
    pub(crate) listen: Option<String>,
    /// `--admin`
    pub(crate) admin: Option<String>,
    /// `--store`
    pub(crate) store: Option<String>,
    /// `--profile`
    pub(crate) profile: Option<String>,
    /// `--key`
    pub(crate) key: Option<String>,
}

impl Overrides {
    fn into_flags(self) -> Vec<reader::FlagValue> {
        let urls = (!self.upstream.is_empty()).then(|| self.upstream.join(","));
        let flags = [
            ("upstream", "urls", "--upstream", urls),
            ("", "listen", "--listen", self.listen),
            ("", "admin", "--admin", self.admin),
            ("", "store", "--store", self.store),
            ("", "profile", "--profile", self.profile),
            ("", "key", "--key", self.key),
        ];
        let given = flags.into_iter();
        given
            .filter_map(|(section, key, flag, text)| Some((section, key, flag, text?)))
            .collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            top: Top::default(),
            upstream: Upstream::default(),
            limits: Limits::default(),
            tls: Tls::default(),
            principal: Principal::default(),
            operators: Operators::default(),
            running: Running::default(),
            secrets: Secrets::default(),
            cache: Cache::default(),
            telemetry: Telemetry::default(),
            embedded: EmbeddedOptions::new("./onlyonce-data"),
            engine: EngineConfig::default(),
            webhook_listener: Webhooks::default(),
            probes: Vec::new(),
            webhooks: Vec::new(),
            routes: Vec::new(),
            profiles: Vec::new(),
            profile_tables: raw::Table::default(),
            built: Routes::default(),
            places: Places::new(),
        }
    }
}

/// The store that a URL on the command line means.
///
/// # Errors
/// With what to write instead.
pub(crate) fn store_url(text: &str) -> Result<StoreUrl, String> {
    <StoreUrl as field::Field>::read(&raw::Value::Text(text.to_owned()))
        .map_err(|wrong| wrong.join("; "))
}

/// An address to connect to, given on the command line.
///
/// # Errors
/// With what to write instead.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, String> {
    <Endpoint as field::Field>::read(&raw::Value::Text(text.to_owned()))
        .map_err(|wrong| wrong.join("; "))
}

impl Config {
    /// Reads and checks a configuration. Without a file there are still the defaults, the
    /// environment and the flags.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn load(
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
    ) -> Result<Self, ConfigErrors> {
        let refuse = |errors| Err(ConfigErrors::new(file.map(Into::into), errors));
        let text = match file.map(std::fs::read_to_string).transpose() {
            Ok(text) => text.unwrap_or_default(),
            Err(reason) => {
                return refuse(vec![Finding {
                    place: Place::Default,
                    key: String::new(),
                    text: format!("the file cannot be read: {reason}"),
                }]);
            }
        };
        match Self::from_text(&text, variables, overrides) {
            Ok(config) => Ok(config),
            Err(errors) => refuse(errors),
        }
    }

    fn from_text(
        text: &str,
        variables: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
    ) -> Result<Self, Vec<Finding>> {
        let (mut config, mut errors) = Self::read(text, variables, overrides);
        match rules::Rules::check(&config) {
            Ok(routes) => config.built = routes,
            Err(contradictions) => errors.extend(contradictions),
        }
        if errors.is_empty() {
            Ok(config)
        } else {
            Err(errors)
        }
    }

    /// Every key by itself; what cannot be read keeps its default.
    fn read(
        text: &str,
        variables: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
    ) -> (Self, Vec<Finding>) {
        let mut config = Self::default();
        let root = match raw::parse(text) {
            Ok(root) => root,
            Err(errors) => {
                let errors = errors.into_iter().map(|error| Finding {
                    place: Place::Line(error.line),
                    key: String::new(),
                    text: format!("this is not TOML: {}", error.reason),
                });
                return (config, errors.collect());
            }
        };
        let mut reader = Reader::new(root, variables, overrides.into_flags());
        config.read_profiles(text, &mut reader);
        if let Some(name) = reader.profile_name() {
            let chosen = ProfileChoice::among(&name, &config.profiles);
            config.top.adopt(&chosen.profile());
        }
        config.visit(&mut reader);
        config.read_routes(&mut reader);
        config.probes = reader.list("probe", &|_| Probe::default(), Probe::visit);
        config.webhooks = reader.list("webhook", &|_| Webhook::default(), Webhook::visit);
        reader.finish();
        config.settle();
        config.places = reader.places;
        (config, reader.errors)
    }

    /// The file's own profiles, with the lines of their mistakes.
    fn read_profiles(&mut self, text: &str, reader: &mut Reader) {
        self.profile_tables = reader.profiles();
        match Profile::parse_all(text) {
            Ok(profiles) => self.profiles = profiles.into_iter().map(Arc::new).collect(),
            Err(errors) => {
                for error in errors {
                    reader.error(Place::Line(error.line), "profiles", &error.reason);
                }
            }
        }
    }

    /// The routes, and those that the profile itself has for some paths.
    fn read_routes(&mut self, reader: &mut Reader) {
        let is_set = |reader: &Reader, key: &str| reader.places.contains_key(key);
        self.find_profile(reader, None, "profile");
        let (top, upstream, limits) = (&self.top, &self.upstream, &self.limits);
        let (shared, profiles) = (Route::new(top, upstream, limits), &self.profiles);
        // A route with a profile of its own takes nothing over from that of the others.
        let (mut plain, default) = (top.clone(), Top::default());
        for (key, revert) in [
            ("key", (|top, to| top.key = to.key) as fn(&mut Top, &Top)),
            ("retention", |top, to| top.retention = to.retention),
            ("in_flight", |top, to| top.in_flight = to.in_flight),
            ("wait", |top, to| top.wait = to.wait),
        ] {
            if !is_set(reader, key) {
                revert(&mut plain, &default);
            }
        }
        let blank = |name: Option<&str>| match name {
            None => shared.clone(),
            Some(name) => {
                let profile = ProfileChoice::among(name, profiles);
                Route::with_profile(&plain, upstream, limits, &profile)
            }
        };
        let mut routes = reader.list("route", &blank, Route::visit);
        let by_path = !is_set(reader, "retention");
        for (index, route) in routes.iter_mut().enumerate() {
            let own = is_set(reader, &format!("route[{index}].profile"));
            let retention = is_set(reader, &format!("route[{index}].retention"));
            if let (Some(path), false, true) = (&route.path, retention, own || by_path) {
                let profile = route.profile.profile();
                route.retention = profile.retention_of(path).unwrap_or(route.retention);
            }
        }
        if by_path {
            for (path, retention) in &top.profile.profile().paths {
                let route = Route {
                    path: Some(path.clone()),
                    retention: *retention,
                    ..shared.clone()
                };
                if !routes.iter().any(|other| other.label() == route.label()) {
                    routes.push(route);
                }
            }
        }
        self.routes = routes;
        for index in 0..self.routes.len() {
            self.find_profile(reader, Some(index), &format!("route[{index}].profile"));
        }
    }

    /// A profile that does not exist is an error of the key that names it.
    fn find_profile(&mut self, reader: &mut Reader, route: Option<usize>, key: &str) {
        let choice = match route {
            None => Some(&mut self.top.profile),
            Some(index) => self.routes.get_mut(index).map(|route| &mut route.profile),
        };
        // A profile of the file that cannot be used was reported where it is written.
        let name = choice.as_ref().map(|choice| choice.name().to_owned());
        let tables = &self.profile_tables;
        let written = tables.iter().any(|entry| Some(&entry.key) == name.as_ref());
        let place = reader.places.get(key).filter(|_| !written).cloned();
        if let Some(Err(reason)) = choice.map(|choice| choice.find(&self.profiles))
            && let Some(place) = place
        {
            reader.error(place, "profile", &reason);
        }
    }

    /// Every key but those of the routes.
    fn visit(&mut self, visitor: &mut impl Visitor) {
        self.top.visit(visitor);
        self.upstream.visit(visitor);
        self.limits.visit(visitor);
        self.tls.visit(visitor);
        self.principal.visit(visitor);
        self.operators.visit(visitor);
        self.running.visit(visitor);
        self.secrets.visit(visitor);
        self.cache.visit(visitor);
        sections::visit_embedded(&mut self.embedded, visitor);
        sections::visit_engine(&mut self.engine, visitor);
        self.webhook_listener.visit(visitor);
        self.telemetry.visit(visitor);
    }

    /// What follows from other keys.
    fn settle(&mut self) {
        if let StoreUrl::Embedded(folder) = &self.top.store {
            self.embedded.folder.clone_from(folder);
        }
        self.engine.executions_max = self.limits.executions;
        self.engine.waiters_max = self.limits.waiters;
        self.engine.waiters_per_key_max = self.limits.waiters_per_key;
    }

    /// The configuration in force, as a file that loads back to the same. Of secrets it has the
    /// names of their files.
    pub(crate) fn to_toml(&self) -> String {
        let (mut writer, mut config) = (Writer::default(), self.clone());
        config.visit(&mut writer);
        for route in &mut config.routes {
            writer.list("route");
            route.visit(&mut writer);
        }
        for probe in &mut config.probes {
            writer.list("probe");
            probe.visit(&mut writer);
        }
        for webhook in &mut config.webhooks {
            writer.list("webhook");
            webhook.visit(&mut writer);
        }
        writer.profiles(&config.profile_tables);
        writer.finish()
    }

    /// The routes in order, and then the one that guards every other POST and PATCH.
    pub(crate) fn routes(&self) -> Routes {
        self.built.clone()
    }

    /// The limits and intervals of the engine.
    pub(crate) fn engine_config(&self) -> EngineConfig {
        self.engine
    }

    /// How the embedded store is opened, if it is the one.
    pub(crate) fn embedded_options(&self) -> EmbeddedOptions {
        self.embedded.clone()
    }

    /// The key ring for stored responses, if they are to be encrypted.
    ///
    /// # Errors
    /// When a file cannot be read or holds no key.
    pub(crate) fn keyring(&self) -> Result<Option<Keyring>, String> {
        let ring = self.secrets.keyring();
        ring.map_err(|reason| format!("encryption.keys: {reason}"))
    }

    /// The hashing secret and the one before, where the store is not to make its own.
    ///
    /// # Errors
    /// When a file cannot be read or holds no key.
    pub(crate) fn hashing_secrets(&self) -> Result<(Option<Secret32>, Option<Secret32>), String> {
        let secrets = self.secrets.hashing();
        secrets.map_err(|reason| format!("secret: {reason}"))
    }

    /// Where a key was written: `limits.connections`, `route[0].lease`.
    pub(crate) fn place(&self, key: &str) -> Place {
        self.places.get(key).cloned().unwrap_or_default()
    }

    /// Something about a key, with its place, or that of its route.
    pub(crate) fn finding(&self, key: &str, text: impl Into<String>) -> Finding {
        let (route, name) = match key.split_once("].") {
            Some((route, name)) => (Some(format!("{route}]")), name),
            None => (None, key),
        };
        let own = self.place(key);
        let place = match route {
            Some(route) if own == Place::Default => self.place(&route),
            Some(_) | None => own,
        };
        Finding {
            place,
            key: name.to_owned(),
            text: text.into(),
        }
    }
}
