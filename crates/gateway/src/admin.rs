//! The admin listener: for now, whether this instance lives and is ready.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use onlyonce_engine::{Engine, Runtime};
use onlyonce_store::Store;

/// Answers one request.
pub(crate) async fn answer<S: Store, R: Runtime, B>(
    engine: Engine<S, R>,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/livez") => (StatusCode::OK, "alive\n".to_owned()),
        (&Method::GET, "/readyz") => match engine.store().now().await {
            Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        },
        _ => (StatusCode::NOT_FOUND, "try /livez or /readyz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}
