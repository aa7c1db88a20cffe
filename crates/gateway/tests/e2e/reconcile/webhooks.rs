//! Outcomes that the provider tells by itself.

use onlyonce_conformance::http_suite::Answer;

use super::provider::{
    ASKS, Asked, Provider, SECRET, now_seconds, pay, payment, standard, state, status, stripe,
    until_state,
};
use crate::kit::{Call, Gateway, Setup, UNKNOWN, send_to, until};

/// A route that is told, and asks nobody for long.
const TOLD: &str = "webhook = \"hook\"\nreconcile_delay = \"1h\"\nreconcile_delay_max = \"1h\"";

fn hook(scheme: &str, by: &str) -> String {
    format!(
        "[[webhook]]\nname = \"hook\"\nscheme = \"{scheme}\"\nsecret_file = \"SECRET\"\n\
         match = {{ pointer = \"/data/name\", by = \"{by}\" }}\n\
         completed = [{{ pointer = \"/type\", values = [\"paid\", \"failed\"] }}]\n\
         response = {{ status = {{ pointer = \"/type\", values = {{ paid = 201, failed = 402 }} }}, \
         body = \"/data\" }}\n"
    )
}

/// The gateway, and where its webhooks come in.
async fn start(
    provider: &Provider,
    kind: &str,
    route: &str,
    hook: &str,
) -> (Setup, Gateway, std::net::SocketAddr) {
    let folder = Setup::new(provider.address);
    let secret = folder.file("secret", SECRET);
    let setup = provider.setup(kind, route, &hook.replace("SECRET", &secret));
    let mut gateway = setup.start().await;
    let address = gateway.announced().await;
    (folder, gateway, address)
}

/// The name that the provider was told for a call's operation.
fn operation(provider: &Provider, answer: &Answer) -> String {
    provider.operation(&id(answer))
}

/// The id that a client knows.
fn id(answer: &Answer) -> String {
    let path = answer.json()["operation"]
        .as_str()
        .expect("a link")
        .to_owned();
    path.rsplit('/').next().expect("an id").to_owned()
}

fn event(kind: &str, name: &str) -> String {
    format!(r#"{{"type":"{kind}","data":{{"name":"{name}","amount":12.00}}}}"#)
}

fn result(answer: &Answer) -> (u16, String) {
    let json = answer.json();
    let code = json.get("result").or_else(|| json.get("code"));
    let code = code.and_then(|code| code.as_str()).expect("a result");
    (answer.status.as_u16(), code.to_owned())
}

#[track_caller]
fn assert_told(answer: &Answer, status: u16, code: &str) {
    assert_eq!(result(answer), (status, code.to_owned()), "{answer:?}");
}

/// Before anybody asked, in both schemes; and a delivery that comes twice is harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_settles_what_nobody_asked_about() {
    for scheme in ["standard", "stripe"] {
        let provider = Provider::start().await;
        let (_folder, gateway, hooks) =
            start(&provider, "opaque", TOLD, &hook(scheme, "operation")).await;
        for (kind, status) in [("paid", 201), ("failed", 402)] {
            let call = pay(kind, "lose");
            let first = send_to(gateway.address, &call).await;
            first.assert_problem(502, UNKNOWN);
            let body = event(kind, &operation(&provider, &first));
            let told = match scheme {
                "stripe" => stripe("hook", &body, now_seconds()),
                _ => standard("hook", &body, now_seconds()),
            };
            assert_told(&send_to(hooks, &told).await, 200, "settled");
            let replay = send_to(gateway.address, &call).await;
            assert!(replay.is_replay(), "{replay:?}");
            assert_eq!(replay.status.as_u16(), status);
            assert_eq!(replay.json()["amount"], 12.0);
            for _ in 0..3 {
                assert_told(&send_to(hooks, &told).await, 200, "already_settled");
            }
            let again = send_to(gateway.address, &call).await;
            assert_eq!(again.body, replay.body);
            assert_eq!(provider.effects(&call), 1);
        }
        assert_eq!(provider.questions(), 0);
        provider.assert_no_doubles();
    }
}

/// Nobody but the provider decides, and nobody decides later with what the provider once said.
#[tokio::test(flavor = "multi_thread")]
async fn forged_stale_and_stray_webhooks_change_nothing() {
    let provider = Provider::start().await;
    let (_folder, gateway, hooks) =
        start(&provider, "dedupes", TOLD, &hook("standard", "operation")).await;
    let call = pay("k", "lose");
    let first = send_to(gateway.address, &call).await;
    let (name, now) = (operation(&provider, &first), now_seconds());
    let good = standard("hook", &event("paid", &name), now);
    let forged = good.clone().body(event("failed", &name));
    assert_told(&send_to(hooks, &forged).await, 401, "webhook_forged");
    for at in [now - 3600, now + 3600] {
        let stale = standard("hook", &event("paid", &name), at);
        assert_told(&send_to(hooks, &stale).await, 400, "webhook_stale");
    }
    let unsigned = good.clone().without("webhook-signature");
    assert_told(&send_to(hooks, &unsigned).await, 400, "webhook_malformed");
    let strange = "0".repeat(64);
    // The id alone is also that of the key's next use.
    let (bare, life) = (id(&first), format!("{}.1", id(&first)));
    for unknown in [strange.as_str(), "", "x", &name[1..], &bare, &life] {
        let stray = standard("hook", &event("paid", unknown), now);
        assert_told(&send_to(hooks, &stray).await, 404, "webhook_unknown_key");
    }
    let other = standard("hook", &event("created", &name), now);
    assert_told(&send_to(hooks, &other).await, 200, "ignored");
    let garbage = standard("hook", "not json", now);
    assert_told(&send_to(hooks, &garbage).await, 422, "webhook_unreadable");
    let huge = standard("hook", &"x".repeat(300 * 1024), now);
    assert_told(&send_to(hooks, &huge).await, 413, "webhook_too_large");
    let nobody = standard("nobody", &event("paid", &name), now);
    assert_told(
        &send_to(hooks, &nobody).await,
        404,
        "webhook_no_such_webhook",
    );
    assert_eq!(state(&gateway, &first).await, "unknown");
    gateway.logged("result=\"forged\"").await;
    gateway.logged("result=\"unknown_key\"").await;
    // The front has no webhooks, and this listener nothing else.
    assert_eq!(send_to(hooks, &call).await.status.as_u16(), 404);
    assert_told(&send_to(hooks, &good).await, 200, "settled");
    assert!(send_to(gateway.address, &call).await.is_replay());
    assert_eq!(provider.effects(&call), 1);
    provider.assert_no_doubles();
}

/// The provider is quicker than its own answer: the executor's word counts, and the webhook comes
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_about_work_in_progress_is_to_come_again() {
    let provider = Provider::start().await;
    let (_folder, gateway, hooks) =
        start(&provider, "opaque", TOLD, &hook("standard", "child:pay")).await;
    let (address, call) = (gateway.address, pay("k", "hold"));
    let asked = call.clone();
    let first = tokio::spawn(async move { send_to(address, &asked).await });
    until(|| (provider.effects(&call) == 1).then_some(())).await;
    let name = provider.child_key("pay");
    let told = standard("hook", &event("paid", &name), now_seconds());
    let early = send_to(hooks, &told).await;
    assert_told(&early, 503, "webhook_in_progress");
    assert_ne!(early.header("retry-after"), "");
    provider.open();
    first.await.expect("a client").assert_problem(502, UNKNOWN);
    assert_told(&send_to(hooks, &told).await, 200, "settled");
    assert!(send_to(address, &call).await.is_replay());
    provider.assert_no_doubles();
}

/// While the provider is being asked, it tells: the first word counts, the second is harmless.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_during_and_after_the_question_settles_once() {
    let provider = Provider::start().await;
    provider.say(Asked::Held);
    let route = "probe = \"p\"\nwebhook = \"hook\"\nreconcile_delay = \"1s\"\n\
                 reconcile_delay_max = \"5s\"";
    let (_folder, gateway, hooks) =
        start(&provider, "dedupes", route, &hook("standard", "operation")).await;
    let call = pay("k", "lose");
    let first = send_to(gateway.address, &call).await;
    let body = event("failed", &operation(&provider, &first));
    until(|| (provider.questions() > 0).then_some(())).await;
    let told = standard("hook", &body, now_seconds());
    assert_told(&send_to(hooks, &told).await, 200, "settled");
    let replay = send_to(gateway.address, &call).await;
    assert_eq!(replay.status.as_u16(), 402);
    // The question's own answer says "paid". It comes second, and changes nothing.
    provider.open();
    assert_told(&send_to(hooks, &told).await, 200, "already_settled");
    let again = send_to(gateway.address, &call).await;
    assert_eq!((again.status.as_u16(), &again.body), (402, &replay.body));
    assert_eq!(provider.effects(&call), 1);

    let (_folder, gateway, hooks) = start(
        &provider,
        "dedupes",
        &format!("webhook = \"hook\"\n{ASKS}"),
        &hook("standard", "operation"),
    )
    .await;
    let call = pay("after", "lose");
    let first = send_to(gateway.address, &call).await;
    until_state(&gateway, &first, "completed").await;
    let told = standard(
        "hook",
        &event("failed", &operation(&provider, &first)),
        now_seconds(),
    );
    assert_told(&send_to(hooks, &told).await, 200, "already_settled");
    let replay = send_to(gateway.address, &call).await;
    assert_eq!(replay.status.as_u16(), 201);
    let told = replay.json()["operation"]
        .as_str()
        .expect("text")
        .to_owned();
    assert_eq!(replay.body, payment(&told, "paid"));
    provider.assert_no_doubles();
}

/// Two tenants may use the same key. What the provider says about it is then nobody's answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_two_callers_use_is_decided_by_no_webhook() {
    let provider = Provider::start().await;
    let (_folder, gateway, hooks) =
        start(&provider, "opaque", TOLD, &hook("standard", "key")).await;
    let alice = pay("order-1", "lose");
    let first = send_to(gateway.address, &alice).await;
    first.assert_problem(502, UNKNOWN);
    let told = |key: &str| standard("hook", &event("paid", key), now_seconds());
    let mallory = pay("order-1", "lose").header("authorization", "Bearer mallory");
    send_to(gateway.address, &mallory)
        .await
        .assert_problem(502, UNKNOWN);
    let refused = send_to(hooks, &told("order-1")).await;
    assert_told(&refused, 409, "webhook_ambiguous");
    for call in [&alice, &mallory] {
        send_to(gateway.address, call)
            .await
            .assert_problem(409, UNKNOWN);
        assert_eq!(provider.effects(call), 1);
    }
    // A key of one caller alone is known, and a retry of it is no second caller.
    let alone = pay("order-2", "lose");
    send_to(gateway.address, &alone)
        .await
        .assert_problem(502, UNKNOWN);
    send_to(gateway.address, &alone)
        .await
        .assert_problem(409, UNKNOWN);
    assert_told(&send_to(hooks, &told("order-2")).await, 200, "settled");
    assert!(send_to(gateway.address, &alone).await.is_replay());
    assert_told(
        &send_to(hooks, &told("order-3")).await,
        404,
        "webhook_unknown_key",
    );
}

/// A webhook of one route has no say about another.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_decides_only_about_routes_that_name_it() {
    let provider = Provider::start().await;
    let (_folder, gateway, hooks) =
        start(&provider, "opaque", "", &hook("standard", "operation")).await;
    let call = Call::payment("k").header("x-how", "lose");
    let first = send_to(gateway.address, &call).await;
    // Nobody was told this operation's name; it is right all the same.
    let created_at_ms = status(&gateway, &first).await["created_at_ms"].clone();
    let name = format!("{}.{created_at_ms}", id(&first));
    let told = standard("hook", &event("paid", &name), now_seconds());
    assert_told(&send_to(hooks, &told).await, 404, "webhook_unknown_key");
    assert_eq!(state(&gateway, &first).await, "unknown");
}
