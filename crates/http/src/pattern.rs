//! Path patterns: `/payments`, `/payments/{id}`, `/v1/{*rest}`.

use std::fmt;

use thiserror::Error;

/// A pattern for concrete paths. Matching looks at segments and never decodes them, because the
/// path behind the layer is not decoded either.
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

    /// Whether a path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
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
        assert!(!Pattern::any().matches("*"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for text in ["payments", "/a/{", "/a/{b}c", "/a/{}", "/a/{*}", "/{*a}/b"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
