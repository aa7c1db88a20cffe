//! The configuration in force.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use onlyonce_store::{ListStore, Store};
use serde_json::{Value, json};

use crate::admin::Shared;
use crate::input::Parameters;
use crate::problem::Problem;

/// `GET /api/v1/config`
pub(crate) async fn config<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    Parameters::read(&uri, &[])?;
    Ok(Json(json!({ "toml": shared.options.config_toml })))
}
