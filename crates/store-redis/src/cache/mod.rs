//! A cache of completed rows on a Redis server, shared by gateways: for [`Tiered`], never a store.
//!
//! The server may be empty, full, slow, frozen, dead or full of nonsense, and no answer changes. What
//! comes back counts only if it bears the seal of a gateway on the same durable store (`seal`).
//! Errors are logged, and never shown to a caller.
//!
//! Everything goes through one connection in the order in which it was asked, a batch at a time. So
//! a read never overtakes a removal. If it is not certain that a removal arrived, nothing is
//! read for as long as a row may be used ([`RedisCache::new`]): by then whatever should have been
//! removed is too old.
//!
//! [`Tiered`]: onlyonce_store::tiered::Tiered

mod seal;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{RecordId, Response, State};
use onlyonce_store::tiered::{Cache, Cached};
use redis::{Cmd, Pipeline};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::OpenError;
use crate::answer::Answer;
use crate::dial::{Dialer, Link};
use crate::keys::hex;
use crate::options::{Address, Layout, RedisOptions};
use seal::Seal;

/// How many requests may wait. More are not asked: the durable store is.
const QUEUE: usize = 1024;

/// How many of them are sent at once.
const BATCH: usize = 128;

/// How long a batch may take. A cache that is slower than a store is of no use.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// How long a server that failed is left alone.
const REST: Duration = Duration::from_secs(1);

/// A row with more bytes is not kept: it would hold up the others on the connection.
const ROW_BYTES_MAX: usize = 1 << 20;

/// Completed rows on a Redis server. Its task runs on the caller's tokio runtime until dropped.
pub struct RedisCache {
    requests: mpsc::Sender<Request>,
    blindness: Arc<Blindness>,
    place: Address,
}

enum Request {
    Get(RecordId, oneshot::Sender<Cached>),
    Put(RecordId, Box<Cached>),
    Remove(RecordId),
}

impl RedisCache {
    /// A cache on the server of `options`, which is connected to when it is first needed.
    ///
    /// `secret` is that of the durable store, so that rows of another store, or of nobody, are
    /// not taken for its own. `age_max` is how long a row may be used, as in `TieredOptions`.
    ///
    /// # Errors
    /// When the options are not those of one server, or their TLS files cannot be used.
    pub fn new(
        options: &RedisOptions,
        secret: &[u8; 32],
        age_max: Duration,
    ) -> Result<Self, OpenError> {
        let place = match (&options.layout, options.servers.as_slice()) {
            (Layout::Single, [place]) => place.clone(),
            (Layout::Single | Layout::Sentinel { .. } | Layout::Cluster, _) => {
                let reason = "a cache is one server: write redis://… or rediss://…";
                return Err(OpenError::Url(reason.to_owned()));
            }
        };
        let mut options = options.clone();
        options.connect_timeout = options.connect_timeout.min(CONNECT_PATIENCE);
        let options = Arc::new(options);
        let blindness = Arc::new(Blindness::new(age_max));
        let (requests, asked) = mpsc::channel(QUEUE);
        let worker = Worker {
            asked,
            dialer: Dialer::new(&options)?,
            place: place.clone(),
            seal: Seal::new(secret),
            prefix: format!("{}:cache:", options.prefix),
            // As long as it can be of use; the server's clock has no say in that.
            expiry_ms: u64::try_from(age_max.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
            blindness: Arc::clone(&blindness),
            link: None,
            rests_until: None,
        };
        tokio::spawn(worker.run());
        Ok(Self {
            requests,
            blindness,
            place,
        })
    }
}

impl Cache for RedisCache {
    async fn get(&self, id: &RecordId) -> Option<Cached> {
        if self.blindness.holds() {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(Request::Get(*id, reply)).ok()?;
        answer.await.ok()
    }

    fn put(&self, id: &RecordId, cached: Cached) {
        // What is not kept is read again.
        let _ = self.requests.try_send(Request::Put(*id, Box::new(cached)));
    }

    fn remove(&self, id: &RecordId) {
        if self.requests.try_send(Request::Remove(*id)).is_err() {
            self.blindness.begin();
        }
    }
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisCache({})", self.place)
    }
}

/// Until when nothing is read, because a row that should be gone may still be there.
struct Blindness {
    started: Instant,
    /// In milliseconds since then.
    until_ms: AtomicU64,
    age_max_ms: u64,
}

impl Blindness {
    fn new(age_max: Duration) -> Self {
        Self {
            started: Instant::now(),
            until_ms: AtomicU64::new(0),
            age_max_ms: u64::try_from(age_max.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn begin(&self) {
        // One more, because the milliseconds of now have begun.
        let until_ms = self
            .now_ms()
            .saturating_add(self.age_max_ms)
            .saturating_add(1);
        self.until_ms.fetch_max(until_ms, Ordering::SeqCst);
    }

    fn holds(&self) -> bool {
        self.now_ms() < self.until_ms.load(Ordering::SeqCst)
    }
}

/// Sends what was asked, in order.
struct Worker {
    asked: mpsc::Receiver<Request>,
    dialer: Dialer,
    place: Address,
    seal: Seal,
    prefix: String,
    expiry_ms: u64,
    blindness: Arc<Blindness>,
    link: Option<Link>,
    rests_until: Option<Instant>,
}

impl Worker {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.asked.recv_many(&mut batch, BATCH).await > 0 {
            let batch = std::mem::take(&mut batch);
            let pipeline = self.pipeline(&batch);
            match self.send(&pipeline).await {
                Some(answers) => self.answer(batch, answers),
                None => self.lose(&batch),
            }
        }
    }

    fn pipeline(&self, batch: &[Request]) -> Pipeline {
        let mut pipeline = redis::pipe();
        for request in batch {
            pipeline.add_command(self.command(request));
        }
        pipeline
    }

    fn command(&self, request: &Request) -> Cmd {
        let key = |id: &RecordId| format!("{}{}", self.prefix, hex(id));
        let mut command = Cmd::new();
        match request {
            Request::Get(id, _) => command.arg("GET").arg(key(id)),
            Request::Remove(id) => command.arg("DEL").arg(key(id)),
            Request::Put(id, cached) => {
                // Most that are too large are known by their answer alone, and sealed in vain.
                let may_fit = answer_bytes(cached) <= ROW_BYTES_MAX;
                let sealed = may_fit.then(|| self.seal.close(id, cached)).flatten();
                match sealed.filter(|sealed| sealed.len() <= ROW_BYTES_MAX) {
                    Some(sealed) => {
                        let set = command.arg("SET").arg(key(id)).arg(sealed);
                        set.arg("PX").arg(self.expiry_ms)
                    }
                    None => command.arg("DEL").arg(key(id)),
                }
            }
        };
        command
    }

    /// The answers; none if there is no connection, or they take too long.
    async fn send(&mut self, pipeline: &Pipeline) -> Option<Vec<Answer>> {
        let link = self.link().await?;
        let reason = match tokio::time::timeout(PATIENCE, link.send_all(pipeline)).await {
            Ok(Ok(answers)) => return Some(answers),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        self.rest(&reason);
        None
    }

    async fn link(&mut self) -> Option<&Link> {
        if self.link.as_ref().is_some_and(|link| !link.is_open()) {
            self.rest("the connection was closed");
        }
        if self.link.is_none() {
            if self.rests_until.is_some_and(|until| Instant::now() < until) {
                return None;
            }
            match self.dialer.dial(&self.place).await {
                Ok(link) => {
                    self.link = Some(link);
                    self.rests_until = None;
                }
                Err(why) => self.rest(&why.reason),
            }
        }
        self.link.as_ref()
    }

    /// Leaves the server alone for a while.
    fn rest(&mut self, reason: &str) {
        if self.rests_until.is_none() || self.link.is_some() {
            tracing::warn!(cache = %self.place, reason, "the cache is left alone");
        }
        self.link = None;
        self.rests_until = Some(Instant::now() + REST);
        // What was sent before, and not answered, may or may not have arrived.
        self.blindness.begin();
    }

    fn answer(&self, batch: Vec<Request>, answers: Vec<Answer>) {
        let mut answers = answers.into_iter();
        for request in batch {
            let answer = answers.next();
            match request {
                Request::Get(id, reply) => {
                    if let Some(Answer::Bytes(bytes)) = answer
                        && let Some(cached) = self.seal.open(&id, bytes)
                        && !self.blindness.holds()
                    {
                        // Whoever asked may have gone on without an answer.
                        let _ = reply.send(cached);
                    }
                }
                Request::Put(..) | Request::Remove(_) => {
                    // A row that is not kept, and one that is not removed, leave the old one.
                    if matches!(answer, None | Some(Answer::Error(_))) {
                        self.blindness.begin();
                    }
                }
            }
        }
    }

    /// Nothing is known of what was to be sent.
    fn lose(&self, batch: &[Request]) {
        let removes = |request: &Request| matches!(request, Request::Put(..) | Request::Remove(_));
        if batch.iter().any(removes) {
            self.blindness.begin();
        }
    }
}

/// How many bytes of a row are its answer's, headers left out.
fn answer_bytes(cached: &Cached) -> usize {
    let State::Completed { response, .. } = &cached.row.record.state else {
        return 0;
    };
    match response {
        Response::Plain(answer) => answer.body.len(),
        Response::Sealed(sealed) => sealed.ciphertext.len(),
        Response::Tombstone(_) => 0,
    }
}
