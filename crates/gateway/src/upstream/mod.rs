//! The service behind the gateway: addresses, connections, and what a failure proves.
//!
//! A request is sent at most once. It goes to another address, or to a fresh connection, only if
//! the first one proves that nothing of it was sent ([`failure`]).

mod body;
mod connect;
mod failure;
mod io;
mod place;
mod pool;
mod room;
mod shares;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use http::header::{self, HeaderMap};
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use onlyonce_http::Execution;
use tokio::time::Instant;

pub(crate) use body::{AnswerBody, Timed};
pub(crate) use connect::Connector;
pub(crate) use failure::Failure;
use failure::Sent;
use place::Placed;
use pool::{Lease, Patience, Pool, Progress};
pub(crate) use room::Room;
use room::Rooms;
use shares::Crowd;

use crate::forward::rename;
use crate::workers;

/// How often an upload is looked at within the time for an answer: how precise that time is.
const LOOKS_PER_TIMEOUT: u32 = 16;

/// How much longer an answer is waited for: after a pause of the whole machine its time is over, and it
/// lies in the socket.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// A request body on its way to the upstream.
pub(crate) type RequestBody = onlyonce_http::Body<Timed<Incoming>>;

/// A request of which nothing was sent, and which is whole. Boxed, as all of them are here: a
/// request goes through many futures, and would be in each.
type Unsent = Option<Box<Request<RequestBody>>>;

/// The sending half of a connection.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Placed>),
    Http2(http2::SendRequest<Placed>),
}

impl Sender {
    async fn ready(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request. It is handed over here, so that the future does not carry it.
    fn send(
        &mut self,
        request: Request<Placed>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Placed>>>> + use<>
    {
        match self {
            Self::Http1(sender) => Either::Left(sender.try_send_request(request)),
            Self::Http2(sender) => Either::Right(sender.try_send_request(request)),
        }
    }
}

/// Whether a request names its caller for the whole connection, as NTLM and Negotiate do: the next
/// client on it would pass for this one. HTTP/2 has no such credentials.
fn names_connection(headers: &HeaderMap) -> bool {
    const SCHEMES: [&[u8]; 2] = [b"ntlm", b"negotiate"];
    let values = headers.get_all(header::AUTHORIZATION);
    values.iter().any(|value| {
        let scheme = value.as_bytes().split(u8::is_ascii_whitespace).next();
        let is = |known: &&[u8]| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(known));
        SCHEMES.iter().any(is)
    })
}

/// Whether a connection has a request: from then on something of it may have been sent.
#[derive(Debug, Default)]
pub(crate) struct Handed(AtomicBool);

impl Handed {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, handed: bool) {
        self.0.store(handed, Ordering::Relaxed);
    }
}

/// Whether a request executes a key that is no longer its own. Asked right before it is handed to a
/// connection: a process may stall anywhere before, and others may have decided about the key since.
fn is_too_late(request: &Request<RequestBody>) -> bool {
    let execution = request.extensions().get::<Execution>();
    execution.is_some_and(|execution| !execution.is_held())
}

/// One address of the upstream.
struct Address {
    connector: Connector,
    /// One for each worker, and one for everybody else: a connection stays in one runtime.
    pools: Vec<Arc<Pool>>,
    /// Until when it is passed over, in milliseconds since the start; 0 when it is well. Changed
    /// under the lock of `error`.
    down_until: AtomicU64,
    /// Why it could not be reached, until it is reached again.
    error: Mutex<Option<String>>,
}

impl Address {
    /// The connections of whoever calls.
    fn pool(&self) -> Option<&Arc<Pool>> {
        let last = self.pools.len().saturating_sub(1);
        self.pools.get(workers::current().min(last))
    }

    fn note_failure(&self, failure: &Failure, down_until: u64) {
        let mut error = lock(&self.error);
        *error = Some(failure.to_string());
        self.down_until.store(down_until.max(1), Ordering::Relaxed);
    }

    fn note_connection(&self) {
        let mut error = lock(&self.error);
        *error = None;
        self.down_until.store(0, Ordering::Relaxed);
    }

    /// Notes that it has answered, maybe on a connection from before it could not be reached. It is
    /// passed over for its whole time nevertheless: who needs another connection would wait in vain.
    fn note_answer(&self, now: impl FnOnce() -> u64) {
        let down_until = self.down_until.load(Ordering::Relaxed);
        if down_until == 0 || down_until > now() {
            return;
        }
        let mut error = lock(&self.error);
        // It may have failed again meanwhile.
        if self.down_until.load(Ordering::Relaxed) == down_until {
            *error = None;
            self.down_until.store(0, Ordering::Relaxed);
        }
    }
}

/// All addresses of the upstream.
pub(crate) struct Upstream {
    addresses: Vec<Address>,
    next: AtomicUsize,
    passing: Rooms,
    asking: Rooms,
    response_timeout: Duration,
    idle_timeout: Duration,
    down_for: Duration,
    started: Instant,
}

/// The limits of an [`Upstream`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) response_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    /// In all pools together.
    pub(crate) pool_idle_max: usize,
    pub(crate) pool_idle_timeout: Duration,
    /// How long an address that could not be reached is passed over.
    pub(crate) down_for: Duration,
    /// How many workers have connections of their own.
    pub(crate) workers: usize,
    /// How many requests there may be at once that are no executions, and how many questions besides.
    pub(crate) passing: usize,
}

impl Upstream {
    pub(crate) fn new(connectors: Vec<Connector>, limits: Limits) -> Self {
        let idle_max = limits.pool_idle_max.div_ceil(limits.workers.max(1));
        let patience = Patience {
            idle: limits.pool_idle_timeout,
            silent: limits.idle_timeout,
        };
        let pool = |_| Arc::new(Pool::new(idle_max, patience));
        let address = |connector| Address {
            connector,
            pools: (0..=limits.workers).map(pool).collect(),
            down_until: AtomicU64::new(0),
            error: Mutex::new(None),
        };
        Self {
            passing: Rooms::new(limits.passing),
            asking: Rooms::new(limits.passing),
            addresses: connectors.into_iter().map(address).collect(),
            next: AtomicUsize::new(0),
            response_timeout: limits.response_timeout,
            idle_timeout: limits.idle_timeout,
            down_for: limits.down_for,
            started: Instant::now(),
        }
    }

    /// Sends a request that is no execution once, if there is room, and gives the answer's head.
    pub(crate) async fn send(
        &self,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<AnswerBody>, Failure> {
        self.send_into(self.passing.take()?, request).await
    }

    /// The same for a question of the gateway's own, which nobody's requests leave without room.
    pub(crate) async fn ask(
        &self,
        question: Box<Request<RequestBody>>,
    ) -> Result<Response<AnswerBody>, Failure> {
        self.send_into(self.asking.take()?, question).await
    }

    async fn send_into(
        &self,
        room: Room,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<AnswerBody>, Failure> {
        request.extensions_mut().insert(room.clone());
        let mut answer = self.send_telling(request, &Handed::default()).await?;
        answer.body_mut().keep(room);
        Ok(answer)
    }

    /// Sends any request, for a caller that may give up waiting and then has to know how far it came. A
    /// request that executes is not begun after its lease, however long a connection took.
    pub(crate) async fn send_telling(
        &self,
        mut request: Box<Request<RequestBody>>,
        handed: &Handed,
    ) -> Result<Response<AnswerBody>, Failure> {
        let mut unreached = Failure::NeverSent("no upstream address is configured".into());
        let mut tried = Vec::new();
        for (number, address) in self.candidates() {
            if tried.contains(&number) {
                continue;
            }
            match self.send_to(address, request, handed).await {
                Ok(response) => {
                    address.note_answer(|| self.millis(Duration::ZERO));
                    return Ok(response);
                }
                Err((failure, Some(unsent))) => {
                    address.note_failure(&failure, self.millis(self.down_for));
                    tried.push(number);
                    (unreached, request) = (failure, unsent);
                }
                Err((failure, None)) => return Err(failure),
            }
        }
        Err(unreached)
    }

    /// Of every address, in order: why it could not be reached when it was last tried.
    pub(crate) fn errors(&self) -> impl Iterator<Item = Option<String>> {
        self.addresses
            .iter()
            .map(|address| lock(&address.error).clone())
    }

    /// The addresses to try, with their numbers: those that are well in turn, then, as a last resort,
    /// all.
    fn candidates(&self) -> impl Iterator<Item = (usize, &Address)> {
        let (count, now) = (self.addresses.len().max(1), self.millis(Duration::ZERO));
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let numbered = self.addresses.iter().enumerate();
        let in_turn = numbered
            .cycle()
            .skip(first % count)
            .take(self.addresses.len());
        let is_well = move |address: &Address| address.down_until.load(Ordering::Relaxed) <= now;
        let well = in_turn.clone().filter(move |(_, address)| is_well(address));
        // Whoever tries them passes over what was tried, and what was down may be well by then.
        well.chain(in_turn)
    }

    fn millis(&self, ahead: Duration) -> u64 {
        u64::try_from((self.started.elapsed() + ahead).as_millis()).unwrap_or(u64::MAX)
    }

    /// Sends to one address. Gives the request back if nothing of it was sent and it is whole.
    async fn send_to(
        &self,
        address: &Address,
        mut request: Box<Request<RequestBody>>,
        handed: &Handed,
    ) -> Result<Response<AnswerBody>, (Failure, Unsent)> {
        let Some(pool) = address.pool() else {
            let none = Failure::NeverSent("there is no pool of connections".into());
            return Err((none, Some(request)));
        };
        if let Some(name) = &address.connector.name {
            rename(&mut request, name);
        }
        let crowd = Crowd::of(&request);
        loop {
            let lease = match pool.take(crowd).await {
                Some(lease) => lease,
                // Boxed: connecting is rare and large, and would make every request's future as large.
                None => match Box::pin(pool.connect(crowd, &address.connector)).await {
                    Ok(lease) => {
                        if lease.is_new() {
                            address.note_connection();
                        }
                        lease
                    }
                    Err(failure) => return Err((failure, Some(request))),
                },
            };
            let is_new = lease.is_new();
            match self.send_on(lease, request, handed).await {
                // A pooled connection may turn out closed before anything was sent on it.
                Err((Failure::NeverSent(_), Some(unsent))) if !is_new => request = unsent,
                result => return result,
            }
        }
    }

    async fn send_on(
        &self,
        mut lease: Lease,
        request: Box<Request<RequestBody>>,
        handed: &Handed,
    ) -> Result<Response<AnswerBody>, (Failure, Unsent)> {
        if is_too_late(&request) {
            lease.give_back();
            let late = Failure::NeverSent("the key was lost before anything was sent".into());
            return Err((late, None));
        }
        let before = lease.written().bytes();
        let shared = matches!(lease.sender(), Sender::Http2(_));
        let executes = request.extensions().get::<Execution>().is_some();
        let ends_in_head = request.body().is_end_stream();
        // What is written is more than the body, so this errs on the side of "sent".
        let body_bytes = request.body().size_hint().lower();
        let binds = names_connection(request.headers());
        let uploads = !request.body().is_whole() && !ends_in_head;
        let progress = lease.progress();
        let begun = progress.bytes();
        handed.set(true);
        let sending = lease.send(*request);
        let answer = self.in_time(sending, uploads.then_some(&progress));
        match answer.await {
            Some(Ok(response)) => {
                let unsent = progress.bytes() - begun < body_bytes;
                if unsent && executes {
                    // What the answer says of it would not be true of the rest.
                    lease = lease.cut_off_at_end();
                } else {
                    lease.note_answer();
                }
                let lease = if binds { lease.for_one() } else { lease };
                let timeout = self.idle_timeout;
                Ok(AnswerBody::of(response, lease, unsent, timeout))
            }
            Some(Err(mut error)) => {
                if let Some(unsent) = error.take_message() {
                    // The connection never took it.
                    handed.set(false);
                    let text = failure::describe(error.error());
                    let unsent = Box::new(unsent.map(Placed::into_body));
                    return Err((Failure::NeverSent(text), Some(unsent)));
                }
                let wrote = lease.written().bytes() != before;
                let sent = if shared {
                    Sent::AmongOthers { ends_in_head }
                } else {
                    Sent::Alone { wrote }
                };
                Err((Failure::of(error.error(), sent), None))
            }
            None => {
                // A connection that has gone silent must not take the next request, too.
                lease.discard();
                Err((Failure::TimedOut(self.response_timeout), None))
            }
        }
    }

    /// Waits for an answer. An upload may go out for as long as it does: the time for the answer
    /// begins at its last byte.
    async fn in_time<T>(
        &self,
        sending: impl Future<Output = T>,
        uploads: Option<&Progress>,
    ) -> Option<T> {
        let mut sending = pin!(sending);
        let last = async |sending| tokio::time::timeout(LAST_LOOK, sending).await.ok();
        let Some(progress) = uploads else {
            let in_time = tokio::time::timeout(self.response_timeout, &mut sending).await;
            return match in_time {
                Ok(answer) => Some(answer),
                Err(_) => last(sending).await,
            };
        };
        let step = self.response_timeout / LOOKS_PER_TIMEOUT;
        let (mut bytes, mut looks) = (progress.bytes(), 0);
        while looks < LOOKS_PER_TIMEOUT {
            if let Ok(answer) = tokio::time::timeout(step, &mut sending).await {
                return Some(answer);
            }
            let now = progress.bytes();
            looks = if now == bytes { looks + 1 } else { 0 };
            bytes = now;
        }
        last(sending).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under the locks of this module.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(ports: &[u16]) -> Upstream {
        let connector = |port: &u16| Connector {
            name: None,
            host: "127.0.0.1".into(),
            port: *port,
            tls: None,
            http2: false,
            timeout: Duration::from_secs(1),
        };
        let limits = Limits {
            response_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            pool_idle_max: 1,
            pool_idle_timeout: Duration::from_secs(1),
            down_for: Duration::from_secs(60),
            workers: 0,
            passing: 1,
        };
        Upstream::new(ports.iter().map(connector).collect(), limits)
    }

    /// To connect to the first may take seconds, in which others find the second one well.
    #[tokio::test]
    async fn an_address_that_becomes_well_meanwhile_is_tried() {
        let upstream = upstream(&[1, 2]);
        let refused = Failure::NeverSent("refused".into());
        let second = &upstream.addresses[1];
        second.note_failure(&refused, upstream.millis(upstream.down_for));
        let mut candidates = upstream.candidates().map(|(number, _)| number);
        assert_eq!(candidates.next(), Some(0));
        second.note_connection();
        assert!(candidates.any(|number| number == 1));
    }
}
