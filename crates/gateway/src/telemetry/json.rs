//! OTLP's JSON: ids in hexadecimal digits, 64-bit numbers as text, kinds as numbers.

use std::borrow::Cow;

use onlyonce_admin::stats::{self, BOUNDS, Family, Sample};
use serde_json::{Value, json};

use super::context::{SpanId, TraceId};

/// What a span is to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attribute {
    Text(String),
    Whole(i64),
}

impl Attribute {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A span that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: Kind,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) link: Option<(TraceId, SpanId)>,
    pub(super) failed: bool,
}

/// Temporality: since the start.
const CUMULATIVE: u8 = 2;

/// Status of a span that failed.
const ERROR: u8 = 2;

/// The version of onlyonce, which makes all of this.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who sends.
pub(super) fn resource(service: &str, instance: &str) -> Value {
    let attributes = [
        ("service.name", service),
        ("service.version", VERSION),
        ("service.instance.id", instance),
    ];
    json!({ "attributes": attributes.map(|(key, value)| text(key, value)) })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn scope() -> Value {
    json!({ "name": "onlyonce", "version": VERSION })
}

/// The body of a request to `/v1/traces`.
pub(super) fn traces(resource: &Value, spans: &[Span]) -> Value {
    let spans: Vec<_> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] })
}

fn span(span: &Span) -> Value {
    let attributes = span.attributes.iter().map(|(key, value)| match value {
        Attribute::Text(value) => text(key, value),
        Attribute::Whole(value) => {
            json!({ "key": key, "value": { "intValue": value.to_string() } })
        }
    });
    let mut value = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes.collect::<Vec<_>>(),
        "status": if span.failed { json!({ "code": ERROR }) } else { json!({}) },
    });
    if let Some(members) = value.as_object_mut() {
        if let Some(parent) = span.parent {
            members.insert("parentSpanId".into(), parent.to_string().into());
        }
        if let Some((trace, span)) = span.link {
            let link = json!({ "traceId": trace.to_string(), "spanId": span.to_string() });
            members.insert("links".into(), json!([link]));
        }
    }
    value
}

/// The body of a request to `/v1/metrics`.
pub(super) fn metrics(resource: &Value, families: &[Family], start_ns: u64, now_ns: u64) -> Value {
    let metrics = families.iter().map(|family| {
        let points = family
            .samples
            .iter()
            .map(|sample| point(sample, start_ns, now_ns));
        let points: Vec<_> = points.collect();
        let (kind, data) = match family.kind {
            stats::Kind::Counter => (
                "sum",
                json!({
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                    "dataPoints": points,
                }),
            ),
            stats::Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
            stats::Kind::Histogram => (
                "histogram",
                json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points }),
            ),
        };
        let unit = if family.name.ends_with("_seconds") {
            "s"
        } else {
            ""
        };
        json!({ "name": family.name, "description": family.help, "unit": unit, kind: data })
    });
    json!({ "resourceMetrics": [{
        "resource": resource,
        "scopeMetrics": [{ "scope": scope(), "metrics": metrics.collect::<Vec<_>>() }],
    }] })
}

fn point(sample: &Sample, start_ns: u64, now_ns: u64) -> Value {
    let labels = sample.labels.iter();
    let attributes: Vec<_> = labels.map(|(key, value)| text(key, value)).collect();
    let mut point = json!({
        "attributes": attributes,
        "startTimeUnixNano": start_ns.to_string(),
        "timeUnixNano": now_ns.to_string(),
    });
    let values = match &sample.value {
        stats::Value::Whole(value) => json!({ "asInt": value.to_string() }),
        stats::Value::Real(value) => json!({ "asDouble": value }),
        stats::Value::Histogram(value) => {
            let counts = value.counts.iter();
            json!({
                "count": value.counts.iter().sum::<u64>().to_string(),
                "sum": value.sum,
                "bucketCounts": counts.map(ToString::to_string).collect::<Vec<_>>(),
                "explicitBounds": BOUNDS,
            })
        }
    };
    if let (Some(point), Value::Object(values)) = (point.as_object_mut(), values) {
        point.extend(values);
    }
    point
}
