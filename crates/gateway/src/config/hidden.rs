//! What is not shown of a question: whoever may read may ask for the configuration, and a credential
//! can stand under any name. Values under names that are known to be harmless are shown, and so
//! are places, which say nothing.

use http::{HeaderName, header};
use onlyonce_http::reconcile::Template;

/// What is shown instead of a value that may be a credential.
pub(super) const HIDDEN: &str = "***";

/// Headers that carry no credentials.
const HARMLESS_HEADERS: [HeaderName; 7] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONTENT_TYPE,
    header::ORIGIN,
    header::PRAGMA,
    header::USER_AGENT,
];

/// Parameters of a query that carry none.
const HARMLESS_PARAMETERS: [&str; 14] = [
    "api-version",
    "expand",
    "fields",
    "format",
    "include",
    "limit",
    "order",
    "page",
    "page_size",
    "per_page",
    "sort",
    "state",
    "status",
    "type",
];

/// A header's value as it may be shown.
pub(super) fn header<'a>(name: &HeaderName, value: &'a Template) -> &'a str {
    if HARMLESS_HEADERS.contains(name) || !says_something(value) {
        value.as_str()
    } else {
        HIDDEN
    }
}

/// Whether a value has more than places and what stands between them.
fn says_something(value: &Template) -> bool {
    value
        .texts()
        .any(|text| text.contains(char::is_alphanumeric))
}

/// A URL as it may be shown.
pub(super) fn url(url: &Template) -> String {
    let mut parts = split(url.as_str(), '?', 2).into_iter();
    let path = parts.next().unwrap_or_default();
    let Some(query) = parts.next() else {
        return path.to_owned();
    };
    let shown: Vec<_> = parameters(query).map(parameter).collect();
    format!("{path}?{}", shown.join("&"))
}

/// The first parameter of a URL that was hidden when it was shown.
pub(super) fn hidden_parameter(url: &Template) -> Option<&str> {
    let query = split(url.as_str(), '?', 2).into_iter().nth(1)?;
    let mut parameters = parameters(query);
    parameters.find_map(|(name, value)| (value == HIDDEN).then_some(name))
}

/// Names and values. What has no `=` is a value without a name.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    split(query, '&', usize::MAX).into_iter().map(|parameter| {
        let parts = split(parameter, '=', 2);
        match *parts {
            [name, value] => (name, value),
            _ => ("", parameter),
        }
    })
}

fn parameter((name, value): (&str, &str)) -> String {
    let is_harmless = HARMLESS_PARAMETERS.contains(&name);
    let is_silent = Template::parse(value).is_ok_and(|value| !says_something(&value));
    let value = if is_harmless || is_silent {
        value
    } else {
        HIDDEN
    };
    match name {
        "" => value.to_owned(),
        name => format!("{name}={value}"),
    }
}

/// Splits at a character, but not within a place: a pointer may have it, too.
fn split(text: &str, at: char, parts_max: usize) -> Vec<&str> {
    let (mut is_place, mut parts) = (false, 1);
    let is_end = move |letter: char| {
        match letter {
            '{' => is_place = true,
            '}' => is_place = false,
            _ => {}
        }
        let ends = letter == at && !is_place && parts < parts_max;
        parts += usize::from(ends);
        ends
    };
    text.split(is_end).collect()
}
