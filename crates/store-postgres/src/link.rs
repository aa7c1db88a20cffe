//! A connection, and what ends it.

use tokio::task::AbortHandle;
use tokio_postgres::Client;

use crate::backend::Backend;
use crate::error::chain;

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The server's side of it; `None` until it was asked.
    pub(crate) backend: Option<Backend>,
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
            host,
            driver: driver.abort_handle(),
        }
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
