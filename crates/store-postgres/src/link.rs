//! A connection, and what ends it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::backend::Backend;
use crate::error::chain;

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The server's side of it; `None` until it was asked.
    pub(crate) backend: Option<Backend>,
    /// What the server said of the session and of itself; empty until it was asked.
    pub(crate) state: String,
    /// When that was asked last.
    state_at: Mutex<Instant>,
    /// Which of the hosts it leads to.
    pub(crate) host: usize,
    pub(crate) driver: AbortHandle,
}

impl Link {
    pub(crate) fn new<S, T>(
        client: Client,
        connection: tokio_postgres::Connection<S, T>,
        host: usize,
    ) -> Self
    where
        tokio_postgres::Connection<S, T>:
            Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    {
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = %chain(&error), "a connection to PostgreSQL ended");
            }
        });
        Self {
            client,
            backend: None,
            state: String::new(),
            state_at: Mutex::new(Instant::now()),
            host,
            driver: driver.abort_handle(),
        }
    }

    /// Whether it is time to ask again. Of several callers one is told so.
    pub(crate) fn is_due(&self, after: Duration) -> bool {
        let mut at = self.state_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = at.elapsed() >= after;
        if is_due {
            *at = Instant::now();
        }
        is_due
    }

    /// Ends the connection at once, whatever is under way.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }
}

impl Drop for Link {
    /// Without this the driver would wait for the answers that are due, for ever if the line
    /// swallows them, and the server would keep a backend for it.
    fn drop(&mut self) {
        self.cut();
    }
}
