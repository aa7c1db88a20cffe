//! Every route. `openapi.json` describes them; a test holds the two together.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use onlyonce_store::{ListStore, Store};

use crate::admin::Shared;
use crate::gate::gate;
use crate::problem::Code;
use crate::{assets, audit, config, health, keys, openapi};

type Routes<S> = Vec<(&'static str, MethodRouter<Arc<Shared<S>>>)>;

fn routes<S: Store + ListStore>() -> Routes<S> {
    vec![
        ("/", get(assets::page)),
        ("/assets/{name}", get(assets::asset)),
        ("/livez", get(health::livez)),
        ("/readyz", get(health::readyz)),
        ("/metrics", get(health::metrics)),
        ("/api/openapi.json", get(openapi::document)),
        ("/api/v1/whoami", get(health::whoami)),
        ("/api/v1/overview", get(health::overview)),
        ("/api/v1/series", get(health::series)),
        ("/api/v1/keys", get(keys::list)),
        ("/api/v1/keys/search", post(keys::search)),
        ("/api/v1/keys/{id}", get(keys::show)),
        ("/api/v1/keys/{id}/resolve", post(keys::resolve)),
        ("/api/v1/dead-letters", get(keys::dead_letters)),
        ("/api/v1/audit", get(audit::audit)),
        ("/api/v1/config", get(config::config)),
    ]
}

/// All of them, behind the gate.
pub(crate) fn router<S: Store + ListStore>(shared: Arc<Shared<S>>) -> Router {
    let mut router = Router::new();
    for (path, methods) in routes() {
        router = router.route(path, methods);
    }
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shared), gate::<S>))
        .with_state(shared)
}

async fn nowhere() -> Response {
    Code::NotFound
        .because("there is nothing here; /api/openapi.json says what there is")
        .into_response()
}

async fn wrong_method() -> Response {
    Code::MethodNotAllowed
        .because("the header `Allow` names the methods of this address")
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onlyonce_store::MemoryStore;

    use super::*;

    /// An address that programs cannot know of, or one that is not there, is a broken promise.
    #[test]
    fn the_document_has_every_address_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(crate::OPENAPI).unwrap();
        let documented = document["paths"].as_object().unwrap().keys();
        let documented: BTreeSet<_> = documented.map(String::as_str).collect();
        let served: BTreeSet<_> = routes::<MemoryStore>()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert_eq!(documented, served);
    }
}
