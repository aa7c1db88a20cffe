//! The part of a profile that is about answers: their shapes, and the headers that are added.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::table::{Item, Section};
use super::{Profile, read};
use crate::Code;
use crate::dialect::{Dialect, Kind, Line, Lines, RequestIdRule, ResourcePath, Shape, Template};

/// Which refusal an answer is the shape of.
pub(super) const NAMES: [(&str, Option<Code>); 14] = [
    ("missing", Some(Code::KeyRequired)),
    ("invalid", Some(Code::KeyInvalid)),
    ("mismatch", Some(Code::KeyReused)),
    ("in_flight", Some(Code::InProgress)),
    ("unknown", Some(Code::OutcomeUnknown)),
    ("not_replayable", Some(Code::NotReplayable)),
    ("already_used", Some(Code::AlreadyUsed)),
    ("store_unavailable", Some(Code::StoreUnavailable)),
    ("upstream_unreachable", Some(Code::UpstreamUnreachable)),
    ("too_large", Some(Code::PayloadTooLarge)),
    ("overloaded", Some(Code::Overloaded)),
    ("unauthenticated", Some(Code::PrincipalRequired)),
    ("too_old", Some(Code::RequestTooOld)),
    // Every other one.
    ("default", None),
];

pub(super) fn read(section: &Section<'_>, profile: &mut Profile) {
    let mut dialect = Dialect::clone(&profile.dialect);
    if let Some(table) = section.take("headers").and_then(Item::table) {
        let added = |moment| {
            table
                .take(moment)
                .and_then(Item::table)
                .map(|table| lines(&table))
        };
        let (executed, replayed) = (added("executed"), added("replayed"));
        let refused = added("refused");
        table.finish();
        dialect.executed = executed.unwrap_or(dialect.executed);
        dialect.replayed = replayed.unwrap_or(dialect.replayed);
        dialect.refused = refused.unwrap_or(dialect.refused);
    }
    if let Some(table) = section.take("request_id").and_then(Item::table) {
        let header = table.take("header").and_then(read::header_name);
        let prefix = table.take("prefix").and_then(Item::text);
        table.finish();
        let rule = header.map(|header| RequestIdRule {
            header,
            prefix: prefix.unwrap_or_default().to_owned(),
        });
        dialect.request_id = rule;
    }
    if let Some(item) = section.take("resource_id") {
        let example = "no place in a response: write a JSON pointer, such as \"/*/id\"";
        dialect.resource_id = item.read(example, ResourcePath::parse);
    }
    if let Some(table) = section.take("answers").and_then(Item::table) {
        for (name, code) in NAMES {
            let Some(shape) = table.take(name).and_then(shape) else {
                continue;
            };
            match code {
                Some(code) => drop(dialect.answers.insert(code, shape)),
                None => dialect.other = Some(shape),
            }
        }
        table.finish();
    }
    profile.dialect = Arc::new(dialect.prepared());
}

fn shape(item: Item<'_>) -> Option<Shape> {
    let table = item.table()?;
    let status = table.take("status").and_then(|item| item.number(400..=599));
    let content_type = table
        .take("content_type")
        .and_then(|item| item.read("no media type", |text| HeaderValue::from_str(text).ok()));
    let headers = table
        .take("headers")
        .and_then(Item::table)
        .map(|table| lines(&table));
    let content_type = content_type.unwrap_or_else(|| HeaderValue::from_static("application/json"));
    let kind = match content_type.to_str() {
        Ok(text) if text.contains("json") => Kind::Json,
        Ok(text) if text.contains("xml") => Kind::Xml,
        Ok(_) | Err(_) => Kind::Text,
    };
    let body = table.take("body");
    if body.is_none() {
        item.wrong("the answer has no body: write one such as '{\"message\":\"{detail}\"}'");
    }
    let body = body.and_then(|item| {
        let parsed = Template::parse(kind, item.text()?);
        parsed
            .map_err(|error| item.wrong_at(error.offset, &error.reason))
            .ok()
    });
    table.finish();
    Some(Shape {
        status: status.and_then(|status| StatusCode::from_u16(status).ok()),
        content_type,
        headers: headers.unwrap_or_default(),
        body: body?,
    })
}

fn lines(table: &Section<'_>) -> Lines {
    let mut lines = Lines::default();
    for item in table.items() {
        let Ok(name) = item.key.parse() else {
            item.wrong("this is no header name: use letters, digits and \"-\"");
            continue;
        };
        let Some(text) = item.text() else { continue };
        match Template::parse(Kind::Text, text).map(Line::of) {
            Ok(Some(line)) => lines.0.push((name, line)),
            Ok(None) => item.wrong("a header cannot have this value: use visible characters"),
            Err(error) => item.wrong_at(error.offset, &error.reason),
        }
    }
    lines
}
