//! Asking the upstream's side what became of an operation.
//!
//! A question is one GET with limits on everything: connecting, the whole, and the size of the
//! answer. Redirects are not followed. Whatever goes wrong is "pending", with a reason that is
//! logged and counted; the engine asks again later, and in the end a person decides.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use onlyonce_core::json::Pointer;
use onlyonce_core::{Record, RecordId, Response as Stored, Verdict};
use onlyonce_engine::{ChildKeys, Resolver};
use onlyonce_http::Body;
use onlyonce_http::reconcile::{Answer, Known, Mapping, Memo, Read, Template, Why};
use tokio::sync::watch;

use super::Counts;
use crate::config::{self, Config};
use crate::logging::short;
use crate::tls;
use crate::upstream::{AnswerBody, Connector, Failure, Limits, RequestBody, Upstream};

/// How long an idle connection to whoever is asked is kept.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// How many of them.
const POOL_IDLE_MAX: usize = 4;

/// The largest file that holds the value of a header.
const HEADER_FILE_BYTES_MAX: usize = 16 * 1024;

/// The probes of all routes.
pub(crate) struct Probes {
    by_route: HashMap<String, Arc<Probe>>,
    counts: Arc<Counts>,
    /// There once the engine is open, which happens after it was given this.
    keys: watch::Receiver<Option<ChildKeys>>,
}

struct Probe {
    name: String,
    url: Template,
    host: HeaderValue,
    headers: Vec<(HeaderName, Template)>,
    files: Vec<(HeaderName, PathBuf)>,
    upstream: Upstream,
    timeout: Duration,
    body_max: usize,
    mapping: Mapping,
    about: Option<(Pointer, Template)>,
}

/// Why there is no answer to read: as it is counted, and in more words.
struct NoAnswer(&'static str, String);

impl Probes {
    /// The probes of a configuration; `None` where no route has one. `keys` is told when the
    /// engine is open.
    ///
    /// # Errors
    /// With the setting to change.
    pub(crate) fn new(
        config: &Config,
        counts: Arc<Counts>,
        keys: watch::Receiver<Option<ChildKeys>>,
    ) -> Result<Option<Self>, String> {
        let mut by_route = HashMap::new();
        for probe in &config.probes {
            let built = Arc::new(Probe::new(probe)?);
            let asks = |route: &&config::Route| route.probe.is_some() && route.probe == probe.name;
            for route in config.routes.iter().filter(asks) {
                by_route.insert(route.label(), Arc::clone(&built));
            }
        }
        Ok((!by_route.is_empty()).then_some(Self {
            by_route,
            counts,
            keys,
        }))
    }

    async fn ask(&self, probe: &Probe, id: &RecordId, record: &Record) -> Verdict {
        let mut keys = self.keys.clone();
        // Rows may be due while the engine is being opened. An engine that never opened asks
        // nobody.
        let Ok(keys) = keys
            .wait_for(Option::is_some)
            .await
            .map(|keys| keys.clone())
        else {
            return Verdict::Pending;
        };
        let cut_off = CutOff {
            probes: self,
            probe,
            id,
        };
        let asked = tokio::time::timeout(probe.timeout, probe.ask(id, record, keys.as_ref())).await;
        std::mem::forget(cut_off);
        let asked = asked.unwrap_or_else(|_| {
            Err(NoAnswer(
                "timeout",
                format!("no answer within {:?}", probe.timeout),
            ))
        });
        match asked {
            Ok(Read::Completed(response)) => {
                self.counts.add("probe", &probe.name, "completed");
                Verdict::Completed(Stored::Plain(response))
            }
            Ok(Read::NotFound) => {
                self.counts.add("probe", &probe.name, "not_found");
                Verdict::NotFound
            }
            Ok(Read::Pending(Why::Said)) => {
                self.counts.add("probe", &probe.name, Why::Said.as_str());
                Verdict::Pending
            }
            Ok(Read::Pending(why)) => {
                self.could_not_tell(probe, id, why.as_str(), "the answer decides nothing");
                Verdict::Pending
            }
            Err(NoAnswer(reason, detail)) => {
                self.could_not_tell(probe, id, reason, &detail);
                Verdict::Pending
            }
        }
    }

    fn could_not_tell(&self, probe: &Probe, id: &RecordId, reason: &'static str, detail: &str) {
        let total = self.counts.add("probe", &probe.name, reason);
        let (key, probe) = (short(id), &probe.name);
        tracing::warn!(key, probe, reason, detail, total, "a probe could not tell");
    }
}

/// Says so when the engine gave up waiting.
struct CutOff<'a> {
    probes: &'a Probes,
    probe: &'a Probe,
    id: &'a RecordId,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        let detail = "no answer before the next question was due";
        self.probes
            .could_not_tell(self.probe, self.id, "cut_off", detail);
    }
}

impl Resolver for Probes {
    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        record: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(async move {
            match self.by_route.get(record.route.as_str()) {
                Some(probe) => self.ask(probe, id, record).await,
                None => Verdict::Pending,
            }
        })
    }
}

impl Probe {
    fn new(probe: &config::Probe) -> Result<Self, String> {
        let name = probe.name.clone().unwrap_or_default();
        let wrong = |text: &dyn std::fmt::Display| format!("probe \"{name}\": {text}");
        let url = probe.url.as_ref().map(|url| url.0.clone());
        let url = url.ok_or_else(|| wrong(&"there is no URL"))?;
        let (https, authority) = url.authority().ok_or_else(|| wrong(&"there is no host"))?;
        let host = HeaderValue::from_str(authority).map_err(|error| wrong(&error))?;
        let authority: http::uri::Authority = authority.parse().map_err(|error| wrong(&error))?;
        for (header, file) in &probe.headers_file.0 {
            credential(file).map_err(|error| wrong(&format!("{header}: {error}")))?;
        }
        let tls = https.then(|| tls::client("ca_file", probe.ca_file.as_deref(), false));
        let connector = Connector {
            name: None,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            tls: tls.transpose().map_err(|error| wrong(&error))?,
            http2: false,
            timeout: probe.connect_timeout.min(probe.timeout),
        };
        let limits = Limits {
            response_timeout: probe.timeout,
            idle_timeout: probe.timeout,
            pool_idle_max: POOL_IDLE_MAX,
            pool_idle_timeout: POOL_IDLE_TIMEOUT,
            down_for: Duration::ZERO,
            workers: 0,
            passing: usize::MAX,
        };
        Ok(Self {
            host,
            headers: probe.headers.0.clone(),
            files: probe.headers_file.0.clone(),
            upstream: Upstream::new(vec![connector], limits),
            timeout: probe.timeout,
            body_max: probe.body_max,
            mapping: probe.mapping(),
            about: probe
                .about
                .as_ref()
                .map(|about| (about.pointer.clone(), about.value.clone())),
            name,
            url,
        })
    }

    async fn ask(
        &self,
        id: &RecordId,
        record: &Record,
        keys: Option<&ChildKeys>,
    ) -> Result<Read, NoAnswer> {
        let created_at = record.created_at;
        let child = |name: &str| keys.and_then(|keys| keys.of(id, created_at, name));
        let known = Known {
            id,
            created_at,
            memo: &Memo::parse(&record.memo),
            child: &child,
        };
        let about = self.about.as_ref();
        let about = about.map(|(pointer, value)| Ok((pointer, render(value, &known)?)));
        let about = about.transpose()?;
        let question = self.question(&known).await?;
        let answer = self
            .upstream
            .send(Box::new(question))
            .await
            .map_err(|failure| unanswered(&failure))?;
        let (head, body) = self.whole(answer).await?;
        Ok(self.mapping.read(&Answer {
            status: Some(head.status.as_u16()),
            content_type: head
                .headers
                .get(header::CONTENT_TYPE)
                .map(HeaderValue::as_bytes),
            body: &body,
            about: about
                .as_ref()
                .map(|(pointer, value)| (*pointer, value.as_str())),
        }))
    }

    async fn question(&self, known: &Known<'_>) -> Result<Request<RequestBody>, NoAnswer> {
        let url = render(&self.url, known)?;
        let uri: Uri = url.parse().map_err(|_| unfit("the URL"))?;
        let path = uri
            .path_and_query()
            .cloned()
            .ok_or_else(|| unfit("the URL"))?;
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from(path);
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        // What is compressed would have to be inflated, which nothing here does.
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        for (name, template) in &self.headers {
            let value = HeaderValue::from_str(&render(template, known)?);
            headers.append(name, value.map_err(|_| unfit(name.as_str()))?);
        }
        for (name, file) in &self.files {
            // Read anew for every question, so that a credential can be replaced in place.
            let read = tokio::fs::read_to_string(file).await;
            let value = read
                .map_err(|error| error.to_string())
                .and_then(|text| secret(&text));
            let named = |error| NoAnswer("credential", format!("{}: {error}", file.display()));
            headers.append(name, value.map_err(named)?);
        }
        Ok(request)
    }

    /// The answer, all of it, if it is one that can be read.
    async fn whole(
        &self,
        answer: Response<AnswerBody>,
    ) -> Result<(http::response::Parts, Bytes), NoAnswer> {
        let (head, body) = answer.into_parts();
        if head.status.is_redirection() {
            let detail = format!("{} is not followed", head.status);
            return Err(NoAnswer("redirect", detail));
        }
        let coding = head.headers.get(header::CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding != "identity") {
            return Err(NoAnswer("encoded", "the answer is compressed".into()));
        }
        match Limited::new(body, self.body_max).collect().await {
            Ok(body) => Ok((head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                let detail = format!("the answer has more than {} bytes", self.body_max);
                Err(NoAnswer("too_large", detail))
            }
            Err(error) => Err(NoAnswer("broken", error.to_string())),
        }
    }
}

fn render(template: &Template, known: &Known<'_>) -> Result<String, NoAnswer> {
    let rendered = template.render(known);
    rendered.map_err(|error| NoAnswer("not_rendered", error.to_string()))
}

fn unfit(what: &str) -> NoAnswer {
    let detail = format!("what is known does not fit into {what}");
    NoAnswer("not_rendered", detail)
}

fn unanswered(failure: &Failure) -> NoAnswer {
    let reason = match failure {
        Failure::NeverSent(_) | Failure::Crowded(_) => "unreachable",
        Failure::MaybeSent(_) => "broken",
        Failure::TimedOut(_) => "timeout",
    };
    NoAnswer(reason, failure.to_string())
}

/// The value of a header, from its file, as it is now.
///
/// # Errors
/// When the file cannot be read, or holds no such value.
pub(crate) fn credential(file: &Path) -> Result<HeaderValue, String> {
    let read = std::fs::read_to_string(file).map_err(|error| {
        format!("{error}: put the header's value there, or name a file that can be read")
    });
    let value = read.and_then(|text| secret(&text));
    value.map_err(|error| format!("{}: {error}", file.display()))
}

/// The value of a header, from what its file holds. Never shown.
fn secret(text: &str) -> Result<HeaderValue, String> {
    let text = text.trim();
    if text.is_empty() || text.len() > HEADER_FILE_BYTES_MAX {
        return Err("the file is empty, or too large for a header".into());
    }
    let mut value = HeaderValue::from_str(text).map_err(|_| "this is no header value")?;
    value.set_sensitive(true);
    Ok(value)
}
