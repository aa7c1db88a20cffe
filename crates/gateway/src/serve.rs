//! The running gateway: put together from its configuration, and taken down in order.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use onlyonce_admin::{Stats, Watch};
use onlyonce_core::Secret;
use onlyonce_engine::{Engine, EngineBuilder, EngineConfig, Observer, TokioRuntime};
use onlyonce_http::{Body, BoxError, IdempotencyLayer, ReplayCheck};
use onlyonce_store::{BoxStore, Store as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_layer::Layer;
use tower_service::Service;

use crate::admin::{Side, Watching};
use crate::auth_check::AuthCheck;
use crate::config::{Config, HostRule, StoreUrl};
use crate::forward::{Rewriting, strip_named};
use crate::listener::{Listener, ListenerLimits};
use crate::logging::LogObserver;
use crate::observers::{CountedObservations, Observers};
use crate::principal::Callers;
use crate::proxy::{self, Proxy, ProxyBody};
use crate::reconcile::{Counts, Names, Probes, Receiver};
use crate::request_id::{About, RequestIds};
use crate::store::{self, Opened};
use crate::telemetry::{Prepared, Sending, Telemetry, Traced, TracedRequest};
use crate::upstream::{Connector, Limits, Timed, Upstream};
use crate::workers::Workers;
use crate::{admin, handles, principal, tls};

/// An answer on its way.
type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body<ProxyBody>>, Infallible>> + Send>>;

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
    /// The admin listener stays until the last request is done.
    stop_admin: watch::Sender<bool>,
    side: Side,
    tls: Option<watch::Sender<Arc<rustls::ServerConfig>>>,
    callers: Callers,
    counts: Arc<Counts>,
    listeners: Vec<JoinHandle<()>>,
    telemetry: Option<Sending>,
    workers: Workers,
}

impl Gateway {
    /// Opens the store, binds the listeners and begins to serve. Nothing is served unless
    /// everything could be started.
    ///
    /// # Errors
    /// With the setting to change.
    pub(crate) async fn start(config: Config) -> Result<Self, String> {
        handles::raise(&config);
        let counts = Arc::new(Counts::default());
        let operators = admin::operators(&config.operators)?;
        let (engine, watching, telemetry) = Box::pin(engine(&config, &counts)).await?;
        let workers = workers(&config)?;
        let upstream = Arc::new(upstream(&config)?);
        let rewriting = rewriting(&config)?;
        let callers = Callers::new(&config.principal).map_err(|error| error.to_string())?;
        let layer = layer(
            &config,
            engine.clone(),
            &watching.stats,
            &upstream,
            &rewriting,
            &callers,
        );
        let side = admin::start(&config, &engine, watching, operators, &upstream);
        let proxy = proxy(&config, &engine, upstream, rewriting.clone());
        let (stop, stopped) = watch::channel(false);
        let (stop_admin, admin_stopped) = watch::channel(false);
        let grace = config.running.drain_grace;
        let bound = Bound::new(&config, &engine, &counts, &workers)?;
        let (address, admin) = bound.listeners.addresses()?;
        let traces = telemetry.telemetry.clone();
        let service = layer.layer(Traced::new(proxy, traces.clone()));
        let ids = Arc::new(RequestIds::new(&config.routes()));
        // What is awaited does not carry the request: it was handed on before.
        let answer = move |mut request: Request<_>| {
            strip_named(request.headers_mut());
            rewriting.forget_hearsay(&mut request);
            let traced = traces.begin(&mut request);
            let about = ids.name(&mut request);
            let answering: Answering = match proxy::refusal(&request) {
                Some(refused) => Box::pin(ready(Ok(refused.map(Body::streaming)))),
                None => service.clone().call(request),
            };
            let answering = About::answer(about, answering);
            TracedRequest::answer(traced, answering)
        };
        let telemetry = telemetry.send(&config.telemetry, side.queues())?;
        let stops = [stopped, admin_stopped];
        let (announcements, tls) = (bound.announcements, bound.reload);
        let listeners = bound.listeners.serve(answer, side.router(), stops, grace);
        Ok(Self {
            address,
            admin,
            announcements,
            config,
            engine,
            stop,
            stop_admin,
            side,
            tls,
            callers,
            counts,
            listeners,
            telemetry,
            workers,
        })
    }

    /// Reads the certificates, the keys of tokens and the operators' tokens again. What was in force
    /// stays so when they are no good.
    pub(crate) fn reload(&self) {
        if principal::has_files(&self.config.principal) {
            match self.callers.reload(&self.config.principal) {
                Ok(()) => tracing::info!("keys of tokens reloaded"),
                Err(error) => {
                    tracing::error!(%error, "keys of tokens not reloaded; the old ones stay in force");
                }
            }
        }
        self.side.reload(&self.config.operators);
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
        self.side.drain();
        self.stop.send_replace(true);
        let unfinished = self.engine.drain(self.config.running.drain_grace).await;
        if unfinished > 0 {
            tracing::warn!(
                unfinished,
                "executions were cut off; their outcomes are unknown"
            );
        }
        self.stop_admin.send_replace(true);
        for listener in self.listeners {
            // A listener ends after its grace; one that panicked has ended already.
            let _ = listener.await;
        }
        self.side.close().await;
        if let Some(telemetry) = self.telemetry {
            telemetry.stop().await;
        }
        let counts = self.counts.to_string();
        if !counts.is_empty() {
            tracing::info!(counts, "probes and webhooks");
        }
        // Last: a connection to the store may be one that a worker made.
        self.workers.stop().await;
    }
}

/// Everything that listens.
struct Listeners {
    front: Listener,
    back: Listener,
    hooks: Option<(Listener, Arc<Receiver>)>,
}

impl Listeners {
    /// Where clients and operators connect.
    fn addresses(&self) -> Result<(SocketAddr, SocketAddr), String> {
        Ok((local(&self.front)?, local(&self.back)?))
    }

    /// Begins to serve, until the first of these is true, and for operators the second one.
    fn serve<F, Fut, B>(
        self,
        answer: F,
        router: Router,
        [stopped, admin_stopped]: [watch::Receiver<bool>; 2],
        grace: Duration,
    ) -> Vec<JoinHandle<()>>
    where
        F: Fn(Request<Timed<Incoming>>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let operators = move |request| router.clone().call(request);
        let second = Duration::from_secs(1);
        let mut listeners = vec![
            tokio::spawn(self.front.serve(answer, stopped.clone(), grace)),
            tokio::spawn(self.back.serve(operators, admin_stopped, second)),
        ];
        if let Some((listener, receiver)) = self.hooks {
            let answer = move |request| Arc::clone(&receiver).answer(request);
            listeners.push(tokio::spawn(listener.serve(answer, stopped, grace)));
        }
        listeners
    }
}

/// What listens, and what is said of it.
struct Bound {
    listeners: Listeners,
    reload: Option<watch::Sender<Arc<rustls::ServerConfig>>>,
    announcements: Vec<String>,
}

impl Bound {
    fn new(
        config: &Config,
        engine: &Engine<BoxStore>,
        counts: &Arc<Counts>,
        workers: &Workers,
    ) -> Result<Self, String> {
        let (reload, tls) = match tls::server(&config.tls).map_err(|error| error.to_string())? {
            Some(server) => {
                let (reload, tls) = watch::channel(server);
                (Some(reload), Some(tls))
            }
            None => (None, None),
        };
        let front = bind("listen", config.top.listen, limits(config), tls)?;
        let front = front.among(workers.handles());
        let back = bind("admin", config.top.admin, limits(config), None)?;
        let hooks = webhooks(config, engine, counts)?;
        let mut announcements = announce(config, &front, &back)?;
        if let Some((listener, _)) = &hooks {
            let (scheme, address) = (listener.scheme(), local(listener)?);
            announcements.push(format!("onlyonce webhooks listen on {scheme}://{address}"));
        }
        Ok(Self {
            listeners: Listeners { front, back, hooks },
            reload,
            announcements,
        })
    }
}

/// The engine, and those who are told what happens in it.
type Started = (Engine<BoxStore>, Watching, Prepared);

async fn engine(config: &Config, counts: &Arc<Counts>) -> Result<Started, String> {
    let embedded = config.embedded_options();
    // Opening is large, and done once: it need not be part of everything that follows.
    let opening = Box::pin(store::open(&config.top.store, &embedded, &config.cache));
    let Opened { store, warnings } = opening.await?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let (watching, feed) = Watching::new(store.profile().name, warnings);
    for route in config.routes().iter() {
        watching.stats.expect_route(&route.name);
    }
    let telemetry = Telemetry::prepare(&config.telemetry, &watching.stats);
    let mut others: Vec<Box<dyn Observer>> = vec![Box::new(LogObserver)];
    if let Some(spans) = telemetry.telemetry.observer() {
        others.push(Box::new(spans));
    }
    let observer = Watch::new(Observers(others), Arc::clone(&watching.stats), feed);
    // What a request's worker executes stays with it, and mostly in its connection's own task.
    let runtime = TokioRuntime::current().following_callers();
    let limits = EngineConfig {
        callers_work: true,
        ..config.engine_config()
    };
    let mut builder = EngineBuilder::new(store, runtime)
        .config(limits)
        .policies(config.routes().policies())
        .observer(observer);
    if let Some(ring) = config.keyring()? {
        builder = builder.keyring(ring);
    }
    let (secret, previous) = config.hashing_secrets()?;
    let has_file = secret.is_some();
    if let Some(secret) = secret {
        builder = builder.secret(Secret::new(secret));
    }
    if let Some(previous) = previous {
        builder = builder.previous_secret(Secret::new(previous));
    }
    let (open, opened) = watch::channel(None);
    if let Some(probes) = Probes::new(config, Arc::clone(counts), opened)? {
        builder = builder.resolver(probes);
    }
    let engine = builder.open().await;
    let engine = engine.map_err(|error| store::refused(&error, has_file))?;
    open.send_replace(Some(engine.child_keys()));
    Ok((engine, watching, telemetry))
}

/// The webhooks' listener, where there is one.
fn webhooks(
    config: &Config,
    engine: &Engine<BoxStore>,
    counts: &Arc<Counts>,
) -> Result<Option<(Listener, Arc<Receiver>)>, String> {
    let Some(address) = config.webhook_listener.listen else {
        return Ok(None);
    };
    let receiver = Receiver::new(config, engine.clone(), Arc::clone(counts))?;
    let limits = ListenerLimits {
        connections: config.webhook_listener.connections,
        // One body at a time for each connection, of which there is a limit: nobody has signed it yet.
        http2: false,
        ..limits(config)
    };
    let listener = bind("webhooks.listen", address, limits, None)?;
    Ok(Some((listener, Arc::new(receiver))))
}

fn workers(config: &Config) -> Result<Workers, String> {
    let workers = Workers::start(config.limits.workers());
    workers.map_err(|error| format!("workers: cannot start a thread: {error}"))
}

fn upstream(config: &Config) -> Result<Upstream, String> {
    let settings = &config.upstream;
    let https = settings.urls.iter().any(|url| url.https);
    let tls = https
        .then(|| {
            tls::client(
                "upstream.ca_file",
                settings.ca_file.as_deref(),
                settings.http2,
            )
        })
        .transpose()
        .map_err(|error| error.to_string())?;
    let has_names = settings.host == HostRule::Rewrite && settings.urls.len() > 1;
    let connectors = settings.urls.iter().map(|url| Connector {
        name: has_names.then(|| url.authority.clone()),
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
        workers: config.limits.workers(),
        passing: config.limits.passing,
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

fn proxy(
    config: &Config,
    engine: &Engine<BoxStore>,
    upstream: Arc<Upstream>,
    rewriting: Rewriting,
) -> Proxy {
    let tokens = matches!(config.top.store, StoreUrl::Postgres(_));
    let tokens = tokens.then(|| engine.policies().clone());
    let total_timeout = config.upstream.total_timeout;
    let names = Names::new(config, engine.clone());
    Proxy::new(upstream, rewriting, total_timeout, tokens, names)
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
        bodies_bytes_max: config.limits.request_bodies,
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
        answer_timeout: config.limits.answer_timeout,
        http2: true,
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
