//! What a layer is made with.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::{Authorization, Observations, Principals, Routes};

/// Where the pages about problem codes are, unless configured otherwise.
pub const PROBLEM_BASE: &str = "https://github.com/onlyonce/onlyonce/blob/main/docs/problems/";

/// What a layer is made with.
pub struct Config {
    /// Which requests are guarded, and how. Default: every POST and PATCH.
    pub routes: Routes,
    /// Who the caller is. Default: by `Authorization`.
    pub principals: Box<dyn Principals>,
    /// Asked before a stored response is given again, for example whether the caller's
    /// credential is still good. Default: nobody.
    pub replay_check: Option<Box<dyn ReplayCheck>>,
    /// How long the body of a guarded request may take in all. Default: 2 minutes.
    pub body_total_timeout: Duration,
    /// How many bytes the bodies of all guarded and observed requests may take at once; one more is
    /// refused with 503, or passes unobserved. Default: 512 MiB.
    pub bodies_bytes_max: usize,
    /// Where the pages about problem codes are.
    pub problem_base: String,
    /// Where clients find the status of an operation; `None` for nowhere.
    pub operations_path: Option<String>,
    /// Whether the response header `Onlyonce-Outcome` of the inner service decides. Default: yes.
    pub trust_outcome_header: bool,
    /// Told about unprotected and observed requests.
    pub observations: Box<dyn Observations>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            routes: Routes::default(),
            principals: Box::new(Authorization),
            replay_check: None,
            body_total_timeout: Duration::from_secs(120),
            bodies_bytes_max: 512 * 1024 * 1024,
            problem_base: PROBLEM_BASE.into(),
            operations_path: Some("/.onlyonce/operations".into()),
            trust_outcome_header: true,
            observations: Box::new(()),
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

/// Asked before a stored response is given again.
pub trait ReplayCheck: Send + Sync + 'static {
    /// Whether this caller may still have it; otherwise the refusal to send instead.
    fn check<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Bytes>>> + Send + 'a>>;
}
