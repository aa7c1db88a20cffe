//! The key on its way to the service behind: in which header, and in which form.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use thiserror::Error;

use crate::Execution;
use crate::dialect::{Gap, Kind, Template};
use crate::key::remove_twins;

/// The header that carries a key to the service behind, besides the client's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardKey {
    header: HeaderName,
    value: Template,
}

/// Why a text is no value for that header.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ForwardKeyError(String);

impl ForwardKey {
    /// In this header, with this value: `{key}` is the client's key, and `{child:NAME}` a key
    /// derived from it, the same on every attempt and another for every name.
    ///
    /// # Errors
    /// When the value has a gap that nothing fills, or none at all: then every request would
    /// carry the same key.
    pub fn new(header: HeaderName, value: &str) -> Result<Self, ForwardKeyError> {
        let refused = |reason: &str| Err(ForwardKeyError(reason.to_owned()));
        let value = match Template::parse(Kind::Forward, value) {
            Ok(value) => value,
            Err(error) => return refused(&error.reason),
        };
        if value.gaps().next().is_none() {
            return refused(
                "every request would carry the same key: write `{key}` or `{child:NAME}` in it",
            );
        }
        if HeaderValue::from_str(&value.to_string()).is_err() {
            return refused("a header cannot have this value: use visible characters");
        }
        Ok(Self { header, value })
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// The value, as it was written.
    #[must_use]
    pub fn value(&self) -> String {
        self.value.to_string()
    }

    pub(crate) fn put(&self, execution: &Execution, headers: &mut HeaderMap) {
        let text = self.value.render(&|gap| match gap {
            Gap::Key => Some(json!(execution.key().as_str())),
            Gap::Child(name) => Some(json!(execution.child_key(name))),
            Gap::Detail
            | Gap::Title
            | Gap::Code
            | Gap::Type
            | Gap::Status
            | Gap::RequestId
            | Gap::OriginalRequestId
            | Gap::ResourceId
            | Gap::RetryAfter
            | Gap::Retryable
            | Gap::Operation
            | Gap::Differs
            | Gap::Field => None,
        });
        // The parts were checked: a key is visible ASCII, and so is a child key.
        if let Ok(value) = HeaderValue::from_str(&text) {
            remove_twins(headers, &self.header);
            headers.insert(self.header.clone(), value);
        }
    }
}
