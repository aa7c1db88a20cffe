//! One server: its connections, made when needed and made anew after a failure.
//!
//! A server that could not be reached is left alone for a moment, twice as long each time. Whoever
//! asks meanwhile is told at once what went wrong.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::dial::{Dialer, Link};
use crate::failure::NoServer;
use crate::options::{Address, RedisOptions};
use crate::replicas::Replicas;
use crate::settings::{Judgement, Settings};

/// The first pause after a failed attempt.
const PAUSE_MIN: Duration = Duration::from_millis(25);

/// The longest pause: how long after its return a server may still be left alone.
const PAUSE_MAX: Duration = Duration::from_millis(800);

pub(crate) struct Node {
    address: Address,
    slots: Vec<Slot>,
    next: AtomicUsize,
    failed: Mutex<Option<Failed>>,
    judgement: Mutex<Option<Judgement>>,
    replicas: Replicas,
}

#[derive(Default)]
struct Slot {
    link: Mutex<Option<Arc<Link>>>,
    /// Held while connecting, so that only one caller does.
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Failed {
    until: Instant,
    pause: Duration,
    why: NoServer,
}

impl Node {
    pub(crate) fn new(address: Address, options: &RedisOptions) -> Self {
        Self {
            address,
            slots: (0..options.connections).map(|_| Slot::default()).collect(),
            next: AtomicUsize::new(0),
            failed: Mutex::new(None),
            judgement: Mutex::new(None),
            replicas: Replicas::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Whether its settings, as found at the last connection, lose nothing in a crash.
    pub(crate) fn is_durable(&self) -> bool {
        let found = lock(&self.judgement);
        found.as_ref().is_none_or(|found| found.is_durable)
    }

    /// What an operator should know, as found at the last connection.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let found = lock(&self.judgement);
        found
            .as_ref()
            .map_or_else(Vec::new, |found| found.warnings.clone())
    }

    /// A connection, by turns. While no other can be made, those that are open serve all callers.
    pub(crate) async fn link(
        &self,
        dialer: &Dialer,
        options: &RedisOptions,
    ) -> Result<Arc<Link>, NoServer> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.slots.get(turn % self.slots.len().max(1)) else {
            return Err(NoServer::silent("connections= is 0"));
        };
        if let Some(link) = slot.open() {
            return Ok(link);
        }
        let _dialing = slot.dialing.lock().await;
        if let Some(link) = slot.open() {
            return Ok(link);
        }
        if let Some(failed) = self.still_failed() {
            return self.any_open().ok_or(failed);
        }
        match self.connect(dialer, options).await {
            Ok(link) => {
                let link = Arc::new(link);
                *lock(&slot.link) = Some(Arc::clone(&link));
                *lock(&self.failed) = None;
                Ok(link)
            }
            Err(why) => {
                self.note_failure(&why);
                self.any_open().ok_or(why)
            }
        }
    }

    fn any_open(&self) -> Option<Arc<Link>> {
        self.slots.iter().find_map(Slot::open)
    }

    /// Lets go of a connection that gave no answer. Others that wait on it are not disturbed.
    pub(crate) fn discard(&self, link: &Arc<Link>) {
        for slot in &self.slots {
            let mut held = lock(&slot.link);
            if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, link)) {
                *held = None;
            }
        }
    }

    /// Lets go of every connection, after this one showed that the server may have lost its role: it
    /// is looked at anew before it has it back. An answer from before the last time changes nothing.
    pub(crate) fn distrust(&self, link: &Arc<Link>) {
        let is_held = |slot: &Slot| {
            let held = lock(&slot.link);
            held.as_ref().is_some_and(|held| Arc::ptr_eq(held, link))
        };
        if self.slots.iter().any(is_held) {
            self.let_go();
        }
    }

    fn let_go(&self) {
        for slot in &self.slots {
            *lock(&slot.link) = None;
        }
    }

    async fn connect(&self, dialer: &Dialer, options: &RedisOptions) -> Result<Link, NoServer> {
        let link = dialer.dial(&self.address).await?;
        let asking = Settings::ask(&link, &self.address);
        let settings = tokio::time::timeout(options.connect_timeout, asking).await;
        let settings = settings.unwrap_or_else(|_| {
            let reason = format!("{} does not answer", self.address);
            Err(NoServer::silent(reason))
        })?;
        let mut known = lock(&self.judgement);
        let at_rest_in = known.as_ref().and_then(|known| known.at_rest_in.as_ref());
        let judgement = settings.judge(&self.address, options, at_rest_in);
        let judgement = judgement.inspect_err(|_| {
            // No other connection is any better, and what was seen before says nothing any more.
            self.let_go();
            if let Some(known) = known.as_mut() {
                known.at_rest_in = None;
            }
        })?;
        if known.as_ref() != Some(&judgement) {
            for warning in &judgement.warnings {
                tracing::warn!("{warning}");
            }
            *known = Some(judgement);
        }
        drop(known);
        Ok(link)
    }

    fn still_failed(&self) -> Option<NoServer> {
        let failed = lock(&self.failed);
        let failed = failed.as_ref()?;
        (Instant::now() < failed.until).then(|| failed.why.clone())
    }

    fn note_failure(&self, why: &NoServer) {
        let mut failed = lock(&self.failed);
        let pause = failed.as_ref().map_or(PAUSE_MIN, |failed| failed.pause * 2);
        let pause = pause.min(PAUSE_MAX);
        *failed = Some(Failed {
            until: Instant::now() + pause,
            pause,
            why: why.clone(),
        });
    }
}

impl Slot {
    fn open(&self) -> Option<Arc<Link>> {
        lock(&self.link)
            .as_ref()
            .filter(|link| link.is_open())
            .cloned()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.address)
    }
}

/// Nothing that can panic runs under these locks, so what is behind a poisoned one is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
