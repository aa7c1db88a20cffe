//! The status of an operation, for the caller whose operation it is and nobody else.

use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use onlyonce_core::{Record, RecordId};
use onlyonce_engine::Runtime;
use onlyonce_store::Store;
use serde_json::json;

use crate::service::Guard;
use crate::{Body, Code};

impl<S: Store, R: Runtime> Guard<S, R> {
    /// Where the status of an operation is found.
    pub(crate) fn operation_path(&self, id: &RecordId) -> Option<String> {
        let base = self.config.operations_path.as_ref()?;
        Some(format!("{base}/{id}"))
    }

    /// The operation that a path means.
    pub(crate) fn operation_in(&self, path: &str) -> Option<RecordId> {
        let base = self.config.operations_path.as_ref()?;
        RecordId::from_hex(path.strip_prefix(base.as_str())?.strip_prefix('/')?)
    }

    /// Answers a request for an operation's status. Somebody else's operation and none at all
    /// look the same.
    pub(crate) async fn operation<B>(&self, parts: &Parts) -> Response<Body<B>> {
        let Some(record) = self.own_operation(parts).await else {
            let detail = "It is unknown, was forgotten after its retention, or is not yours.";
            return self.refuse(self.problem(Code::OperationNotFound, detail));
        };
        let body = json!({
            "state": record.state.kind().as_str(),
            "settled": record.state.kind().is_settled(),
            "attempt": record.attempt,
            "created_at_ms": record.created_at.as_millis(),
            "updated_at_ms": record.updated_at.as_millis(),
        });
        let mut response = Response::new(Body::whole(body.to_string().into(), None));
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn own_operation(&self, parts: &Parts) -> Option<Record> {
        let id = self
            .operation_in(parts.uri.path())
            .filter(|_| parts.method == Method::GET)?;
        let principal = self.config.principals.principal(parts).ok()?;
        let record = self.engine.inspect(&id).await.ok()??;
        (record.principal == self.engine.principal_digest(principal.as_bytes())).then_some(record)
    }
}
