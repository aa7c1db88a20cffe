//! Path patterns: `/payments`, `/payments/{id}`, `/v1/{*rest}`.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// A pattern for concrete paths. Matching looks at segments as they are on the wire;
/// [`Routes::find`](crate::Routes::find) also tries the usual spelling of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    /// `{name}`: one segment, not empty.
    One,
    /// `{*name}`: everything from here on, also nothing.
    Rest,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Paths begin with a slash, and so do patterns.
    #[error("`{0}` does not begin with `/`")]
    NoSlash(Box<str>),
    /// A brace without its partner, or within other text.
    #[error("`{0}`: write a parameter as a whole segment, `{{name}}` or `{{*rest}}`")]
    Parameter(Box<str>),
    /// Something follows `{*rest}`.
    #[error("`{0}`: `{{*rest}}` must come last")]
    RestNotLast(Box<str>),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text is no pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(PatternError::NoSlash(text.into()));
        };
        let segments: Result<Vec<_>, _> = path.split('/').map(segment).collect();
        let segments = segments.map_err(|()| PatternError::Parameter(text.into()))?;
        let rest = segments
            .iter()
            .position(|segment| *segment == Segment::Rest);
        if rest.is_some_and(|at| at + 1 != segments.len()) {
            return Err(PatternError::RestNotLast(text.into()));
        }
        Ok(Self {
            text: text.into(),
            segments: segments.into(),
        })
    }

    /// Every path.
    #[must_use]
    pub fn any() -> Self {
        Self {
            text: "/{*path}".into(),
            segments: [Segment::Rest].into(),
        }
    }

    /// Whether it is one path and no other.
    pub(crate) fn is_literal(&self) -> bool {
        let is_literal = |segment: &Segment| matches!(segment, Segment::Literal(_));
        self.segments.iter().all(is_literal)
    }

    /// Whether a path matches. A request target that is no path, such as `*`, is matched by
    /// [`any`](Self::any) alone: it must not slip past a guard of everything.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if let [Segment::Rest] = &*self.segments {
            return true;
        }
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let mut given = path.split('/');
        for wanted in &self.segments {
            match (wanted, given.next()) {
                (Segment::Rest, _) => return true,
                (Segment::Literal(literal), Some(part)) if **literal == *part => {}
                (Segment::One, Some(part)) if !part.is_empty() => {}
                (Segment::Literal(_) | Segment::One, _) => return false,
            }
        }
        given.next().is_none()
    }

    /// Whether every path of `inner` is one of this pattern's.
    #[must_use]
    pub fn covers(&self, inner: &Self) -> bool {
        let (mut outer, mut inner) = (self.segments.iter(), inner.segments.iter());
        loop {
            match (outer.next(), inner.next()) {
                (Some(Segment::Rest), _) | (None, None) => return true,
                (Some(Segment::One), Some(Segment::One)) => {}
                (Some(Segment::One), Some(Segment::Literal(part))) if !part.is_empty() => {}
                (Some(Segment::Literal(wanted)), Some(Segment::Literal(part)))
                    if wanted == part => {}
                _ => return false,
            }
        }
    }

    /// Whether it has a parameter of this name.
    #[must_use]
    pub fn has_parameter(&self, name: &str) -> bool {
        let named = |segment: &str| parameter_name(segment) == Some(name);
        self.text.split('/').any(named)
    }

    /// What a path has in place of a parameter, with its escapes decoded. `None` when there is no
    /// such parameter, or the path, also as it is usually spelt, does not match.
    #[must_use]
    pub fn parameter(&self, name: &str, path: &str) -> Option<String> {
        let usual = plain(path);
        let spelt = [Some(path), usual.as_deref()];
        let path = spelt
            .into_iter()
            .flatten()
            .find(|path| self.matches(path))?;
        let mut given = path.strip_prefix('/')?.split('/');
        for segment in self.text.strip_prefix('/')?.split('/') {
            let part = if segment.starts_with("{*") {
                given.by_ref().collect::<Vec<_>>().join("/")
            } else {
                given.next()?.to_owned()
            };
            if parameter_name(segment) == Some(name) {
                return percent_decoded(&part);
            }
        }
        None
    }
}

/// The name in `{name}` or `{*name}`.
fn parameter_name(segment: &str) -> Option<&str> {
    let inner = segment.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.strip_prefix('*').unwrap_or(inner))
}

/// Text with every escape decoded; `None` when that is no text, or an escape is malformed.
fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            plain => plain,
        };
        bytes.push(decoded);
    }
    String::from_utf8(bytes).ok()
}

fn segment(text: &str) -> Result<Segment, ()> {
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    match inner {
        Some(name) if name.contains(['{', '}']) || name.is_empty() || name == "*" => Err(()),
        Some(name) if name.starts_with('*') => Ok(Segment::Rest),
        Some(_) => Ok(Segment::One),
        None if text.contains(['{', '}']) => Err(()),
        None => Ok(Segment::Literal(text.into())),
    }
}

/// The usual spelling of a path that is spelt unusually: escapes of unreserved characters decoded,
/// dot segments resolved, empty segments and a slash at the end left out. `None` when the path is
/// spelt like that already.
///
/// Many services answer `//payments` and `/payments/` as they answer `/payments`. A client whose
/// base URL ends in a slash must not go unguarded for it.
pub(crate) fn plain(path: &str) -> Option<String> {
    if is_plain(path) {
        return None;
    }
    let decoded = decoded(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let plain = format!("/{}", segments.join("/"));
    (plain != path).then_some(plain)
}

/// Whether a path is certainly spelt as usual: for nearly every request, without an allocation.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let begins_with = |end: &[u8]| end.first().is_none_or(|byte| matches!(byte, b'/' | b'.'));
    let unusual = bytes.iter().enumerate().any(|(at, byte)| match byte {
        b'%' => true,
        b'/' => bytes.get(at + 1..).is_none_or(begins_with),
        _ => false,
    });
    path == "/" || (path.starts_with('/') && !unusual)
}

/// Decodes the escapes that RFC 3986 calls equivalent to the character itself. Others stay: an
/// escaped slash is no slash.
fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        decoded.push_str(before);
        let byte = escape
            .get(1..3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let character = byte.map(char::from).filter(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~')
        });
        decoded.push(character.unwrap_or('%'));
        let taken = if character.is_some() { 3 } else { 1 };
        rest = escape.get(taken..).unwrap_or_default();
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn patterns_match_whole_paths_by_segments() {
        assert!(matches("/payments", "/payments"));
        assert!(!matches("/payments", "/payments/"));
        assert!(!matches("/payments", "/payments/1"));
        assert!(matches("/payments/{id}", "/payments/1"));
        assert!(!matches("/payments/{id}", "/payments/"));
        assert!(!matches("/payments/{id}", "/payments/1/refunds"));
        assert!(matches("/v1/{*rest}", "/v1/a/b"));
        assert!(matches("/v1/{*rest}", "/v1/"));
        assert!(!matches("/v1/{*rest}", "/v2/a"));
        assert!(Pattern::any().matches("/"));
        assert!(Pattern::any().matches("*"));
        assert!(!matches("/v1/{*rest}", "*"));
    }

    #[test]
    fn an_unusual_spelling_has_a_plain_one() {
        for path in [
            "//payments",
            "/payments/",
            "/./payments",
            "/x/../payments",
            "/%70ayments",
            "/%2e/payments",
            "/x/%2E%2e/payments//",
        ] {
            assert_eq!(plain(path).as_deref(), Some("/payments"), "{path}");
        }
        for path in [
            "/",
            "/payments",
            "/a%2Fb",
            "/a%20b",
            "/%",
            "/%f",
            "/%zz",
            "/é",
        ] {
            assert_eq!(plain(path), None, "{path}");
        }
        assert_eq!(plain("/../.."), Some("/".into()));
        assert_eq!(plain("//"), Some("/".into()));
    }

    #[test]
    fn parameters_are_read_from_paths_however_they_are_spelt() {
        let pattern = Pattern::parse("/shops/{shop}/orders/{*rest}").unwrap();
        for (name, path, expected) in [
            ("shop", "/shops/a/orders/1", Some("a")),
            ("shop", "/shops/a%2Fb%C3%A9/orders/", Some("a/bé")),
            ("rest", "/shops/a/orders/1/2", Some("1/2")),
            ("rest", "/shops/a/orders/", Some("")),
            ("shop", "//shops//a/orders/1/", Some("a")),
            ("shop", "/shops/a%zz/orders/1", None),
            ("shop", "/shops/a%ff/orders/1", None),
            ("other", "/shops/a/orders/1", None),
            ("shop", "/somewhere/else", None),
        ] {
            let found = pattern.parameter(name, path);
            assert_eq!(found.as_deref(), expected, "{name} of {path}");
        }
        assert!(pattern.has_parameter("rest") && !pattern.has_parameter("shops"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for text in ["payments", "/a/{", "/a/{b}c", "/a/{}", "/a/{*}", "/{*a}/b"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_covers_another_when_it_matches_every_path_of_it() {
        let covers = |outer, inner| {
            let pattern = |text: &str| Pattern::parse(text).unwrap();
            pattern(outer).covers(&pattern(inner))
        };
        for (outer, inner) in [
            ("/a", "/a"),
            ("/{x}", "/a"),
            ("/{x}", "/{y}"),
            ("/{*x}", "/a/{b}"),
            ("/a/{*x}", "/a/{*y}"),
            ("/a/{*x}", "/a"),
            ("/{*x}", "/"),
        ] {
            assert!(covers(outer, inner), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("/a", "/{x}"),
            ("/{x}", "/"),
            ("/{x}", "/{*y}"),
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("/a/{*x}", "/{*y}"),
        ] {
            assert!(!covers(outer, inner), "{outer} {inner}");
        }
    }
}
