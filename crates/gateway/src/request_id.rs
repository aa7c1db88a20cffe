//! A name for every request, for the logs and for the upstream.
//!
//! Answers do not carry it: a replay is the first answer, and nothing but the mark of a replay is
//! added to it. And the request itself gets it only on its way to the upstream: where an API's
//! clients send their key as `X-Request-Id`, one that the gateway made would pass for a key.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use onlyonce_engine::{Carried, TokioRuntime};
use onlyonce_http::{Code, KeyPlace, KeySource, Routes};
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken over from a client.
const BYTES_MAX: usize = 128;

/// What a line of the log says about the request that it belongs to. Kept beside the request and by
/// every task that works for it, and written only where a line is: most requests leave none.
pub(crate) struct About {
    id: HeaderValue,
    method: Method,
    uri: Uri,
}

impl About {
    /// The request that the running task serves, if it serves one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        TokioRuntime::carried()?.downcast().ok()
    }

    /// What was said of a request when it was taken in.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().cloned()
    }

    /// The answer to a request, with a line about it.
    pub(crate) fn answer<B, F>(
        about: Option<Arc<Self>>,
        answering: F,
    ) -> impl Future<Output = Result<Response<B>, Infallible>> + use<B, F>
    where
        F: Future<Output = Result<Response<B>, Infallible>>,
    {
        let about = about.map(|about| about as Carried);
        TokioRuntime::carry(about, async move {
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

    /// Tells the upstream, unless the client did. What a client sent stays as it is: it may be the
    /// key.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        headers.entry(REQUEST_ID).or_insert_with(|| self.id.clone());
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
    /// Whether a client's own may be used. Not where it is the key, which nobody logs.
    takes_over: bool,
}

impl RequestIds {
    pub(crate) fn new(routes: &Routes) -> Self {
        let is_id = |source: &KeySource| match &source.place {
            KeyPlace::Header { name, .. } => *name == REQUEST_ID,
            KeyPlace::Json { .. } | KeyPlace::Form { .. } | KeyPlace::Query { .. } => false,
        };
        let is_key = routes
            .iter()
            .any(|route| route.key.sources.iter().any(is_id));
        Self {
            process: Uuid::new_v4(),
            count: AtomicU64::new(0),
            takes_over: !is_key,
        }
    }

    /// The client's own id if it sent a harmless one, or else a new one.
    fn of<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        let given = request.headers().get(REQUEST_ID);
        let harmless = |value: &&HeaderValue| {
            let is_plain = value.as_bytes().iter().all(u8::is_ascii_graphic);
            self.takes_over && value.len() <= BYTES_MAX && is_plain
        };
        given.filter(harmless).cloned().or_else(|| {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let id = format!("{}-{count}", self.process.simple());
            HeaderValue::try_from(id).ok()
        })
    }

    /// Finds a name for a request, and says what its lines in the log say.
    pub(crate) fn name<B>(&self, request: &mut Request<B>) -> Option<Arc<About>> {
        let id = self.of(request)?;
        let about = Arc::new(About {
            id,
            method: request.method().clone(),
            uri: request.uri().clone(),
        });
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
        let ids = RequestIds::new(&Routes::default());
        assert_ne!(ids.of(&request(None)), ids.of(&request(None)));
        assert_eq!(ids.of(&request(Some("mine"))).unwrap(), "mine");
    }

    /// An id goes into the logs: it must not be able to write lines of its own there.
    #[test]
    fn an_id_that_is_too_long_or_not_plain_is_replaced() {
        let ids = RequestIds::new(&Routes::default());
        let long = "x".repeat(BYTES_MAX + 1);
        for id in ["with space", long.as_str()] {
            assert_ne!(ids.of(&request(Some(id))).unwrap(), id);
        }
    }
}
