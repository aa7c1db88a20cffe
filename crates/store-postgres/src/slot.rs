//! A place for one connection, which is made when it is needed.
//!
//! After a failed attempt the next one waits, twice as long each time; whoever asks meanwhile is
//! told at once why there is none. So no caller waits for longer than one attempt takes. While the
//! server still works on what it did not answer, there is none either: see `backend`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onlyonce_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::OpenError;
use crate::backend::Backend;
use crate::connector::Connector;
use crate::error::{Failure, failure};
use crate::session::Session;

/// The first pause: a server that restarts is back within a second or so.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest pause: how much later than the server the store may be back.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pauses when the server has not ended what it was asked before. A look costs it a connection.
const STALLED_PAUSE_MIN: Duration = Duration::from_millis(100);
const STALLED_PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Slot {
    connector: Arc<Connector>,
    place: RwLock<Place>,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Place {
    session: Option<Arc<Session>>,
    /// The backends of sessions that were given up, and may still be at work.
    left: Vec<Backend>,
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
            place: RwLock::new(Place {
                session: session.map(Arc::new),
                left: Vec::new(),
            }),
            attempts: Mutex::default(),
        }
    }

    /// The connection, if there is one that was not closed.
    fn live(&self) -> Option<Arc<Session>> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        let session = place.session.as_ref();
        let live = session.filter(|session| !session.link.client.is_closed());
        live.map(Arc::clone)
    }

    /// Whether there is one, as far as anybody knows.
    pub(crate) fn is_ready(&self) -> bool {
        self.live().is_some()
    }

    /// The connection; made now if there is none.
    ///
    /// # Errors
    /// When there is none to be had. Nothing was sent.
    pub(crate) async fn get(&self) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.live() {
            let is_due = session.link.is_due(self.connector.options.ask_again_after);
            if !is_due || self.connector.is_unchanged(&session.link).await {
                return Ok(session);
            }
            // The next one is looked at, and refused if that is the reason.
            self.leave(&session);
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
        let left = self.left();
        match self.connector.session(&left).await {
            Ok((session, working)) => {
                *attempts = Attempts::default();
                let session = Arc::new(session);
                self.put(&session, |backend| {
                    working.contains(backend) || !left.contains(backend)
                });
                Ok(session)
            }
            Err(error) => {
                let unavailable = StoreError::unavailable(&error);
                let (min, max) = if matches!(error, OpenError::Stalled { .. }) {
                    (STALLED_PAUSE_MIN, STALLED_PAUSE_MAX)
                } else {
                    (PAUSE_MIN, PAUSE_MAX)
                };
                attempts.pause = (attempts.pause * 2).clamp(min, max);
                attempts.failed = Some((error, Instant::now()));
                Err(unavailable)
            }
        }
    }

    /// Gives the connection up, if it is still this one.
    pub(crate) fn leave(&self, session: &Arc<Session>) {
        session.link.cut();
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let current = place.session.as_ref();
        if current.is_some_and(|current| Arc::ptr_eq(current, session)) {
            place.session = None;
            place.left.extend(session.link.backend.clone());
        }
    }

    fn left(&self) -> Vec<Backend> {
        let place = self.place.read().unwrap_or_else(PoisonError::into_inner);
        place.left.clone()
    }

    /// Takes a connection in, and forgets the backends that have ended.
    fn put(&self, session: &Arc<Session>, is_left: impl FnMut(&Backend) -> bool) {
        let mut place = self.place.write().unwrap_or_else(PoisonError::into_inner);
        place.session = Some(Arc::clone(session));
        place.left.retain(is_left);
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
                    Failure::Unusable(_) | Failure::MayHaveWritten(_) => slot.leave(&session),
                    Failure::Refused { .. } => {}
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
