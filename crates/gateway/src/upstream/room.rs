//! How many requests may be at the upstream at once that execute nothing.
//!
//! One HTTP/2 client may have hundreds of them open, and each may take a connection to the upstream.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;

/// Room for so many.
pub(crate) struct Rooms {
    free: Arc<Semaphore>,
    max: usize,
}

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
        }
    }

    pub(crate) fn take(&self) -> Result<Room, Failure> {
        let room = Arc::clone(&self.free).try_acquire_owned();
        let room = room.map_err(|_| Failure::Crowded(self.max))?;
        Ok(Room(Arc::new(room)))
    }
}
