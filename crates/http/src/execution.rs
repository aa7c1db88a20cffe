//! What a guarded handler gets with its request.

use http::Response;
use onlyonce_core::{Fence, Key, RecordId, RouteName, Timestamp};

use crate::Settle;

/// The right to execute once, in the extensions of a guarded request.
///
/// With the feature `axum` it is also an extractor; take an `Option` of it where requests may pass
/// without a key.
#[derive(Debug, Clone)]
pub struct Execution {
    key: Key,
    inner: onlyonce_engine::Execution,
}

impl Execution {
    pub(crate) fn new(key: Key, inner: onlyonce_engine::Execution) -> Self {
        Self { key, inner }
    }

    /// The client's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The record that the key has in the store.
    #[must_use]
    pub fn id(&self) -> &RecordId {
        self.inner.id()
    }

    /// The route that the request took.
    #[must_use]
    pub fn route(&self) -> &RouteName {
        self.inner.route()
    }

    /// When the key was first claimed.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.inner.created_at()
    }

    /// The fence of this execution.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.inner.fence()
    }

    /// How many executions were granted for this key, this one included.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.inner.attempt()
    }

    /// Whether the key is still held; ask right before the effect.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// A key for one downstream call: the same for every attempt, another for every `name`.
    #[must_use]
    pub fn child_key(&self, name: &str) -> String {
        self.inner.child_key(name)
    }

    /// Says that it was executed, whatever the status: the response is stored and replayed.
    #[must_use]
    pub fn completed<B>(&self, response: Response<B>) -> Response<B> {
        settle(response, Settle::Completed)
    }

    /// Says that nothing was executed: the same request may run again.
    #[must_use]
    pub fn released<B>(&self, response: Response<B>) -> Response<B> {
        settle(response, Settle::Released)
    }

    /// Says that it may have been executed: only reconciliation or a person decides.
    #[must_use]
    pub fn unknown<B>(&self, response: Response<B>) -> Response<B> {
        settle(response, Settle::Unknown)
    }
}

fn settle<B>(mut response: Response<B>, settle: Settle) -> Response<B> {
    response.extensions_mut().insert(settle);
    response
}

#[cfg(feature = "axum")]
impl<S: Sync> axum_core::extract::FromRequestParts<S> for Execution {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "this handler asks for an Execution, but no idempotency route guards it",
        ))
    }
}

/// `Option<Execution>`: for handlers that also serve requests without a key, or that are only
/// observed.
#[cfg(feature = "axum")]
impl<S: Sync> axum_core::extract::OptionalFromRequestParts<S> for Execution {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}
