//! Prometheus' text format, version 0.0.4.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::families::{Family, Kind, Sample, Value};
use super::histogram::{BOUNDS, HistogramValue};

/// Every family with its help and type. Writing to a `String` cannot fail.
pub(super) fn text(families: &[Family]) -> String {
    let mut text = String::with_capacity(64 * 1024);
    for family in families {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(text, "# HELP {} {help}", family.name);
        let _ = writeln!(text, "# TYPE {} {kind}", family.name);
        for sample in &family.samples {
            match &sample.value {
                Value::Whole(value) => line(&mut text, family.name, "", sample, None, value),
                Value::Real(value) => line(&mut text, family.name, "", sample, None, value),
                Value::Histogram(value) => histogram(&mut text, family.name, sample, value),
            }
        }
    }
    text
}

/// Buckets in this format hold everything up to their bound.
fn histogram(text: &mut String, name: &str, sample: &Sample, value: &HistogramValue) {
    let bounds = BOUNDS.iter().map(ToString::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    let mut sum = 0;
    for (count, bound) in value.counts.iter().zip(bounds) {
        sum += count;
        line(text, name, "_bucket", sample, Some(&bound), &sum);
    }
    line(text, name, "_sum", sample, None, &value.sum);
    line(text, name, "_count", sample, None, &sum);
}

fn line(
    text: &mut String,
    name: &str,
    suffix: &str,
    sample: &Sample,
    bound: Option<&str>,
    value: &impl std::fmt::Display,
) {
    let _ = write!(text, "{name}{suffix}");
    let labels = sample.labels.iter().map(|(name, value)| (*name, &**value));
    let labels = labels.chain(bound.map(|bound| ("le", bound)));
    let mut separator = '{';
    for (name, value) in labels {
        let _ = write!(text, "{separator}{name}=\"{}\"", escaped(value));
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// A route may be called anything.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").into()
}
