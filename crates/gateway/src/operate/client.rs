//! One request to the admin API, and its refusal in one line.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::{Endpoint, endpoint};
use crate::tls;

/// A person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Larger than the largest page with the largest responses that the API gives.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why there is no result.
enum Failed {
    /// The API said so, or nothing was sent.
    Said(String),
    /// It may have been asked, and its answer is not known.
    Unanswered(String),
}

impl Failed {
    fn text(self) -> String {
        match self {
            Self::Said(text) | Self::Unanswered(text) => text,
        }
    }
}

/// A gateway's admin listener.
pub(crate) struct Admin {
    endpoint: Endpoint,
    token: Option<HeaderValue>,
}

impl Admin {
    /// # Errors
    /// When the address or the token cannot be one.
    pub(crate) fn new(admin: &str, token: Option<&str>) -> Result<Self, String> {
        let url = if admin.contains("://") {
            admin.to_owned()
        } else {
            format!("http://{admin}")
        };
        let endpoint = endpoint(&url).map_err(|wrong| format!("--admin: {wrong}"))?;
        let bearer = |token: &str| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| "--token: it has characters that no token can have".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        let token = token.map(bearer).transpose()?;
        Ok(Self { endpoint, token })
    }

    /// # Errors
    /// With the refusal, or why there was no answer.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        self.ask(Method::GET, path, None)
            .await
            .map_err(Failed::text)
    }

    /// # Errors
    /// With the refusal, or why there was no answer.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let asked = self.ask(Method::POST, path, Some(body)).await;
        asked.map_err(Failed::text)
    }

    /// As [`post`](Self::post), for what changes something.
    ///
    /// # Errors
    /// With what the API said, or that nobody knows whether it was changed.
    pub(crate) async fn change(&self, path: &str, body: &Value) -> Result<Value, String> {
        let asked = self.ask(Method::POST, path, Some(body)).await;
        asked.map_err(|failed| match failed {
            Failed::Said(text) => text,
            Failed::Unanswered(text) => format!(
                "{text}. Whether it was changed is not known: look at it with `onlyonce keys show`"
            ),
        })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failed> {
        let request = self.request(method, path, body).map_err(Failed::Said)?;
        let answer = tokio::time::timeout(PATIENCE, self.exchange(request)).await;
        let Ok(answer) = answer else {
            let text = format!("no answer from {} in time", self.endpoint);
            return Err(Failed::Unanswered(text));
        };
        let (status, body) = answer.map_err(|error| {
            Failed::Unanswered(format!(
                "no answer from {}: {error}. Is it the gateway's admin address? Give another with \
                 --admin URL",
                self.endpoint
            ))
        })?;
        let answer = serde_json::from_slice(&body);
        match answer {
            Ok(answer) if status.is_success() => Ok(answer),
            Ok(problem) => Err(Failed::Said(refusal(status, &problem))),
            Err(_) => Err(Failed::Unanswered(format!(
                "{} answered {status} without JSON: is it a gateway's admin address?",
                self.endpoint
            ))),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.authority.as_str());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(bytes));
        request.map_err(|error| error.to_string())
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        if !self.endpoint.https {
            return talk(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let tls = tls::client("--admin", None, false).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(tls);
        let stream = connector.connect(name, stream).await;
        talk(stream.map_err(|error| error.to_string())?, request).await
    }
}

async fn talk<I>(stream: I, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    tokio::spawn(async move { drop(connection.await) });
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}

/// What the API refused, and what to do about it.
fn refusal(status: StatusCode, problem: &Value) -> String {
    let text = |name| problem.get(name).and_then(Value::as_str);
    let said = text("detail")
        .or(text("title"))
        .unwrap_or("no reason given");
    let said: String = said.chars().filter(|c| !c.is_control()).collect();
    let hint = match text("code") {
        Some("unauthorized") => ". Give a token with --token, or in ONLYONCE_TOKEN",
        Some("stale") => ". Look at it again with `onlyonce keys show`",
        _ => "",
    };
    // A server error is no refusal: what was asked for may have been done.
    let what = if status.is_server_error() {
        "failed"
    } else {
        "refused"
    };
    format!("{what} ({}): {said}{hint}", status.as_u16())
}

/// A value as it may stand in a path or query.
pub(crate) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a person types must not become another path or another query.
    #[test]
    fn a_value_stays_inside_its_place() {
        assert_eq!(
            encoded("a/../b?c=d&e#f g"),
            "a%2F..%2Fb%3Fc%3Dd%26e%23f%20g"
        );
        assert_eq!(encoded("4e2f-_.~Z"), "4e2f-_.~Z");
        assert_eq!(encoded("ü"), "%C3%BC");
    }

    #[test]
    fn an_address_needs_no_scheme() {
        let admin = Admin::new("127.0.0.1:8081", None).unwrap();
        assert_eq!(admin.endpoint.to_string(), "http://127.0.0.1:8081");
        assert!(Admin::new("ftp://x", None).is_err());
        assert!(Admin::new("127.0.0.1:1", Some("two\nlines")).is_err());
    }

    #[test]
    fn a_refusal_says_what_to_do_and_controls_no_terminal() {
        let problem = serde_json::json!({"code": "unauthorized", "detail": "no \u{1b}[31mtoken"});
        let text = refusal(StatusCode::UNAUTHORIZED, &problem);
        assert_eq!(
            text,
            "refused (401): no [31mtoken. Give a token with --token, or in ONLYONCE_TOKEN"
        );
        let problem = serde_json::json!({"code": "store_unavailable", "detail": "no answer, so the write may have happened"});
        assert_eq!(
            refusal(StatusCode::SERVICE_UNAVAILABLE, &problem),
            "failed (503): no answer, so the write may have happened"
        );
    }
}
