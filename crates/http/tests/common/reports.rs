//! What the layer reports about requests that it let through.

use std::sync::{Arc, Mutex};

use onlyonce_http::{Config, Observation, Observations};

use super::until;

/// What was reported, as text.
#[derive(Clone, Default)]
pub struct Reports(Arc<Mutex<Vec<String>>>);

impl Observations for Reports {
    fn observe(&self, observation: &Observation<'_>) {
        self.0.lock().unwrap().push(match observation {
            Observation::Unprotected { .. } => "unprotected".into(),
            Observation::WouldExecute { .. } => "would execute".into(),
            Observation::WouldReplay { .. } => "would replay".into(),
            Observation::WouldRefuse { code, .. } => format!("would refuse: {}", code.as_str()),
            Observation::WouldBeUnknown { caller_left, .. } => {
                let left = if *caller_left {
                    ", as the caller left"
                } else {
                    ""
                };
                format!("would be unknown{left}")
            }
        });
    }
}

impl Reports {
    /// Whether everything that was reported was read.
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    pub async fn next(&self) -> String {
        until(|| !self.is_empty()).await;
        self.0.lock().unwrap().remove(0)
    }
}

pub fn reported(config: Config) -> (Config, Reports) {
    let reports = Reports::default();
    let observations = Box::new(reports.clone());
    (
        Config {
            observations,
            ..config
        },
        reports,
    )
}
