//! `[[probe]]`, `[[webhook]]` and `[webhooks]`: who can tell what became of an unknown outcome.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onlyonce_core::json::Pointer;
use onlyonce_http::reconcile::{Mapping, ResponseRule, Rule, Scheme, Template};

use super::field::Visitor;
use super::questions::{About, Headers, HeadersFile, Match, UrlTemplate};

/// One `[[probe]]`: a question that is put to the upstream's side.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    /// Required, as is `url`; absent only until that is checked.
    pub(crate) name: Option<String>,
    pub(crate) url: Option<UrlTemplate>,
    pub(crate) headers: Headers,
    pub(crate) headers_file: HeadersFile,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) body_max: usize,
    pub(crate) completed: Vec<Rule>,
    pub(crate) not_found: Vec<Rule>,
    pub(crate) pending: Vec<Rule>,
    pub(crate) about: Option<About>,
    pub(crate) single: Option<Pointer>,
    pub(crate) response: ResponseRule,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            name: None,
            url: None,
            headers: Headers::default(),
            headers_file: HeadersFile::default(),
            ca_file: None,
            connect_timeout: Duration::from_secs(2),
            // Well below the pause before the next question, which ends this one.
            timeout: Duration::from_secs(4),
            body_max: 256 * 1024,
            completed: Vec::new(),
            not_found: Vec::new(),
            pending: Vec::new(),
            about: None,
            single: None,
            response: ResponseRule::default(),
        }
    }
}

impl Probe {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.key("name", &mut self.name);
        visitor.key("url", &mut self.url);
        visitor.key("headers", &mut self.headers);
        visitor.key("headers_file", &mut self.headers_file);
        visitor.key("ca_file", &mut self.ca_file);
        visitor.key("connect_timeout", &mut self.connect_timeout);
        visitor.key("timeout", &mut self.timeout);
        visitor.size("body_max", &mut self.body_max);
        visitor.key("completed", &mut self.completed);
        visitor.key("not_found", &mut self.not_found);
        visitor.key("pending", &mut self.pending);
        visitor.key("about", &mut self.about);
        visitor.key("single", &mut self.single);
        visitor.key("response", &mut self.response);
    }

    /// Everything in it that has places.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let url = self.url.iter().map(|url| &url.0);
        let about = self.about.iter().map(|about| &about.value);
        let headers = self.headers.0.iter().map(|(_, value)| value);
        url.chain(headers).chain(about)
    }

    /// How its answers are read.
    pub(crate) fn mapping(&self) -> Mapping {
        Mapping {
            completed: self.completed.clone(),
            not_found: self.not_found.clone(),
            pending: self.pending.clone(),
            single: self.single.clone(),
            response: self.response.clone(),
        }
    }
}

/// One `[[webhook]]`: what the upstream's side says by itself.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    /// Required, as are `secret_file` and `match`; absent only until that is checked.
    pub(crate) name: Option<String>,
    pub(crate) scheme: Scheme,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) tolerance: Duration,
    pub(crate) find: Option<Match>,
    pub(crate) completed: Vec<Rule>,
    pub(crate) not_found: Vec<Rule>,
    pub(crate) pending: Vec<Rule>,
    pub(crate) response: ResponseRule,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            name: None,
            scheme: Scheme::Standard,
            secret_file: None,
            // What the libraries of both schemes allow.
            tolerance: Duration::from_secs(300),
            find: None,
            completed: Vec::new(),
            not_found: Vec::new(),
            pending: Vec::new(),
            response: ResponseRule::default(),
        }
    }
}

impl Webhook {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.key("name", &mut self.name);
        visitor.key("scheme", &mut self.scheme);
        visitor.key("secret_file", &mut self.secret_file);
        visitor.key("tolerance", &mut self.tolerance);
        visitor.key("match", &mut self.find);
        visitor.key("completed", &mut self.completed);
        visitor.key("not_found", &mut self.not_found);
        visitor.key("pending", &mut self.pending);
        visitor.key("response", &mut self.response);
    }

    /// How its payloads are read.
    pub(crate) fn mapping(&self) -> Mapping {
        Mapping {
            completed: self.completed.clone(),
            not_found: self.not_found.clone(),
            pending: self.pending.clone(),
            single: None,
            response: self.response.clone(),
        }
    }
}

/// Where webhooks come in.
#[derive(Debug, Clone)]
pub(crate) struct Webhooks {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) connections: usize,
    pub(crate) body_max: usize,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            listen: None,
            connections: 256,
            body_max: 256 * 1024,
        }
    }
}

impl Webhooks {
    pub(crate) fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.section("webhooks");
        visitor.key("listen", &mut self.listen);
        visitor.key("connections", &mut self.connections);
        visitor.size("body_max", &mut self.body_max);
    }
}
