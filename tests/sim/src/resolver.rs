//! Who asks the upstream about unknown outcomes: truthful, slow, and sometimes of no use.

use std::future::Future;
use std::pin::Pin;

use onlyonce_core::{Record, RecordId, Response, Verdict};
use onlyonce_engine::{Event, Observer, Resolver};

use crate::bugs::Bug;
use crate::faults::Fault;
use crate::shape::Shape;
use crate::upstream::response;
use crate::world::{Sim, World};

/// Asks the witness.
pub(crate) struct SimResolver(pub(crate) Sim);

impl Resolver for SimResolver {
    fn resolve<'a>(
        &'a self,
        id: &'a RecordId,
        record: &'a Record,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(async move {
            let (before_ms, after_ms) = self.0.world().resolver_delays();
            if before_ms > 0 {
                self.0.sleep(before_ms).await;
            }
            let verdict = self.0.world().verdict(id, record);
            let Some(verdict) = verdict else {
                std::panic::resume_unwind(Box::new("planned"));
            };
            // What it says may be old by the time that it is acted upon.
            if after_ms > 0 {
                self.0.sleep(after_ms).await;
            }
            verdict
        })
    }
}

impl World {
    fn resolver_delays(&mut self) -> (u64, u64) {
        if self.quiet {
            return (0, 0);
        }
        let mut delay = || {
            if self.rng.once_in(4) {
                self.rng.below(900)
            } else {
                0
            }
        };
        (delay(), delay())
    }

    /// What the witness knows; `None` for a panic.
    fn verdict(&mut self, id: &RecordId, record: &Record) -> Option<Verdict> {
        if !self.quiet {
            match self.rng.below(16) {
                0 => {
                    self.fault(Fault::ResolverPanic);
                    return None;
                }
                1..4 => {
                    self.fault(Fault::ResolverPending);
                    return Some(Verdict::Pending);
                }
                _ => {}
            }
        }
        let operation = self.shape.operation(id)?;
        let found = self.witness.find(id, record).cloned();
        if found.is_none() && self.bug == Some(Bug::LyingResolver) {
            let payload = Shape::payload(record.fingerprint);
            let invented = response(operation, payload, 200, 0);
            return Some(Verdict::Completed(Response::Plain(invented)));
        }
        Some(found.map_or(Verdict::NotFound, |found| {
            Verdict::Completed(Response::Plain(found))
        }))
    }
}

/// Counts what the engine tells.
pub(crate) struct SimObserver(pub(crate) Sim);

impl Observer for SimObserver {
    fn observe(&self, event: &Event<'_>) {
        let mut world = self.0.world();
        let decision = match event {
            Event::Claimed { decision, .. }
            | Event::Settled { decision, .. }
            | Event::Swept { decision, .. }
            | Event::Reconciled { decision, .. } => *decision,
            Event::LeaseLost { .. } => {
                world.counts.lease_lost += 1;
                return;
            }
            Event::NotSettled { .. } => {
                world.counts.not_settled += 1;
                return;
            }
            Event::BecameUnknown { reason, .. } => {
                world.counts.unknown(*reason);
                return;
            }
            // The operator counts what it is told.
            Event::Resolved { .. } | Event::StoreFailed { .. } => return,
        };
        world.counts.decision(decision);
        world.note(decision as u64, || format!("{event:?}"));
    }
}
