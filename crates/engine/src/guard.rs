//! Running any async function under a key, without HTTP.
//!
//! ```
//! use onlyonce_core::StoredResponse;
//! use onlyonce_engine::{Engine, Finished, Reply};
//! use onlyonce_store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::builder(MemoryStore::new()).open().await?;
//!
//! let charge = || engine.guard("charges", b"shop-7", "order-42");
//! let first = charge()
//!     .run(b"12.00 EUR", |execution| async move {
//!         let receipt = format!("charged under {}", execution.child_key("card"));
//!         Finished::completed(StoredResponse::from_bytes(receipt.clone()), receipt)
//!     })
//!     .await?;
//! let Reply::Executed { value: receipt, .. } = first else { panic!("the first one executes") };
//!
//! let work = |_| async { unreachable!("a retry never runs the work") };
//! let Reply::<()>::Replayed(replay) = charge().run(b"12.00 EUR", work).await? else {
//!     panic!("the second one is answered")
//! };
//! assert_eq!(replay.response.body, receipt);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::{FieldDiff, Payload, explain, fingerprint};
use onlyonce_core::key::KeyError;
use onlyonce_core::{
    FieldDigests, Key, Policy, PrincipalDigest, RecordId, RouteName, Scope, Secret,
};
use onlyonce_store::Store;

use crate::{
    Engine, EngineError, Execution, Finished, Identity, Reply, Request, Runtime, TokioRuntime,
};

impl<S: Store, R: Runtime> Engine<S, R> {
    /// Prepares work under a key. The route names the kind of work and chooses its policy; the
    /// principal is whose key it is, and two principals never share one.
    pub fn guard<'a>(
        &'a self,
        route: &'a str,
        principal: &'a [u8],
        key: &'a str,
    ) -> Guard<'a, S, R> {
        Guard {
            engine: self,
            route,
            key,
            principal,
            wait: None,
        }
    }

    /// The request that a key, its scope and its payload mean, under this engine's secrets.
    #[must_use]
    pub fn request(
        &self,
        route: &RouteName,
        key: &Key,
        scope: &Scope<'_>,
        payload: &Payload<'_>,
    ) -> Request {
        let policy = self.inner.policies.of(route);
        let identify = |secret: &Secret| identify(secret, policy, key, scope, payload);
        Request {
            identity: identify(&self.inner.secret),
            previous: self.inner.previous_secret.as_ref().map(identify),
            principal: PrincipalDigest::new(&self.inner.secret, scope.principal),
            route: route.clone(),
            wait: None,
            memo: Bytes::new(),
        }
    }
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// Names the parts and fields in which a payload differs from the other one that a key belongs
    /// to.
    #[must_use]
    pub fn explain(
        &self,
        route: &RouteName,
        payload: &Payload<'_>,
        stored: &FieldDigests,
    ) -> FieldDiff {
        explain(
            &self.inner.secret,
            self.inner.policies.of(route).fingerprint(),
            payload,
            stored,
        )
        .of_mismatch(stored)
    }
}

fn identify(
    secret: &Secret,
    policy: &Policy,
    key: &Key,
    scope: &Scope<'_>,
    payload: &Payload<'_>,
) -> Identity {
    let (fingerprint, fields) = fingerprint(secret, policy.fingerprint(), payload);
    Identity {
        id: RecordId::new(secret, policy.scope(), scope, key),
        fingerprint,
        fields,
    }
}

/// Work about to run under a key.
#[must_use]
pub struct Guard<'a, S, R = TokioRuntime> {
    engine: &'a Engine<S, R>,
    route: &'a str,
    key: &'a str,
    principal: &'a [u8],
    wait: Option<Duration>,
}

impl<S: Store, R: Runtime> Guard<'_, S, R> {
    /// Waits this long for somebody else's execution of the same key. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Runs `work` if nobody did before; otherwise says what became of it. `payload` is what the
    /// work is about: the same key with another payload is refused.
    ///
    /// # Errors
    /// When the key is malformed or no decision could be made. Nothing was executed then.
    pub async fn run<T, F, Fut>(self, payload: &[u8], work: F) -> Result<Reply<T>, GuardError>
    where
        T: Send + 'static,
        F: FnOnce(Execution) -> Fut + Send + 'static,
        Fut: Future<Output = Finished<T>> + Send + 'static,
    {
        let route = RouteName::new(self.route).ok_or(GuardError::RouteTooLong)?;
        let limits = self.engine.inner.policies.of(&route).key();
        let key = Key::opaque(self.key, limits)?;
        let scope = Scope {
            principal: self.principal,
            method: "",
            route: self.route,
            path: self.route,
            host: "",
        };
        let payload = Payload {
            method: "",
            path: "",
            query: None,
            headers: &[],
            content_type: None,
            body: payload,
        };
        let mut request = self.engine.request(&route, &key, &scope, &payload);
        request.wait = self.wait;
        Ok(self.engine.run(request, work).await?)
    }
}

impl<S: Store, R> fmt::Debug for Guard<'_, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard({})", self.route)
    }
}

/// Why work under a key was not decided. Nothing was executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The key is malformed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The route's name is too long.
    #[error("the route's name is longer than {} bytes", RouteName::BYTES_MAX)]
    RouteTooLong,
    /// No decision could be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
