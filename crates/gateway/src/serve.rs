//! The running gateway: put together from its configuration, and taken down in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_admin::Stats;
use onlyonce_core::Secret;
use onlyonce_engine::{Engine, EngineBuilder, Observer, TokioRuntime};
use onlyonce_http::{IdempotencyLayer, ReplayCheck};
use onlyonce_store::{BoxStore, Store as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_layer::Layer;
use tower_service::Service;

use crate::admin::Admin;
use crate::auth_check::AuthCheck;
use crate::config::{Config, StoreUrl};
use crate::forward::Rewriting;
use crate::listener::{Listener, ListenerLimits};
use crate::logging::LogObserver;
use crate::observers::{CountedObservations, Observers};
use crate::principal::Callers;
use crate::proxy::Proxy;
use crate::request_id::RequestIds;
use crate::store::{self, Opened};
use crate::telemetry::{Prepared, Sending, Telemetry, Traced};
use crate::upstream::{Connector, Limits, Upstream};
use crate::{admin, principal, tls};

/// A gateway that accepts connections.
pub(crate) struct Gateway {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where operators connect.
    pub(crate) admin: SocketAddr,
    /// One line about each listener.
    pub(crate) announcements: Vec<String>,
    config: Config,
    engine: Engine<BoxStore>,
    stop: watch::Sender<bool>,
    tls: Option<watch::Sender<Arc<rustls::ServerConfig>>>,
    callers: Callers,
    listeners: Vec<JoinHandle<()>>,
    telemetry: Option<Sending>,
}

impl Gateway {
    /// Opens the store, binds the listeners and begins to serve. Nothing is served unless
    /// everything could be started.
    ///
    /// # Errors
    /// With the setting to change.
    pub(crate) async fn start(config: Config) -> Result<Self, String> {
        let Started {
            engine,
            stats,
            telemetry,
        } = engine(&config).await?;
        let upstream = Arc::new(upstream(&config)?);
        let rewriting = rewriting(&config)?;
        let callers = Callers::new(&config.principal).map_err(|error| error.to_string())?;
        let layer = layer(
            &config,
            engine.clone(),
            &stats,
            &upstream,
            &rewriting,
            &callers,
        );
        let tokens = matches!(config.top.store, StoreUrl::Postgres(_));
        let tokens = tokens.then(|| engine.policies().clone());
        let total_timeout = config.upstream.total_timeout;
        let proxy = Proxy::new(upstream, rewriting, total_timeout, tokens);
        let (stop, stopped) = watch::channel(false);
        let (reload, tls) = match tls::server(&config.tls)? {
            Some(server) => {
                let (reload, tls) = watch::channel(server);
                (Some(reload), Some(tls))
            }
            None => (None, None),
        };
        let grace = config.running.drain_grace;
        let front = bind("listen", config.top.listen, limits(&config), tls)?;
        let back = bind("admin", config.top.admin, limits(&config), None)?;
        let announcements = announce(&config, &front, &back)?;
        let (address, admin) = (local(&front)?, local(&back)?);
        let traces = telemetry.telemetry.clone();
        let service = layer.layer(Traced::new(proxy, traces.clone()));
        let ids = Arc::new(RequestIds::new());
        let answer = move |request| {
            let (ids, traces) = (Arc::clone(&ids), traces.clone());
            let mut service = service.clone();
            async move {
                traces
                    .serve(request, |request| {
                        ids.serve(request, |request| service.call(request))
                    })
                    .await
            }
        };
        let (seen, telemetry) = operators(&config, &engine, stats, telemetry)?;
        let listeners = vec![
            tokio::spawn(front.serve(answer, stopped.clone(), grace)),
            tokio::spawn(back.serve(
                move |request| admin::answer(Arc::clone(&seen), request),
                stopped,
                Duration::from_secs(1),
            )),
        ];
        Ok(Self {
            address,
            admin,
            announcements,
            config,
            engine,
            stop,
            tls: reload,
            callers,
            listeners,
            telemetry,
        })
    }

    /// Reads the certificates and the keys of tokens again. What was in force stays so when they
    /// are no good.
    pub(crate) fn reload(&self) {
        if principal::has_files(&self.config.principal) {
            match self.callers.reload(&self.config.principal) {
                Ok(()) => tracing::info!("keys of tokens reloaded"),
                Err(error) => {
                    tracing::error!(%error, "keys of tokens not reloaded; the old ones stay in force");
                }
            }
        }
        match (&self.tls, tls::server(&self.config.tls)) {
            (Some(reload), Ok(Some(server))) => {
                reload.send_replace(server);
                tracing::info!("certificates reloaded");
            }
            (Some(_), Err(error)) => {
                tracing::error!(%error, "certificates not reloaded; the old ones stay in force");
            }
            (None, _) | (_, Ok(None)) => tracing::info!("no certificates to reload"),
        }
    }

    /// Stops accepting, finishes what executes, settles the rest as unknown.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let unfinished = self.engine.drain(self.config.running.drain_grace).await;
        if unfinished > 0 {
            tracing::warn!(
                unfinished,
                "executions were cut off; their outcomes are unknown"
            );
        }
        for listener in self.listeners {
            // A listener ends after its grace; one that panicked has ended already.
            let _ = listener.await;
        }
        if let Some(telemetry) = self.telemetry {
            telemetry.stop().await;
        }
    }
}

/// What operators see, and what is sent to them.
type Operators = (Arc<Admin<BoxStore, TokioRuntime>>, Option<Sending>);

fn operators(
    config: &Config,
    engine: &Engine<BoxStore>,
    stats: Arc<Stats>,
    telemetry: Prepared,
) -> Result<Operators, String> {
    let queues = admin::count_queues(engine);
    let latest = queues.clone();
    let sending = telemetry.send(&config.telemetry, Box::new(move || *latest.borrow()))?;
    let seen = Admin {
        engine: engine.clone(),
        stats,
        queues,
    };
    Ok((Arc::new(seen), sending))
}

/// The engine, and those who are told what happens in it.
struct Started {
    engine: Engine<BoxStore>,
    stats: Arc<Stats>,
    telemetry: Prepared,
}

async fn engine(config: &Config) -> Result<Started, String> {
    let Opened { store, warnings } =
        store::open(&config.top.store, &config.embedded_options(), config.cache).await?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let stats = Stats::new(store.profile().name);
    for route in config.routes().iter() {
        stats.expect_route(&route.name);
    }
    let telemetry = Telemetry::prepare(&config.telemetry, &stats);
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(LogObserver), Box::new(stats.observer())];
    if let Some(spans) = telemetry.telemetry.observer() {
        observers.push(Box::new(spans));
    }
    let mut builder: EngineBuilder<BoxStore, TokioRuntime> = Engine::builder(store)
        .config(config.engine_config())
        .policies(config.routes().policies())
        .observer(Observers(observers));
    if let Some(ring) = config.keyring()? {
        builder = builder.keyring(ring);
    }
    let (secret, previous) = config.hashing_secrets()?;
    if let Some(secret) = secret {
        builder = builder.secret(Secret::new(secret));
    }
    if let Some(previous) = previous {
        builder = builder.previous_secret(Secret::new(previous));
    }
    let engine = builder.open().await;
    Ok(Started {
        engine: engine.map_err(|error| format!("store: {error}"))?,
        stats,
        telemetry,
    })
}

fn upstream(config: &Config) -> Result<Upstream, String> {
    let settings = &config.upstream;
    let https = settings.urls.iter().any(|url| url.https);
    let tls = https
        .then(|| tls::client(settings.ca_file.as_deref(), settings.http2))
        .transpose()?;
    let connectors = settings.urls.iter().map(|url| Connector {
        host: url.host().to_owned(),
        port: url.port(),
        tls: tls.clone().filter(|_| url.https),
        http2: settings.http2,
        timeout: settings.connect_timeout,
    });
    let limits = Limits {
        response_timeout: settings.response_timeout,
        idle_timeout: settings.idle_timeout,
        pool_idle_max: settings.pool_idle_max,
        pool_idle_timeout: settings.pool_idle_timeout,
        down_for: settings.health_interval,
    };
    Ok(Upstream::new(connectors.collect(), limits))
}

fn rewriting(config: &Config) -> Result<Rewriting, String> {
    let first = config.upstream.urls.first();
    let first = first.ok_or("upstream.urls is empty: give --upstream URL")?;
    Ok(Rewriting {
        forwarded: config.top.forwarded,
        host: config.upstream.host,
        authority: first.authority.clone(),
        trusted: config.top.trusted_proxies.clone(),
        http2: config.upstream.http2,
        https: first.https,
    })
}

fn layer(
    config: &Config,
    engine: Engine<BoxStore>,
    stats: &Arc<Stats>,
    upstream: &Arc<Upstream>,
    rewriting: &Rewriting,
    callers: &Callers,
) -> IdempotencyLayer<BoxStore> {
    let check = config.principal.auth_check.as_ref().map(|path| AuthCheck {
        upstream: Arc::clone(upstream),
        rewriting: rewriting.clone(),
        path: path.path_and_query(),
    });
    let settings = onlyonce_http::Config {
        routes: config.routes(),
        principals: Box::new(callers.clone()),
        replay_check: check.map(|check| Box::new(check) as Box<dyn ReplayCheck>),
        observations: Box::new(CountedObservations(Arc::clone(stats))),
        body_total_timeout: config.limits.body_total_timeout,
        ..onlyonce_http::Config::default()
    };
    IdempotencyLayer::new(engine, settings)
}

fn limits(config: &Config) -> ListenerLimits {
    ListenerLimits {
        connections: config.limits.connections,
        header_bytes: config.limits.header_bytes,
        header_timeout: config.limits.header_timeout,
        body_timeout: config.limits.body_timeout,
        idle_timeout: config.limits.idle_timeout,
    }
}

fn bind(
    what: &str,
    address: SocketAddr,
    limits: ListenerLimits,
    tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
) -> Result<Listener, String> {
    let bound = Listener::bind(address, limits, tls);
    bound.map_err(|error| format!("{what}: cannot listen on {address}: {error}"))
}

fn local(listener: &Listener) -> Result<SocketAddr, String> {
    listener.address().map_err(|error| error.to_string())
}

fn announce(config: &Config, front: &Listener, back: &Listener) -> Result<Vec<String>, String> {
    let upstreams: Vec<String> = config
        .upstream
        .urls
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(vec![
        format!(
            "onlyonce listens on {}://{} in front of {}, keys in {}",
            front.scheme(),
            local(front)?,
            upstreams.join(", "),
            config.top.store,
        ),
        format!(
            "onlyonce admin listens on {}://{}",
            back.scheme(),
            local(back)?
        ),
    ])
}
