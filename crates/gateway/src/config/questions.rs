//! How the values of probes and webhooks are read and written: templates, rules, responses.

use std::path::PathBuf;

use http::HeaderName;
use onlyonce_core::json::Pointer;
use onlyonce_http::reconcile::{ResponseRule, Rule, Scalar, Scheme, StatusFrom, Template, Test};

use super::error::did_you_mean;
use super::field::{Field, Wrong, named, no_such_choice, quoted, text, wrong};
use super::hidden::{self, HIDDEN};
use super::raw::{Entry, Table, Value};
use super::statuses::{range, written};

named!(
    Scheme,
    Scheme::Standard = "standard",
    Scheme::Stripe = "stripe"
);

/// The keys of an inline table, all of which are known.
fn table<'a>(value: &'a Value, known: &[&str], example: &str) -> Result<&'a Table, Wrong> {
    let Value::Table(table) = value else {
        return wrong(format!(
            "this is {}: write a table such as {example}",
            value.kind()
        ));
    };
    let unknown = table.iter().filter(|entry| !known.contains(&&*entry.key));
    let reasons: Wrong = unknown
        .map(|Entry { key, .. }| {
            let fix = did_you_mean(key, known.iter().copied());
            let fix = fix.unwrap_or_else(|| format!("it has {}", known.join(", ")));
            format!("unknown key \"{key}\" in the table: {fix}")
        })
        .collect();
    if reasons.is_empty() {
        Ok(table)
    } else {
        Err(reasons)
    }
}

fn get<T: Field>(table: &Table, key: &str) -> Result<Option<T>, Wrong> {
    let entry = table.iter().find(|entry| entry.key == key);
    let read = entry.map(|entry| T::read(&entry.value)).transpose();
    read.map_err(|reasons| {
        let named = reasons.into_iter().map(|reason| format!("{key}: {reason}"));
        named.collect()
    })
}

fn need<T: Field>(table: &Table, key: &str, example: &str) -> Result<T, Wrong> {
    get(table, key)?.ok_or_else(|| vec![format!("`{key}` is missing: write {example}")])
}

fn write_table(pairs: &[(&str, Option<String>)]) -> String {
    let pairs = pairs
        .iter()
        .filter_map(|(key, value)| Some(format!("{key} = {}", value.as_ref()?)));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

/// A URL with places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlTemplate(pub(crate) Template);

impl Field for UrlTemplate {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "https://api.example/payments/{key}")?;
        let url = Template::url(written).map_err(|reason| vec![reason.to_string()])?;
        match hidden::hidden_parameter(&url) {
            Some(name) => wrong(format!(
                "{name}={HIDDEN} stands for a value that was not shown: write the value, or better \
                 send it as a header from `headers_file`"
            )),
            None => Ok(Self(url)),
        }
    }

    /// What stands in a parameter of an unusual name may be a credential, and is not shown.
    fn write(&self) -> Option<String> {
        Some(quoted(&hidden::url(&self.0)))
    }
}

impl Field for Template {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let read = Self::parse(text(value, "{operation}")?);
        read.map_err(|reason| vec![reason.to_string()])
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

/// Headers with places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Headers(pub(crate) Vec<(HeaderName, Template)>);

/// Headers whose values are in files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HeadersFile(pub(crate) Vec<(HeaderName, PathBuf)>);

fn read_headers<T: Field>(value: &Value, example: &str) -> Result<Vec<(HeaderName, T)>, Wrong> {
    let Value::Table(table) = value else {
        return wrong(format!(
            "this is {}: write a table such as {example}",
            value.kind()
        ));
    };
    let (mut headers, mut reasons) = (Vec::new(), Wrong::new());
    for entry in table.iter() {
        let name = HeaderName::read(&Value::Text(entry.key.clone()));
        match name.and_then(|name| Ok((name, T::read(&entry.value)?))) {
            Ok(header) => headers.push(header),
            Err(wrong) => {
                let named = wrong.into_iter();
                reasons.extend(named.map(|reason| format!("{}: {reason}", entry.key)));
            }
        }
    }
    if reasons.is_empty() {
        Ok(headers)
    } else {
        Err(reasons)
    }
}

fn write_headers<T: Field>(headers: &[(HeaderName, T)]) -> Option<String> {
    let lines = headers.iter().filter_map(|(name, value)| {
        Some(format!("{} = {}", quoted(name.as_str()), value.write()?))
    });
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty()).then(|| format!("{{ {} }}", lines.join(", ")))
}

impl Field for Headers {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let headers = read_headers(value, "{ \"accept\" = \"application/json\" }")?;
        let hidden = |(_, value): &&(HeaderName, Template)| value.as_str() == HIDDEN;
        match headers.iter().find(hidden) {
            // A provider that does not know who asks may say that it knows of no payment.
            Some((name, _)) => Err(vec![format!(
                "{name}: {HIDDEN} stands for a value that was not shown: write the value, or better \
                 its file in `headers_file`"
            )]),
            None => Ok(Self(headers)),
        }
    }

    /// What stands in a header of an unusual name may be a credential, and is not shown.
    fn write(&self) -> Option<String> {
        let shown = self.0.iter();
        let shown =
            shown.map(|(name, value)| (name.clone(), hidden::header(name, value).to_owned()));
        write_headers(&shown.collect::<Vec<_>>())
    }
}

impl Field for HeadersFile {
    fn read(value: &Value) -> Result<Self, Wrong> {
        read_headers(value, "{ \"authorization\" = \"provider.token\" }").map(Self)
    }

    fn write(&self) -> Option<String> {
        write_headers(&self.0)
    }
}

/// What a completed answer must say to be about the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) pointer: Pointer,
    pub(crate) value: Template,
}

impl Field for About {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "{ pointer = \"/metadata/operation\", value = \"{operation}\" }";
        let table = table(value, &["pointer", "value"], EXAMPLE)?;
        Ok(Self {
            pointer: need(table, "pointer", EXAMPLE)?,
            value: need(table, "value", EXAMPLE)?,
        })
    }

    fn write(&self) -> Option<String> {
        let pairs = [
            ("pointer", self.pointer.write()),
            ("value", self.value.write()),
        ];
        Some(write_table(&pairs))
    }
}

/// Where a webhook names its operation, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) pointer: Pointer,
    pub(crate) by: By,
}

/// What an operation is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// `Onlyonce-Operation`, as it was sent to the upstream.
    Operation,
    /// The key of a downstream call.
    Child(String),
    /// The client's key.
    Key,
}

impl By {
    /// As it is written.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Operation => "operation".to_owned(),
            Self::Child(name) => format!("child:{name}"),
            Self::Key => "key".to_owned(),
        }
    }
}

impl Field for By {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "operation")?;
        match written.split_once(':').unwrap_or((written, "")) {
            ("operation", "") => Ok(Self::Operation),
            ("key", "") => Ok(Self::Key),
            ("child", "") => wrong("which call? write \"child:NAME\""),
            ("child", name) => Ok(Self::Child(name.to_owned())),
            _ => no_such_choice(written, &["operation", "child:NAME", "key"]),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.text()))
    }
}

impl Field for Match {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "{ pointer = \"/data/operation\", by = \"operation\" }";
        let table = table(value, &["pointer", "by"], EXAMPLE)?;
        Ok(Self {
            pointer: need(table, "pointer", EXAMPLE)?,
            by: need(table, "by", EXAMPLE)?,
        })
    }

    fn write(&self) -> Option<String> {
        let pairs = [("pointer", self.pointer.write()), ("by", self.by.write())];
        Some(write_table(&pairs))
    }
}

impl Field for Scalar {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::Text(text) => Ok(Self::Text(text.clone())),
            Value::Integer(number) => Ok(Self::Integer(*number)),
            Value::Boolean(boolean) => Ok(Self::Boolean(*boolean)),
            Value::Fraction(_) | Value::List(_) | Value::Table(_) | Value::Other(_) => {
                wrong(format!(
                    "this is {}: write text, a whole number, true or false",
                    value.kind()
                ))
            }
        }
    }

    fn write(&self) -> Option<String> {
        Some(match self {
            Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
            Self::Boolean(boolean) => boolean.to_string(),
        })
    }
}

impl Field for Rule {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "{ status = \"200\", pointer = \"/status\", values = [\"paid\"] }";
        let table = table(value, &["status", "pointer", "values", "empty"], EXAMPLE)?;
        let status: Option<String> = get(table, "status")?;
        let statuses = status.map(|status| range(&status)).transpose()?;
        let pointer: Option<Pointer> = get(table, "pointer")?;
        let values: Option<Vec<Scalar>> = get(table, "values")?;
        let test = match (values, get(table, "empty")?) {
            (Some(_), Some(true)) => {
                return wrong("nothing is both empty and one of `values`: remove one");
            }
            (Some(values), _) if values.is_empty() => {
                return wrong("`values` is empty, and nothing is one of them: write some");
            }
            (Some(values), _) => Some(Test::OneOf(values)),
            (None, Some(true)) => Some(Test::Empty),
            (None, _) => None,
        };
        let at = match (pointer, test) {
            (Some(pointer), test) => Some((pointer, test.unwrap_or(Test::There))),
            (None, Some(_)) => return wrong(format!("where? add `pointer`, as in {EXAMPLE}")),
            (None, None) => None,
        };
        if at.is_none() && statuses.is_none() {
            return wrong(format!(
                "this fits every answer: write one such as {EXAMPLE}"
            ));
        }
        Ok(Self {
            statuses: statuses.into_iter().collect(),
            at,
        })
    }

    fn write(&self) -> Option<String> {
        let status = self.statuses.first().map(|range| quoted(&written(range)));
        let (pointer, test) = match &self.at {
            Some((pointer, test)) => (pointer.write(), Some(test)),
            None => (None, None),
        };
        let (values, empty) = match test {
            Some(Test::OneOf(values)) => (values.write(), None),
            Some(Test::Empty) => (None, Some("true".to_owned())),
            Some(Test::There) | None => (None, None),
        };
        let pairs = [
            ("status", status),
            ("pointer", pointer),
            ("values", values),
            ("empty", empty),
        ];
        Some(write_table(&pairs))
    }
}

impl Field for ResponseRule {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "{ status = 201, body = \"/payment\", type = \"application/json\" }";
        let table = table(value, &["status", "body", "type"], EXAMPLE)?;
        let content_type: Option<String> = get(table, "type")?;
        let visible = |text: &String| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if content_type.as_ref().is_some_and(|text| !visible(text)) {
            return wrong("type: this is no media type: write one such as \"application/json\"");
        }
        Ok(Self {
            status: get(table, "status")?.unwrap_or_default(),
            body: get(table, "body")?,
            content_type,
        })
    }

    fn write(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let content_type = self.content_type.as_ref().map(|text| quoted(text));
        let pairs = [
            ("status", self.status.write()),
            ("body", self.body.write()),
            ("type", content_type),
        ];
        Some(write_table(&pairs))
    }
}

impl Field for StatusFrom {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "{ pointer = \"/status\", values = { paid = 201, failed = 402 } }";
        match value {
            Value::Integer(_) => status(value).map(Self::Fixed),
            Value::Text(_) => Pointer::read(value).map(Self::At),
            Value::Table(_) => {
                let table = table(value, &["pointer", "values"], EXAMPLE)?;
                let pointer = need(table, "pointer", EXAMPLE)?;
                let values = table.iter().find(|entry| entry.key == "values");
                let Some(Value::Table(values)) = values.map(|entry| &entry.value) else {
                    return wrong(format!("`values` is missing: write {EXAMPLE}"));
                };
                let pairs = values
                    .iter()
                    .map(|entry| status(&entry.value).map(|status| (entry.key.clone(), status)));
                Ok(Self::By(pointer, pairs.collect::<Result<_, _>>()?))
            }
            Value::Fraction(_) | Value::Boolean(_) | Value::List(_) | Value::Other(_) => {
                wrong(format!(
                    "this is {}: write a status such as 201, the pointer of one, or {EXAMPLE}",
                    value.kind()
                ))
            }
        }
    }

    fn write(&self) -> Option<String> {
        match self {
            Self::Answer => None,
            Self::Fixed(status) => Some(status.to_string()),
            Self::At(pointer) => pointer.write(),
            Self::By(pointer, values) => {
                let values: Vec<_> = values
                    .iter()
                    .map(|(value, status)| format!("{} = {status}", quoted(value)))
                    .collect();
                let values = format!("{{ {} }}", values.join(", "));
                Some(write_table(&[
                    ("pointer", pointer.write()),
                    ("values", Some(values)),
                ]))
            }
        }
    }
}

fn status(value: &Value) -> Result<u16, Wrong> {
    let number = u32::read(value)?;
    let status = u16::try_from(number).ok();
    let storable = |status: &u16| (200..600).contains(status) && ![206, 304, 425].contains(status);
    status.filter(storable).ok_or_else(|| {
        vec![format!(
            "{number} is no status that can be stored: write one from 200 to 599, but not 206, \
             304 or 425"
        )]
    })
}
