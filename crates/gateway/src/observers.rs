//! One event, several who want to know.

use std::sync::Arc;

use onlyonce_admin::Stats;
use onlyonce_admin::stats::Would;
use onlyonce_engine::{Event, Observer};
use onlyonce_http::{Observation, Observations};

use crate::logging::LogObservations;

/// Tells each of them, in order.
pub(crate) struct Observers(pub(crate) Vec<Box<dyn Observer>>);

impl Observer for Observers {
    fn observe(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.observe(event);
        }
    }
}

/// Logs and counts what was let through.
pub(crate) struct CountedObservations(pub(crate) Arc<Stats>);

impl Observations for CountedObservations {
    fn observe(&self, observation: &Observation<'_>) {
        LogObservations.observe(observation);
        match observation {
            Observation::Unprotected { route } => self.0.unprotected(route),
            Observation::WouldExecute { route } => self.0.would(route, Would::Execute),
            Observation::WouldReplay { route } => self.0.would(route, Would::Replay),
            Observation::WouldRefuse { route, .. } => self.0.would(route, Would::Refuse),
            Observation::WouldBeUnknown { route, .. } => self.0.would(route, Would::Unknown),
        }
    }
}
