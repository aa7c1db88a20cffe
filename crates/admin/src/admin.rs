//! The admin API, put together.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use axum::Router;
use onlyonce_engine::Engine;
use onlyonce_store::{ListStore, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::journal::{Events, Journal, RETENTION};
use crate::queues::{CountingObserver, QueueCounts, Queues};
use crate::{Finder, Operators, Stats, UpstreamHealth, routes};

/// How long what waits for the journal may take to be written at the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// What the admin API is made with.
pub struct AdminOptions {
    /// Who may ask.
    pub operators: Operators,
    /// What happened since the start.
    pub stats: Arc<Stats>,
    /// The rare events, for the journal: the other end of the engine's observer. Without, the
    /// journal has operators' changes only.
    pub events: Option<Events>,
    /// How long entries of the journal are kept, from the end of their period on. Default: 90
    /// days.
    pub audit_retention: Duration,
    /// The version of the program.
    pub version: &'static str,
    /// What the store's operator should know about it.
    pub store_warnings: Vec<String>,
    /// The configuration in force, without secrets.
    pub config_toml: String,
    /// How the upstreams are.
    pub upstreams: Box<dyn Fn() -> Vec<UpstreamHealth> + Send + Sync>,
    /// Told when counting keys begins to fail or to take too long, and when it works again.
    pub counting: CountingObserver,
    /// From a client's key to its records.
    pub finder: Option<Box<dyn Finder>>,
    /// Set when this instance is about to end: it is not ready any more.
    pub draining: Arc<AtomicBool>,
}

impl AdminOptions {
    /// With nothing known beyond these two.
    #[must_use]
    pub fn new(operators: Operators, stats: Arc<Stats>) -> Self {
        Self {
            operators,
            stats,
            events: None,
            audit_retention: RETENTION,
            version: env!("CARGO_PKG_VERSION"),
            store_warnings: Vec::new(),
            config_toml: String::new(),
            upstreams: Box::new(Vec::new),
            counting: Box::new(|_| ()),
            finder: None,
            draining: Arc::default(),
        }
    }
}

impl fmt::Debug for AdminOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminOptions")
            .field("operators", &self.operators)
            .field("audit_retention", &self.audit_retention)
            .finish_non_exhaustive()
    }
}

/// What all requests share.
pub(crate) struct Shared<S> {
    pub(crate) engine: Engine<S>,
    pub(crate) options: AdminOptions,
    pub(crate) journal: Journal<S>,
    pub(crate) queues: Arc<Queues>,
    /// Random, to tell instances apart.
    pub(crate) instance: String,
    pub(crate) started_at_ms: u64,
    /// Requests that came without a good token, or from elsewhere.
    pub(crate) refused_callers: AtomicU64,
    /// Changes that were refused: stale, in flight, not allowed.
    pub(crate) refused_changes: AtomicU64,
    /// Events that are not in the journal.
    pub(crate) journal_lost: Arc<AtomicU64>,
}

/// The admin API of one engine, with its background work. Dropping it ends that work at once.
pub struct Admin {
    router: Router,
    queues: Arc<Queues>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Admin {
    /// Puts it together, and starts counting and writing the journal.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new<S: Store + ListStore>(engine: &Engine<S>, mut options: AdminOptions) -> Self {
        let (stop, stopped) = watch::channel(false);
        let events = options.events.take();
        let in_hand = events.as_ref().map(|events| Arc::clone(&events.in_hand));
        let journal_lost = events.as_ref().map(Events::lost).unwrap_or_default();
        let retention = options.audit_retention;
        let journal = Journal::new(engine.clone(), retention, in_hand.unwrap_or_default());
        let queues = Arc::new(Queues::default());
        let observer = std::mem::replace(&mut options.counting, Box::new(|_| ()));
        let counting = Arc::clone(&queues);
        let counting = counting.keep_counting(engine.clone(), observer, stopped.clone());
        let mut tasks = vec![tokio::spawn(counting)];
        tasks.extend(events.map(|events| {
            let stats = Arc::clone(&options.stats);
            tokio::spawn(events.write(journal.clone(), stats, stopped))
        }));
        let instance = engine.entropy::<8>().map(|byte| format!("{byte:02x}"));
        let shared = Arc::new(Shared {
            started_at_ms: engine.now().as_millis(),
            engine: engine.clone(),
            options,
            journal,
            queues: Arc::clone(&queues),
            instance: instance.concat(),
            refused_callers: AtomicU64::new(0),
            refused_changes: AtomicU64::new(0),
            journal_lost,
        });
        Self {
            router: routes::router(shared),
            queues,
            stop,
            tasks,
        }
    }

    /// The routes, to be served or mounted.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Tells how many keys wait, as counted last, and has them counted again.
    pub fn queue_counts(&self) -> impl Fn() -> QueueCounts + Send + Sync + 'static {
        let queues = Arc::clone(&self.queues);
        move || queues.ask()
    }

    /// Writes what waits for the journal, for a while, and ends the background work.
    pub async fn close(mut self) {
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut self.tasks);
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        let ended = futures_util::future::join_all(tasks);
        if tokio::time::timeout(CLOSE_PATIENCE, ended).await.is_err() {
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin(..)")
    }
}
