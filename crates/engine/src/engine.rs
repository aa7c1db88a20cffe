//! The engine and how it is put together.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use onlyonce_core::{
    Command, Decision, Fence, Keyring, Policy, PrincipalDigest, Record, RecordId, Resolution,
    Response, RouteName, Secret, Timestamp, Verdict,
};
use onlyonce_store::{Store, StoreError, Version};
use tokio::sync::Semaphore;

use crate::apply::Start;
use crate::clock::ClockEstimate;
use crate::estranged::Estranged;
use crate::event::Contained;
use crate::marks::{Opening, Origin};
use crate::retired::Retired;
use crate::sweep::{self, Said};
use crate::tasks::Tasks;
use crate::turns::Turns;
use crate::unreadable::Unreadable;
use crate::waiting::Waiting;
use crate::{
    ChildKeys, EngineConfig, EngineError, Event, NoResolver, Observer, Resolver, Runtime, Source,
    TokioRuntime,
};

/// The policies of all routes.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    default: Arc<Policy>,
    by_route: BTreeMap<RouteName, Arc<Policy>>,
}

impl Policies {
    /// One policy for every route that has none of its own.
    #[must_use]
    pub fn new(default: Policy) -> Self {
        Self {
            default: Arc::new(default),
            by_route: BTreeMap::new(),
        }
    }

    /// A route with a policy of its own.
    #[must_use]
    pub fn route(mut self, route: &RouteName, policy: Policy) -> Self {
        self.by_route.insert(route.clone(), Arc::new(policy));
        self
    }

    /// The policy of a route. A row of a route that is no longer configured gets the default.
    #[must_use]
    pub fn of(&self, route: &RouteName) -> &Arc<Policy> {
        self.by_route.get(route).unwrap_or(&self.default)
    }

    /// How long a settled key is kept at most.
    pub(crate) fn retention_max(&self) -> Duration {
        let all = self.by_route.values().map(|policy| policy.retention());
        all.fold(self.default.retention(), Duration::max)
    }

    pub(crate) fn default_policy(&self) -> &Policy {
        &self.default
    }
}

/// Runs work once per key over a store. Clones share everything.
pub struct Engine<S, R = TokioRuntime> {
    pub(crate) inner: Arc<Inner<S, R>>,
}

pub(crate) struct Inner<S, R> {
    pub(crate) store: S,
    pub(crate) runtime: R,
    pub(crate) config: EngineConfig,
    pub(crate) policies: Policies,
    pub(crate) secret: Secret,
    pub(crate) previous_secret: Option<Secret>,
    pub(crate) retired: Option<Retired>,
    pub(crate) estranged: Estranged,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) observer: Box<dyn Observer>,
    pub(crate) resolver: Box<dyn Resolver>,
    pub(crate) clock: ClockEstimate,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) turns: Turns,
    pub(crate) unreadable: Unreadable,
    /// A place for each claim whose late writes are looked for: as many as there may be executions.
    pub(crate) late_looks: Semaphore,
}

impl<S: Store> Engine<S> {
    /// An engine on the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn builder(store: S) -> EngineBuilder<S> {
        EngineBuilder::new(store, TokioRuntime::current())
    }
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// The store's time, as well as it is known.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.now()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    /// The policies of all routes.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.inner.policies
    }

    /// The record under an id, as it is stored.
    ///
    /// # Errors
    /// When the store fails or the row cannot be read.
    pub async fn inspect(&self, id: &RecordId) -> Result<Option<Record>, EngineError> {
        Ok(self.inner.load(id).await?.map(|row| *row.record))
    }

    /// Whether a record's principal is this one, under the secret in force or the previous one.
    #[must_use]
    pub fn is_principal(&self, digest: PrincipalDigest, principal: &[u8]) -> bool {
        let secrets = std::iter::once(&self.inner.secret).chain(&self.inner.previous_secret);
        let mut digests = secrets.map(|secret| PrincipalDigest::new(secret, principal));
        digests.any(|own| own == digest)
    }

    /// Unpredictable bytes, from where the engine takes its own.
    #[must_use]
    pub fn entropy<const N: usize>(&self) -> [u8; N] {
        self.inner.runtime.entropy()
    }

    /// Waits, by the clock that the engine waits by.
    pub async fn sleep(&self, duration: Duration) {
        self.inner.runtime.sleep(duration).await;
    }

    /// Starts a task where the engine starts its own.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.runtime.spawn(task);
    }

    /// Carries out a person's decision about a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn resolve(
        &self,
        id: &RecordId,
        fence: Fence,
        resolution: Resolution,
    ) -> Result<Decision, EngineError> {
        let resolution = match resolution {
            Resolution::Completed(Response::Plain(response)) => {
                Resolution::Completed(self.inner.seal(id, fence, &response)?)
            }
            other @ (Resolution::Completed(_)
            | Resolution::Released
            | Resolution::Forget
            | Resolution::AskAgain) => other,
        };
        let name = resolution.as_str();
        let row = self.inner.load(id).await?;
        let route = row.as_ref().map(|row| row.record.route.clone());
        let command = Command::Resolve { fence, resolution };
        let start = Start::Seen(row);
        let applied = self.inner.apply(id, &command, start).await;
        self.inner.waiting.wake(id);
        let applied = applied?;
        self.inner.observer.observe(&Event::Resolved {
            id,
            route: &route.unwrap_or_default(),
            resolution: name,
            decision: applied.decision,
        });
        Ok(applied.decision)
    }

    /// Forgets a key whose row cannot be read, as a person decided who saw this version of it. The next
    /// request with the key executes, whatever became of the one before.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forget_unreadable(
        &self,
        id: &RecordId,
        version: Version,
    ) -> Result<Decision, EngineError> {
        let decision = self.inner.remove_unreadable(id, version).await?;
        self.inner.observer.observe(&Event::Resolved {
            id,
            route: &RouteName::default(),
            resolution: Resolution::Forget.as_str(),
            decision,
        });
        Ok(decision)
    }

    /// Takes the upstream's own word about an execution, given without being asked: a webhook.
    /// `said_at` is when it was given; it says nothing about what came after.
    ///
    /// # Errors
    /// When the store fails, or a response cannot be encrypted.
    pub async fn reconcile(
        &self,
        id: &RecordId,
        fence: Fence,
        said_at: Timestamp,
        verdict: Verdict,
    ) -> Result<Decision, EngineError> {
        let row = self.inner.load(id).await?;
        let said = Said {
            source: Source::Told,
            at: said_at,
            verdict,
        };
        self.inner.take_word(id, fence, said, row).await
    }

    /// The key that an execution gave a downstream call ([`Execution::child_key`]), when only its
    /// record is left. `None` while a previous secret is configured: which of the two the
    /// execution used cannot be told, and a wrong key would find nothing.
    ///
    /// [`Execution::child_key`]: crate::Execution::child_key
    #[must_use]
    pub fn child_key(&self, id: &RecordId, record: &Record, name: &str) -> Option<String> {
        self.child_keys().of(id, record.created_at, name)
    }

    /// The same for whoever must not hold the engine, such as its own resolver.
    #[must_use]
    pub fn child_keys(&self) -> ChildKeys {
        let rotating = self.inner.previous_secret.is_some();
        let secret = (!rotating).then(|| self.inner.secret.clone());
        ChildKeys { secret }
    }

    /// Stops granting executions, lets the running ones finish for up to `grace`, then settles
    /// the rest as unknown. Gives the number of those. Replays are answered throughout.
    pub async fn drain(&self, grace: Duration) -> usize {
        let tasks = &self.inner.tasks;
        tasks.stop_granting();
        self.inner.within(grace, tasks.idle()).await;
        let unfinished = tasks.abort();
        let patience = self.inner.config.settle_patience;
        self.inner.within(patience, tasks.idle()).await;
        unfinished
    }
}

impl<S: Store, R: Runtime> Inner<S, R> {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.at(self.runtime.elapsed())
    }

    /// The policy that a command is decided by: the claim's route, or else the row's.
    pub(crate) fn policy_for(&self, command: &Command, record: Option<&Record>) -> &Policy {
        if let Command::Claim(claim) = command {
            return self.policies.of(&claim.route);
        }
        record.map_or(self.policies.default_policy(), |record| {
            self.policies.of(&record.route)
        })
    }
}

impl<S, R> Clone for Engine<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<S: Store, R> fmt::Debug for Engine<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.inner.store.profile().name)
    }
}

/// Collects what an engine needs; [`open`](Self::open) asks the store for the rest.
#[must_use]
pub struct EngineBuilder<S, R = TokioRuntime> {
    store: S,
    runtime: R,
    config: EngineConfig,
    policies: Policies,
    secret: Option<Secret>,
    previous_secret: Option<Secret>,
    keyring: Option<Keyring>,
    observer: Box<dyn Observer>,
    resolver: Box<dyn Resolver>,
    background: bool,
}

impl<S: Store, R: Runtime> EngineBuilder<S, R> {
    /// An engine on a runtime of the caller's.
    pub fn new(store: S, runtime: R) -> Self {
        Self {
            store,
            runtime,
            config: EngineConfig::default(),
            policies: Policies::default(),
            secret: None,
            previous_secret: None,
            keyring: None,
            observer: Box::new(()),
            resolver: Box::new(NoResolver),
            background: true,
        }
    }

    /// Limits and intervals.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// The policies of all routes. Default: the default policy for each.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.policies = policies;
        self
    }

    /// The hashing secret, instead of the one kept in the store.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The secret before the current one: keys claimed under it are still found. Every instance
    /// must have the new secret before the first key is claimed under it.
    pub fn previous_secret(mut self, secret: Secret) -> Self {
        self.previous_secret = Some(secret);
        self
    }

    /// Encrypts stored responses.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// Who is told what happens.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Box::new(Contained(observer));
        self
    }

    /// Who can tell whether an unknown effect happened.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Box::new(resolver);
        self
    }

    /// Leaves sweeping to the caller ([`Engine::sweep`]). Without sweeping, crashed executions
    /// are noticed only when their key is asked for, and nothing is ever purged.
    pub fn without_background(mut self) -> Self {
        self.background = false;
        self
    }

    /// Asks the store for its time and secret, and starts sweeping.
    ///
    /// # Errors
    /// When the store fails, or its keys were made with a secret that was not given: under another
    /// one they would not be found, and their retries would execute again.
    pub async fn open(self) -> Result<Engine<S, R>, EngineError> {
        let runtime = self.runtime;
        let config = EngineConfig {
            sweep_concurrency: self.config.sweep_concurrency.max(1),
            sweep_batch: self.config.sweep_batch.max(1),
            probes_max: self.config.probes_max.clamp(1, Semaphore::MAX_PERMITS),
            rounds_max: self.config.rounds_max.max(1),
            ..self.config
        };
        let previous = self.previous_secret;
        let asking = async {
            let now = self.store.now().await?;
            let (secret, origin) = match self.secret {
                Some(secret) => (secret, Origin::Given),
                None => Origin::ask(&self.store, runtime.entropy()).await?,
            };
            let opening = Opening {
                current: &secret,
                previous: previous.as_ref(),
                origin,
                now,
                retention: self.policies.retention_max(),
                rounds_max: config.rounds_max,
            };
            let marks = opening.check(&self.store).await?;
            Ok::<_, EngineError>((now, secret, marks))
        };
        let answer = match select(pin!(asking), pin!(runtime.sleep(config.store_timeout))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(StoreError::unavailable("no answer when it was opened").into()),
        };
        let (now, secret, marks) = answer?;
        // The same one twice is how a store without marks is told that the present one made its keys.
        let previous_secret = previous.filter(|previous| *previous != secret);
        let retired = previous_secret.as_ref();
        let retired = retired.and_then(|previous| Retired::new(&marks, previous));
        let inner = Arc::new(Inner {
            clock: ClockEstimate::new(now, runtime.elapsed()),
            store: self.store,
            config,
            policies: self.policies,
            secret,
            previous_secret,
            retired,
            estranged: Estranged::default(),
            keyring: self.keyring,
            observer: self.observer,
            resolver: self.resolver,
            waiting: Arc::new(Waiting::new(&config)),
            tasks: Arc::new(Tasks::new(config.executions_max)),
            turns: Turns::new(config.probes_max, sweep::rows_max(&config)),
            unreadable: Unreadable::default(),
            late_looks: Semaphore::new(config.executions_max.min(Semaphore::MAX_PERMITS)),
            runtime,
        });
        if self.background {
            inner.start_background();
        }
        Ok(Engine { inner })
    }
}

impl<S: Store, R> fmt::Debug for EngineBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineBuilder({})", self.store.profile().name)
    }
}
