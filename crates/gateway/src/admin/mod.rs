//! The admin listener: what `onlyonce_admin` needs to know about this gateway.

mod finder;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use onlyonce_admin::{
    Admin, AdminOptions, Counting, Events, Feed, Operators, QueueCounts, Stats, UpstreamHealth,
    feed,
};
use onlyonce_engine::Engine;
use onlyonce_store::BoxStore;

use crate::config::{self, Config};
use crate::upstream::Upstream;
use finder::Routed;

/// What is there before the engine is, because the engine tells it everything.
pub(crate) struct Watching {
    pub(crate) stats: Arc<Stats>,
    pub(crate) events: Events,
    /// What the store's operator should know.
    pub(crate) store_warnings: Vec<String>,
}

impl Watching {
    pub(crate) fn new(store: &'static str, store_warnings: Vec<String>) -> (Self, Feed) {
        let (feed, events) = feed();
        let watching = Self {
            stats: Stats::new(store),
            events,
            store_warnings,
        };
        (watching, feed)
    }
}

/// Everybody who may ask.
///
/// # Errors
/// When there are no tokens in the file.
pub(crate) fn operators(operators: &config::Operators) -> Result<Operators, String> {
    match &operators.tokens_file {
        None => Ok(Operators::local()),
        Some(file) => {
            let read = Operators::from_tokens(&tokens(file)?);
            read.map_err(|error| format!("operators.tokens_file: {}, {error}", file.display()))
        }
    }
}

fn tokens(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file)
        .map_err(|error| format!("operators.tokens_file: {}: {error}", file.display()))
}

/// The admin side of a gateway.
pub(crate) struct Side {
    api: Admin,
    operators: Operators,
    draining: Arc<AtomicBool>,
}

impl Side {
    /// Its routes.
    pub(crate) fn router(&self) -> Router {
        self.api.router()
    }

    /// How many keys wait, for whoever wants to tell others.
    pub(crate) fn queues(&self) -> Box<dyn Fn() -> QueueCounts + Send + Sync> {
        let ask = self.api.queue_counts();
        Box::new(ask)
    }

    /// Reads the tokens again. Those in force stay so when the file is no good.
    pub(crate) fn reload(&self, config: &config::Operators) {
        let Some(file) = &config.tokens_file else {
            return;
        };
        let replaced = tokens(file).and_then(|text| {
            let replaced = self.operators.replace(&text);
            replaced.map_err(|error| format!("{}, {error}", file.display()))
        });
        match replaced {
            Ok(()) => tracing::info!("operators' tokens reloaded"),
            Err(error) => {
                tracing::error!(%error, "operators' tokens not reloaded; the old ones stay in force");
            }
        }
    }

    /// From now on this instance is not ready.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Writes what is left to write.
    pub(crate) async fn close(self) {
        self.api.close().await;
    }
}

/// Writes to the log when keys can no longer be counted, and when they can again.
fn log_counting(counting: &Counting) {
    match counting {
        Counting::Works => tracing::info!("keys are counted again"),
        Counting::Slow => tracing::warn!(
            "the store takes too long to list its keys: their counts stay as they were"
        ),
        Counting::Fails(error) => {
            tracing::error!(%error, "the store cannot be read: counts of keys stay as they were");
        }
    }
}

/// Puts the admin side together.
pub(crate) fn start(
    config: &Config,
    engine: &Engine<BoxStore>,
    watching: Watching,
    operators: Operators,
    upstream: &Arc<Upstream>,
) -> Side {
    let mut options = AdminOptions::new(operators.clone(), watching.stats);
    options.events = Some(watching.events);
    options.audit_retention = config.operators.audit_retention;
    options.version = env!("CARGO_PKG_VERSION");
    options.store_warnings = watching.store_warnings;
    options.config_toml = config.to_toml();
    options.counting = Box::new(log_counting);
    options.finder = Some(Box::new(Routed::new(config, engine.clone())));
    let draining = Arc::clone(&options.draining);
    let urls: Vec<_> = config
        .upstream
        .urls
        .iter()
        .map(ToString::to_string)
        .collect();
    let upstream = Arc::clone(upstream);
    options.upstreams = Box::new(move || {
        let addresses = urls.iter().zip(upstream.errors());
        let health = addresses.map(|(url, error)| UpstreamHealth {
            url: url.clone(),
            healthy: error.is_none(),
            error,
        });
        health.collect()
    });
    Side {
        api: Admin::new(engine, options),
        operators,
        draining,
    }
}
