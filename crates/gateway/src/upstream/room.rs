//! How many requests may be at the upstream at once that execute nothing.
//!
//! One HTTP/2 client may have hundreds of them open, and each may take a connection to the upstream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::failure::Failure;
use super::lock;

/// Room for so many.
pub(crate) struct Rooms {
    free: Arc<Semaphore>,
    max: usize,
    /// Not for every request that is refused: anybody can make the log as long as they like.
    told: Mutex<Option<Instant>>,
}

/// The shortest time between two lines of the log about it.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The room of one request. Kept with its own body as well as with its answer's: whichever goes on for
/// longer keeps a connection.
#[derive(Clone)]
pub(crate) struct Room(#[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

impl Rooms {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(max)),
            max,
            told: Mutex::default(),
        }
    }

    pub(crate) fn take(&self) -> Result<Room, Failure> {
        let room = Arc::clone(&self.free).try_acquire_owned();
        let room = room.map_err(|_| self.refuse())?;
        Ok(Room(Arc::new(room)))
    }

    fn refuse(&self) -> Failure {
        let (mut told, now) = (lock(&self.told), Instant::now());
        if told.is_none_or(|told| now - told >= TOLD_EVERY) {
            *told = Some(now);
            let max = self.max;
            tracing::warn!(
                max,
                "requests are refused with 503: limits.passing is reached"
            );
        }
        Failure::Crowded(self.max)
    }
}
