//! From what a client says it sent to the record that it means.

use http::Method;
use onlyonce_admin::{Finder, KeyQuery};
use onlyonce_core::fingerprint::Payload;
use onlyonce_core::{RecordId, Scope};
use onlyonce_engine::Engine;
use onlyonce_http::{Caller, Principal, Route, Routes};
use onlyonce_store::BoxStore;

use crate::config::{self, Config, Source};
use crate::principal;

/// Finds records by this gateway's routes and callers.
pub(crate) struct Routed {
    routes: Routes,
    callers: config::Principal,
    engine: Engine<BoxStore>,
}

impl Routed {
    pub(crate) fn new(config: &Config, engine: Engine<BoxStore>) -> Self {
        Self {
            routes: config.routes(),
            callers: config.principal.clone(),
            engine,
        }
    }

    /// Whom these words may mean on a route.
    fn callers_of(&self, route: &Route, caller: Option<&str>) -> Result<Vec<Principal>, String> {
        match (&route.caller, caller) {
            (Caller::Configured, _) => self.principals(caller),
            // Without its own credentials a route knows callers as the others do.
            (Caller::Credentials(_) | Caller::AwsAccessKey, None) => self.principals(None),
            (Caller::Credentials(_), Some(caller)) => Ok(route.caller.alone(caller)),
            (Caller::AwsAccessKey, Some(_)) => Err(format!(
                "callers of the route {} are known by the access keys of their signatures: list its \
                 keys by `route`, or look for the id in the log",
                route.name
            )),
        }
    }

    /// Whom these words may mean.
    fn principals(&self, caller: Option<&str>) -> Result<Vec<Principal>, String> {
        let by_value = |kind: &str| match caller {
            Some(caller) => vec![Principal::new(kind, caller.as_bytes())],
            None => vec![Principal::anonymous()],
        };
        match &self.callers.source {
            Source::Authorization => Ok(by_value("authorization")),
            Source::Header(_) => Ok(by_value("header")),
            Source::None => Ok(vec![Principal::anonymous()]),
            Source::Jwt(claim) => {
                let caller = caller.ok_or("`caller` is the claim of the token that names it")?;
                Ok(principal::claimed(&self.callers, claim, caller))
            }
            Source::Mtls => Err(
                "callers are known by their certificates, which are not kept: list \
                 the keys by `principal`, or look for the id in the log"
                    .into(),
            ),
        }
    }
}

impl Finder for Routed {
    fn find(&self, query: &KeyQuery) -> Result<Vec<RecordId>, String> {
        let method = Method::from_bytes(query.method.as_bytes());
        let method = method.map_err(|_| "`method` is no method".to_owned())?;
        let route = self.routes.find(&method, &query.path);
        let route = route
            .ok_or_else(|| format!("no route guards {method} {}: it has no keys", query.path))?;
        if route.policy.scope().host {
            return Err(format!(
                "keys of the route {} differ by the host that was asked for: list them by `route`, \
                 or look for the id in the log",
                route.name
            ));
        }
        let key = route.key.read(route.policy.key(), &query.key);
        let key = key.map_err(|error| format!("`key`: {error}"))?;
        let payload = Payload {
            method: "",
            path: "",
            query: None,
            headers: &[],
            content_type: None,
            body: b"",
        };
        let mut ids = Vec::new();
        for principal in self.callers_of(route, query.caller.as_deref())? {
            let scope = Scope {
                principal: principal.as_bytes(),
                method: method.as_str(),
                route: route.name.as_str(),
                path: &query.path,
                host: "",
            };
            let request = self.engine.request(&route.name, &key, &scope, &payload);
            ids.push(request.identity.id);
            ids.extend(request.previous.map(|previous| previous.id));
        }
        Ok(ids)
    }
}
