//! Path patterns: `/payments`, `/payments/{id}`, `/v1/{*rest}`.

use std::fmt;

use thiserror::Error;

use crate::spelling::{Likeness, likeness, normal, readings};

/// A pattern for concrete paths. Matching looks at segments as they are on the wire, and takes an
/// escape beyond ASCII for the character itself; [`Routes::find`](crate::Routes::find) also tries
/// other readings of a path.
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
        let segments: Result<Vec<_>, _> = path.split('/').map(|part| segment(text, part)).collect();
        let segments = segments?;
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

    /// How near it is to one path: the more is left open, the less.
    pub(crate) fn nearness(&self) -> u8 {
        match &*self.segments {
            [Segment::Rest] => 0,
            [.., Segment::Rest] => 1,
            _ if self.is_literal() => 3,
            _ => 2,
        }
    }

    /// Whether a path matches. A request target that is no path, such as `*`, is matched by
    /// [`any`](Self::any) alone: it must not slip past a guard of everything.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.likeness(path) == Some(Likeness::Spelt)
    }

    /// How alike a path and the paths of this pattern are, if they are.
    pub(crate) fn likeness(&self, path: &str) -> Option<Likeness> {
        let mut alike = Likeness::Spelt;
        if let [Segment::Rest] = &*self.segments {
            return Some(alike);
        }
        let mut given = path.strip_prefix('/')?.split('/');
        for wanted in &self.segments {
            match (wanted, given.next()) {
                (Segment::Rest, _) => return Some(alike),
                (Segment::Literal(literal), Some(part)) => {
                    alike = alike.max(likeness(literal, part)?);
                }
                (Segment::One, Some(part)) if !part.is_empty() => {}
                (Segment::Literal(_) | Segment::One, _) => return None,
            }
        }
        given.next().is_none().then_some(alike)
    }

    /// A path that is alike, with the literals spelt as they are here.
    pub(crate) fn respelt(&self, path: &str) -> String {
        let mut wanted = self.segments.iter();
        let given = path.strip_prefix('/').unwrap_or(path).split('/');
        let parts: Vec<_> = given
            .map(|part| match wanted.next() {
                Some(Segment::Literal(literal)) => literal,
                Some(Segment::One | Segment::Rest) | None => part,
            })
            .collect();
        format!("/{}", parts.join("/"))
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
    /// such parameter, or the path does not match in a usual reading: a parameter that only some APIs
    /// see may name something else.
    #[must_use]
    pub fn parameter(&self, name: &str, path: &str) -> Option<String> {
        let read;
        let path = if self.likeness(path).is_some() {
            path
        } else {
            let mut usual = readings(path).filter(|reading| reading.usual);
            read = usual.find(|reading| self.likeness(&reading.path).is_some())?;
            &read.path
        };
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

fn segment(text: &str, part: &str) -> Result<Segment, PatternError> {
    let inner = part
        .strip_prefix('{')
        .and_then(|part| part.strip_suffix('}'));
    match inner.filter(|name| !name.contains(['{', '}'])) {
        Some("" | "*") => Err(PatternError::Parameter(text.into())),
        Some(name) if name.starts_with('*') => Ok(Segment::Rest),
        Some(_) => Ok(Segment::One),
        None => literal(text, part),
    }
}

fn literal(text: &str, part: &str) -> Result<Segment, PatternError> {
    if part.contains(['{', '}']) {
        return Err(PatternError::Parameter(text.into()));
    }
    Ok(Segment::Literal(normal(part).into()))
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
    fn parameters_are_read_from_paths_however_they_are_spelt() {
        let pattern = Pattern::parse("/shops/{shop}/orders/{*rest}").unwrap();
        for (name, path, expected) in [
            ("shop", "/shops/a/orders/1", Some("a")),
            ("shop", "/shops/a%2Fb%C3%A9/orders/", Some("a/bé")),
            ("rest", "/shops/a/orders/1/2", Some("1/2")),
            ("rest", "/shops/a/orders/", Some("")),
            ("shop", "//shops//a/orders/1/", Some("a")),
            ("shop", "/Shops/A/%6frders/1", Some("A")),
            ("shop", "/shops;v=1/a;b/orders/1", None),
            ("shop", "/shops/a;b/orders/1", Some("a;b")),
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

    /// Names of routes are made of it, and records carry them.
    #[test]
    fn a_pattern_is_shown_as_it_was_written_however_it_matches() {
        for (text, path) in [
            ("/%70ay", "/pay"),
            ("/caf%c3%a9", "/café"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café/{id}", "/caf%C3%A9/1"),
            ("/a%2fb", "/a%2Fb"),
            ("/%ff", "/%FF"),
        ] {
            assert!(matches(text, path), "{text} {path}");
            assert_eq!(Pattern::parse(text).unwrap().to_string(), text);
        }
        assert!(!matches("/a:b", "/a%3Ab") && !matches("/a", "/A"));
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
