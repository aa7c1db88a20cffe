//! `[[route]]`: the choices of one kind of request, and the rules they become.

use std::num::NonZeroU16;
use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce_core::fingerprint::FingerprintRules;
use onlyonce_core::json::Pointer;
use onlyonce_core::{
    Expiry, FingerprintPolicy, KeyLimits, Policy, Reconcile, Reuse, RouteName, ScopeParts,
};
use onlyonce_http::{InFlight, KeyRule, Mode, Pattern, ResponsePolicy};

use super::field::Visitor;
use super::sections::{Limits, Top, Upstream};
use super::statuses::StatusRules;
use super::types::{InFlightKind, KeyNeed, Profile, UpstreamKind};

/// The route that guards whatever no other route names.
pub(crate) const DEFAULT_NAME: &str = "default";

/// One `[[route]]`.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent keys of a file")]
pub(crate) struct Route {
    pub(crate) name: Option<String>,
    pub(crate) methods: Vec<Method>,
    /// Required; absent only until that is checked.
    pub(crate) path: Option<Pattern>,
    pub(crate) mode: Mode,
    pub(crate) key: KeyNeed,
    pub(crate) key_header: HeaderName,
    pub(crate) profile: Profile,
    pub(crate) retention: Duration,
    pub(crate) lease: Duration,
    pub(crate) in_flight: InFlightKind,
    pub(crate) wait: Duration,
    pub(crate) statuses: StatusRules,
    pub(crate) upstream: UpstreamKind,
    pub(crate) reexecute: bool,
    pub(crate) release_after: Option<Duration>,
    /// Who is asked, and who says by itself, what became of an unknown outcome.
    pub(crate) probe: Option<String>,
    pub(crate) webhook: Option<String>,
    pub(crate) reconcile_delay: Duration,
    pub(crate) reconcile_delay_max: Duration,
    pub(crate) reconcile_attempts: NonZeroU16,
    pub(crate) request_body: usize,
    pub(crate) stored_response: usize,
    pub(crate) store_headers: Vec<HeaderName>,
    pub(crate) drop_headers: Vec<HeaderName>,
    pub(crate) cookies: bool,
    pub(crate) scope: ScopeParts,
    pub(crate) fingerprint_headers: Vec<HeaderName>,
    pub(crate) fingerprint_query: bool,
    pub(crate) include: Vec<Pointer>,
    pub(crate) exclude: Vec<Pointer>,
    pub(crate) single_use: bool,
    pub(crate) keep_expired: Option<Duration>,
    pub(crate) response_schema: u32,
}

impl Route {
    /// A route that says nothing, under the choices that hold for all.
    pub(crate) fn new(top: &Top, upstream: &Upstream, limits: &Limits) -> Self {
        let reconcile = Reconcile::default();
        Self {
            name: None,
            methods: vec![Method::POST, Method::PATCH],
            path: None,
            mode: top.mode,
            key: top.key,
            key_header: top.key_header.clone(),
            profile: top.profile,
            retention: top.retention,
            lease: top.lease,
            in_flight: top.in_flight,
            wait: top.wait,
            statuses: StatusRules::default(),
            upstream: upstream.kind,
            reexecute: false,
            release_after: None,
            probe: None,
            webhook: None,
            reconcile_delay: reconcile.delay,
            reconcile_delay_max: reconcile.delay_max,
            reconcile_attempts: NonZeroU16::new(reconcile.attempts_max).unwrap_or(NonZeroU16::MIN),
            request_body: limits.request_body,
            stored_response: limits.stored_response,
            store_headers: Vec::new(),
            drop_headers: Vec::new(),
            cookies: false,
            scope: ScopeParts::default(),
            fingerprint_headers: vec![http::header::IF_MATCH],
            fingerprint_query: true,
            include: Vec::new(),
            exclude: Vec::new(),
            single_use: false,
            keep_expired: None,
            response_schema: 0,
        }
    }

    /// The route that comes last: every POST and PATCH that no other route names.
    pub(crate) fn last(top: &Top, upstream: &Upstream, limits: &Limits) -> Self {
        Self {
            name: Some(DEFAULT_NAME.to_owned()),
            path: Some(Pattern::any()),
            ..Self::new(top, upstream, limits)
        }
    }

    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.key("name", &mut self.name);
        visitor.key("methods", &mut self.methods);
        visitor.key("path", &mut self.path);
        visitor.key("mode", &mut self.mode);
        visitor.key("key", &mut self.key);
        visitor.key("key_header", &mut self.key_header);
        visitor.key("profile", &mut self.profile);
        visitor.key("retention", &mut self.retention);
        visitor.key("lease", &mut self.lease);
        visitor.key("in_flight", &mut self.in_flight);
        visitor.key("wait", &mut self.wait);
        visitor.key("statuses", &mut self.statuses);
        visitor.key("upstream", &mut self.upstream);
        visitor.key("reexecute", &mut self.reexecute);
        visitor.key("release_after", &mut self.release_after);
        visitor.key("probe", &mut self.probe);
        visitor.key("webhook", &mut self.webhook);
        visitor.key("reconcile_delay", &mut self.reconcile_delay);
        visitor.key("reconcile_delay_max", &mut self.reconcile_delay_max);
        visitor.key("reconcile_attempts", &mut self.reconcile_attempts);
        visitor.size("request_body", &mut self.request_body);
        visitor.size("stored_response", &mut self.stored_response);
        visitor.key("store_headers", &mut self.store_headers);
        visitor.key("drop_headers", &mut self.drop_headers);
        visitor.key("cookies", &mut self.cookies);
        visitor.key("scope", &mut self.scope);
        visitor.key("fingerprint_headers", &mut self.fingerprint_headers);
        visitor.key("fingerprint_query", &mut self.fingerprint_query);
        visitor.key("include", &mut self.include);
        visitor.key("exclude", &mut self.exclude);
        visitor.key("single_use", &mut self.single_use);
        visitor.key("keep_expired", &mut self.keep_expired);
        visitor.key("response_schema", &mut self.response_schema);
    }

    /// Its name, or one made of its methods and path. Records carry it, so it should stay.
    pub(crate) fn label(&self) -> String {
        let path = self
            .path
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        match &self.name {
            Some(name) => name.clone(),
            None if self.methods == [Method::POST, Method::PATCH] => path,
            None => {
                let methods: Vec<_> = self.methods.iter().map(Method::as_str).collect();
                format!("{} {path}", methods.join(","))
            }
        }
    }

    /// As the HTTP layer takes it.
    ///
    /// # Errors
    /// Every reason why the choices do not fit together, each with the key to change.
    pub(crate) fn build(
        &self,
        limits: &Limits,
    ) -> Result<onlyonce_http::Route, Vec<(&'static str, String)>> {
        let mut wrong = Vec::new();
        let label = self.label();
        let name = RouteName::new(&label);
        let name = name.filter(|_| !label.is_empty() && !label.contains(char::is_control));
        if name.is_none() && (self.name.is_some() || self.path.is_some()) {
            wrong.push((
                "name",
                "a name has 1 to 255 visible characters: write another".to_owned(),
            ));
        }
        if self.methods.is_empty() {
            wrong.push((
                "methods",
                "the list is empty: name a method, such as \"POST\"".to_owned(),
            ));
        }
        if self.path.is_none() {
            wrong.push((
                "path",
                "the path is missing: write one such as \"/payments/{id}\"".to_owned(),
            ));
        }
        let fingerprint = self
            .fingerprint()
            .map_err(|reason| ("exclude", reason.to_string()));
        let policy = fingerprint.and_then(|fingerprint| self.policy(limits, fingerprint));
        let policy = policy.map_err(|reason| wrong.push(reason)).ok();
        match (name, self.path.clone(), policy) {
            (Some(name), Some(path), Some(policy)) if wrong.is_empty() => {
                Ok(onlyonce_http::Route {
                    mode: self.mode,
                    key: KeyRule {
                        header: self.key_header.clone(),
                        required: self.key == KeyNeed::Required,
                    },
                    in_flight: match self.in_flight {
                        InFlightKind::Reject => InFlight::Reject,
                        InFlightKind::Wait => InFlight::Wait(self.wait),
                        InFlightKind::Accepted => InFlight::Accepted,
                    },
                    statuses: self.statuses.table(),
                    response: ResponsePolicy {
                        body_bytes_max: self.stored_response,
                        allow: self.store_headers.clone(),
                        deny: self.drop_headers.clone(),
                        cookies: self.cookies,
                    },
                    body_bytes_max: self.request_body,
                    policy,
                    ..onlyonce_http::Route::new(name, self.methods.clone(), path)
                })
            }
            _ => Err(wrong),
        }
    }

    fn fingerprint(
        &self,
    ) -> Result<FingerprintPolicy, onlyonce_core::fingerprint::FingerprintPolicyError> {
        FingerprintPolicy::new(FingerprintRules {
            headers: self
                .fingerprint_headers
                .iter()
                .map(ToString::to_string)
                .collect(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            query: self.fingerprint_query,
            ..FingerprintRules::default()
        })
    }

    fn policy(
        &self,
        limits: &Limits,
        fingerprint: FingerprintPolicy,
    ) -> Result<Policy, (&'static str, String)> {
        let key = KeyLimits {
            chars_max: limits.key_chars_max,
            hygiene: limits.key_hygiene,
            ..KeyLimits::default()
        };
        let upstream = match self.upstream {
            UpstreamKind::Opaque => onlyonce_core::Upstream::Opaque {
                release_after: self.release_after,
            },
            UpstreamKind::Dedupes => onlyonce_core::Upstream::Dedupes {
                reexecute: self.reexecute,
            },
            UpstreamKind::Transactional => onlyonce_core::Upstream::Transactional,
        };
        let reconcile = Reconcile {
            delay: self.reconcile_delay,
            delay_max: self.reconcile_delay_max,
            attempts_max: self.reconcile_attempts.get(),
        };
        let policy = Policy::builder()
            .key(key)
            .scope(self.scope)
            .fingerprint(fingerprint)
            .lease(self.lease)
            .retention(self.retention)
            .reuse(if self.single_use {
                Reuse::SingleUse
            } else {
                Reuse::Replay
            })
            .expiry(self.keep_expired.map_or(Expiry::Delete, Expiry::Keep))
            .upstream(upstream)
            .reconcile(reconcile)
            .response_schema(self.response_schema)
            .build();
        policy.map_err(|reason| (key_of(reason), reason.to_string()))
    }
}

/// The key that a refusal is about.
fn key_of(reason: onlyonce_core::PolicyError) -> &'static str {
    use onlyonce_core::PolicyError as Reason;
    match reason {
        Reason::Lease(_) => "lease",
        Reason::Retention(_) => "retention",
        Reason::Keep(_) => "keep_expired",
        Reason::ReleaseAfter { .. } => "release_after",
        Reason::ReconcileAttempts => "reconcile_attempts",
        Reason::ReconcileDelay { .. } => "reconcile_delay",
        Reason::KeyLength { .. } => "limits.key_chars_max",
        // More reasons may come; the text says what to change.
        _ => "path",
    }
}
