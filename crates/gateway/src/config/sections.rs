//! The sections of the configuration with their defaults, and the one list of their keys.
//!
//! What each key means to an operator is in `config.default.toml`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use jsonwebtoken::Algorithm;
use onlyonce_core::KeyLimits;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{InFlight, KeyPlace, Mode, Profile};
use onlyonce_store::tiered::TieredOptions;
use onlyonce_store_embedded::EmbeddedOptions;

use super::field::Visitor;
use super::profile::ProfileChoice;
use super::types::{
    CacheUrl, Endpoint, Forwarded, HostRule, InFlightKind, KeyNeed, LogFormat, LogLevel, Network,
    Source, StoreUrl, UpstreamKind, UpstreamPath,
};
use super::values::Ratio;

const MIB: usize = 1024 * 1024;

/// The keys above the first section.
#[derive(Debug, Clone)]
pub(crate) struct Top {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) store: StoreUrl,
    pub(crate) profile: ProfileChoice,
    /// The default of every route, as are those that follow.
    pub(crate) mode: Mode,
    pub(crate) key: KeyNeed,
    /// Instead of where the profile has it.
    pub(crate) key_header: Option<HeaderName>,
    /// The same, for other places than headers.
    pub(crate) key_from: Vec<KeyPlace>,
    pub(crate) retention: Duration,
    pub(crate) lease: Duration,
    pub(crate) in_flight: InFlightKind,
    pub(crate) wait: Duration,
    pub(crate) forwarded: Forwarded,
    pub(crate) trusted_proxies: Vec<Network>,
}

impl Default for Top {
    fn default() -> Self {
        let policy = onlyonce_core::Policy::default();
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            admin: (Ipv4Addr::LOCALHOST, 8081).into(),
            store: StoreUrl::Embedded("./onlyonce-data".into()),
            profile: ProfileChoice::default(),
            mode: Mode::default(),
            key: KeyNeed::default(),
            key_header: None,
            key_from: Vec::new(),
            retention: policy.retention(),
            lease: policy.lease(),
            in_flight: InFlightKind::default(),
            wait: Duration::from_secs(10),
            forwarded: Forwarded::default(),
            trusted_proxies: Vec::new(),
        }
    }
}

impl Top {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.key("listen", &mut self.listen);
        visitor.key("admin", &mut self.admin);
        visitor.key("store", &mut self.store);
        visitor.key("profile", &mut self.profile);
        visitor.key("mode", &mut self.mode);
        visitor.key("key", &mut self.key);
        visitor.key("key_header", &mut self.key_header);
        visitor.key("key_from", &mut self.key_from);
        visitor.key("retention", &mut self.retention);
        visitor.key("lease", &mut self.lease);
        visitor.key("in_flight", &mut self.in_flight);
        visitor.key("wait", &mut self.wait);
        visitor.key("forwarded", &mut self.forwarded);
        visitor.key("trusted_proxies", &mut self.trusted_proxies);
    }
}

impl Top {
    /// Takes over what a profile says about the keys here, before any of them is read.
    pub(crate) fn adopt(&mut self, profile: &Profile) {
        if let Some(required) = profile.required {
            self.key = KeyNeed::of(required);
        }
        self.retention = profile.retention.unwrap_or(self.retention);
        match profile.in_flight {
            None => {}
            Some(InFlight::Reject) => self.in_flight = InFlightKind::Reject,
            Some(InFlight::Accepted) => self.in_flight = InFlightKind::Accepted,
            Some(InFlight::Wait(wait)) => {
                self.in_flight = InFlightKind::Wait;
                self.wait = wait;
            }
        }
    }
}

/// Where requests go.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) urls: Vec<Endpoint>,
    pub(crate) kind: UpstreamKind,
    pub(crate) host: HostRule,
    pub(crate) http2: bool,
    pub(crate) connect_timeout: Duration,
    /// From the end of the request to the head of the response.
    pub(crate) response_timeout: Duration,
    /// Between two parts of a body.
    pub(crate) idle_timeout: Duration,
    /// Of a guarded request, from connecting to the last byte.
    pub(crate) total_timeout: Duration,
    /// For each address; 0 opens a connection for every request.
    pub(crate) pool_idle_max: usize,
    pub(crate) pool_idle_timeout: Duration,
    pub(crate) ca_file: Option<PathBuf>,
    /// How often an address that cannot be reached is tried again.
    pub(crate) health_interval: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            kind: UpstreamKind::default(),
            host: HostRule::default(),
            http2: false,
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            pool_idle_max: 256,
            // Well below the keep-alive of common servers, some of which close after 2 s, so that
            // the upstream is rarely the one that closes: a request sent into a closing connection
            // has an unknown outcome, and a new connection costs next to nothing.
            pool_idle_timeout: Duration::from_secs(1),
            ca_file: None,
            health_interval: Duration::from_secs(5),
        }
    }
}

impl Upstream {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("upstream");
        visitor.key("urls", &mut self.urls);
        visitor.key("kind", &mut self.kind);
        visitor.key("host", &mut self.host);
        visitor.key("http2", &mut self.http2);
        visitor.key("connect_timeout", &mut self.connect_timeout);
        visitor.key("response_timeout", &mut self.response_timeout);
        visitor.key("idle_timeout", &mut self.idle_timeout);
        visitor.key("total_timeout", &mut self.total_timeout);
        visitor.key("pool_idle_max", &mut self.pool_idle_max);
        visitor.key("pool_idle_timeout", &mut self.pool_idle_timeout);
        visitor.key("ca_file", &mut self.ca_file);
        visitor.key("health_interval", &mut self.health_interval);
    }
}

/// No machine has more to gain from more of them.
const WORKERS_MAX: usize = 1024;

/// What is refused, and when.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// 0: as many as there are processors.
    pub(crate) workers: usize,
    pub(crate) connections: usize,
    pub(crate) executions: usize,
    pub(crate) passing: usize,
    pub(crate) waiters: usize,
    pub(crate) waiters_per_key: usize,
    pub(crate) header_bytes: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) body_total_timeout: Duration,
    pub(crate) request_bodies: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) answer_timeout: Duration,
    pub(crate) request_body: usize,
    pub(crate) stored_response: usize,
    pub(crate) key_chars_max: usize,
    pub(crate) key_hygiene: bool,
}

impl Default for Limits {
    fn default() -> Self {
        let (engine, key) = (EngineConfig::default(), KeyLimits::default());
        Self {
            workers: 0,
            connections: 10_000,
            executions: engine.executions_max,
            passing: 10_000,
            waiters: engine.waiters_max,
            waiters_per_key: engine.waiters_per_key_max,
            header_bytes: 32 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_total_timeout: Duration::from_secs(120),
            request_bodies: 512 * 1024 * 1024,
            idle_timeout: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(60),
            request_body: MIB,
            stored_response: MIB,
            key_chars_max: key.chars_max,
            key_hygiene: key.hygiene,
        }
    }
}

impl Limits {
    /// How many threads serve clients.
    pub(crate) fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers.min(WORKERS_MAX),
        }
    }

    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("limits");
        visitor.key("workers", &mut self.workers);
        visitor.key("connections", &mut self.connections);
        visitor.key("executions", &mut self.executions);
        visitor.key("passing", &mut self.passing);
        visitor.key("waiters", &mut self.waiters);
        visitor.key("waiters_per_key", &mut self.waiters_per_key);
        visitor.size("header_bytes", &mut self.header_bytes);
        visitor.key("header_timeout", &mut self.header_timeout);
        visitor.key("body_timeout", &mut self.body_timeout);
        visitor.key("body_total_timeout", &mut self.body_total_timeout);
        visitor.key("idle_timeout", &mut self.idle_timeout);
        visitor.key("answer_timeout", &mut self.answer_timeout);
        visitor.size("request_body", &mut self.request_body);
        visitor.size("request_bodies", &mut self.request_bodies);
        visitor.size("stored_response", &mut self.stored_response);
        visitor.key("key_chars_max", &mut self.key_chars_max);
        visitor.key("key_hygiene", &mut self.key_hygiene);
    }
}

/// Encryption towards clients.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_field_names, reason = "the names of the keys")]
pub(crate) struct Tls {
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) client_ca_file: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("tls");
        visitor.key("cert_file", &mut self.cert_file);
        visitor.key("key_file", &mut self.key_file);
        visitor.key("client_ca_file", &mut self.client_ca_file);
    }
}

/// Who the caller is.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) source: Source,
    pub(crate) jwt_key_file: Option<PathBuf>,
    pub(crate) jwks_file: Option<PathBuf>,
    pub(crate) jwt_algorithms: Vec<Algorithm>,
    pub(crate) jwt_issuer: Option<String>,
    pub(crate) jwt_audience: Vec<String>,
    pub(crate) jwt_leeway: Duration,
    /// Asked on the upstream before a stored response is given again.
    pub(crate) auth_check: Option<UpstreamPath>,
}

impl Default for Principal {
    fn default() -> Self {
        Self {
            source: Source::Authorization,
            jwt_key_file: None,
            jwks_file: None,
            jwt_algorithms: Vec::new(),
            jwt_issuer: None,
            jwt_audience: Vec::new(),
            jwt_leeway: Duration::from_secs(30),
            auth_check: None,
        }
    }
}

impl Principal {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("principal");
        visitor.key("source", &mut self.source);
        visitor.key("jwt_key_file", &mut self.jwt_key_file);
        visitor.key("jwks_file", &mut self.jwks_file);
        visitor.key("jwt_algorithms", &mut self.jwt_algorithms);
        visitor.key("jwt_issuer", &mut self.jwt_issuer);
        visitor.key("jwt_audience", &mut self.jwt_audience);
        visitor.time_or_zero("jwt_leeway", &mut self.jwt_leeway);
        visitor.key("auth_check", &mut self.auth_check);
    }
}

/// Who may use the admin listener.
#[derive(Debug, Clone)]
pub(crate) struct Operators {
    /// Without one, whoever is on this machine.
    pub(crate) tokens_file: Option<PathBuf>,
    pub(crate) audit_retention: Duration,
}

impl Default for Operators {
    fn default() -> Self {
        Self {
            tokens_file: None,
            audit_retention: onlyonce_admin::journal::RETENTION,
        }
    }
}

impl Operators {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("operators");
        visitor.key("tokens_file", &mut self.tokens_file);
        visitor.key("audit_retention", &mut self.audit_retention);
    }
}

/// What is logged, and how a stop goes.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
    /// How long open requests may take after SIGTERM.
    pub(crate) drain_grace: Duration,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            log_format: LogFormat::default(),
            log_level: LogLevel::default(),
            drain_grace: Duration::from_secs(30),
        }
    }
}

impl Running {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("log");
        visitor.key("format", &mut self.log_format);
        visitor.key("level", &mut self.log_level);
        visitor.section("drain");
        visitor.time_or_zero("grace", &mut self.drain_grace);
    }
}

/// Secrets: names of files, never their contents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    /// The id of the key that writes.
    pub(crate) encryption_write: Option<u32>,
    /// The key ring, by id.
    pub(crate) encryption_keys: BTreeMap<u32, PathBuf>,
    /// The hashing secret, when the store is not to make its own.
    pub(crate) secret_file: Option<PathBuf>,
    /// The one before.
    pub(crate) secret_previous_file: Option<PathBuf>,
}

impl Secrets {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("encryption");
        visitor.key("write", &mut self.encryption_write);
        visitor.key("keys", &mut self.encryption_keys);
        visitor.section("secret");
        visitor.key("file", &mut self.secret_file);
        visitor.key("previous_file", &mut self.secret_previous_file);
    }
}

pub(super) fn visit_embedded(options: &mut EmbeddedOptions, visitor: &mut impl Visitor) {
    visitor.section("embedded");
    visitor.key("queue_swaps_max", &mut options.queue_swaps_max);
    visitor.large_size("queue_bytes_max", &mut options.queue_bytes_max);
    visitor.key("batch_swaps_max", &mut options.batch_swaps_max);
    visitor.large_size("batch_bytes_max", &mut options.batch_bytes_max);
    visitor.large_size("record_bytes_max", &mut options.record_bytes_max);
    visitor.large_size("segment_bytes_max", &mut options.segment_bytes_max);
    visitor.large_size("dead_bytes_max", &mut options.dead_bytes_max);
}

pub(super) fn visit_engine(engine: &mut EngineConfig, visitor: &mut impl Visitor) {
    visitor.section("engine");
    visitor.key("store_timeout", &mut engine.store_timeout);
    visitor.key("settle_patience", &mut engine.settle_patience);
    visitor.key("sweep_every", &mut engine.sweep_every);
}

/// The cache of completed rows in front of a shared store.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    /// Of this process. 0: none.
    pub(crate) bytes: usize,
    /// Or on a server that gateways share.
    pub(crate) redis: Option<CacheUrl>,
    pub(crate) age_max: Duration,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            bytes: 0,
            redis: None,
            age_max: TieredOptions::default().age_max,
        }
    }
}

impl Cache {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("cache");
        visitor.size_or_zero("bytes", &mut self.bytes);
        visitor.key("redis", &mut self.redis);
        visitor.key("age_max", &mut self.age_max);
    }
}

/// Where traces and metrics are sent.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    /// `None`: nowhere.
    pub(crate) otlp_endpoint: Option<Endpoint>,
    pub(crate) service_name: String,
    pub(crate) interval: Duration,
    /// How many of the traces that begin here are recorded.
    pub(crate) sample_ratio: Ratio,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            service_name: "onlyonce".into(),
            interval: Duration::from_secs(15),
            sample_ratio: Ratio(1.0),
        }
    }
}

impl Telemetry {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("telemetry");
        visitor.key("otlp_endpoint", &mut self.otlp_endpoint);
        visitor.key("service_name", &mut self.service_name);
        visitor.key("interval", &mut self.interval);
        visitor.key("sample_ratio", &mut self.sample_ratio);
    }
}
