//! Every refusal, as a problem (RFC 9457) with a stable code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onlyonce_engine::EngineError;
use onlyonce_store::StoreError;
use serde_json::json;

/// Where the codes are explained.
const PAGE: &str = "https://github.com/onlyonce/onlyonce/blob/main/docs/admin-api.md";

/// What kind of refusal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Unauthorized,
    Forbidden,
    NotFound,
    InvalidRequest,
    /// Another execution holds the key by now.
    Stale,
    InFlight,
    /// Settled keys keep their outcome.
    NotAllowed,
    StoreUnavailable,
    TooLarge,
    MethodNotAllowed,
}

impl Code {
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "Who are you?"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "You may not do this"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "There is no such thing"),
            Self::InvalidRequest => (
                StatusCode::BAD_REQUEST,
                "invalid_request",
                "The request is not understood",
            ),
            Self::Stale => (
                StatusCode::CONFLICT,
                "stale",
                "Another execution holds the key by now",
            ),
            Self::InFlight => (
                StatusCode::CONFLICT,
                "in_flight",
                "Somebody is at work on the key",
            ),
            Self::NotAllowed => (
                StatusCode::CONFLICT,
                "not_allowed",
                "Settled keys keep their outcome",
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                "The store does not answer",
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "The request is too large",
            ),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Not with this method",
            ),
        }
    }

    /// A refusal of this kind.
    pub(crate) fn because(self, detail: impl Into<String>) -> Problem {
        Problem {
            code: self,
            detail: detail.into(),
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, title) = self.code.parts();
        let body = json!({
            "type": format!("{PAGE}#{code}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail,
            "code": code,
        });
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if self.code == Code::Unauthorized {
            let bearer = HeaderValue::from_static("Bearer realm=\"onlyonce\"");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        Code::StoreUnavailable.because(error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Code::StoreUnavailable.because(error.to_string())
    }
}
