//! How a client's connection ends from this side: the gateway stops, or the client asks for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::inbound::Talk;

/// How long a client with no request may take to end its connection when the gateway stops. One that has
/// gone would keep it from stopping for all of its grace.
const FAREWELL: Duration = Duration::from_secs(3);

/// Asked at every turn of a connection.
pub(crate) struct Ending {
    stop: Stop,
    talk: Arc<Talk>,
    is_told: bool,
    /// There once the gateway stops.
    farewell: Option<Pin<Box<Sleep>>>,
}

impl Ending {
    pub(crate) fn new(stop: watch::Receiver<bool>, talk: Arc<Talk>) -> Self {
        Self {
            stop: Stop::new(stop),
            talk,
            is_told: false,
            farewell: None,
        }
    }

    /// Whether the client is to be told, at this turn, that its connection ends.
    pub(crate) fn begins(&mut self, context: &mut Context<'_>) -> bool {
        if self.farewell.is_none() && self.stop.has_come(context) {
            self.farewell = Some(Box::pin(tokio::time::sleep(FAREWELL)));
        }
        let ends = self.farewell.is_some() || self.talk.is_over();
        ends && !std::mem::replace(&mut self.is_told, true)
    }

    /// Whether it was told, and nobody is left to say anything to.
    pub(crate) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(farewell) = &mut self.farewell else {
            return false;
        };
        while farewell.as_mut().poll(context).is_ready() {
            if self.talk.is_quiet_for(FAREWELL) {
                return true;
            }
            farewell.as_mut().reset(Instant::now() + FAREWELL);
        }
        false
    }
}

/// Whether the gateway stops.
struct Stop {
    told: watch::Receiver<bool>,
    // Whatever else this task has done in its turn, it must be listening after it.
    listening: Pin<Box<dyn Future<Output = ()> + Send>>,
    listens: bool,
}

impl Stop {
    fn new(mut stop: watch::Receiver<bool>) -> Self {
        Self {
            told: stop.clone(),
            listening: Box::pin(tokio::task::unconstrained(async move {
                let _ = stop.wait_for(|stop| *stop).await;
            })),
            listens: false,
        }
    }

    /// Says so at every turn; no more once it has said so.
    fn has_come(&mut self, context: &mut Context<'_>) -> bool {
        // To listen once is enough: this task is woken by it, and whether it was can be seen for
        // less than it takes to listen again at every byte that comes.
        if self.listens && !self.told.has_changed().unwrap_or(true) {
            return false;
        }
        self.listens = true;
        self.listening.as_mut().poll(context).is_ready()
    }
}
