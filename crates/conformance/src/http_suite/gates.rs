//! Gates that hold an upstream's work until a test opens them: no test has to sleep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// Named gates, closed until opened.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<String, Arc<Gate>>>);

#[derive(Debug, Default)]
struct Gate {
    arrived: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gates {
    fn gate(&self, name: &str) -> Arc<Gate> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(name.to_owned()).or_default())
    }

    /// Waits at a gate until it is open.
    pub(super) async fn pass(&self, name: &str) {
        let gate = self.gate(name);
        gate.arrived.send_modify(|arrived| *arrived += 1);
        let mut open = gate.open.subscribe();
        // Fails only without a sender, and the sender is here.
        let _ = open.wait_for(|open| *open).await;
    }

    /// Opens a gate, for good.
    pub(super) fn open(&self, name: &str) {
        self.gate(name).open.send_replace(true);
    }

    /// Waits until somebody has come to a gate.
    pub(super) async fn arrived(&self, name: &str) {
        let gate = self.gate(name);
        let mut arrived = gate.arrived.subscribe();
        let _ = arrived.wait_for(|arrived| *arrived > 0).await;
    }
}
