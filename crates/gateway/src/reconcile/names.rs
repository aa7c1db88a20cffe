//! What the upstream is told about an operation, so that a webhook or the answer to a probe can
//! say which one it means; and the rows that lead from those names back to it.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_engine::{Engine, EngineError, Referred};
use onlyonce_http::Execution;
use onlyonce_http::reconcile::{Template, Variable, operation};
use onlyonce_store::BoxStore;

use crate::config::{By, Config, Route};

/// The operation, as `{operation}` in a probe and `by = "operation"` of a webhook know it.
const OPERATION: HeaderName = HeaderName::from_static("onlyonce-operation");

/// A key for one downstream call, one line for each: `NAME=KEY`.
const CHILD_KEY: HeaderName = HeaderName::from_static("onlyonce-child-key");

/// The names of the operations of every route that somebody can tell about.
pub(crate) struct Names {
    engine: Engine<BoxStore>,
    routes: HashMap<String, Told>,
}

/// What is said of the operations of one route.
#[derive(Default)]
struct Told {
    /// The downstream calls that it has keys for.
    children: Vec<String>,
    /// A webhook that knows its operations by something other than their ids.
    webhook: Option<(String, By)>,
}

/// The kind of names that one webhook knows operations by.
pub(crate) fn kind(webhook: &str, by: &By) -> String {
    format!("webhook:{webhook}:{}", by.text())
}

impl Names {
    pub(crate) fn new(config: &Config, engine: Engine<BoxStore>) -> Self {
        let routes = config.routes.iter();
        let told = routes.filter(|route| route.probe.is_some() || route.webhook.is_some());
        Self {
            engine,
            routes: told
                .map(|route| (route.label(), Told::of(config, route)))
                .collect(),
        }
    }

    /// Makes the operation known by its names. Nothing may be sent before that: a webhook could
    /// come that nobody understands.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn write(&self, execution: &Execution) -> Result<(), EngineError> {
        let told = self.routes.get(execution.route().as_str());
        let Some((webhook, by)) = told.and_then(|told| told.webhook.as_ref()) else {
            return Ok(());
        };
        let name = match by {
            By::Operation => return Ok(()),
            By::Key => execution.key().as_str().to_owned(),
            By::Child(name) => execution.child_key(name),
        };
        let retention = self.engine.policies().of(execution.route()).retention();
        let (id, created_at) = (execution.id(), execution.created_at());
        let kind = kind(webhook, by);
        let referred = self.engine.refer(&kind, &name, id, created_at, retention);
        if referred.await? == Referred::Ambiguous {
            let route = execution.route();
            tracing::warn!(%route, webhook, "a key means two operations; no webhook decides either");
        }
        Ok(())
    }

    /// Tells the upstream what the operation is called.
    pub(crate) fn tell(&self, execution: &Execution, headers: &mut HeaderMap) {
        let Some(told) = self.routes.get(execution.route().as_str()) else {
            return;
        };
        let text = operation(execution.id(), execution.created_at());
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(OPERATION, value);
        }
        for name in &told.children {
            let line = format!("{name}={}", execution.child_key(name));
            if let Ok(value) = HeaderValue::from_str(&line) {
                headers.append(CHILD_KEY, value);
            }
        }
    }
}

impl Told {
    fn of(config: &Config, route: &Route) -> Self {
        let mut told = Self::default();
        let by_name =
            |name: &Option<String>, wanted: &Option<String>| wanted.is_some() && name == wanted;
        let probe = config
            .probes
            .iter()
            .find(|probe| by_name(&probe.name, &route.probe));
        for variable in probe
            .iter()
            .flat_map(|probe| probe.templates())
            .flat_map(Template::variables)
        {
            if let Variable::Child(name) = variable {
                told.children.push(name.to_string());
            }
        }
        let mut webhooks = config.webhooks.iter();
        let webhook = webhooks.find(|webhook| by_name(&webhook.name, &route.webhook));
        if let Some((name, find)) = webhook.and_then(|it| it.name.as_ref().zip(it.find.as_ref())) {
            if let By::Child(child) = &find.by {
                told.children.push(child.clone());
            }
            told.webhook = Some((name.clone(), find.by.clone()));
        }
        told.children.sort();
        told.children.dedup();
        told
    }
}
