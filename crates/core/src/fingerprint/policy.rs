//! Which parts of a payload count.
//!
//! [`FingerprintRules`] are what an operator writes; a [`FingerprintPolicy`] is what was checked.
//! The check refuses rules under which different payloads would be one by accident.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{Document, JsonLimits, Pointer};

use super::content::is_token;

/// Which parts of a payload count, before the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintRules {
    /// Headers that count. Default: `If-Match`. `Content-Encoding` always does: without it,
    /// the bytes of a body have no meaning.
    pub headers: Vec<String>,
    /// The only subtrees of a JSON body that count; none means all of it. Absent and `null` are
    /// different. A body that has no canonical form counts whole.
    pub include: Vec<Pointer>,
    /// Subtrees of a JSON body that do not count. A member may then change, come or go; an
    /// element of an array may change, but the length of the array still counts.
    pub exclude: Vec<Pointer>,
    /// Whether the query counts. Default: yes.
    pub query: bool,
    /// How many JSON fields are kept as digests to name a mismatch. Default: 64.
    pub fields_max: usize,
    /// How large a JSON body may be to count by value.
    pub json: JsonLimits,
}

impl Default for FingerprintRules {
    fn default() -> Self {
        Self {
            headers: Vec::from([String::from("if-match")]),
            include: Vec::new(),
            exclude: Vec::new(),
            query: true,
            fields_max: 64,
            json: JsonLimits::default(),
        }
    }
}

/// Why rules were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintPolicyError {
    /// A header that no request can have.
    #[error("`{0}` is no header name: use letters, digits and `-`")]
    HeaderName(Box<str>),
    /// Every JSON body would be the same.
    #[error(
        "excluding the whole body makes every body the same: name what to exclude, such as `/sent_at`"
    )]
    ExcludesEverything,
    /// An included subtree that can never count.
    #[error("`{include}` is included but lies within the excluded `{exclude}`: remove one of them")]
    IncludeWithinExclude {
        /// The included pointer.
        include: Box<str>,
        /// The excluded pointer around it.
        exclude: Box<str>,
    },
    /// An included subtree within another one.
    #[error("`{inner}` is already included by `{outer}`: remove one of them")]
    IncludeTwice {
        /// The pointer within.
        inner: Box<str>,
        /// The pointer around it, or the same one.
        outer: Box<str>,
    },
}

/// Which parts of a payload count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintPolicy {
    rules: FingerprintRules,
}

impl Default for FingerprintPolicy {
    fn default() -> Self {
        Self {
            rules: with_fixed_headers(FingerprintRules::default()),
        }
    }
}

impl FingerprintPolicy {
    /// Checks rules.
    ///
    /// # Errors
    /// When a header name is impossible, or the pointers contradict each other.
    pub fn new(rules: FingerprintRules) -> Result<Self, FingerprintPolicyError> {
        for name in &rules.headers {
            if !is_token(name.as_bytes()) {
                return Err(FingerprintPolicyError::HeaderName(name.as_str().into()));
            }
        }
        if rules
            .exclude
            .iter()
            .any(|pointer| pointer.as_str().is_empty())
        {
            return Err(FingerprintPolicyError::ExcludesEverything);
        }
        for (place, include) in rules.include.iter().enumerate() {
            if let Some(exclude) = rules.exclude.iter().find(|exclude| exclude.covers(include)) {
                return Err(FingerprintPolicyError::IncludeWithinExclude {
                    include: include.as_str().into(),
                    exclude: exclude.as_str().into(),
                });
            }
            let mut others = rules
                .include
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != place);
            if let Some((_, outer)) = others.find(|(_, outer)| outer.covers(include)) {
                return Err(FingerprintPolicyError::IncludeTwice {
                    inner: include.as_str().into(),
                    outer: outer.as_str().into(),
                });
            }
        }
        Ok(Self {
            rules: with_fixed_headers(rules),
        })
    }

    /// The rules as they apply: header names in lower case, each once.
    #[must_use]
    pub fn rules(&self) -> &FingerprintRules {
        &self.rules
    }

    pub(super) fn headers(&self) -> &[String] {
        &self.rules.headers
    }

    pub(super) fn includes(&self) -> &[Pointer] {
        &self.rules.include
    }

    pub(super) fn json(&self) -> &JsonLimits {
        &self.rules.json
    }

    pub(super) fn counts_query(&self) -> bool {
        self.rules.query
    }

    pub(super) fn fields_max(&self) -> usize {
        self.rules.fields_max
    }

    /// The children of this document that do not count.
    pub(super) fn holes(&self, document: &Document<'_>) -> Vec<u32> {
        self.rules
            .exclude
            .iter()
            .filter_map(|pointer| document.find(pointer).and_then(|found| found.child))
            .collect()
    }
}

fn with_fixed_headers(mut rules: FingerprintRules) -> FingerprintRules {
    let named = core::mem::take(&mut rules.headers);
    for mut name in named.into_iter().chain([String::from("content-encoding")]) {
        name.make_ascii_lowercase();
        if !rules.headers.contains(&name) {
            rules.headers.push(name);
        }
    }
    rules
}
