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
    static CURRENT: Arc<About>;
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
        CURRENT.try_with(Arc::clone).ok()
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

/// Runs a task on behalf of a request: also where it is not the task that took the request in.
pub(crate) async fn on_behalf<B, T>(
    request: Request<B>,
    serve: impl AsyncFnOnce(Request<B>) -> T,
) -> T {
    match request.extensions().get::<Arc<About>>().cloned() {
        Some(about) => CURRENT.scope(about, serve(request)).await,
        None => serve(request).await,
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

    /// Serves a request under its id.
    pub(crate) async fn serve<B, RB, Fut>(
        &self,
        mut request: Request<B>,
        serve: impl FnOnce(Request<B>) -> Fut,
    ) -> Result<Response<RB>, Infallible>
    where
        Fut: Future<Output = Result<Response<RB>, Infallible>>,
    {
        let Some(id) = self.of(&request) else {
            return serve(request).await;
        };
        let about = Arc::new(About {
            id: id.clone(),
            method: request.method().clone(),
            uri: request.uri().clone(),
        });
        request.headers_mut().insert(REQUEST_ID, id);
        request.extensions_mut().insert(Arc::clone(&about));
        let serving = async {
            let response = serve(request).await?;
            let (status, code) = (
                response.status().as_u16(),
                response.extensions().get::<Code>(),
            );
            if let Some(code) = code {
                tracing::debug!(status, code = code.as_str(), "refused");
            } else {
                tracing::debug!(status, "answered");
            }
            Ok(response)
        };
        CURRENT.scope(about, serving).await
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
