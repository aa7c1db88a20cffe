//! Asking the upstream whether a caller may still have a stored response.
//!
//! A credential can be revoked between the first request and its retry. Where configured, the
//! upstream is asked with the caller's own credentials before anything is given again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use onlyonce_http::{Body, METHOD_OVERRIDES, ReplayCheck};

use crate::forward::{Peer, Rewriting};
use crate::request_id::About;
use crate::upstream::Upstream;

/// What describes the request itself: its body, the state that it wants to meet, the part that it
/// means. The question has none of these, nor another method.
const ABOUT_THE_WRITE: [HeaderName; 10] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::EXPECT,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];

/// Asks `path` on the upstream.
pub(crate) struct AuthCheck {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) rewriting: Rewriting,
    pub(crate) path: PathAndQuery,
}

impl ReplayCheck for AuthCheck {
    fn check<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Bytes>>> + Send + 'a>> {
        Box::pin(async {
            match self.ask(request).await {
                status if status.is_success() => Ok(()),
                status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(refusal(status)),
                // Not knowing is no permission.
                _ => Err(refusal(StatusCode::SERVICE_UNAVAILABLE)),
            }
        })
    }
}

impl AuthCheck {
    async fn ask(&self, request: &Parts) -> StatusCode {
        let mut question = Request::new(Body::empty());
        *question.method_mut() = Method::GET;
        *question.uri_mut() = Uri::from(self.path.clone());
        // Whatever names the caller comes along.
        *question.headers_mut() = request.headers.clone();
        for name in ABOUT_THE_WRITE.iter().chain(&METHOD_OVERRIDES) {
            question.headers_mut().remove(name);
        }
        // An HTTP/2 request names its host in the target, which is replaced here.
        let authority = request.uri.authority();
        let host = authority.and_then(|name| HeaderValue::from_str(name.as_str()).ok());
        if let Some(host) = host {
            question.headers_mut().insert(header::HOST, host);
        }
        let Some(peer) = request.extensions.get::<Peer>() else {
            return StatusCode::SERVICE_UNAVAILABLE;
        };
        self.rewriting.request(&mut question, peer, false);
        if let Some(about) = request.extensions.get::<Arc<About>>() {
            about.tell(question.headers_mut());
        }
        let Ok(answer) = self.upstream.ask(Box::new(question)).await else {
            return StatusCode::SERVICE_UNAVAILABLE;
        };
        let status = answer.status();
        answer.into_body().let_go();
        status
    }
}

fn refusal(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
