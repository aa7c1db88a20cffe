//! A name for every request, the same in the logs and at the upstream.
//!
//! Answers do not carry it: a replay is the first answer, and nothing but the mark of a replay is
//! added to it.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use onlyonce_http::Code;
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken over from a client.
const BYTES_MAX: usize = 128;

tokio::task_local! {
    static CURRENT: Option<Arc<About>>;
}

/// What a line of the log says about the request that it belongs to. Kept beside the request, and
/// written only where a line is: most requests leave none.
pub(crate) struct About {
    id: HeaderValue,
    method: Method,
    uri: Uri,
}

impl About {
    /// The request that the running task serves, if it serves one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Clone::clone).ok().flatten()
    }

    /// What was said of a request when it was taken in.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// Work on behalf of a request: also in a task that is not the one that took the request in.
    pub(crate) fn scope<F: Future>(
        about: Option<Arc<Self>>,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(about, work)
    }

    /// The answer to a request, with a line about it.
    pub(crate) fn answer<B, F>(
        about: Option<Arc<Self>>,
        answering: F,
    ) -> impl Future<Output = Result<Response<B>, Infallible>> + use<B, F>
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
    {
        Self::scope(about, async move {
            let response = answering.await?;
            let status = response.status().as_u16();
            if let Some(code) = response.extensions().get::<Code>() {
                tracing::debug!(status, code = code.as_str(), "refused");
            } else {
                tracing::debug!(status, "answered");
            }
            Ok(response)
        })
    }

    pub(crate) fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &str {
        self.method.as_str()
    }

    pub(crate) fn path(&self) -> &str {
        self.uri.path()
    }
}

/// Gives out ids: unpredictable for each process, counted within it.
pub(crate) struct RequestIds {
    process: Uuid,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self {
            process: Uuid::new_v4(),
            count: AtomicU64::new(0),
        }
    }

    /// The client's own id if it sent a harmless one, or else a new one.
    fn of<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        let given = request.headers().get(REQUEST_ID);
        let harmless = |value: &&HeaderValue| {
            value.len() <= BYTES_MAX && value.as_bytes().iter().all(u8::is_ascii_graphic)
        };
        given.filter(harmless).cloned().or_else(|| {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let id = format!("{}-{count}", self.process.simple());
            HeaderValue::try_from(id).ok()
        })
    }

    /// Gives a request its id, and says what its lines in the log say.
    pub(crate) fn name<B>(&self, request: &mut Request<B>) -> Option<Arc<About>> {
        let id = self.of(request)?;
        let about = Arc::new(About {
            id: id.clone(),
            method: request.method().clone(),
            uri: request.uri().clone(),
        });
        request.headers_mut().insert(REQUEST_ID, id);
        request.extensions_mut().insert(Arc::clone(&about));
        Some(about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: Option<&str>) -> Request<()> {
        let builder = Request::builder();
        id.into_iter()
            .fold(builder, |builder, id| builder.header(REQUEST_ID, id))
            .body(())
            .unwrap()
    }

    #[test]
    fn every_request_has_an_id_of_its_own_unless_it_brings_one() {
        let ids = RequestIds::new();
        assert_ne!(ids.of(&request(None)), ids.of(&request(None)));
        assert_eq!(ids.of(&request(Some("mine"))).unwrap(), "mine");
    }

    /// An id goes into the logs: it must not be able to write lines of its own there.
    #[test]
    fn an_id_that_is_too_long_or_not_plain_is_replaced() {
        let ids = RequestIds::new();
        let long = "x".repeat(BYTES_MAX + 1);
        for id in ["with space", long.as_str()] {
            assert_ne!(ids.of(&request(Some(id))).unwrap(), id);
        }
    }
}
