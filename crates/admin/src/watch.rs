//! One event, several who want to know.

use std::fmt;
use std::sync::Arc;

use onlyonce_core::RouteName;
use onlyonce_engine::{Event, Observer};

use crate::{Feed, Stats};

/// Tells somebody else (a log, say), the numbers, and the journal. Notes of the operators' own are
/// nobody's keys: only the first hears of them.
pub struct Watch<O> {
    other: O,
    stats: Arc<Stats>,
    feed: Feed,
}

impl<O: Observer> Watch<O> {
    /// Tells these three.
    pub fn new(other: O, stats: Arc<Stats>, feed: Feed) -> Self {
        Self { other, stats, feed }
    }
}

impl<O: Observer> Observer for Watch<O> {
    fn observe(&self, event: &Event<'_>) {
        self.other.observe(event);
        if route(event).is_some_and(RouteName::is_reserved) {
            return;
        }
        self.stats.observe(event);
        if !self.feed.take(event) {
            self.stats.journal_dropped();
        }
    }
}

fn route<'a>(event: &Event<'a>) -> Option<&'a RouteName> {
    match event {
        Event::Claimed { route, .. }
        | Event::Settled { route, .. }
        | Event::NotSettled { route, .. }
        | Event::LeaseLost { route, .. }
        | Event::BecameUnknown { route, .. }
        | Event::Swept { route, .. }
        | Event::Reconciled { route, .. }
        | Event::Resolved { route, .. } => Some(route),
        Event::StoreFailed { .. } => None,
    }
}

impl<O> fmt::Debug for Watch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch(..)")
    }
}
