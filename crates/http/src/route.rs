//! Which requests are guarded, and how.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onlyonce_core::{Policy, RouteName};
use onlyonce_engine::Policies;

use crate::dialect::Dialect;
use crate::pattern::plain;
use crate::{Caller, ForwardKey, KeyRule, Pattern, ResponsePolicy, Statuses};

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
    /// The rules' own choices: lease, retention, scope, fingerprint, kind of upstream.
    pub policy: Policy,
    /// Who the caller is, where the layer's own way of telling would not do.
    pub caller: Caller,
    /// What a retry must have in common with the first request, besides method and path.
    pub compare: Compare,
    /// What a retry of a completed request gets.
    pub on_reuse: OnReuse,
    /// What becomes of a stored response whose shape is older than the route's.
    pub replay_older: ReplayOlder,
    /// In which other header the service behind gets the key. Default: in none.
    pub forward_key: Option<ForwardKey>,
    /// How refusals look, and which headers are added.
    pub dialect: Arc<Dialect>,
}

/// What a retry must have in common with the first request, besides method and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// Body, query and the headers that count.
    #[default]
    Payload,
    /// Nothing: another payload under the same key gets the first answer.
    KeyOnly,
}

/// What a retry of a completed request gets. The policy's
/// [`Reuse`](onlyonce_core::Reuse) comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnReuse {
    /// The first answer.
    #[default]
    Replay,
    /// A refusal that names what the first request made.
    Conflict,
}

/// What becomes of a stored response whose shape (`response_schema`) is older than the route's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayOlder {
    /// It is given again as it is.
    #[default]
    Replay,
    /// The retry is refused, and never executed.
    Refuse,
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
            policy: Policy::default(),
            caller: Caller::default(),
            compare: Compare::default(),
            on_reuse: OnReuse::default(),
            replay_older: ReplayOlder::default(),
            forward_key: None,
            dialect: Arc::default(),
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
