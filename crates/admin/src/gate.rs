//! What every request passes: who asks, and the headers that every answer carries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onlyonce_store::{ListStore, Store};

use crate::admin::Shared;

/// Nothing from anywhere but here, no inline script or style, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// What anybody may see: there is nothing of any key in it.
fn is_public(path: &str) -> bool {
    matches!(path, "/" | "/livez" | "/readyz" | "/api/openapi.json") || path.starts_with("/assets/")
}

/// Asks who it is, before anything else is looked at.
pub(crate) async fn gate<S: Store + ListStore>(
    State(shared): State<Arc<Shared<S>>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let mut request = Request::from_parts(parts.clone(), body);
    if !is_public(parts.uri.path()) {
        match shared.options.operators.who(&parts) {
            Ok(operator) => {
                request.extensions_mut().insert(operator);
            }
            Err(problem) => {
                shared.refused_callers.fetch_add(1, Ordering::Relaxed);
                return guarded(problem.into_response());
            }
        }
    }
    guarded(next.run(request).await)
}

fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
