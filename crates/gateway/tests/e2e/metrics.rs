//! What `/metrics` says about traffic of every kind, and that rules and dashboard can be evaluated
//! on it by a real Prometheus.

use std::collections::BTreeSet;
use std::process::Command;

use http::Method;
use serde_json::Value;

use crate::kit::{Call, IN_PROGRESS, Prometheus, Stage, UNKNOWN, ops, send_to, soon};

const CONFIG: &str = r#"
[engine]
sweep_every = "100ms"

[[route]]
name = "payments"
path = "/payments"

[[route]]
name = "observed"
path = "/observed"
mode = "observe"

[[route]]
name = "optional"
path = "/optional"
key = "optional"

[[route]]
name = "lost"
path = "/lost"
reconcile_delay = "50ms"
reconcile_delay_max = "50ms"
reconcile_attempts = 1
"#;

fn to(path: &str, key: &str) -> Call {
    Call {
        target: path.into(),
        ..Call::payment(key)
    }
}

/// One request of every kind.
async fn traffic(stage: &Stage) {
    let first = Call::payment("k1");
    stage.send(&first).await.assert_executed(201);
    assert!(stage.send(&first).await.is_replay());
    assert!(stage.send(&first).await.is_replay());
    stage.send(&first.clone().body("{}")).await;
    let held = Call::payment("k2");
    let running = stage.hold(&held, "gate").await;
    stage.send(&held).await.assert_problem(409, IN_PROGRESS);
    stage.upstream.open("gate");
    running.await.expect("a client").expect("an answer");
    let released = Call::payment("k3")
        .header("x-test-effect", "none")
        .header("x-test-status", "503");
    assert_eq!(stage.send(&released).await.status.as_u16(), 503);
    stage.send(&Call::payment("k3")).await.assert_executed(201);
    let broken = Call::payment("k4").header("x-test-break", "panic");
    stage.send(&broken).await.assert_problem(502, UNKNOWN);
    stage
        .send(&Call::payment("k4"))
        .await
        .assert_problem(409, UNKNOWN);
    let lost = to("/lost", "k5").header("x-test-break", "panic");
    stage.send(&lost).await.assert_problem(502, UNKNOWN);
    stage.send(&to("/observed", "k6")).await;
    stage.gateway.logged("observed=\"execute\"").await;
    stage.send(&to("/observed", "k6")).await;
    stage
        .send(&to("/optional", "k7").without("idempotency-key"))
        .await;
}

/// Nothing happened twice but for what was only observed.
fn finish(stage: &Stage) {
    let doubles = stage.upstream.witness().doubles().expect("a count");
    assert_eq!(doubles.len(), 1, "{doubles:?}");
}

async fn scrape(stage: &Stage) -> String {
    let admin = stage.gateway.admin;
    let call = Call::new(Method::GET, "/metrics").header("host", &admin.to_string());
    let answer = send_to(admin, &call).await;
    assert_eq!(answer.status.as_u16(), 200);
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    String::from_utf8(answer.body.to_vec()).expect("text")
}

/// Scrapes until all these lines are there: what is counted beside a request comes a little later.
async fn scraped(stage: &Stage, lines: &[String]) {
    soon(async {
        loop {
            let text = scrape(stage).await;
            let known: BTreeSet<_> = text.lines().collect();
            let missing: Vec<_> = lines
                .iter()
                .filter(|line| !known.contains(line.as_str()))
                .collect();
            if missing.is_empty() {
                return;
            }
            println!("not yet: {missing:?}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

fn counted(name: &str, route: &str, count: u64) -> String {
    format!("api_idempotency_{name}_total{{route=\"{route}\",store=\"embedded\"}} {count}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_request_is_counted_as_what_it_was() {
    let stage = Stage::with(CONFIG).await;
    // Before anything happened, every series is there.
    let zero = scrape(&stage).await;
    for route in ["payments", "observed", "optional", "lost", "default"] {
        for name in ["reserve_created", "reserve_replay", "reconcile_failed"] {
            let line = counted(name, route, 0);
            assert!(zero.contains(&line), "{line} in {zero}");
        }
    }
    traffic(&stage).await;
    let observed = |would: &str| {
        format!(
            "api_idempotency_observed_total{{route=\"observed\",store=\"embedded\",would=\"{would}\"}} 1"
        )
    };
    scraped(
        &stage,
        &[
            counted("reserve_created", "payments", 4),
            counted("reserve_failed_retry", "payments", 1),
            counted("reserve_replay", "payments", 2),
            counted("reserve_key_misuse", "payments", 1),
            counted("reserve_in_progress", "payments", 1),
            counted("reserve_unknown", "payments", 1),
            counted("reconcile_scheduled", "payments", 1),
            counted("reconcile_scheduled", "lost", 1),
            counted("reconcile_failed", "lost", 1),
            counted("unprotected", "optional", 1),
            observed("execute"),
            observed("replay"),
            "api_idempotency_claim_seconds_count{route=\"payments\",store=\"embedded\"} 10".into(),
            "api_idempotency_upstream_seconds_count{route=\"payments\",store=\"embedded\"} 5"
                .into(),
            "api_idempotency_keys{state=\"unknown\",store=\"embedded\"} 1".into(),
            "api_idempotency_keys{state=\"dead_letter\",store=\"embedded\"} 1".into(),
            "api_idempotency_store_error_total{operation=\"swap\",store=\"embedded\"} 0".into(),
        ],
    )
    .await;
    finish(&stage);
}

/// Every expression of the dashboard, with its variables set to everything.
fn dashboard_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(ops("grafana/onlyonce.json")).expect("a file");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions = targets.map(|target| target["expr"].as_str().expect("an expression"));
    expressions
        .map(|expression| {
            let expression = expression.replace("$__rate_interval", "1m");
            let expression = expression
                .replace("$instance", ".*")
                .replace("$route", ".*");
            assert!(!expression.contains('$'), "a variable: {expression}");
            expression
        })
        .collect()
}

/// The metrics that an expression names.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "_:".contains(character);
    let words = expression.split(|character| !is_name(character));
    let own = words.filter(|word| {
        ["api_idempotency_", "onlyonce_", "onlyonce:", "process_"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
            || *word == "up"
    });
    own.map(ToOwned::to_owned).collect()
}

/// A rule about a metric that is called otherwise never fires, and nobody notices.
#[tokio::test(flavor = "multi_thread")]
async fn rules_and_dashboard_can_be_evaluated_on_a_real_scrape() {
    let stage = Stage::with(CONFIG).await;
    traffic(&stage).await;
    let prometheus = Prometheus::start(stage.gateway.admin);
    let enough = "count_over_time(api_idempotency_reserve_created_total[1m]) >= 3 \
                  and on () count(onlyonce:replay_ratio:rate1d)";
    soon(async {
        while prometheus.query(enough).await.is_empty() {
            // Not the same requests again, but time must pass between two scrapes.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    let known = prometheus.ask("/api/v1/label/__name__/values").await;
    let known = known.as_array().expect("a list").iter();
    let known: BTreeSet<_> = known
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect();
    let rules = prometheus.ask("/api/v1/rules").await;
    let groups = rules["groups"].as_array().expect("groups");
    let rules: Vec<_> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules").clone())
        .collect();
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let alerts = rules
        .iter()
        .map(|rule| rule["query"].as_str().expect("a query").to_owned());
    let (alerts, panels): (Vec<_>, _) = (alerts.collect(), dashboard_expressions());
    assert!(alerts.len() >= 14 && panels.len() >= 40, "vacuous");
    for expression in alerts.iter().chain(&panels) {
        let metrics = metrics_in(expression);
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(
                known.contains(&metric),
                "{metric} is not scraped: {expression}"
            );
        }
        prometheus.query(expression).await;
    }
    for expression in &panels {
        let result = prometheus.query(expression).await;
        assert!(!result.is_empty(), "a panel without data: {expression}");
    }
    println!(
        "{} rules and {} panel expressions evaluated",
        alerts.len(),
        panels.len()
    );
    finish(&stage);
}

#[test]
fn every_alert_fires_when_it_should_and_has_its_runbook() {
    for arguments in [
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(ops("prometheus"))
            .output()
            .expect("promtool comes with the package prometheus");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
    let read = |file| std::fs::read_to_string(file).expect("a file");
    let rules = read(ops("prometheus/rules.yml"));
    let tests = read(ops("prometheus/rules.test.yml"));
    let runbooks = read(ops("../docs/operations.md"));
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<_> = alerts.collect();
    assert!(alerts.len() >= 9);
    for alert in alerts {
        assert!(
            runbooks.contains(&format!("### {alert}\n")),
            "no runbook: {alert}"
        );
        let link = format!("docs/operations.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&link), "no link to the runbook: {alert}");
        let fires = format!("alertname: {alert}\n        exp_alerts:\n          - ");
        let silent = format!("alertname: {alert}\n        exp_alerts: []");
        assert!(
            tests.contains(&fires) && tests.contains(&silent),
            "not tested: {alert}"
        );
    }
}

/// The page that explains the metrics explains all of them.
#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented() {
    let stage = Stage::start().await;
    let text = scrape(&stage).await;
    let page = std::fs::read_to_string(ops("../docs/operations.md")).expect("a file");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<_> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 20, "vacuous");
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not in docs/operations.md"
        );
    }
    stage.finish();
}
