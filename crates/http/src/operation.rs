//! The status of an operation, for the caller whose operation it is and nobody else.

use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use onlyonce_core::{Record, RecordId, State};
use onlyonce_engine::Runtime;
use onlyonce_store::Store;
use serde_json::{Value, json};

use crate::reply::{RETRY_SECONDS_MAX, RETRY_SECONDS_MIN};
use crate::service::Guard;
use crate::{Body, Code, Problem};

/// What a caller may know of its operation. Why its outcome is unknown is for operators.
fn status(record: &Record) -> Value {
    let mut status = json!({
        "state": record.state.kind().as_str(),
        "settled": record.state.kind().is_settled(),
        "attempt": record.attempt,
        "created_at_ms": record.created_at.as_millis(),
        "updated_at_ms": record.updated_at.as_millis(),
        "response_schema": record.response_schema,
    });
    let unknown = match &record.state {
        State::Unknown {
            since, attempts, ..
        }
        | State::DeadLetter {
            since, attempts, ..
        } => Some(json!({ "since_ms": since.as_millis(), "attempts": attempts })),
        State::Executing { .. }
        | State::Released { .. }
        | State::Completed { .. }
        | State::Expired { .. } => None,
    };
    if let (Some(unknown), Value::Object(members)) = (unknown, &mut status) {
        members.insert("unknown".to_owned(), unknown);
    }
    status
}

impl<S: Store, R: Runtime> Guard<S, R> {
    /// Where the status of an operation is found.
    pub(crate) fn operation_path(&self, id: &RecordId) -> Option<String> {
        let base = self.config.operations_path.as_ref()?;
        Some(format!("{base}/{id}"))
    }

    /// The operation that a request asks about, by its name. Such a request is never anybody else's,
    /// whatever the routes say.
    pub(crate) fn operation_asked<'a>(&self, method: &Method, path: &'a str) -> Option<&'a str> {
        let base = self.config.operations_path.as_ref()?;
        let name = path.strip_prefix(base.as_str())?.strip_prefix('/')?;
        (*method == Method::GET || *method == Method::HEAD).then_some(name)
    }

    /// Answers a request for an operation's status. Somebody else's operation, none at all, and what
    /// is no name of one look the same.
    pub(crate) async fn operation<B>(
        &self,
        id: Option<RecordId>,
        parts: &Parts,
    ) -> Response<Body<B>> {
        let record = match id {
            Some(id) => self.engine.inspect(&id).await,
            None => Ok(None),
        };
        let record = match record {
            Ok(record) => record.filter(|record| self.is_own(record, parts)),
            Err(_) => return self.refuse_plainly(self.unreadable()),
        };
        let Some(record) = record else {
            let detail = "It is unknown, was forgotten after its retention, or is not yours.";
            return self.refuse_plainly(self.problem(Code::OperationNotFound, detail));
        };
        let body = status(&record);
        let mut response = Response::new(Body::whole(body.to_string().into(), None));
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.wait_seconds(&record.state) {
            headers.insert(header::RETRY_AFTER, self.spread(seconds).into());
        }
        response
    }

    /// How long it makes sense to wait before asking again: not at all for what is settled, until
    /// the next look at an unknown outcome, and as long as possible for a person.
    pub(crate) fn wait_seconds(&self, state: &State) -> Option<u64> {
        let seconds = match state {
            State::Executing { .. } => RETRY_SECONDS_MIN,
            State::Unknown { reconcile_at, .. } => {
                // Rounded up: half a second too early is a question for nothing.
                let wait = reconcile_at.since(self.engine.now());
                wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
            }
            State::DeadLetter { .. } => RETRY_SECONDS_MAX,
            State::Released { .. } | State::Completed { .. } | State::Expired { .. } => {
                return None;
            }
        };
        Some(seconds.clamp(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX))
    }

    /// By the way of telling callers apart that the operation's own route has.
    fn is_own(&self, record: &Record, parts: &Parts) -> bool {
        let mut routes = self.config.routes.iter();
        let principal = match routes.find(|route| route.name == record.route) {
            Some(route) => self.principal(route, parts),
            None => self.config.principals.principal(parts),
        };
        principal.is_ok_and(|principal| {
            self.engine
                .is_principal(record.principal, principal.as_bytes())
        })
    }

    /// "Not found" would make a client believe that nothing happened.
    fn unreadable(&self) -> Problem {
        let detail = "The operation's status cannot be read at the moment. Ask again later.";
        self.problem(Code::StoreUnavailable, detail)
            .retry_after(self.spread(RETRY_SECONDS_MIN))
    }
}
