//! Which requests are guarded, and how.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onlyonce_core::{Policy, RouteName, Upstream};
use onlyonce_engine::Policies;

use crate::choice::choose;
use crate::dialect::Dialect;
use crate::reconcile::Notes;
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
    /// What is noted of a request for whoever asks about its outcome. Default: nothing.
    pub notes: Notes,
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

/// Whether a route is guarded. The stricter is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Everything passes.
    Off,
    /// Everything passes; what enforcing would have done is reported.
    Observe,
    /// Keys are enforced.
    #[default]
    Enforce,
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
            caller: Caller::default(),
            compare: Compare::default(),
            on_reuse: OnReuse::default(),
            replay_older: ReplayOlder::default(),
            forward_key: None,
            dialect: Arc::default(),
        }
    }

    /// `patch` is another method than `PATCH`. But some clients send it where they mean the other, and
    /// some servers take it for the other, so it is guarded like it.
    pub(crate) fn is_about(&self, method: &Method) -> bool {
        let same = |known: &Method| known.as_str().eq_ignore_ascii_case(method.as_str());
        self.methods.is_empty() || self.methods.iter().any(same)
    }

    /// Whether under this route some request may run again, run unguarded, or get another's answer
    /// where it may not under the other one. A key that may be another one is as good as none.
    pub(crate) fn allows_more_than(&self, other: &Self) -> bool {
        let (upstream, opaque) = (self.policy.upstream(), Upstream::default());
        (other.key.required && !self.key.required)
            || self.key.sources != other.key.sources
            || self.key.first_sent != other.key.first_sent
            || self.forward_key != other.forward_key
            || self.caller != other.caller
            || self.compare != other.compare
            || self.policy.scope() != other.policy.scope()
            || self.policy.fingerprint() != other.policy.fingerprint()
            || self.policy.reuse() != other.policy.reuse()
            || self.policy.retention() < other.policy.retention()
            || (upstream != opaque && upstream != other.policy.upstream())
            || self.statuses.allow_more_than(&other.statuses)
    }
}

/// The routes, in order: the first that matches decides, and a request that none matches passes
/// unguarded.
#[derive(Debug, Clone)]
pub struct Routes(Vec<Arc<Route>>);

impl Routes {
    /// These routes, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes.into_iter().map(Arc::new).collect())
    }

    /// The route of a request: the first that matches its path. One without parameters decides about
    /// its own spelling. A path that is spelt unusually is guarded like the usual one: `//payments`,
    /// `/payments/` and `/%70ayments` like `/payments`. What only some services take for a path, such as
    /// another case of it, never leads to a laxer mode. However a path is read, it stays what it is, and
    /// so does the key.
    #[must_use]
    pub fn find(&self, method: &Method, path: &str) -> Option<&Arc<Route>> {
        choose(&self.0, method, path)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter().map(Arc::as_ref)
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
        let name = RouteName::from_static("default").unwrap_or_default();
        let route = Route::new(name, [Method::POST, Method::PATCH], Pattern::any());
        Self::new(vec![route])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the gateway builds them: those of the configuration, then one for everything else.
    fn routes(configured: &[(&str, Mode)], default: Mode) -> Routes {
        let route = |name: &str, pattern, mode| Route {
            mode,
            ..Route::new(RouteName::new(name).unwrap(), [Method::POST], pattern)
        };
        let configured = configured
            .iter()
            .map(|(path, mode)| route(path, Pattern::parse(path).unwrap(), *mode));
        let default = route("default", Pattern::any(), default);
        Routes::new(configured.chain([default]).collect())
    }

    fn found(routes: &Routes, path: &str) -> String {
        let route = routes.find(&Method::POST, path).unwrap();
        route.name.to_string()
    }

    /// Clients that send `patch` where they mean `PATCH` exist, and servers that let them.
    #[test]
    fn a_method_is_guarded_in_any_spelling() {
        let routes = routes(&[("/payments", Mode::Enforce)], Mode::Off);
        for method in ["POST", "post", "pOsT"] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let route = routes.find(&method, "/payments").unwrap();
            assert_eq!(route.name.to_string(), "/payments", "{method}");
        }
        assert!(routes.find(&Method::GET, "/payments").is_none());
    }

    /// A route for everything matches any spelling, and must not take a request from the route
    /// that guards it: with a default of `off` its retries would run twice.
    #[test]
    fn an_unusual_spelling_takes_the_route_of_the_usual_one() {
        for default in [Mode::Off, Mode::Observe, Mode::Enforce] {
            let routes = routes(&[("/payments", Mode::Enforce)], default);
            for path in [
                "/payments",
                "/payments/",
                "//payments",
                "/./payments",
                "/%70ayments",
            ] {
                assert_eq!(found(&routes, path), "/payments", "{path}");
            }
            assert_eq!(found(&routes, "/refunds/"), "default");
        }
    }

    /// The service may resolve the dots, or not.
    #[test]
    fn of_two_readings_the_stricter_decides() {
        let off_first = routes(
            &[("/hooks/{*rest}", Mode::Off), ("/payments", Mode::Enforce)],
            Mode::Off,
        );
        assert_eq!(found(&off_first, "/hooks/../payments"), "/payments");
        assert_eq!(found(&off_first, "/hooks/%2e%2e/payments"), "/payments");
        assert_eq!(found(&off_first, "/hooks/a/"), "/hooks/{*rest}");
        let guarded = routes(
            &[("/payments/{*rest}", Mode::Enforce), ("/hooks", Mode::Off)],
            Mode::Off,
        );
        assert_eq!(found(&guarded, "/payments/../hooks"), "/payments/{*rest}");
    }

    #[test]
    fn a_route_for_one_spelling_decides_about_it() {
        let routes = routes(
            &[("/payments/", Mode::Off), ("/payments", Mode::Enforce)],
            Mode::Enforce,
        );
        assert_eq!(found(&routes, "/payments/"), "/payments/");
        assert_eq!(found(&routes, "//payments"), "/payments");
    }

    /// Each is answered by some API as the route's own path is, and its retries must not run under
    /// other settings, or unguarded.
    #[test]
    fn a_spelling_that_an_api_accepts_keeps_its_route() {
        for (pattern, path) in [
            ("/v1/charges:capture", "/v1/charges%3Acapture"),
            ("/v1/charges%3acapture", "/v1/charges:capture"),
            ("/a@b", "/a%40b"),
            ("/payments", "/Payments"),
            ("/Payments/{id}", "/payments/1"),
            ("/café", "/caf%C3%A9"),
            ("/caf%C3%A9", "/café"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café", "/CAF%C3%89"),
            ("/payments", "/payments;v=1"),
            ("/payments", "/x/..;y/payments"),
            ("/payments", "/Payments%3Bv=1/"),
            ("/payments", "/\\payments"),
            ("/payments", "/x%5C..%5CPayments"),
            ("/payments/{id}", "/payments%2F1"),
            ("/payments/", "/payments"),
            ("/payments/", "//Payments/"),
            ("/payments/", "/payments/;v=1"),
            ("/payments/", "/payments%2F"),
            ("/payments/{id}/", "/x/../payments/1/"),
            ("/v1/payments", "/v1//../payments"),
            ("/v1/payments", "/v1/\\../payments"),
            ("/payments", "/x;%2Fy/..%2F..%2Fpayments"),
            ("/a;b", "/\\a;b"),
        ] {
            for default in [Mode::Off, Mode::Observe, Mode::Enforce] {
                let routes = routes(&[(pattern, Mode::Enforce)], default);
                assert_eq!(found(&routes, path), pattern, "{path} {default:?}");
            }
        }
    }

    /// An escape is the only way to write such a path in ASCII, so it is no unusual spelling.
    #[test]
    fn an_escape_beyond_ascii_is_the_path_itself() {
        let routes = routes(&[("/café", Mode::Off)], Mode::Enforce);
        for path in ["/café", "/caf%C3%A9", "/caf%c3%a9"] {
            assert_eq!(found(&routes, path), "/café", "{path}");
        }
    }

    #[test]
    fn what_is_no_spelling_of_a_path_has_another_route() {
        let routes = routes(&[("/a/b", Mode::Off), ("/pay", Mode::Enforce)], Mode::Off);
        for path in [
            "/a%252Fb", "/p%2561y", "/pay%20", "/pay%00", "/pays", "/pa", "/pay/x",
        ] {
            assert_eq!(found(&routes, path), "default", "{path}");
        }
    }
}
