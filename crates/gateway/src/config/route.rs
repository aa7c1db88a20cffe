//! `[[route]]`: the choices of one kind of request, and the rules they become.

use std::num::NonZeroU16;
use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce_core::fingerprint::FingerprintRules;
use onlyonce_core::json::Pointer;
use onlyonce_core::{
    Expiry, FingerprintPolicy, KeyLimits, Policy, Reconcile, Reuse, RouteName, ScopeParts,
};
use onlyonce_http::{Compare, ForwardKey, KeyPlace, Mode, Pattern, Profile, ReplayOlder};

use super::Config;
use super::field::Visitor;
use super::profile::ProfileChoice;
use super::sections::{Limits, Top, Upstream};
use super::statuses::StatusRules;
use super::types::{InFlightKind, KeyNeed, UpstreamKind};
use crate::forward::{are_twins, is_rewritten};

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
    pub(crate) key_header: Option<HeaderName>,
    pub(crate) key_from: Vec<KeyPlace>,
    pub(crate) profile: ProfileChoice,
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
    pub(crate) replay_older: ReplayOlder,
    pub(crate) compare: Compare,
    pub(crate) forward_key: Option<ForwardKey>,
}

impl Route {
    /// A route that says nothing, under the choices that hold for all.
    pub(crate) fn new(top: &Top, upstream: &Upstream, limits: &Limits) -> Self {
        let mut route = Self::plain(top, upstream, limits);
        route.adopt(&top.profile.profile());
        route
    }

    fn plain(top: &Top, upstream: &Upstream, limits: &Limits) -> Self {
        let reconcile = Reconcile::default();
        Self {
            name: None,
            methods: vec![Method::POST, Method::PATCH],
            path: None,
            mode: top.mode,
            key: top.key,
            key_header: top.key_header.clone(),
            key_from: top.key_from.clone(),
            profile: top.profile.clone(),
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
            replay_older: ReplayOlder::default(),
            compare: Compare::default(),
            forward_key: None,
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
        visitor.key("key_from", &mut self.key_from);
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
        visitor.key("replay_older", &mut self.replay_older);
        visitor.key("compare", &mut self.compare);
        visitor.key("forward_key", &mut self.forward_key);
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
        config: &Config,
    ) -> Result<onlyonce_http::Route, Vec<(&'static str, String)>> {
        let (mut wrong, profile) = (Vec::new(), self.profile.profile());
        let label = self.label();
        let fits = !label.is_empty() && !label.contains(char::is_control);
        // Never given back: a route is there for as long as the gateway.
        let name = fits.then(|| RouteName::from_static(label.leak())).flatten();
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
        wrong.extend(self.lost_keys(&profile));
        if let Some(first_sent) = &profile.first_sent
            && self.retention < first_sent.window + first_sent.ahead
        {
            wrong.push((
                "retention",
                "a request that the profile still accepts as young would find its key forgotten, \
                 and run again: write a longer one"
                    .to_owned(),
            ));
        }
        let fingerprint = self
            .fingerprint(&profile)
            .map_err(|reason| ("exclude", reason.to_string()));
        let policy = fingerprint.and_then(|fingerprint| self.policy(&config.limits, fingerprint));
        let policy = policy.map_err(|reason| wrong.push(reason)).ok();
        match (name, self.path.clone(), policy) {
            (Some(name), Some(path), Some(policy)) if wrong.is_empty() => {
                let blank = onlyonce_http::Route::new(name, self.methods.clone(), path);
                let route = onlyonce_http::Route {
                    mode: self.mode,
                    forward_key: self.forward_key.clone(),
                    replay_older: self.replay_older,
                    body_bytes_max: self.request_body,
                    policy,
                    ..blank
                };
                Ok(self.speaking(&profile, &config.principal.source, route))
            }
            _ => Err(wrong),
        }
    }

    /// Headers that never reach the upstream as they are: a key in one would be lost on its way,
    /// and the upstream could not recognise a repetition.
    fn lost_keys(&self, profile: &Profile) -> Vec<(&'static str, String)> {
        let named_by = if !self.key_from.is_empty() {
            "key_from"
        } else if self.key_header.is_some() {
            "key_header"
        } else {
            "profile"
        };
        let rule = self.key_rule(profile);
        let sources = rule
            .sources
            .iter()
            .filter_map(|source| match &source.place {
                KeyPlace::Header { name, .. } => Some((named_by, name)),
                KeyPlace::Json { .. } | KeyPlace::Form { .. } | KeyPlace::Query { .. } => None,
            });
        let forward = self.forward_key.iter();
        let forward = forward.map(|forward| ("forward_key", forward.header()));
        let names: Vec<_> = sources.chain(forward).collect();
        let mut lost = Vec::new();
        for (at, (key, name)) in names.iter().enumerate() {
            if is_rewritten(name) {
                let text = format!(
                    "the gateway removes or writes `{name}` itself, so the API would not see the \
                     key: choose another header"
                );
                lost.push((*key, text));
            }
            let mut earlier = names.iter().take(at).map(|(_, earlier)| *earlier);
            let is_twin = |other: &&HeaderName| other != name && are_twins(other, name);
            if let Some(other) = earlier.find(is_twin) {
                let text = format!(
                    "many APIs take `{other}` and `{name}` for one header, and would not get both: remove \
                     one"
                );
                lost.push((*key, text));
            }
        }
        lost
    }

    fn fingerprint(
        &self,
        profile: &Profile,
    ) -> Result<FingerprintPolicy, onlyonce_core::fingerprint::FingerprintPolicyError> {
        FingerprintPolicy::new(FingerprintRules {
            headers: self
                .fingerprint_headers
                .iter()
                .chain(&profile.fingerprint_headers)
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
