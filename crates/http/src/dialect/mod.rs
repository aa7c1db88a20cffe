//! How a layer speaks: its refusals, and the headers that it adds.
//!
//! Without a dialect a refusal is `application/problem+json` and a replay is marked with
//! `Idempotency-Replayed: true`. A dialect gives refusals another shape, by code, and says which
//! headers go with an executed, a replayed and a refused request. Everything is prepared when the
//! dialect is made; a header that is always the same costs a copy.

mod template;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

pub(crate) use template::{Gap, Kind, Template};

use crate::stored::REPLAYED;
use crate::{Code, Problem};

/// How a layer speaks. Made by a [`Profile`](crate::Profile); the default is plain problems.
#[derive(Debug, Clone)]
pub struct Dialect {
    /// The shape of refusals, by code.
    pub(crate) answers: BTreeMap<Code, Shape>,
    /// The shape of those that have none of their own.
    pub(crate) other: Option<Shape>,
    /// Added to the answer of the request that executed.
    pub(crate) executed: Lines,
    /// Added to a replay.
    pub(crate) replayed: Lines,
    /// Added to a refusal.
    pub(crate) refused: Lines,
    /// The header in which every answer has an id of its own.
    pub(crate) request_id: Option<RequestIdRule>,
    /// Where in a stored response the id of what it made is.
    pub(crate) resource_id: Option<ResourcePath>,
    /// Whether any of the above shows the client's key.
    pub(crate) names_key: bool,
}

/// The header with a new id in every answer, kept when the service sent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestIdRule {
    pub(crate) header: HeaderName,
    pub(crate) prefix: String,
}

/// The shape of a refusal.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Instead of the code's usual one.
    pub(crate) status: Option<StatusCode>,
    pub(crate) content_type: HeaderValue,
    pub(crate) headers: Lines,
    pub(crate) body: Template,
}

/// Header lines, each the same always or with gaps. A line whose gap stays empty is left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(pub(crate) Vec<(HeaderName, Line)>);

/// The value of a header line.
#[derive(Debug, Clone)]
pub(crate) enum Line {
    Same(HeaderValue),
    Filled(Template),
}

impl Default for Dialect {
    fn default() -> Self {
        let yes = Line::Same(HeaderValue::from_static("true"));
        Self {
            answers: BTreeMap::new(),
            other: None,
            executed: Lines::default(),
            replayed: Lines(vec![(REPLAYED, yes)]),
            refused: Lines::default(),
            request_id: None,
            resource_id: None,
            names_key: false,
        }
    }
}

impl Dialect {
    /// Finds out what the answers need, once.
    pub(crate) fn prepared(self) -> Self {
        let shapes = || self.answers.values().chain(&self.other);
        let lines = shapes().map(|shape| &shape.headers);
        let lines = lines.chain([&self.executed, &self.replayed, &self.refused]);
        let names_key = lines
            .flat_map(Lines::templates)
            .chain(shapes().map(|shape| &shape.body))
            .any(|template| template.gaps().any(|gap| *gap == Gap::Key));
        Self { names_key, ..self }
    }

    /// A refusal, in the shape that its code has here. The code itself is always in the
    /// response's extensions, for logs and metrics.
    pub(crate) fn refuse(&self, problem: &Problem, base: &str) -> Response<Bytes> {
        let code = problem.code();
        let shape = self.answers.get(&code).or(self.other.as_ref());
        let id = self
            .request_id
            .as_ref()
            .map(|rule| rule.id(problem.instance().as_bytes()));
        let fill = |gap: &Gap| {
            if *gap == Gap::RequestId {
                let id = id.clone();
                Some(json!(id.unwrap_or_else(|| problem.instance().to_string())))
            } else if *gap == Gap::Status {
                let shaped = shape.and_then(|shape| shape.status_of(problem));
                Some(json!(shaped.unwrap_or(problem.status_code()).as_u16()))
            } else {
                problem.fill(gap, base)
            }
        };
        let mut extra = HeaderMap::new();
        self.refused.add(&mut extra, &fill);
        if let (Some(rule), Some(id)) = (&self.request_id, &id) {
            rule.put(&mut extra, id);
        }
        let mut response = match shape {
            None => problem.clone().into_response(base),
            Some(shape) => shape.response(problem, &fill),
        };
        response.headers_mut().extend(extra);
        response.extensions_mut().insert(code);
        response
    }
}

impl Shape {
    /// A status that was chosen for this one occurrence stays.
    fn status_of(&self, problem: &Problem) -> Option<StatusCode> {
        let usual = problem.status_code() == problem.code().status();
        self.status.filter(|_| usual)
    }

    fn response(&self, problem: &Problem, fill: &dyn Fn(&Gap) -> Option<Value>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.body.render(fill)));
        *response.status_mut() = self.status_of(problem).unwrap_or(problem.status_code());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.seconds_to_wait() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        self.headers.add(headers, fill);
        response
    }
}

impl Lines {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        self.0.iter().filter_map(|(_, line)| match line {
            Line::Filled(template) => Some(template),
            Line::Same(_) => None,
        })
    }

    /// Sets every line that has all its values.
    pub(crate) fn add(&self, headers: &mut HeaderMap, fill: &dyn Fn(&Gap) -> Option<Value>) {
        for (name, line) in &self.0 {
            let value = match line {
                Line::Same(value) => Some(value.clone()),
                Line::Filled(template) => {
                    let text = template.render_whole(fill);
                    text.and_then(|text| HeaderValue::from_str(&text).ok())
                }
            };
            if let Some(value) = value {
                headers.insert(name.clone(), value);
            }
        }
    }
}

impl Line {
    /// Whether every value is always the same.
    pub(crate) fn of(template: Template) -> Option<Self> {
        if template.gaps().next().is_some() {
            return Some(Self::Filled(template));
        }
        let value = HeaderValue::from_str(&template.to_string()).ok()?;
        Some(Self::Same(value))
    }
}

impl RequestIdRule {
    /// An id from random bytes.
    pub(crate) fn id(&self, random: &[u8; 16]) -> String {
        let prefix = &self.prefix;
        format!("{prefix}{}", uuid::Uuid::from_bytes(*random).simple())
    }

    pub(crate) fn put(&self, headers: &mut HeaderMap, id: &str) {
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(self.header.clone(), value);
        }
    }

    /// The id that an answer has.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Option<String> {
        let value = headers.get(&self.header)?;
        value.to_str().ok().map(ToOwned::to_owned)
    }
}

/// A JSON pointer in which `*` stands for any member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourcePath(Vec<String>);

impl ResourcePath {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let names = text.strip_prefix('/')?.split('/');
        Some(Self(names.map(ToOwned::to_owned).collect()))
    }

    /// The string or number at this place of a body; the first, where there are several.
    pub(crate) fn find(&self, body: &[u8]) -> Option<Value> {
        let body: Value = serde_json::from_slice(body).ok()?;
        follow(&body, &self.0).cloned()
    }
}

fn follow<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    let Some((name, rest)) = path.split_first() else {
        return (value.is_string() || value.is_number()).then_some(value);
    };
    match value {
        Value::Object(members) if name == "*" => {
            members.values().find_map(|member| follow(member, rest))
        }
        Value::Object(members) => follow(members.get(name)?, rest),
        Value::Array(items) => follow(items.get(name.parse::<usize>().ok()?)?, rest),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

impl std::fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_resource_is_found_under_any_name() {
        let path = ResourcePath::parse("/*/id").unwrap();
        let find = |body: &str| path.find(body.as_bytes());
        assert_eq!(
            find(r#"{"payments":{"id":"PM1","amount":1}}"#),
            Some(json!("PM1"))
        );
        assert_eq!(find(r#"{"meta":{},"payments":{"id":7}}"#), Some(json!(7)));
        assert_eq!(find(r#"{"id":"PM1"}"#), None);
        assert_eq!(find("<xml/>"), None);
        assert_eq!(ResourcePath::parse("id"), None);
    }
}
