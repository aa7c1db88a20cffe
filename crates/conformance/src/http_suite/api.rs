//! A target as the cases use it. Every answer is checked against the witness.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::client::{open, read};
use super::{Answer, Call, Target, Upstream};
use crate::suite::together;

/// How long a key may stay in flight after its work is done. Far longer than it takes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks at a key: short, for a case waits this long for what is there already.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Made anew for every answer, or given once by design.
const NOT_REPLAYED: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "idempotency-replayed",
    "keep-alive",
    "retry-after",
    "set-cookie",
    "trailer",
    "transfer-encoding",
];

/// A target. Clones share it.
#[derive(Clone)]
pub struct Api {
    target: Arc<Target>,
}

impl Api {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target: Arc::new(target),
        }
    }

    /// Where the guard listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.target.address
    }

    /// The upstream behind the guard.
    #[must_use]
    pub fn upstream(&self) -> &Upstream {
        &self.target.upstream
    }

    /// How often a request's operation was executed.
    #[must_use]
    pub fn effects(&self, call: &Call) -> usize {
        let (principal, key) = (call.text("authorization"), call.text("idempotency-key"));
        let name = Upstream::name(principal, &call.method, call.path(), key);
        self.upstream().witness().count(&name).expect("a count")
    }

    /// How much was executed in all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.upstream().witness().total().expect("a count")
    }

    /// Sends a request and reads its answer, whose word is checked: what succeeded was executed,
    /// and what was executed was this.
    pub async fn send(&self, call: &Call) -> Answer {
        let answer = self.try_send(call).await.expect("an answer");
        self.check(call, &answer);
        answer
    }

    /// The same where the connection may break.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn try_send(&self, call: &Call) -> hyper::Result<Answer> {
        read(self.open(call).await?).await
    }

    /// Sends a request; the body of the response is left to the case.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn open(&self, call: &Call) -> hyper::Result<Response<Incoming>> {
        open(self.address(), call).await
    }

    /// Sends the same request many times at once.
    pub async fn send_together(&self, calls: impl IntoIterator<Item = Call>) -> Vec<Answer> {
        let tasks = calls.into_iter().map(|call| {
            let api = self.clone();
            async move { api.send(&call).await }
        });
        together(tasks).await
    }

    /// Writes bytes to a connection and gives it back, still open.
    pub async fn write(&self, bytes: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.address()).await.expect("connected");
        socket.write_all(bytes).await.expect("written");
        socket
    }

    /// Starts a request that the upstream holds, and waits until it does.
    pub async fn hold(&self, call: &Call, gate: &str) -> tokio::task::JoinHandle<Answer> {
        let (api, held) = (self.clone(), call.clone().test("hold", gate));
        let task = tokio::spawn(async move { api.send(&held).await });
        self.upstream().arrived(gate).await;
        task
    }

    /// Retries until the key is no longer in flight: **stuck** if that never happens.
    pub async fn settled(&self, call: &Call) -> Answer {
        let settling = async {
            loop {
                let answer = self.send(call).await;
                if answer.code() != "idempotency_key_in_progress" {
                    return answer;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        };
        let answer = tokio::time::timeout(SETTLE_TIMEOUT, settling).await;
        answer.unwrap_or_else(|_| panic!("stuck: still in flight after {SETTLE_TIMEOUT:?}"))
    }

    /// Asserts that a retry gets the first answer and executes nothing.
    pub async fn assert_replays(&self, call: &Call, first: &Answer) {
        let executed = self.total();
        let retry = self.send(call).await;
        assert!(
            retry.is_replay(),
            "lost completion: {} {:?}",
            retry.status,
            retry.body
        );
        same(first, &retry);
        assert_eq!(self.total(), executed, "a replay executes nothing");
    }

    /// Asserts that a request is refused, as this problem, and executes nothing.
    pub async fn assert_refused(&self, call: &Call, status: u16, code: &str) -> Answer {
        let executed = self.total();
        let answer = self.send(call).await;
        answer.assert_problem(status, code);
        assert_eq!(self.total(), executed, "a refusal executes nothing");
        answer
    }

    fn check(&self, call: &Call, answer: &Answer) {
        let accepted = answer.status.as_u16() == 202;
        if !call.is_guarded() || !answer.status.is_success() || accepted {
            return;
        }
        let promised = call.text("x-test-effect") != "none";
        assert!(
            !promised || self.effects(call) > 0,
            "false success: {} for {call:?}",
            answer.status
        );
        if answer.header("content-type") != "application/json" {
            return;
        }
        let (about, key) = (answer.json(), call.text("idempotency-key"));
        let told = |member: &str| about[member].as_str().unwrap_or_default().to_owned();
        let told = Upstream::name(
            &told("principal"),
            &call.method,
            &told("path"),
            &told("key"),
        );
        let meant = Upstream::name(call.text("authorization"), &call.method, call.path(), key);
        assert_eq!(told, meant, "wrong replay");
    }

    pub(super) fn no_doubles(&self) {
        let doubles = self.upstream().witness().doubles().expect("a count");
        assert!(doubles.is_empty(), "double: {doubles:?}");
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Api({:?})", self.target)
    }
}

/// Asserts that two answers are the same as far as a replay can be: **lost completion** if not.
#[track_caller]
pub fn same(first: &Answer, retry: &Answer) {
    assert_eq!(retry.status, first.status, "lost completion: the status");
    assert!(retry.body == first.body, "lost completion: the body");
    assert_eq!(retry.trailers, first.trailers, "lost completion: trailers");
    assert_eq!(
        kept(&retry.headers),
        kept(&first.headers),
        "lost completion: the headers"
    );
}

fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in NOT_REPLAYED {
        kept.remove(name);
    }
    kept
}
