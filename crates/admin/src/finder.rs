//! From a client's key to its records: what only the deployment itself can tell.

use onlyonce_core::RecordId;
use serde::Deserialize;

/// A request as a client described it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyQuery {
    /// The key that it sent.
    pub key: String,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Who sent it, as the deployment tells callers apart; `None` for nobody.
    #[serde(default)]
    pub caller: Option<String>,
}

impl std::fmt::Debug for KeyQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Key and caller may be personal data, and credentials.
        write!(f, "KeyQuery({} {})", self.method, self.path)
    }
}

/// Knows which records a client's key means: the routes and the callers are the deployment's.
pub trait Finder: Send + Sync + 'static {
    /// The ids that the request may have, under every secret in use.
    ///
    /// # Errors
    /// Why nobody can tell, for the operator who asked.
    fn find(&self, query: &KeyQuery) -> Result<Vec<RecordId>, String>;
}
