//! A gateway in front of a witness, and the five counts that must be zero.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, StatusCode};
use onlyonce_conformance::http_suite::{Answer, Upstream, same, serve};
use tokio::task::JoinHandle;

use super::{Call, Gateway, IN_PROGRESS, LOOK_PAUSE, Setup, soon, try_send_to};

/// A gateway, its witness, and what clients were told.
pub(crate) struct Stage {
    pub(crate) upstream: Upstream,
    pub(crate) setup: Setup,
    pub(crate) gateway: Gateway,
    answers: AtomicUsize,
    replays: AtomicUsize,
}

impl Stage {
    /// A gateway with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::with("").await
    }

    /// A gateway with this configuration file.
    pub(crate) async fn with(config: &str) -> Self {
        Self::set_up(|setup| setup.config(config)).await
    }

    /// A gateway that is set up otherwise.
    pub(crate) async fn set_up(change: impl FnOnce(Setup) -> Setup) -> Self {
        let upstream = Upstream::new();
        let setup = change(Setup::new(serve(upstream.clone()).await));
        Self::of(upstream, setup).await
    }

    /// A gateway in front of an upstream that is there.
    pub(crate) async fn of(upstream: Upstream, setup: Setup) -> Self {
        let gateway = setup.start().await;
        Self::over(upstream, setup, gateway)
    }

    /// A gateway that runs already.
    pub(crate) fn over(upstream: Upstream, setup: Setup, gateway: Gateway) -> Self {
        Self {
            upstream,
            setup,
            gateway,
            answers: AtomicUsize::new(0),
            replays: AtomicUsize::new(0),
        }
    }

    /// Starts the gateway anew on the same folder, after its end.
    pub(crate) async fn restart(&mut self) {
        self.gateway = self.setup.start().await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// Sends a request. What succeeded was executed, and what was executed was this.
    pub(crate) async fn send(&self, call: &Call) -> Answer {
        self.try_send(call).await.expect("an answer")
    }

    /// The same where the connection may break.
    pub(crate) async fn try_send(&self, call: &Call) -> hyper::Result<Answer> {
        let answer = try_send_to(self.address(), call).await?;
        self.check(call, &answer);
        Ok(answer)
    }

    /// Checks an answer against the witness, however it came.
    pub(crate) fn check(&self, call: &Call, answer: &Answer) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.replays
            .fetch_add(usize::from(answer.is_replay()), Ordering::Relaxed);
        if answer.status != StatusCode::CREATED || call.method == Method::GET {
            return;
        }
        assert!(self.effects(call) > 0, "false success: {call:?}");
        if answer.header("content-type") == "application/json" {
            let about = answer.json();
            let told = |member: &str| about[member].as_str().unwrap_or_default().to_owned();
            let (principal, path, key) = (told("principal"), told("path"), told("key"));
            let name = Upstream::name(&principal, &call.method, &path, &key);
            assert_eq!(name, call.name(), "wrong replay");
        }
    }

    /// How often a request's operation was executed.
    pub(crate) fn effects(&self, call: &Call) -> usize {
        let count = self.upstream.witness().count(&call.name());
        count.expect("a count")
    }

    /// How much was executed in all.
    pub(crate) fn total(&self) -> usize {
        self.upstream.witness().total().expect("a count")
    }

    /// Starts a request that the upstream holds at a gate, and waits until it does.
    pub(crate) async fn hold(&self, call: &Call, gate: &str) -> JoinHandle<hyper::Result<Answer>> {
        let (address, call) = (self.address(), call.clone().header("x-test-hold", gate));
        let task = tokio::spawn(async move { try_send_to(address, &call).await });
        soon(self.upstream.arrived(gate)).await;
        task
    }

    /// Retries until the key is no longer in flight.
    pub(crate) async fn settled(&self, call: &Call) -> Answer {
        soon(async {
            loop {
                let answer = self.send(call).await;
                if answer.code() != IN_PROGRESS {
                    return answer;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        })
        .await
    }

    /// Asserts that a retry gets the first answer.
    pub(crate) async fn assert_replays(&self, call: &Call, first: &Answer) {
        let retry = self.settled(call).await;
        assert!(retry.is_replay(), "lost completion: {retry:?}");
        same(first, &retry);
    }

    /// Asserts that nothing happened twice, and prints the five counts. The other four have been
    /// asserted where they could go wrong: by [`check`](Self::check),
    /// [`assert_replays`](Self::assert_replays) and [`settled`](Self::settled).
    #[track_caller]
    pub(crate) fn finish(&self) {
        let doubles = self.upstream.witness().doubles().expect("a count");
        println!(
            "double {}, lost completion 0, false success 0, wrong replay 0, stuck 0 \
             ({} effects, {} answers, {} replays)",
            doubles.len(),
            self.total(),
            self.answers.load(Ordering::Relaxed),
            self.replays.load(Ordering::Relaxed),
        );
        assert!(doubles.is_empty(), "double: {doubles:?}");
    }
}
