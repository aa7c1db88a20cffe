//! Room in memory for the bodies of requests.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room is given out in pieces of this size.
const PIECE_BYTES: usize = 1024;

/// The room for all bodies together.
#[derive(Debug)]
pub(crate) struct Rooms(Arc<Semaphore>);

impl Rooms {
    pub(crate) fn new(bytes: usize) -> Self {
        let pieces = bytes.div_ceil(PIECE_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(pieces)))
    }

    /// For one body, of which there is nothing yet.
    pub(crate) fn one(&self) -> Room {
        Room {
            all: Arc::clone(&self.0),
            held: None,
        }
    }
}

/// The room that one body takes, until this is dropped.
///
/// It grows with what has come. To set aside what a body says it will be would let anybody take all
/// the room there is with a few heads, and no bytes.
#[derive(Debug)]
pub(crate) struct Room {
    all: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Whether so many bytes have room now.
    pub(crate) fn holds(&mut self, bytes: usize) -> bool {
        let held = self.held.as_ref();
        let has = held.map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(PIECE_BYTES).saturating_sub(has);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        if more == 0 {
            return true;
        }
        let Ok(more) = Arc::clone(&self.all).try_acquire_many_owned(more) else {
            return false;
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that is allowed and never finds room would be told to come again for ever.
    #[test]
    fn all_the_room_there_is_holds_a_body_of_that_size() {
        for bytes in [1, 1000, 1024, 1025, 1_000_000, 1 << 20] {
            let rooms = Rooms::new(bytes);
            let mut whole = rooms.one();
            assert!(whole.holds(1) && whole.holds(bytes), "{bytes}");
            assert!(!rooms.one().holds(1), "{bytes}");
            drop(whole);
            assert!(rooms.one().holds(bytes), "{bytes}");
        }
    }
}
