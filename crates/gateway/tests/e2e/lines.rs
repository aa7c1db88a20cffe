//! A bad line between a gateway and its store: cut after the request was sent, slow, half-open,
//! reset. At each of the three moments when the store matters (the claim, the completion, the
//! replay) the line fails under a crowd, is mended, and every key is asked for again.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use onlyonce_conformance::FaultProxy;
use onlyonce_conformance::fault_proxy::{Fault, Plan};
use onlyonce_conformance::http_suite::{Answer, Upstream, same, serve};
use onlyonce_conformance::servers::postgres::{Postgres, url_at};
use onlyonce_conformance::servers::redis::RedisServer;
use tokio::task::JoinSet;

use crate::kit::{Call, IN_PROGRESS, STORE_UNAVAILABLE, Setup, Stage, UNKNOWN, soon, try_send_to};
use crate::shared::{Server, ready};

/// How many keys each moment has.
const CROWD: usize = 12;

const CONFIG: &str = "lease = \"2s\"\n\
    [upstream]\nresponse_timeout = \"1s\"\ntotal_timeout = \"1500ms\"\n\
    [engine]\nstore_timeout = \"1s\"\nsettle_patience = \"10s\"\nsweep_every = \"100ms\"\n";

/// A store that is reached through a proxy.
trait Reached: Server {
    fn address(&self) -> SocketAddr;
    fn url_through(proxy: SocketAddr) -> String;
}

impl Reached for Postgres {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn url_through(proxy: SocketAddr) -> String {
        let url = url_at(proxy);
        format!("{url}?statement_timeout_ms=600&connect_timeout=1")
    }
}

impl Reached for RedisServer {
    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn url_through(proxy: SocketAddr) -> String {
        format!("redis://{proxy}?timeout_ms=800&connect_timeout_ms=500")
    }
}

struct Line {
    proxy: FaultProxy,
    plan: Plan,
    stage: Stage,
    /// What each key's first caller was told.
    told: Vec<(Call, Answer)>,
}

impl Line {
    /// Sends requests of new keys all at once, each held by the upstream until told otherwise.
    async fn crowd(&self, moment: &str, is_held: bool) -> JoinSet<(Call, Answer)> {
        let mut crowd = JoinSet::new();
        let address = self.stage.address();
        for number in 0..CROWD {
            let call = Call::payment(&format!("{moment}-{number}"));
            if is_held {
                let gate = format!("{moment}-{number}");
                let held = self.stage.hold(&call, &gate).await;
                crowd.spawn(
                    async move { (call, held.await.expect("a client").expect("an answer")) },
                );
            } else {
                crowd.spawn(async move {
                    let answer = try_send_to(address, &call).await;
                    (call, answer.expect("an answer"))
                });
            }
        }
        crowd
    }

    /// The line is bad until that has shown, and is mended while the crowd still waits.
    async fn fails(&self, during: impl Future<Output = ()>) {
        let before = self.proxy.counts().faults;
        self.proxy.set(self.plan).await;
        during.await;
        soon(self.proxy.until(|counts| counts.faults > before + 2)).await;
        if swallows(&self.plan) {
            // What a connection lost does not come back, and nothing comes after it: it ends.
            self.proxy.set(Plan::both(Fault::ResetAfter(0))).await;
            let ended = self
                .proxy
                .until(|counts| counts.connections == counts.ended);
            soon(ended).await;
        }
        self.proxy.mend().await;
    }

    async fn claims(&mut self) {
        self.proxy.set(self.plan).await;
        let crowd = self.crowd("claim", false).await;
        self.fails(async {}).await;
        self.gather(crowd).await;
    }

    async fn completions(&mut self) {
        self.until_well().await;
        let crowd = self.crowd("completion", true).await;
        self.fails(async {
            for number in 0..CROWD {
                self.stage.upstream.open(&format!("completion-{number}"));
            }
        })
        .await;
        self.gather(crowd).await;
    }

    async fn gather(&mut self, crowd: JoinSet<(Call, Answer)>) {
        let told = soon(crowd.join_all()).await;
        for (call, answer) in &told {
            self.stage.check(call, answer);
        }
        self.told.extend(told);
    }

    /// Retries of what is done, over the bad line: the same answer, or none.
    async fn replays(&self) {
        self.until_well().await;
        let mut retries = JoinSet::new();
        self.proxy.set(self.plan).await;
        let done = self.told.iter().filter(|(_, answer)| is_done(answer));
        for (call, first) in done {
            let (call, first, address) = (call.clone(), first.clone(), self.stage.address());
            retries.spawn(async move {
                let retry = try_send_to(address, &call).await.expect("an answer");
                if is_done(&retry) {
                    same(&first, &retry);
                } else {
                    assert_eq!(retry.code(), STORE_UNAVAILABLE, "{retry:?}");
                }
            });
        }
        self.fails(async {}).await;
        soon(retries.join_all()).await;
    }

    /// Waits until the store is reached again.
    async fn until_well(&self) {
        soon(async {
            for number in 0.. {
                let call = Call::payment(&format!("well-{}-{number}", self.told.len()));
                if is_done(&self.stage.send(&call).await) {
                    return;
                }
            }
        })
        .await;
    }

    /// Asks for every key until it is settled: no answer that was given is lost, and none is
    /// left that nobody will ever settle. Gives the number of those that were executed.
    async fn settle(&self) -> usize {
        let mut done = 0;
        for (call, first) in &self.told {
            let last = soon(async {
                loop {
                    let answer = self.stage.send(call).await;
                    if ![IN_PROGRESS, STORE_UNAVAILABLE].contains(&answer.code().as_str()) {
                        return answer;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            if is_done(first) {
                assert!(last.is_replay(), "lost completion: {last:?}");
                same(first, &last);
            } else {
                assert!(is_done(&last) || last.code() == UNKNOWN, "{last:?}");
            }
            done += usize::from(is_done(&last));
        }
        done
    }
}

fn swallows(plan: &Plan) -> bool {
    [plan.to_server, plan.to_client].contains(&Fault::Blackhole)
}

fn is_done(answer: &Answer) -> bool {
    answer.status == StatusCode::CREATED
}

async fn the_five_counts_stay_zero<S: Reached>(plan: Plan) {
    let server = ready::<S>().await;
    let proxy = FaultProxy::start(server.address()).expect("a proxy");
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await)
        .store(&S::url_through(proxy.address()))
        .config(CONFIG);
    let mut line = Line {
        stage: Stage::of(upstream, setup).await,
        proxy,
        plan,
        told: Vec::new(),
    };
    line.claims().await;
    line.completions().await;
    line.replays().await;
    let done = line.settle().await;
    println!("{done} of {} keys were executed", line.told.len());
    assert!(done * 100 >= line.told.len() * 60, "{done} only");
    line.stage.finish();
}

macro_rules! on {
    ($module:ident, $server:ty) => {
        mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn cut_after_the_request() {
                the_five_counts_stay_zero::<$server>(Plan::cut_the_answer()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn slow() {
                let slow = Fault::Delay(Duration::from_millis(150));
                the_five_counts_stay_zero::<$server>(Plan::both(slow)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn half_open() {
                the_five_counts_stay_zero::<$server>(Plan::to_client(Fault::Blackhole)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn swallowed() {
                the_five_counts_stay_zero::<$server>(Plan::both(Fault::Blackhole)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn reset() {
                the_five_counts_stay_zero::<$server>(Plan::both(Fault::ResetAfter(0))).await;
            }
        }
    };
}

on!(postgres, Postgres);
on!(redis, RedisServer);
