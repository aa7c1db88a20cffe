//! Several gateways on one store: PostgreSQL, Redis, a Redis cluster, DynamoDB.
//!
//! Every test runs against the real server of each backend. What they promise alike is written
//! once, in [`scenarios`]; the suite of every guard runs on each backend too.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use onlyonce_conformance::http_suite::{Answer, Target, Upstream, same, serve};
use onlyonce_conformance::servers::dynamodb::DynamoDb;
use onlyonce_conformance::servers::postgres::{self as pg, Postgres, PostgresOptions};
use onlyonce_conformance::servers::redis::{RedisCluster, RedisServer};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::clock::with_clock;
use crate::kit::{
    Call, Gateway, IN_PROGRESS, STORE_UNAVAILABLE, Scripted, Setup, Stage, UNKNOWN, binary,
    send_to, soon, try_send_to, until,
};

/// A server that gateways share.
pub(crate) trait Server: Send + Sync + 'static {
    fn start() -> Self;
    fn url(&self) -> String;
}

/// A server that can die and come back with its data.
trait Mortal: Server {
    fn die(&mut self);
    fn come_back(&mut self);
    fn freeze(&self);
    fn thaw(&self);
}

impl Server for Postgres {
    fn start() -> Self {
        // A gateway refuses a server that would lose acknowledged claims.
        Self::with(&PostgresOptions {
            fsync: true,
            ..PostgresOptions::default()
        })
    }

    fn url(&self) -> String {
        self.url()
    }
}

impl Mortal for Postgres {
    fn die(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.restart();
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }
}

impl Server for RedisServer {
    fn start() -> Self {
        Self::start()
    }

    fn url(&self) -> String {
        self.url()
    }
}

impl Mortal for RedisServer {
    fn die(&mut self) {
        self.kill();
    }

    fn come_back(&mut self) {
        self.restart();
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }
}

impl Server for RedisCluster {
    fn start() -> Self {
        Self::start()
    }

    fn url(&self) -> String {
        self.url()
    }
}

impl Server for DynamoDb {
    fn start() -> Self {
        Self::start()
    }

    fn url(&self) -> String {
        format!(
            "dynamodb://onlyonce?region=eu-central-1&endpoint=http://{}",
            self.address()
        )
    }
}

/// A server with everything that a gateway needs on it.
pub(crate) async fn ready<S: Server>() -> S {
    let server = tokio::task::spawn_blocking(S::start)
        .await
        .expect("a server");
    let migrated = binary(&["migrate", "--store", &server.url()]).await;
    assert!(migrated.status.success(), "{migrated:?}");
    server
}

async fn guarded<S: Server>() -> Target {
    let server = ready::<S>().await;
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await).store(&server.url());
    let gateway = setup.start().await;
    Target::new(gateway.address, upstream).keep((gateway, server))
}

/// Several gateways in front of one upstream, on one store.
struct Fleet<S> {
    server: S,
    stage: Stage,
    others: Vec<Gateway>,
}

impl<S: Server> Fleet<S> {
    async fn start(config: &str) -> Self {
        let server = ready::<S>().await;
        let upstream = Upstream::new();
        let setup = Setup::new(serve(upstream.clone()).await);
        let setup = setup.store(&server.url()).config(config);
        let stage = Stage::of(upstream, setup).await;
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(stage.setup.start().await);
        }
        Self {
            server,
            stage,
            others,
        }
    }

    /// The addresses of all gateways.
    fn addresses(&self) -> Vec<std::net::SocketAddr> {
        let others = self.others.iter().map(|gateway| gateway.address);
        std::iter::once(self.stage.address())
            .chain(others)
            .collect()
    }
}

/// The same key at three gateways at once: one effect, and one answer for all who get one.
async fn a_storm_over_three_gateways_has_one_effect<S: Server>() {
    let fleet = Fleet::<S>::start("").await;
    for round in 0..5 {
        let call = Call::payment(&format!("storm-{round}"));
        let mut crowd = JoinSet::new();
        for number in 0..60 {
            let (call, addresses) = (call.clone(), fleet.addresses());
            crowd.spawn(async move { send_to(addresses[number % 3], &call).await });
        }
        let answers = crowd.join_all().await;
        let (refused, answered): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|answer| answer.code() == IN_PROGRESS);
        let first: &Answer = answered.first().expect("one of them was answered");
        for answer in &answered {
            fleet.stage.check(&call, answer);
            same(first, answer);
        }
        assert_eq!(
            fleet.stage.effects(&call),
            1,
            "{} were refused",
            refused.len()
        );
        for address in fleet.addresses() {
            let retry = send_to(address, &call).await;
            assert!(retry.is_replay(), "{retry:?}");
            same(first, &retry);
        }
    }
    fleet.stage.finish();
}

/// A caller at one gateway waits for the execution of another.
async fn waiting_ends_when_another_gateway_is_done<S: Server>() {
    let fleet = Fleet::<S>::start("in_flight = \"wait\"\nwait = \"15s\"").await;
    let call = Call::payment("waiting");
    let first = fleet.stage.hold(&call, "gate").await;
    let (other, waiting) = (fleet.others[0].address, call.clone());
    let waiter = tokio::spawn(async move { send_to(other, &waiting).await });
    // It waits: it has no answer yet, though it was asked, by the time that a third one has been
    // answered.
    let third = send_to(fleet.others[1].address, &Call::payment("another")).await;
    assert_eq!(third.status, StatusCode::CREATED);
    assert!(!waiter.is_finished());
    fleet.stage.upstream.open("gate");
    let first = first.await.expect("a client").expect("an answer");
    let waited = soon(waiter).await.expect("a client");
    assert!(waited.is_replay(), "{waited:?}");
    same(&first, &waited);
    fleet.stage.finish();
}

/// Gateways whose machines are an hour ahead and behind: the store's clock decides.
async fn wrong_clocks_change_nothing<S: Server>() {
    let server = ready::<S>().await;
    let upstream = Upstream::new();
    let address = serve(upstream.clone()).await;
    let setup = || {
        let setup = Setup::new(address).store(&server.url());
        setup.config("retention = \"30m\"\nlease = \"2s\"\n[engine]\nsweep_every = \"100ms\"\n")
    };
    let stage = Stage::of(upstream, setup()).await;
    let ahead = with_clock(setup(), "+1h").start().await;
    let behind = with_clock(setup(), "-1h").start().await;
    let all = [stage.address(), ahead.address, behind.address];
    for (number, executor) in all.into_iter().enumerate() {
        let call = Call::payment(&format!("done-{number}"));
        let first = send_to(executor, &call).await;
        stage.check(&call, &first);
        for address in all {
            let retry = send_to(address, &call).await;
            assert!(retry.is_replay(), "{retry:?}");
            same(&first, &retry);
        }
    }
    let call = Call::payment("held");
    let first = stage.hold(&call, "gate").await;
    for address in all {
        let answer = send_to(address, &call).await;
        assert_eq!(answer.code(), IN_PROGRESS, "{answer:?}");
    }
    stage.upstream.open("gate");
    let first = first.await.expect("a client").expect("an answer");
    for address in all {
        same(&first, &send_to(address, &call).await);
    }
    stage.finish();
}

/// A gateway that dies at work leaves an unknown outcome, which no other gateway executes again.
async fn the_work_of_a_killed_gateway_is_unknown_and_never_done_again<S: Server>() {
    let config = "lease = \"1s\"\n[upstream]\nresponse_timeout = \"500ms\"\n\
                  total_timeout = \"700ms\"";
    let fleet = Fleet::<S>::start(config).await;
    let call = Call::payment("killed");
    let first = fleet.stage.hold(&call, "gate").await;
    fleet.stage.gateway.signal("KILL").await;
    let _ = soon(first).await;
    let other = fleet.others[0].address;
    let answer = soon(async {
        loop {
            let answer = send_to(other, &call).await;
            if answer.code() != IN_PROGRESS {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(answer.code(), UNKNOWN, "{answer:?}");
    fleet.stage.upstream.open("gate");
    let again = send_to(fleet.others[1].address, &call).await;
    assert_eq!(again.code(), UNKNOWN, "{again:?}");
    assert!(fleet.stage.effects(&call) <= 1);
    fleet.stage.finish();
}

/// Without its store a gateway refuses what it guards, passes on the rest, and needs no restart.
async fn an_outage_refuses_guarded_requests_only_and_ends_by_itself<S: Mortal>() {
    let mut fleet = Fleet::<S>::start("[engine]\nstore_timeout = \"1s\"").await;
    let before = Call::payment("before");
    let first = fleet.stage.send(&before).await;
    fleet.server.die();
    let refused = fleet.stage.send(&Call::payment("during")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.code(), STORE_UNAVAILABLE);
    assert_ne!(refused.header("retry-after"), "");
    assert_eq!(fleet.stage.effects(&Call::payment("during")), 0);
    let unguarded = fleet
        .stage
        .send(&Call::new(Method::GET, "/payments/1"))
        .await;
    assert_ne!(unguarded.status, StatusCode::SERVICE_UNAVAILABLE);
    fleet.server.come_back();
    until_guarded(&fleet.stage, "after").await;
    fleet.stage.assert_replays(&before, &first).await;
    fleet.stage.finish();
}

/// A store that stands still is an outage too.
async fn a_frozen_store_is_refused_in_bounded_time<S: Mortal>() {
    let fleet = Fleet::<S>::start("[engine]\nstore_timeout = \"1s\"").await;
    let before = Call::payment("before");
    let first = fleet.stage.send(&before).await;
    fleet.server.freeze();
    let call = Call::payment("during");
    let refused = fleet.stage.send(&call).await;
    assert_eq!(refused.code(), STORE_UNAVAILABLE, "{refused:?}");
    assert_eq!(fleet.stage.effects(&call), 0);
    fleet.server.thaw();
    until_guarded(&fleet.stage, "after").await;
    fleet.stage.assert_replays(&before, &first).await;
    // The claim that was on its way may have been written; it was given back, not executed.
    let answer = fleet.stage.settled(&call).await;
    assert!(
        answer.status == StatusCode::CREATED || answer.code() == UNKNOWN,
        "{answer:?}"
    );
    assert!(fleet.stage.effects(&call) <= 1);
    fleet.stage.finish();
}

/// Sends new keys until one is executed.
async fn until_guarded(stage: &Stage, name: &str) {
    soon(async {
        for number in 0.. {
            let call = Call::payment(&format!("{name}-{number}"));
            let answer = stage.send(&call).await;
            if answer.status == StatusCode::CREATED {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// What was executed under one store is replayed under the other.
async fn copied_keys_are_replayed_from_the_other_store<S: Server>() {
    let stage = Stage::start().await;
    let mut done = Vec::new();
    for number in 0..20 {
        let call = Call::payment(&format!("moved-{number}"));
        let answer = stage.send(&call).await;
        done.push((call, answer));
    }
    let from = format!("embedded:{}", stage.setup.path("data").display());
    let Stage {
        upstream,
        setup,
        mut gateway,
        ..
    } = stage;
    gateway.signal("TERM").await;
    assert!(gateway.ended().await.success());
    let server = ready::<S>().await;
    for written in [20, 0] {
        let copied = binary(&["copy", "--from", &from, "--to", &server.url(), "--json"]).await;
        assert!(copied.status.success(), "{copied:?}");
        let report: serde_json::Value = serde_json::from_slice(&copied.stdout).expect("a report");
        assert_eq!(report["written"], written, "{report}");
    }
    let stage = Stage::of(upstream, setup.store(&server.url())).await;
    for (call, answer) in &done {
        stage.assert_replays(call, answer).await;
        assert_eq!(stage.effects(call), 1);
    }
    stage.finish();
}

/// Runs a statement as an application of its own would.
pub(crate) fn query(server: &Postgres, statement: &str) -> String {
    let mut psql = std::process::Command::new(pg::binary("psql"));
    psql.args([
        &server.url(),
        "-v",
        "ON_ERROR_STOP=1",
        "-A",
        "-t",
        "-c",
        statement,
    ]);
    let output = psql.output().expect("psql");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

/// An application that commits its answer with its effect, and whose gateway then dies.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_application_committed_in_its_own_transaction_is_replayed() {
    let server = ready::<Postgres>().await;
    let app = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await;
        // It never answers: the gateway dies first.
        std::future::pending::<()>().await;
    })
    .await;
    let setup = Setup::new(app.address).store(&server.url());
    let mut gateway = setup.start().await;
    let call = Call::payment("committed").header("onlyonce-execution", "v1.forged");
    let (address, asking) = (gateway.address, call.clone());
    let first = tokio::spawn(async move { try_send_to(address, &asking).await });
    let seen = until(|| app.seen.all().first().cloned()).await;
    let tokens = seen.lines("onlyonce-execution");
    let [token] = tokens.as_slice() else {
        panic!("one token, and not the client's: {tokens:?}");
    };
    assert!(
        token.starts_with("v1.") && !token.contains("forged"),
        "{token}"
    );
    // A route stores no cookies, whoever writes them.
    let headers = "{\"content-type\": \"text/plain\", \"set-cookie\": \"session=1\"}";
    let _ = query(
        &server,
        &format!("SELECT onlyonce_complete('{token}', 201, '{headers}', 'paid'::bytea)"),
    );
    gateway.signal("KILL").await;
    gateway.ended().await;
    assert!(soon(first).await.expect("a client").is_err(), "no answer");
    let gateway = setup.start().await;
    let retry = send_to(gateway.address, &call).await;
    assert_eq!(retry.status, StatusCode::CREATED, "{retry:?}");
    assert!(retry.is_replay());
    assert_eq!(&retry.body[..], b"paid");
    assert_eq!(retry.header("content-type"), "text/plain");
    assert_eq!(retry.header("set-cookie"), "");
    assert_eq!(app.seen.all().len(), 1, "it was asked once");
}

/// An application that commits "I do not know", and then answers with a status that says more than
/// it knows. Whatever that status means elsewhere, the key stays unknown.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_does_not_know_is_not_overruled_by_its_status() {
    let server = ready::<Postgres>().await;
    let committed = Arc::new(Semaphore::new(0));
    let may_answer = Arc::clone(&committed);
    let app = Scripted::start(move |mut wire, seen| {
        let committed = Arc::clone(&may_answer);
        async move {
            while let Some(request) = seen.request(&mut wire).await {
                committed.acquire().await.expect("open").forget();
                let status = request.header("x-status");
                wire.send(format!(
                    "HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n"
                ))
                .await;
            }
        }
    })
    .await;
    let gateway = Setup::new(app.address).store(&server.url()).start().await;
    for (asked, status) in ["503", "429", "422", "500", "200"].into_iter().enumerate() {
        let call = Call::payment(status).header("x-status", status);
        let (address, asking) = (gateway.address, call.clone());
        let first = tokio::spawn(async move { send_to(address, &asking).await });
        let seen = until(|| app.seen.all().get(asked).cloned()).await;
        let token = seen.header("onlyonce-execution");
        let _ = query(&server, &format!("SELECT onlyonce_unknown('{token}')"));
        committed.add_permits(1);
        let first = soon(first).await.expect("a client");
        first.assert_problem(502, UNKNOWN);
        let retry = send_to(gateway.address, &call).await;
        retry.assert_problem(409, UNKNOWN);
        assert_eq!(app.seen.all().len(), asked + 1, "{status}");
    }
}

/// Each scenario as a test of its own, on one backend.
macro_rules! scenarios {
    ($server:ty: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name::<$server>().await;
            }
        )*
    };
}

mod postgres {
    use super::{Postgres, guarded};

    scenarios!(Postgres:
        a_storm_over_three_gateways_has_one_effect,
        waiting_ends_when_another_gateway_is_done,
        the_work_of_a_killed_gateway_is_unknown_and_never_done_again,
        wrong_clocks_change_nothing,
        an_outage_refuses_guarded_requests_only_and_ends_by_itself,
        a_frozen_store_is_refused_in_bounded_time,
        copied_keys_are_replayed_from_the_other_store,
    );

    onlyonce_conformance::http_suite!(guarded::<Postgres>);
}

mod redis {
    use super::{RedisServer, guarded};

    scenarios!(RedisServer:
        a_storm_over_three_gateways_has_one_effect,
        waiting_ends_when_another_gateway_is_done,
        the_work_of_a_killed_gateway_is_unknown_and_never_done_again,
        wrong_clocks_change_nothing,
        an_outage_refuses_guarded_requests_only_and_ends_by_itself,
        a_frozen_store_is_refused_in_bounded_time,
        copied_keys_are_replayed_from_the_other_store,
    );

    onlyonce_conformance::http_suite!(guarded::<RedisServer>);
}

mod redis_cluster {
    use super::RedisCluster;

    scenarios!(RedisCluster:
        a_storm_over_three_gateways_has_one_effect,
        waiting_ends_when_another_gateway_is_done,
        the_work_of_a_killed_gateway_is_unknown_and_never_done_again,
        wrong_clocks_change_nothing,
    );
}

mod dynamodb {
    use super::{DynamoDb, guarded};

    scenarios!(DynamoDb:
        a_storm_over_three_gateways_has_one_effect,
        waiting_ends_when_another_gateway_is_done,
        the_work_of_a_killed_gateway_is_unknown_and_never_done_again,
        wrong_clocks_change_nothing,
        copied_keys_are_replayed_from_the_other_store,
    );

    onlyonce_conformance::http_suite!(guarded::<DynamoDb>);
}
