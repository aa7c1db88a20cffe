//! Path patterns: `/payments`, `/payments/{id}`, `/v1/{*rest}`.

use std::fmt;

use thiserror::Error;

use crate::spelling::{Likeness, is_escaped_well, likeness, normal, plain};

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
    /// A `?`: a path ends before it.
    #[error(
        "`{0}`: a path ends before `?`, and no query chooses a route: leave it out, or write `%3F` \
         for the character"
    )]
    Query(Box<str>),
    /// A `#`: a client keeps it, and what follows, to itself.
    #[error(
        "`{0}`: nothing from `#` on is ever sent: leave it out, or write `%23` for the character"
    )]
    Fragment(Box<str>),
    /// A space, a control character, or another that is not sent as it is.
    #[error("`{0}`: no request has {1:?} in its path: write `{2}`")]
    Character(Box<str>, char, Box<str>),
    /// A `%` without two hexadecimal digits.
    #[error("`{0}`: an escape has two hexadecimal digits: write `%25` for a percent sign")]
    Escape(Box<str>),
    /// A segment `.` or `..`.
    #[error("`{0}`: `.` and `..` are resolved before a request is sent: write `{1}`")]
    Dots(Box<str>, Box<str>),
    /// A segment without a character, before the last.
    #[error("`{0}`: paths are read without empty segments: write `{1}`")]
    Empty(Box<str>, Box<str>),
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
        let names = segments.len() - 1;
        if segments.iter().take(names).any(Segment::is_empty) {
            return Err(PatternError::Empty(text.into(), tidy(text)));
        }
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

    /// Whether its paths end in a slash.
    pub(crate) fn ends_in_slash(&self) -> bool {
        self.segments.last().is_some_and(Segment::is_empty)
    }

    /// Whether it is every path.
    pub(crate) fn is_any(&self) -> bool {
        matches!(*self.segments, [Segment::Rest])
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
        if self.is_any() {
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
        let usual = plain(path);
        let ended = self.ends_in_slash();
        let ended = ended.then(|| format!("{}/", usual.as_deref().unwrap_or(path)));
        let mut read = std::iter::once(path)
            .chain(usual.as_deref())
            .chain(ended.as_deref());
        let path = read.find(|path| self.likeness(path).is_some())?;
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

impl Segment {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Literal(literal) if literal.is_empty())
    }
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

/// What no request has in its path would never match, and leave unguarded what it is about.
fn literal(text: &str, part: &str) -> Result<Segment, PatternError> {
    let is_never_sent = |character: &char| {
        character.is_whitespace() || character.is_control() || matches!(character, '<' | '>' | '`')
    };
    if part.contains('?') {
        return Err(PatternError::Query(text.into()));
    }
    if part.contains('#') {
        return Err(PatternError::Fragment(text.into()));
    }
    if part.contains(['{', '}']) {
        return Err(PatternError::Parameter(text.into()));
    }
    if let Some(character) = part.chars().find(is_never_sent) {
        let escape = escaped(character).into();
        return Err(PatternError::Character(text.into(), character, escape));
    }
    if !is_escaped_well(part) {
        return Err(PatternError::Escape(text.into()));
    }
    match normal(part) {
        dots if dots == "." || dots == ".." => Err(PatternError::Dots(text.into(), tidy(text))),
        literal => Ok(Segment::Literal(literal.into())),
    }
}

fn escaped(character: char) -> String {
    let bytes = character.to_string().into_bytes();
    let escapes: Vec<_> = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
    escapes.concat()
}

/// A pattern without dots and empty segments.
fn tidy(text: &str) -> Box<str> {
    let plain = plain(text).unwrap_or_else(|| text.to_owned());
    if text.ends_with('/') && plain != "/" {
        return format!("{plain}/").into();
    }
    plain.into()
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
            ("shop", "/shops//../a/orders/1", None),
            ("shop", "/x/../shops/a/orders/1", Some("a")),
            ("shop", "/shops/a%zz/orders/1", None),
            ("shop", "/shops/a%ff/orders/1", None),
            ("other", "/shops/a/orders/1", None),
            ("shop", "/somewhere/else", None),
        ] {
            let found = pattern.parameter(name, path);
            assert_eq!(found.as_deref(), expected, "{name} of {path}");
        }
        assert!(pattern.has_parameter("rest") && !pattern.has_parameter("shops"));
        let ended = Pattern::parse("/shops/{shop}/").unwrap();
        for path in ["/shops/a/", "//shops/a/", "/shops/a"] {
            let found = ended.parameter("shop", path);
            assert_eq!(found.as_deref(), Some("a"), "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for text in ["payments", "/a/{", "/a/{b}c", "/a/{}", "/a/{*}", "/{*a}/b"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    /// It would never match, and what it is about would be guarded as something else, or not.
    #[test]
    fn what_no_request_has_in_its_path_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("/a?x=1", "`%3F`"),
            ("/a/{b}?x={y}", "`%3F`"),
            ("/c#d", "`%23`"),
            ("/a b", "`%20`"),
            ("/a\tb", "`%09`"),
            ("/a\u{a0}b", "`%C2%A0`"),
            ("/a<b", "`%3C`"),
            ("/100%", "`%25`"),
            ("/a%zz", "`%25`"),
            ("/a%+f", "`%25`"),
            ("/x/../a", "write `/a`"),
            ("/./a/", "write `/a/`"),
            ("/%2e%2E/{a}/..", "write `/`"),
            ("/x//a/", "write `/x/a/`"),
            ("//{a}", "write `/{a}`"),
            ("//", "write `/`"),
        ] {
            let refused = Pattern::parse(text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        for text in [
            "/", "/a/", "/a/{b}/", "/a%20b", "/%3F", "/a..b", "/a;b", "/é", "/{a b}",
        ] {
            assert!(Pattern::parse(text).is_ok(), "{text}");
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
