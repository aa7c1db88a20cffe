//! Being told by the upstream's side what became of an operation.
//!
//! A webhook is checked in this order: its size, its signature and age, what it says, and which
//! operation it is about. Only then is anything given to the engine. Its sender delivers again
//! whatever was not answered with 2xx, so a webhook that comes too early gets a 503, and one that
//! was delivered twice gets a 200: its operation is settled once.
//!
//! A webhook decides only about operations of the routes that name it.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use onlyonce_core::{Decision, Record, RecordId, Response as Stored, Timestamp, Verdict};
use onlyonce_engine::{Engine, EngineError, Referred};
use onlyonce_http::BoxError;
use onlyonce_http::reconcile::{Answer, Json, Mapping, Read, SignatureError, Verifier, Why};
use onlyonce_store::BoxStore;
use serde_json::json;

use super::{Counts, names};
use crate::config::{self, By, Config};
use crate::logging::short;

/// Where webhooks come in; the name follows.
const PATH: &str = "/webhooks/";

/// How long the body of a webhook may take in all.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// When to deliver again what came too early, in seconds.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The receiver of all webhooks.
pub(crate) struct Receiver {
    engine: Engine<BoxStore>,
    webhooks: BTreeMap<String, Webhook>,
    body_max: usize,
    counts: Arc<Counts>,
}

struct Webhook {
    name: String,
    verifier: Verifier,
    pointer: onlyonce_core::json::Pointer,
    by: By,
    mapping: Mapping,
    /// The routes that it decides about.
    routes: HashSet<String>,
}

/// What its sender is told: the status, a word that is counted, and why.
struct Told(StatusCode, &'static str, String);

impl Told {
    fn refuse(status: StatusCode, code: &'static str, why: impl Into<String>) -> Self {
        Self(status, code, why.into())
    }

    fn unavailable(error: &EngineError) -> Self {
        tracing::error!(%error, "a webhook could not be taken in");
        let why = "the store is not available; deliver it again";
        Self::refuse(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why)
    }
}

impl Receiver {
    /// # Errors
    /// With the setting to change.
    pub(crate) fn new(
        config: &Config,
        engine: Engine<BoxStore>,
        counts: Arc<Counts>,
    ) -> Result<Self, String> {
        let mut webhooks = BTreeMap::new();
        for webhook in &config.webhooks {
            let built = Webhook::new(webhook, config)?;
            webhooks.insert(built.name.clone(), built);
        }
        Ok(Self {
            engine,
            webhooks,
            body_max: config.webhook_listener.body_max,
            counts,
        })
    }

    /// Answers a request of the webhooks' listener.
    ///
    /// # Errors
    /// Never.
    pub(crate) async fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
    ) -> Result<Response<Full<Bytes>>, Infallible>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let name = request.uri().path().strip_prefix(PATH).unwrap_or_default();
        let Some(webhook) = self.webhooks.get(name) else {
            let told = Told::refuse(
                StatusCode::NOT_FOUND,
                "no_such_webhook",
                "try /webhooks/NAME",
            );
            return Ok(response(&told));
        };
        let told = if request.method() == Method::POST {
            self.receive(webhook, request)
                .await
                .unwrap_or_else(|told| told)
        } else {
            Told::refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "not_post",
                "webhooks are posted",
            )
        };
        let Told(status, code, why) = &told;
        let total = self.counts.add("webhook", &webhook.name, code);
        let (name, status) = (&webhook.name, status.as_u16());
        if status < 300 {
            tracing::info!(
                webhook = name,
                status,
                result = code,
                total,
                "a webhook came"
            );
        } else {
            tracing::warn!(
                webhook = name,
                status,
                result = code,
                why,
                total,
                "a webhook was refused"
            );
        }
        Ok(response(&told))
    }

    async fn receive<B>(&self, webhook: &Webhook, request: Request<B>) -> Result<Told, Told>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let body = self.whole(body).await?;
        let now_seconds = self.engine.now().as_millis() / 1000;
        webhook
            .verifier
            .verify(&head.headers, &body, now_seconds)
            .map_err(unsigned)?;
        let read = webhook.mapping.read(&Answer {
            status: None,
            content_type: head
                .headers
                .get(header::CONTENT_TYPE)
                .map(HeaderValue::as_bytes),
            body: &body,
            about: None,
        });
        let (verdict, said_at) = match read {
            Read::Completed(response) => (
                Verdict::Completed(Stored::Plain(response)),
                self.engine.now(),
            ),
            // When its sender looked is not known, only when it was sent: it proves nothing about
            // a dispatch that was late.
            Read::NotFound => (Verdict::NotFound, Timestamp::ZERO),
            Read::Pending(why) => return nothing_said(why),
        };
        let (id, record) = self.find(webhook, &body).await?;
        let decided = self
            .engine
            .reconcile(&id, record.fence, said_at, verdict)
            .await;
        let decided = decided.map_err(|error| Told::unavailable(&error))?;
        tracing::debug!(
            key = short(&id),
            webhook = webhook.name,
            ?decided,
            "told by a webhook"
        );
        Ok(told(decided))
    }

    async fn whole<B>(&self, body: B) -> Result<Bytes, Told>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let reading = std::pin::pin!(Limited::new(body, self.body_max).collect());
        match tokio::time::timeout(BODY_TIMEOUT, reading).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let why = format!("at most {} bytes are read", self.body_max);
                Err(Told::refuse(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "too_large",
                    why,
                ))
            }
            Ok(Err(_)) => {
                let why = "the body broke off";
                Err(Told::refuse(StatusCode::BAD_REQUEST, "broken", why))
            }
            Err(_) => {
                let why = "the body did not come in time";
                Err(Told::refuse(StatusCode::REQUEST_TIMEOUT, "timeout", why))
            }
        }
    }

    /// The operation that a payload names.
    async fn find(&self, webhook: &Webhook, body: &[u8]) -> Result<(RecordId, Record), Told> {
        let unknown = |why: &str| Told::refuse(StatusCode::NOT_FOUND, "unknown_key", why);
        let json = Json::parse(body);
        let name = json.and_then(|json| json.scalar(&webhook.pointer));
        let name = name.ok_or_else(|| unknown("the payload names no operation"))?;
        let (id, created_at) = match &webhook.by {
            By::Operation => named(&name).ok_or_else(|| unknown("this is no operation's name"))?,
            by @ (By::Child(_) | By::Key) => {
                let kind = names::kind(&webhook.name, by);
                let referred = self.engine.referred(&kind, &name).await;
                match referred.map_err(|error| Told::unavailable(&error))? {
                    Some(Referred::To(id, created_at)) => (id, created_at),
                    Some(Referred::Ambiguous) => {
                        let why = "several operations have had this name, so it decides none";
                        return Err(Told::refuse(StatusCode::CONFLICT, "ambiguous", why));
                    }
                    None => return Err(unknown("no operation has this name")),
                }
            }
        };
        let record = self.engine.inspect(&id).await;
        let record = record.map_err(|error| Told::unavailable(&error))?;
        // An operation of another route and none at all look the same.
        let own = record
            .filter(|record| webhook.routes.contains(record.route.as_str()))
            .filter(|record| created_at == record.created_at);
        own.map(|record| (id, record))
            .ok_or_else(|| unknown("there is no such operation, or it was forgotten"))
    }
}

impl Webhook {
    fn new(webhook: &config::Webhook, config: &Config) -> Result<Self, String> {
        let name = webhook.name.clone().unwrap_or_default();
        let wrong = |text: &dyn std::fmt::Display| format!("webhook \"{name}\": {text}");
        let verifier = verifier(webhook).map_err(|error| wrong(&error))?;
        let find = webhook
            .find
            .clone()
            .ok_or_else(|| wrong(&"there is no match"))?;
        let named_by = |route: &&config::Route| route.webhook.as_ref() == Some(&name);
        let routes = config.routes.iter().filter(named_by);
        Ok(Self {
            verifier,
            pointer: find.pointer,
            by: find.by,
            mapping: webhook.mapping(),
            routes: routes.map(config::Route::label).collect(),
            name,
        })
    }
}

/// What checks a webhook's signature, with the secrets in its file.
///
/// # Errors
/// When the file cannot be read, or holds no secret.
pub(crate) fn verifier(webhook: &config::Webhook) -> Result<Verifier, String> {
    let file = webhook.secret_file.as_ref();
    let file = file.ok_or("there is no secret_file")?;
    let named = |text: &dyn std::fmt::Display| format!("{}: {text}", file.display());
    let secrets = std::fs::read_to_string(file).map_err(|error| {
        let fix =
            "put the sender's secrets there, one on each line, or name a file that can be read";
        named(&format!("{error}: {fix}"))
    })?;
    let verifier = Verifier::new(webhook.scheme, &secrets, webhook.tolerance);
    verifier.map_err(|error| named(&error))
}

/// An operation as the upstream was told it: its id, and since when. The id alone is not enough: a
/// key that is used anew has it again, and a late word about the first use must not settle the next.
fn named(name: &str) -> Option<(RecordId, Timestamp)> {
    let (id, since) = name.split_once('.')?;
    let since = since.parse().ok().map(Timestamp::from_millis)?;
    Some((RecordId::from_hex(id)?, since))
}

fn unsigned(error: SignatureError) -> Told {
    match error {
        SignatureError::Stale => Told::refuse(StatusCode::BAD_REQUEST, "stale", error.to_string()),
        SignatureError::Forged => {
            Told::refuse(StatusCode::UNAUTHORIZED, "forged", error.to_string())
        }
        SignatureError::Header(_) | SignatureError::Malformed(_) => {
            Told::refuse(StatusCode::BAD_REQUEST, "malformed", error.to_string())
        }
    }
}

/// Most webhooks are about other things: their sender must not deliver them again.
fn nothing_said(why: Why) -> Result<Told, Told> {
    match why {
        Why::Said | Why::NoRule => Ok(Told(
            StatusCode::OK,
            "ignored",
            "this decides nothing".into(),
        )),
        Why::Ambiguous | Why::NotJson | Why::AboutAnother | Why::Several | Why::NoResponse => {
            let why = format!("the payload cannot be read ({})", why.as_str());
            Err(Told::refuse(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unreadable",
                why,
            ))
        }
    }
}

fn told(decided: Decision) -> Told {
    match decided {
        Decision::Settled => Told(StatusCode::OK, "settled", "it is settled now".into()),
        Decision::DeadLettered => Told(
            StatusCode::OK,
            "dead_lettered",
            "a person decides now".into(),
        ),
        Decision::AlreadySettled => Told(
            StatusCode::OK,
            "already_settled",
            "it was settled before".into(),
        ),
        Decision::StillUnknown => Told(
            StatusCode::OK,
            "still_unknown",
            "this decides nothing yet".into(),
        ),
        Decision::InFlight => {
            let why = "it is still at work; deliver it again";
            Told::refuse(StatusCode::SERVICE_UNAVAILABLE, "in_progress", why)
        }
        // Somebody was granted the key in this moment.
        Decision::Fenced
        | Decision::Execute
        | Decision::Replay
        | Decision::NotReplayable
        | Decision::AlreadyUsed
        | Decision::Mismatch
        | Decision::Unknown
        | Decision::Renewed
        | Decision::NotDue
        | Decision::LeaseExpired
        | Decision::Probe
        | Decision::Expired
        | Decision::Purged
        | Decision::Rescheduled
        | Decision::NotAllowed => {
            let why = "it changed meanwhile; deliver it again";
            Told::refuse(StatusCode::SERVICE_UNAVAILABLE, "changed", why)
        }
    }
}

fn response(told: &Told) -> Response<Full<Bytes>> {
    let Told(status, code, why) = told;
    let body = if status.is_success() {
        json!({ "result": code })
    } else {
        json!({
            "type": "about:blank",
            "title": "The webhook was refused",
            "status": status.as_u16(),
            "code": format!("webhook_{code}"),
            "detail": why,
        })
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = *status;
    let media_type = if status.is_success() {
        "application/json"
    } else {
        "application/problem+json"
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if *status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    }
    response
}
