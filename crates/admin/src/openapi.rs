//! The description of the API for programs (`OpenAPI` 3.1).

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The document. Tests hold it to the routes and to what they answer.
pub const OPENAPI: &str = include_str!("openapi.json");

pub(crate) async fn document() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], OPENAPI).into_response()
}
