//! Which requests are guarded, and how.

use std::time::Duration;

use http::{HeaderName, Method};
use onlyonce_core::{Policy, RouteName};
use onlyonce_engine::Policies;

use crate::pattern::plain;
use crate::reconcile::Notes;
use crate::{Pattern, ResponsePolicy, Statuses};

/// The request header that carries the key.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// One kind of request and everything that is decided about it.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name, in records, metrics and logs.
    pub name: RouteName,
    /// The methods that it is about; none means all.
    pub methods: Vec<Method>,
    /// The paths that it is about.
    pub pattern: Pattern,
    /// Whether it is guarded.
    pub mode: Mode,
    /// Where the key is, and whether it must be there.
    pub key: KeyRule,
    /// What a retry gets while the first request is still at work.
    pub in_flight: InFlight,
    /// What each status means for the key.
    pub statuses: Statuses,
    /// What is stored of a response.
    pub response: ResponsePolicy,
    /// The largest request body that is guarded. Default: 1 MiB.
    pub body_bytes_max: usize,
    /// What is noted of a request for whoever asks about its outcome. Default: nothing.
    pub notes: Notes,
    /// The rules' own choices: lease, retention, scope, fingerprint, kind of upstream.
    pub policy: Policy,
}

/// Whether a route is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Keys are enforced.
    #[default]
    Enforce,
    /// Everything passes; what enforcing would have done is reported.
    Observe,
    /// Everything passes.
    Off,
}

/// Where the key is, and whether it must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// The header. Default: `Idempotency-Key`.
    pub header: HeaderName,
    /// Whether a request without one is refused. Default: yes.
    pub required: bool,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            header: KEY_HEADER,
            required: true,
        }
    }
}

/// What a retry gets while the first request is still at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InFlight {
    /// 409 with `Retry-After`.
    #[default]
    Reject,
    /// The first answer, if it comes within this time; then 409.
    Wait(Duration),
    /// 202 with the address of the operation.
    Accepted,
}

impl Route {
    /// Every request with these methods, under the default choices.
    #[must_use]
    pub fn new(
        name: RouteName,
        methods: impl IntoIterator<Item = Method>,
        pattern: Pattern,
    ) -> Self {
        Self {
            name,
            methods: methods.into_iter().collect(),
            pattern,
            mode: Mode::default(),
            key: KeyRule::default(),
            in_flight: InFlight::default(),
            statuses: Statuses::default(),
            response: ResponsePolicy::default(),
            body_bytes_max: 1024 * 1024,
            notes: Notes::default(),
            policy: Policy::default(),
        }
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method)) && self.pattern.matches(path)
    }
}

/// The routes, in order: the first that matches decides, and a request that none matches passes
/// unguarded.
#[derive(Debug, Clone)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// These routes, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The route of a request: the first that matches its path as it is spelt, or else as it is
    /// usually spelt. `//payments`, `/payments/` and `/%70ayments` are guarded like `/payments`
    /// unless a route says otherwise; each is still a path of its own, and so a key of its own.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str) -> Option<&Route> {
        let first = |path: &str| self.0.iter().find(|route| route.matches(method, path));
        first(path).or_else(|| first(&plain(path)?))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// The policies that an engine behind these routes needs.
    #[must_use]
    pub fn policies(&self) -> Policies {
        self.0.iter().fold(Policies::default(), |policies, route| {
            policies.route(&route.name, route.policy.clone())
        })
    }
}

impl Default for Routes {
    /// Every POST and PATCH.
    fn default() -> Self {
        let name = RouteName::new("default").unwrap_or_default();
        Self(vec![Route::new(
            name,
            [Method::POST, Method::PATCH],
            Pattern::any(),
        )])
    }
}
