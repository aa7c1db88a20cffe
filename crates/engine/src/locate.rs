//! Under which of its two ids a key lives, while the hashing secret changes.
//!
//! A store decides between writers of one id, and of nothing else. So the old id is put out of use
//! before the new one is used, and whatever appears there later is passed over.

use onlyonce_core::{Command, Next, RecordId, State, Timestamp};
use onlyonce_store::{Row, Store, Swap};

use crate::engine::Inner;
use crate::{EngineError, Event, Request, Runtime};

/// A request that knows where its record is.
pub(crate) struct Located {
    pub(crate) request: Request,
    /// Its record is under the previous secret.
    pub(crate) is_previous: bool,
}

impl Located {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            is_previous: false,
        }
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    /// A key claimed under the previous secret stays under it until it is forgotten. Once it lives under
    /// the new one it stays there: the old id was put out of use before, and what appears there is a
    /// claim that was given up before the change and written long after.
    pub(crate) async fn locate(&self, located: &mut Located) -> Result<(), EngineError> {
        if let Some(previous) = located.request.previous.take()
            && self.lives_under(&previous.id).await?
        {
            let newer = self.load(&located.request.identity.id).await?;
            if newer.is_none_or(|row| is_forgotten(&row, self.now())) {
                located.request.identity = previous;
                located.is_previous = true;
            }
        }
        Ok(())
    }

    /// Whether a key lives under its previous id. If not, no retry can bring it to life there any more:
    /// one that was on its way there when the key was forgotten would win otherwise, and execute beside
    /// a life under the new id.
    async fn lives_under(&self, previous: &RecordId) -> Result<bool, EngineError> {
        // A row there that cannot be read must not be passed over, so its error ends this.
        let mut seen = self.load(previous).await?;
        let mut unsure = None;
        for _ in 0..self.config.rounds_max {
            let Some(row) = seen else {
                return Ok(false);
            };
            let now = self.now();
            if !is_forgotten(&row, now) {
                return Ok(true);
            }
            let (decision, next) = self.decide_at(&Command::Sweep, Some(&row), now);
            let next = match next {
                Next::Remove => None,
                Next::Put(expired) => Some(expired),
                // Kept for audit, and never claimed there: see `apply_until`.
                Next::Keep => return Ok(false),
            };
            let swapped = self.swap(previous, Some(row.version), next.as_deref());
            seen = match swapped.await {
                Ok(Swap::Won(_)) => {
                    self.observer.observe(&Event::Swept {
                        id: previous,
                        route: &row.record.route,
                        decision,
                    });
                    return Ok(false);
                }
                Ok(Swap::Lost(row)) => row,
                Err(error) if error.may_have_written() => {
                    unsure = Some(error);
                    self.load(previous).await?
                }
                Err(error) => return Err(error.into()),
            };
        }
        Err(unsure.map_or(EngineError::Contended, EngineError::from))
    }
}

/// Whether a claim on this row would begin a new life.
pub(crate) fn is_forgotten(row: &Row, now: Timestamp) -> bool {
    match row.record.state {
        State::Completed { expires_at, .. } | State::Released { expires_at } => {
            expires_at.has_passed(now)
        }
        State::Expired { .. } => true,
        State::Executing { .. } | State::Unknown { .. } | State::DeadLetter { .. } => false,
    }
}
