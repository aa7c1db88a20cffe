//! Keys that are read again while requests come in.

use std::sync::{Arc, PoisonError, RwLock};

use http::request::Parts;
use onlyonce_http::{Principal, PrincipalError, Principals};

use super::{SetupError, build};
use crate::config;

/// What tells callers apart now. Clones share it.
#[derive(Clone)]
pub(crate) struct Callers {
    now: Arc<RwLock<Arc<dyn Principals>>>,
}

impl Callers {
    /// With the keys as they are in their files.
    ///
    /// # Errors
    /// As [`build`].
    pub(crate) fn new(principal: &config::Principal) -> Result<Self, SetupError> {
        let now = Arc::from(build(principal)?);
        Ok(Self {
            now: Arc::new(RwLock::new(now)),
        })
    }

    /// Reads the files again. What was in force stays so when they are no good.
    ///
    /// # Errors
    /// As [`build`].
    pub(crate) fn reload(&self, principal: &config::Principal) -> Result<(), SetupError> {
        let next = Arc::from(build(principal)?);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn now(&self) -> Arc<dyn Principals> {
        // Nothing that can panic runs under this lock.
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Principals for Callers {
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError> {
        self.now().principal(request)
    }
}
