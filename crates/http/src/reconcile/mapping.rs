//! How the answer to a question, or the payload of a webhook, is read.
//!
//! Three lists of [`Rule`]s say what counts as completed, as not found and as pending. Only an
//! answer that fits exactly one of the lists decides anything. Whatever is unclear (garbage, an
//! answer that fits two lists or none, or that is about something else) is pending, with the
//! reason.
//!
//! A declined payment is completed: the response to replay is its failure.

use std::ops::RangeInclusive;

use bytes::Bytes;
use onlyonce_core::json::Pointer;
use onlyonce_core::{HeaderBlock, StoredResponse};
use serde_json::Value;

use super::json::Json;

/// The whole of how an answer is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapping {
    /// It happened.
    pub completed: Vec<Rule>,
    /// There is no trace of it.
    pub not_found: Vec<Rule>,
    /// It cannot say yet.
    pub pending: Vec<Rule>,
    /// A list in which there may be at most one value: two objects for one operation are for a
    /// person to look at.
    pub single: Option<Pointer>,
    /// The response to replay.
    pub response: ResponseRule,
}

/// One kind of answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// Its status. None: 2xx. A webhook has no status, and none is looked at.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// What its body has at a place.
    pub at: Option<(Pointer, Test)>,
}

/// What a body must have at a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// Something, and not null.
    There,
    /// Null, or an empty list, object or text. What is not there at all is not empty: an error
    /// message has no list of payments either.
    Empty,
    /// One of these.
    OneOf(Vec<Scalar>),
}

/// A value that can be written in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// `"paid"`
    Text(String),
    /// `3`
    Integer(i64),
    /// `true`
    Boolean(bool),
}

impl Scalar {
    fn is(&self, value: &Value) -> bool {
        match self {
            Self::Text(text) => value.as_str() == Some(text),
            Self::Integer(number) => value.as_i64() == Some(*number),
            Self::Boolean(boolean) => value.as_bool() == Some(*boolean),
        }
    }
}

/// The response that is made of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseRule {
    /// Its status.
    pub status: StatusFrom,
    /// Where its body is; none for the whole answer.
    pub body: Option<Pointer>,
    /// Its media type. None: that of the answer, or JSON for a part of it.
    pub content_type: Option<String>,
}

/// Where the status of a response comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StatusFrom {
    /// The answer's own; 200 for a webhook.
    #[default]
    Answer,
    /// Always this one.
    Fixed(u16),
    /// The number at a place.
    At(Pointer),
    /// By what is at a place: `paid` is 201, `failed` is 402.
    By(Pointer, Vec<(String, u16)>),
}

/// What the other side said.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Its status; none for a webhook.
    pub status: Option<u16>,
    /// Its media type.
    pub content_type: Option<&'a [u8]>,
    /// All of its body.
    pub body: &'a Bytes,
    /// What a completed answer must have at a place, to be about the operation asked about.
    pub about: Option<(&'a Pointer, &'a str)>,
}

/// What an answer comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// It happened, and this is the response to replay.
    Completed(StoredResponse),
    /// There is no trace of it.
    NotFound,
    /// It is not known.
    Pending(Why),
}

/// Why an answer decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It says itself that it is pending.
    Said,
    /// It fits no rule.
    NoRule,
    /// It fits the rules of two lists.
    Ambiguous,
    /// It is not JSON, or could be read in two ways.
    NotJson,
    /// It does not say that it is about this operation.
    AboutAnother,
    /// There are several objects for one operation.
    Several,
    /// There is no response in it where one should be.
    NoResponse,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Said,
        Self::NoRule,
        Self::Ambiguous,
        Self::NotJson,
        Self::AboutAnother,
        Self::Several,
        Self::NoResponse,
    ];

    /// As operators read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Said => "pending",
            Self::NoRule => "no_rule",
            Self::Ambiguous => "ambiguous",
            Self::NotJson => "not_json",
            Self::AboutAnother => "about_another",
            Self::Several => "several",
            Self::NoResponse => "no_response",
        }
    }
}

impl Mapping {
    /// Reads an answer.
    #[must_use]
    pub fn read(&self, answer: &Answer<'_>) -> Read {
        let json = Json::parse(answer.body);
        let fits = |rules: &[Rule]| {
            let mut fits = Some(false);
            for rule in rules {
                match rule.fits(answer.status, json.as_ref()) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => fits = None,
                }
            }
            fits
        };
        let lists = [&self.completed, &self.not_found, &self.pending].map(|rules| fits(rules));
        match lists {
            [Some(true), Some(false), Some(false)] => self.completed(answer, json.as_ref()),
            [Some(false), Some(true), Some(false)] => Read::NotFound,
            [Some(false), Some(false), Some(true)] => Read::Pending(Why::Said),
            [Some(false), Some(false), Some(false)] => Read::Pending(Why::NoRule),
            [Some(_), Some(_), Some(_)] => Read::Pending(Why::Ambiguous),
            [None, _, _] | [_, None, _] | [_, _, None] => Read::Pending(Why::NotJson),
        }
    }

    fn completed(&self, answer: &Answer<'_>, json: Option<&Json<'_>>) -> Read {
        if let Some((pointer, expected)) = answer.about {
            let said = json.and_then(|json| json.scalar(pointer));
            if said.as_deref() != Some(expected) {
                return Read::Pending(Why::AboutAnother);
            }
        }
        if let Some(list) = &self.single
            && json
                .and_then(|json| json.count(list))
                .is_none_or(|count| count > 1)
        {
            return Read::Pending(Why::Several);
        }
        let response = self.response.build(answer, json);
        response.map_or(Read::Pending(Why::NoResponse), Read::Completed)
    }
}

impl Rule {
    /// Whether an answer fits; `None` when only JSON could tell, and it is none.
    fn fits(&self, status: Option<u16>, json: Option<&Json<'_>>) -> Option<bool> {
        let fits_status = status.is_none_or(|status| {
            if self.statuses.is_empty() {
                return (200..300).contains(&status);
            }
            self.statuses.iter().any(|range| range.contains(&status))
        });
        match &self.at {
            _ if !fits_status => Some(false),
            None => Some(true),
            Some((pointer, test)) => Some(test.passes(json?.value(pointer).as_ref())),
        }
    }
}

impl Test {
    fn passes(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::There, value) => value.is_some_and(|value| !value.is_null()),
            (Self::Empty, Some(Value::Null)) => true,
            (Self::Empty, Some(Value::Array(list))) => list.is_empty(),
            (Self::Empty, Some(Value::Object(object))) => object.is_empty(),
            (Self::Empty, Some(Value::String(text))) => text.is_empty(),
            (Self::Empty, None | Some(Value::Bool(_) | Value::Number(_)))
            | (Self::OneOf(_), None) => false,
            (Self::OneOf(known), Some(value)) => known.iter().any(|scalar| scalar.is(value)),
        }
    }
}

impl ResponseRule {
    fn build(&self, answer: &Answer<'_>, json: Option<&Json<'_>>) -> Option<StoredResponse> {
        let status = match &self.status {
            StatusFrom::Answer => answer.status.unwrap_or(200),
            StatusFrom::Fixed(status) => *status,
            StatusFrom::At(pointer) => json?.scalar(pointer)?.parse().ok()?,
            StatusFrom::By(pointer, statuses) => {
                let value = json?.scalar(pointer)?;
                let mut statuses = statuses.iter();
                statuses.find(|(known, _)| *known == *value)?.1
            }
        };
        // What is never stored of a response either: interim, partial and conditional answers.
        if !(200..600).contains(&status) || [206, 304, 425].contains(&status) {
            return None;
        }
        let (body, own_type): (_, Option<&[u8]>) = match &self.body {
            None => (answer.body.clone(), answer.content_type),
            Some(pointer) => {
                let part = answer.body.slice_ref(json?.at(pointer)?);
                (part, Some(b"application/json"))
            }
        };
        let bodiless = [204, 205].contains(&status);
        let content_type = self.content_type.as_deref().map(str::as_bytes).or(own_type);
        let content_type = content_type.filter(|_| !bodiless);
        let lines = content_type.map(|value| (&b"content-type"[..], value));
        Some(StoredResponse {
            status,
            headers: HeaderBlock::from_lines(lines)?,
            body: if bodiless { Bytes::new() } else { body },
            ..StoredResponse::default()
        })
    }
}

#[cfg(test)]
mod tests;
