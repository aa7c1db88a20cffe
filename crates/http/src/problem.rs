//! Every refusal, as `application/problem+json` (RFC 9457). Other shapes are made in `dialect/`.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use onlyonce_core::Key;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::dialect::Gap;

/// What is wrong. Each code has a page in `docs/problems`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The request needs a key and has none.
    KeyRequired,
    /// The key is malformed.
    KeyInvalid,
    /// The key belongs to another payload.
    KeyReused,
    /// The first request is still at work.
    InProgress,
    /// Nobody knows whether the request was executed.
    OutcomeUnknown,
    /// It was executed, and the response cannot be given again.
    NotReplayable,
    /// The key was good for one use.
    AlreadyUsed,
    /// The store failed; nothing was executed.
    StoreUnavailable,
    /// The upstream could not be reached; nothing was executed.
    UpstreamUnreachable,
    /// The upstream gave no answer to an unguarded request; nobody knows whether it was executed.
    UpstreamNoAnswer,
    /// The request body is larger than what is guarded.
    PayloadTooLarge,
    /// Too much at once; nothing was executed.
    Overloaded,
    /// The caller must be known and is not.
    PrincipalRequired,
    /// The request body ended early; nothing was executed.
    PayloadIncomplete,
    /// There is no such operation, or it is somebody else's.
    OperationNotFound,
    /// The request was first sent too long ago; its key may be forgotten.
    RequestTooOld,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::KeyRequired,
        Self::KeyInvalid,
        Self::KeyReused,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::NotReplayable,
        Self::AlreadyUsed,
        Self::StoreUnavailable,
        Self::UpstreamUnreachable,
        Self::UpstreamNoAnswer,
        Self::PayloadTooLarge,
        Self::Overloaded,
        Self::PrincipalRequired,
        Self::PayloadIncomplete,
        Self::OperationNotFound,
        Self::RequestTooOld,
    ];

    /// The code's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.facts().0
    }

    /// Its usual status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.facts().1
    }

    /// Its short description.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.facts().2
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::InProgress
            | Self::OutcomeUnknown
            | Self::StoreUnavailable
            | Self::UpstreamUnreachable
            | Self::PayloadIncomplete
            | Self::Overloaded => true,
            Self::KeyRequired
            | Self::KeyInvalid
            | Self::KeyReused
            | Self::NotReplayable
            | Self::AlreadyUsed
            | Self::UpstreamNoAnswer
            | Self::PayloadTooLarge
            | Self::PrincipalRequired
            | Self::OperationNotFound
            | Self::RequestTooOld => false,
        }
    }

    /// The name, the usual status, and the short description.
    #[rustfmt::skip]
    const fn facts(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::KeyRequired => ("idempotency_key_required", S::BAD_REQUEST,
                "This request needs an idempotency key"),
            Self::KeyInvalid => ("idempotency_key_invalid", S::BAD_REQUEST,
                "The idempotency key is malformed"),
            Self::KeyReused => ("idempotency_key_reused_with_different_payload", S::UNPROCESSABLE_ENTITY,
                "The idempotency key was used for a different request"),
            Self::InProgress => ("idempotency_key_in_progress", S::CONFLICT,
                "The first request with this key is still at work"),
            Self::OutcomeUnknown => ("idempotency_outcome_unknown", S::CONFLICT,
                "It is not known whether the request was executed"),
            Self::NotReplayable => ("idempotency_response_not_replayable", S::CONFLICT,
                "The request was executed, and its response cannot be given again"),
            Self::AlreadyUsed => ("idempotency_key_already_used", S::CONFLICT,
                "The key was good for one use"),
            Self::StoreUnavailable => ("idempotency_store_unavailable", S::SERVICE_UNAVAILABLE,
                "Keys cannot be checked at the moment"),
            Self::UpstreamUnreachable => ("upstream_unreachable", S::SERVICE_UNAVAILABLE,
                "The service behind this gateway cannot be reached"),
            Self::UpstreamNoAnswer => ("upstream_no_answer", S::BAD_GATEWAY,
                "The service behind this gateway gave no complete answer"),
            Self::PayloadTooLarge => ("idempotency_payload_too_large", S::PAYLOAD_TOO_LARGE,
                "The request body is too large to be made safe to retry"),
            Self::Overloaded => ("idempotency_overloaded", S::SERVICE_UNAVAILABLE,
                "Too many requests are at work"),
            Self::PrincipalRequired => ("idempotency_principal_required", S::UNAUTHORIZED,
                "The caller must be known"),
            Self::PayloadIncomplete => ("idempotency_payload_incomplete", S::BAD_REQUEST,
                "The request body ended early"),
            Self::OperationNotFound => ("idempotency_operation_not_found", S::NOT_FOUND,
                "There is no such operation"),
            Self::RequestTooOld => ("idempotency_request_too_old", S::PRECONDITION_FAILED,
                "The request was first sent too long ago"),
        }
    }
}

/// One refusal, about to be sent.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    status: StatusCode,
    detail: String,
    instance: Uuid,
    retry_after_seconds: Option<u64>,
    operation: Option<String>,
    extensions: Map<String, Value>,
    /// For answers in another shape; a problem never shows it. Boxed: few have any.
    about: Option<Box<About>>,
}

/// Whose key a refusal is about, and what the first request made.
#[derive(Debug, Clone, Default)]
struct About {
    key: Option<Key>,
    resource_id: Option<Value>,
}

impl Problem {
    /// A refusal with its usual status. `detail` says what to do.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>, instance: Uuid) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            instance,
            retry_after_seconds: None,
            operation: None,
            extensions: Map::new(),
            about: None,
        }
    }

    /// Whose key it is about, and what the first request made.
    pub(crate) fn about(mut self, key: Option<Key>, resource_id: Option<Value>) -> Self {
        if key.is_some() || resource_id.is_some() {
            let about = self.about.get_or_insert_default();
            about.key = key.or(about.key.take());
            about.resource_id = resource_id.or(about.resource_id.take());
        }
        self
    }

    pub(crate) const fn instance(&self) -> Uuid {
        self.instance
    }

    pub(crate) const fn status_code(&self) -> StatusCode {
        self.status
    }

    pub(crate) const fn seconds_to_wait(&self) -> Option<u64> {
        self.retry_after_seconds
    }

    /// What a template's gap is filled with.
    pub(crate) fn fill(&self, gap: &Gap, base: &str) -> Option<Value> {
        let code = self.code.as_str();
        match gap {
            Gap::Detail => Some(json!(self.detail)),
            Gap::Title => Some(json!(self.code.title())),
            Gap::Code => Some(json!(code)),
            Gap::Type => Some(json!(format!("{base}{code}.md"))),
            Gap::Status => Some(json!(self.status.as_u16())),
            Gap::Key => {
                let key = self.about.as_ref()?.key.as_ref();
                key.map(|key| json!(key.as_str()))
            }
            Gap::ResourceId => self.about.as_ref()?.resource_id.clone(),
            Gap::RetryAfter => self.retry_after_seconds.map(|seconds| json!(seconds)),
            Gap::Retryable => Some(json!(self.code.is_retryable())),
            Gap::Operation => self.operation.as_ref().map(|path| json!(path)),
            Gap::Differs => self.extensions.get("differs").cloned(),
            Gap::Field => {
                let names = self.extensions.get("differs")?;
                let lists = ["changed", "added"].map(|list| names.get(list)?.get(0).cloned());
                lists.into_iter().flatten().next()
            }
            Gap::RequestId | Gap::OriginalRequestId | Gap::Child(_) => None,
        }
    }

    /// What is wrong.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// With another status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// When to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Where the operation's status is found.
    #[must_use]
    pub fn operation(mut self, path: Option<String>) -> Self {
        self.operation = path;
        self
    }

    /// One more member.
    #[must_use]
    pub fn with(mut self, member: &str, value: Value) -> Self {
        self.extensions.insert(member.to_owned(), value);
        self
    }

    /// The response. `base` is where the pages about codes are.
    #[must_use]
    pub fn into_response(self, base: &str) -> Response<Bytes> {
        let mut members = self.extensions;
        let code = self.code.as_str();
        members.insert("type".into(), json!(format!("{base}{code}.md")));
        members.insert("title".into(), json!(self.code.title()));
        members.insert("status".into(), json!(self.status.as_u16()));
        members.insert("detail".into(), json!(self.detail));
        members.insert("instance".into(), json!(self.instance.urn().to_string()));
        members.insert("code".into(), json!(code));
        members.insert("retryable".into(), json!(self.code.is_retryable()));
        if let Some(operation) = &self.operation {
            members.insert("operation".into(), json!(operation));
        }
        let text = Value::Object(members).to_string();
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let link = self
            .operation
            .map(|path| format!("<{path}>; rel=\"status\""));
        if let Some(link) = link.and_then(|link| HeaderValue::from_str(&link).ok()) {
            headers.insert(header::LINK, link);
        }
        response
    }
}
