//! Texts with gaps: `{"error":{"message":"{detail}"}}`.
//!
//! A gap is a name in braces, which JSON itself never has. Within a JSON string its value is
//! escaped; elsewhere it is a JSON value of its own, `null` when there is none. A template is
//! checked when it is read: what it makes of any values is JSON.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

/// What fills a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gap {
    /// What is wrong, and what to do.
    Detail,
    /// The code in words.
    Title,
    /// What programs branch on.
    Code,
    /// The page about the code.
    Type,
    /// The status of the response.
    Status,
    /// The client's key.
    Key,
    /// A new id for this answer.
    RequestId,
    /// The id of the first answer.
    OriginalRequestId,
    /// The id of what the first request made.
    ResourceId,
    /// Seconds.
    RetryAfter,
    /// Whether the same request may succeed later.
    Retryable,
    /// Where the operation's status is found.
    Operation,
    /// What differs: an object with the names of fields.
    Differs,
    /// The first field that differs.
    Field,
    /// A key for one downstream call, by its name.
    Child(Box<str>),
}

const NAMES: [(&str, Gap); 14] = [
    ("detail", Gap::Detail),
    ("title", Gap::Title),
    ("code", Gap::Code),
    ("type", Gap::Type),
    ("status", Gap::Status),
    ("key", Gap::Key),
    ("request_id", Gap::RequestId),
    ("original_request_id", Gap::OriginalRequestId),
    ("resource_id", Gap::ResourceId),
    ("retry_after", Gap::RetryAfter),
    ("retryable", Gap::Retryable),
    ("operation", Gap::Operation),
    ("differs", Gap::Differs),
    ("field", Gap::Field),
];

/// What a text with gaps is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A JSON body.
    Json,
    /// An XML body.
    Xml,
    /// Any other text, such as the value of a header.
    Text,
    /// The value of a header that carries a key to the upstream: `{key}` and `{child:NAME}`.
    Forward,
}

/// Why a text is no template, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub(crate) struct TemplateError {
    /// In bytes from the beginning.
    pub(crate) offset: usize,
    /// What to write instead.
    pub(crate) reason: String,
}

/// A checked text with gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    kind: Kind,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Gap { gap: Gap, in_string: bool },
}

impl Template {
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, TemplateError> {
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        let (mut in_string, mut rest) = (false, text);
        while let Some(character) = rest.chars().next() {
            if let Some(name) = gap_name(rest) {
                let offset = text.len() - rest.len();
                let gap = gap(kind, name).map_err(|reason| TemplateError { offset, reason })?;
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Gap { gap, in_string });
                rest = rest.get(name.len() + 2..).unwrap_or_default();
                continue;
            }
            let mut length = character.len_utf8();
            match character {
                '"' => in_string = !in_string,
                '\\' if in_string => {
                    length += rest.chars().nth(1).map_or(0, char::len_utf8);
                }
                _ => {}
            }
            let (taken, after) = rest.split_at(length);
            plain.push_str(taken);
            rest = after;
        }
        pieces.push(Piece::Text(plain));
        let template = Self { kind, pieces };
        template.check(text)?;
        Ok(template)
    }

    /// Fills the gaps.
    pub(crate) fn render(&self, fill: &dyn Fn(&Gap) -> Option<Value>) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Gap { gap, in_string } => {
                    let value = fill(gap);
                    match self.kind {
                        Kind::Json if !in_string => {
                            text.push_str(&value.unwrap_or(Value::Null).to_string());
                        }
                        Kind::Json => {
                            let quoted = Value::String(plain_text(value)).to_string();
                            let inner = quoted.get(1..quoted.len().saturating_sub(1));
                            text.push_str(inner.unwrap_or_default());
                        }
                        Kind::Xml => escape_xml(&plain_text(value), &mut text),
                        Kind::Text | Kind::Forward => text.push_str(&plain_text(value)),
                    }
                }
            }
        }
        text
    }

    /// The same, unless a gap has nothing to fill it.
    pub(crate) fn render_whole(&self, fill: &dyn Fn(&Gap) -> Option<Value>) -> Option<String> {
        let whole = self.gaps().all(|gap| fill(gap).is_some());
        whole.then(|| self.render(fill))
    }

    pub(crate) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Gap { gap, .. } => Some(gap),
            Piece::Text(_) => None,
        })
    }

    fn check(&self, text: &str) -> Result<(), TemplateError> {
        if self.kind != Kind::Json {
            return Ok(());
        }
        let sample = self.render(&|_| None);
        match serde_json::from_str::<Value>(&sample) {
            Ok(_) => Ok(()),
            Err(error) => {
                let lines = text
                    .split_inclusive('\n')
                    .take(error.line().saturating_sub(1));
                Err(TemplateError {
                    offset: lines.map(str::len).sum(),
                    reason: format!("the body is not JSON: {error}"),
                })
            }
        }
    }
}

/// The name of the gap that a text begins with.
fn gap_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let name = inner.split_once('}')?.0;
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-'))
    };
    is_name(name).then_some(name)
}

fn gap(kind: Kind, name: &str) -> Result<Gap, String> {
    let known = NAMES.iter().find(|(known, _)| *known == name);
    match (kind, name.split_once(':'), known) {
        (Kind::Forward, Some(("child", child)), _) if !child.is_empty() => {
            Ok(Gap::Child(child.into()))
        }
        (Kind::Forward, None, Some((_, Gap::Key))) => Ok(Gap::Key),
        (Kind::Forward, _, _) => Err(format!(
            "`{{{name}}}` is nothing that is known here: write `{{key}}` or `{{child:NAME}}`"
        )),
        (Kind::Json | Kind::Xml | Kind::Text, None, Some((_, gap))) => Ok(gap.clone()),
        (Kind::Json | Kind::Xml | Kind::Text, _, _) => {
            let names: Vec<_> = NAMES
                .iter()
                .map(|(name, _)| format!("{{{name}}}"))
                .collect();
            let names = names.join(", ");
            Err(format!(
                "`{{{name}}}` is nothing that is known here: write one of {names}"
            ))
        }
    }
}

fn plain_text(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    }
}

fn escape_xml(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            other => out.push(other),
        }
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Gap {
                    gap: Gap::Child(name),
                    ..
                } => write!(f, "{{child:{name}}}")?,
                Piece::Gap { gap, .. } => {
                    let name = NAMES.iter().find(|(_, known)| known == gap);
                    write!(f, "{{{}}}", name.map_or("", |(name, _)| name))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fill(gap: &Gap) -> Option<Value> {
        let known = [
            (Gap::Detail, json!("a \"quote\" & a \\ <tag>\n")),
            (Gap::Status, json!(409)),
            (Gap::Differs, json!({ "changed": ["/amount"] })),
        ];
        let mut known = known.into_iter();
        known.find_map(|(name, value)| (name == *gap).then_some(value))
    }

    /// A key or a path from outside must not be able to end a string or begin a member.
    #[test]
    fn what_fills_a_json_gap_is_escaped() {
        let text = r#"{ "m": "<{detail}>", "n": {status}, "d": {differs}, "r": {resource_id}, "e": "\"{" }"#;
        let template = Template::parse(Kind::Json, text).unwrap();
        let body: Value = serde_json::from_str(&template.render(&fill)).unwrap();
        let expected = json!({
            "m": "<a \"quote\" & a \\ <tag>\n>",
            "n": 409,
            "d": { "changed": ["/amount"] },
            "r": null,
            "e": "\"{",
        });
        assert_eq!(body, expected);
        assert_eq!(template.to_string(), text);
    }

    #[test]
    fn what_fills_an_xml_gap_is_escaped() {
        let template = Template::parse(Kind::Xml, "<Message>{detail}</Message>").unwrap();
        assert_eq!(
            template.render(&fill),
            "<Message>a &quot;quote&quot; &amp; a \\ &lt;tag&gt;\n</Message>"
        );
    }

    #[test]
    fn a_header_without_a_value_is_none() {
        let template = Template::parse(Kind::Text, "req_{request_id}").unwrap();
        assert_eq!(template.render_whole(&fill), None);
        let template = Template::parse(Kind::Text, "n={status}").unwrap();
        assert_eq!(template.render_whole(&fill).unwrap(), "n=409");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let wrong = |kind, text| Template::parse(kind, text).unwrap_err();
        let error = wrong(Kind::Json, "{\n  \"m\": \"{detial}\"\n}");
        assert_eq!(error.offset, 10);
        assert!(error.reason.contains("`{detial}`"), "{}", error.reason);
        let error = wrong(Kind::Json, "{\n  \"m\": {detail\n}");
        assert!(
            error.reason.starts_with("the body is not JSON"),
            "{}",
            error.reason
        );
        assert!(error.offset >= 2);
        wrong(Kind::Json, "{\"a\": 1,}");
        wrong(Kind::Text, "{child:x}");
        wrong(Kind::Forward, "{detail}");
        wrong(Kind::Forward, "{child:}");
        let forward = Template::parse(Kind::Forward, "{child:stripe}-{key}").unwrap();
        assert_eq!(forward.gaps().count(), 2);
    }
}
