//! A place for one connection, which is made when it is needed.
//!
//! After a failed attempt the next one waits, twice as long each time; whoever asks meanwhile is
//! told at once why there is none. So no caller waits for longer than one attempt takes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onlyonce_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::OpenError;
use crate::error::{Failure, failure};
use crate::session::{Connector, Session};

/// The first pause: a server that restarts is back within a second or so.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest pause: how much later than the server the store may be back.
const PAUSE_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Slot {
    connector: Arc<Connector>,
    session: RwLock<Option<Arc<Session>>>,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    failed: Option<(OpenError, Instant)>,
    pause: Duration,
}

impl Slot {
    pub(crate) fn new(connector: Arc<Connector>, session: Option<Session>) -> Self {
        Self {
            connector,
            session: RwLock::new(session.map(Arc::new)),
            attempts: Mutex::default(),
        }
    }

    /// The connection, if there is one that was not closed.
    fn live(&self) -> Option<Arc<Session>> {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        let live = session
            .as_ref()
            .filter(|session| !session.link.client.is_closed());
        live.map(Arc::clone)
    }

    /// The connection; made now if there is none.
    ///
    /// # Errors
    /// When there is none to be had. Nothing was sent.
    pub(crate) async fn get(&self) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        if let Some((error, at)) = &attempts.failed
            && at.elapsed() < attempts.pause
        {
            return Err(StoreError::unavailable(error));
        }
        match self.connector.session().await {
            Ok(session) => {
                *attempts = Attempts::default();
                let session = Arc::new(session);
                self.put(Some(Arc::clone(&session)));
                Ok(session)
            }
            Err(error) => {
                let unavailable = StoreError::unavailable(&error);
                attempts.pause = (attempts.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                attempts.failed = Some((error, Instant::now()));
                Err(unavailable)
            }
        }
    }

    /// Gives the connection up, if it is still this one.
    pub(crate) fn leave(&self, session: &Arc<Session>) {
        session.link.cut();
        let mut current = self.session.write().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, session))
        {
            *current = None;
        }
    }

    fn put(&self, session: Option<Arc<Session>>) {
        *self.session.write().unwrap_or_else(PoisonError::into_inner) = session;
    }
}

/// Connections for reads. Many reads share one, each sent without waiting for the others.
pub(crate) struct Readers {
    slots: Vec<Slot>,
    next: AtomicUsize,
    patience: Duration,
}

impl Readers {
    pub(crate) fn new(slots: Vec<Slot>, patience: Duration) -> Self {
        Self {
            slots,
            next: AtomicUsize::new(0),
            patience,
        }
    }

    /// Runs a request on one of the connections.
    ///
    /// # Errors
    /// When it fails, or takes too long. What that means is for the caller to say.
    pub(crate) async fn run<T>(
        &self,
        request: impl AsyncFnOnce(&Session) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, ReadError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slots.get(turn % self.slots.len().max(1));
        let Some(slot) = slot else {
            return Err(ReadError::NoConnection(StoreError::unavailable(
                "the store has no connection for reads",
            )));
        };
        let session = slot.get().await.map_err(ReadError::NoConnection)?;
        match tokio::time::timeout(self.patience, request(&session)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                match failure(&error) {
                    Failure::NotWritten { leave: true, .. } | Failure::MayHaveWritten(_) => {
                        slot.leave(&session);
                    }
                    Failure::NotWritten { leave: false, .. } | Failure::Refused { .. } => {}
                }
                Err(ReadError::Failed(error))
            }
            Err(_) => {
                slot.leave(&session);
                Err(ReadError::NoAnswer(self.patience))
            }
        }
    }
}

/// Why a request on a connection for reads has no answer.
pub(crate) enum ReadError {
    NoConnection(StoreError),
    Failed(tokio_postgres::Error),
    NoAnswer(Duration),
}
