//! What operators see: exit codes, refusals to start, the configuration in force, logs, health.

use crate::kit::{Call, Setup, Stage, UNKNOWN, binary, send_to, until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// 0 done, 1 failed, 2 usage: scripts depend on it.
#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_are_0_1_and_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.toml");
    std::fs::write(&good, "[upstream]\nurls = [\"http://127.0.0.1:9\"]").expect("a file");
    let good = good.to_str().expect("text");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "lease = \"0s\"").expect("a file");
    let bad = bad.to_str().expect("text");
    let no_file = ["check", "--config", "/nonexistent.toml"];
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["serve", "--help"], 0),
        (&["check", "--config", good], 0),
        (&["serve", "--print-config", "--config", good], 0),
        (&no_file, 1),
        (&["serve", "--config", bad], 1),
        // The file is wrong as well: the flag is not the only one to blame.
        (&["serve", "--config", bad, "--key", "maybe"], 1),
        (&["serve", "--upstream", "not a url"], 2),
        (&["serve", "--upstream", "ftp://x"], 2),
        (
            &["serve", "--upstream", "http://a", "--profile", "none-such"],
            2,
        ),
        (&["serve", "--config", good, "--key", "maybe"], 2),
        (&["serve", "--store", "memory:"], 2),
        (&["migrate", "--store", "mysql://db"], 2),
        (&[], 2),
        (&["serve", "--no-such-flag"], 2),
        (&["no-such-command"], 2),
    ] {
        let output = binary(arguments).await;
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    }
}

/// Whoever reads a refusal at night needs the line, the reason and the fix.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_the_line_the_reason_and_the_fix() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broken.toml");
    std::fs::write(
        &file,
        "listen = \"127.0.0.1:80\"\n\nlease = \"5 parsecs\"\nretentoin = \"1h\"\n",
    )
    .expect("a file");
    let output = binary(&["check", "--config", file.to_str().expect("text")]).await;
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    for words in [
        "line 3: lease",
        "parsecs",
        "such as",
        "line 4",
        "retentoin",
        "retention",
    ] {
        assert!(report.contains(words), "{words:?} in {report}");
    }
}

/// Callers whom the API knows by a cookie are one caller to a gateway that looks elsewhere, and
/// would get each other's answers: whoever checks a configuration is told so, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn check_warns_that_callers_without_authorization_share_their_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("onlyonce.toml");
    for (source, warned) in [
        ("", true),
        ("[principal]\nsource = \"authorization\"\n", true),
        ("[principal]\nsource = \"header:x-user\"\n", false),
    ] {
        let config = format!("[upstream]\nurls = [\"http://127.0.0.1:9\"]\n{source}");
        std::fs::write(&file, config).expect("a file");
        let output = binary(&["check", "--config", file.to_str().expect("text")]).await;
        assert_eq!(output.status.code(), Some(0));
        let report = text(&output.stdout);
        for words in ["callers without `Authorization`", "cookie", "header:NAME"] {
            assert_eq!(report.contains(words), warned, "{words:?} in {report}");
        }
    }
}

/// What is printed is a configuration file, and it means the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_printed_configuration_means_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("1.toml"), folder.path().join("2.toml"));
    std::fs::write(
        &first,
        "lease = \"7s\"\nin_flight = \"wait\"\n[upstream]\nurls = [\"http://127.0.0.1:9\"]\n\
         [limits]\nrequest_body = \"3MiB\"\n\
         [[route]]\npath = \"/a/{*rest}\"\nmethods = [\"PUT\"]\nstatuses = { \"5xx\" = \"unknown\" }\n",
    )
    .expect("a file");
    let print = async |file: &std::path::Path| {
        let file = file.to_str().expect("text");
        let output = binary(&["serve", "--print-config", "--config", file]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let printed = print(&first).await;
    for words in ["lease = \"7s\"", "in_flight = \"wait\"", "\"/a/{*rest}\""] {
        assert!(printed.contains(words), "{words} in {printed}");
    }
    std::fs::write(&second, &printed).expect("a file");
    assert_eq!(print(&second).await, printed);
}

/// A port that is taken is named, and nothing is half started.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let flags = [
        "serve",
        "--store",
        "memory:",
        "--upstream",
        "http://127.0.0.1:9",
    ];
    let output = binary(&[&flags[..], &["--listen", &address]].concat()).await;
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&address) && errors.contains("listen"),
        "{errors}"
    );
    assert_eq!(
        text(&output.stdout),
        "",
        "nothing is announced that does not serve"
    );
}

/// A key may hold a name or a card number. It is in no log, in any format, at any level.
#[tokio::test(flavor = "multi_thread")]
async fn logs_are_json_and_hold_no_key_no_token_and_no_body() {
    let stage = Stage::with("[log]\nformat = \"json\"\nlevel = \"trace\"").await;
    let secret = Call::payment("very-secret-key")
        .header("authorization", "Bearer very-secret-token")
        .body(r#"{"card":"very-secret-card"}"#);
    stage.send(&secret).await.assert_executed(201);
    assert!(stage.send(&secret).await.is_replay());
    stage.send(&secret.clone().body("{}")).await;
    let lost = Call::payment("very-secret-lost").header("x-test-break", "panic");
    stage.send(&lost).await.assert_problem(502, UNKNOWN);
    stage.send(&Call::payment("very secret malformed")).await;
    stage.gateway.logged("outcome unknown").await;
    let log = stage.gateway.log();
    let mut lines = 0;
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a JSON object");
        assert!(line["level"].is_string(), "{line}");
        lines += 1;
    }
    assert!(lines > 5, "vacuous: {lines}");
    for word in ["very-secret", "very secret"] {
        let found = log.lines().find(|line| line.contains(word));
        assert_eq!(found, None, "{word}");
    }
    stage.finish();
}

/// A line about an unknown outcome that does not say whose it is cannot be followed to the client
/// that waits for it. The lines of tasks that execute, settle and observe say it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_says_which_request_it_is_about() {
    let config = "[log]\nformat = \"json\"\nlevel = \"debug\"\n\
        [[route]]\npath = \"/watched\"\nmode = \"observe\"\n";
    let stage = Stage::with(config).await;
    for id in ["mine", "yours"] {
        let call = Call::payment(&format!("{id}-key")).header("x-request-id", id);
        let lost = call.clone().header("x-test-break", "panic");
        stage.send(&lost).await.assert_problem(502, UNKNOWN);
        let mut watched = call;
        watched.target = "/watched".into();
        stage.send(&watched).await.assert_executed(201);
    }
    let about = async |message: &str| {
        let all = || {
            let log = stage.gateway.log();
            let lines = log.lines().map(serde_json::from_str);
            let lines: Vec<serde_json::Value> = lines.map(|line| line.expect("JSON")).collect();
            let meant = lines.into_iter().filter(|line| line["message"] == message);
            meant.map(|line| line["request"].clone()).collect()
        };
        until(|| Some(all()).filter(|found: &Vec<_>| found.len() >= 2)).await
    };
    let request = |id, path| serde_json::json!({ "id": id, "method": "POST", "path": path });
    let [lost, watched] = ["/payments", "/watched"].map(|path| {
        let ids = ["mine", "yours"];
        ids.map(|id| request(id, path)).to_vec()
    });
    assert_eq!(about("no answer from the upstream").await, lost);
    assert_eq!(about("outcome unknown").await, lost);
    assert_eq!(about("observed").await, watched);
    for message in ["claimed", "settled"] {
        let mut found = about(message).await;
        found.retain(|about| about["path"] == "/payments");
        assert_eq!(found, lost, "{message}");
    }
    stage.finish();
}

/// Writes without a key pass only where that was asked for, and are counted in the log.
#[tokio::test(flavor = "multi_thread")]
async fn optional_keys_let_writes_pass_and_say_so() {
    let stage = Stage::with("key = \"optional\"").await;
    let keyless = Call::payment("k").without("idempotency-key");
    stage.send(&keyless).await.assert_executed(201);
    stage
        .gateway
        .logged("without a key passed unprotected")
        .await;
    stage.send(&Call::payment("k")).await.assert_executed(201);
    assert!(stage.send(&Call::payment("k")).await.is_replay());
    stage
        .send(&Call::payment("\""))
        .await
        .assert_problem(400, "idempotency_key_invalid");
    stage.finish();
}

/// Load balancers ask these two.
#[tokio::test(flavor = "multi_thread")]
async fn health_is_on_the_admin_listener_alone() {
    let stage = Stage::start().await;
    for path in ["/livez", "/readyz"] {
        let ask = Call::new(http::Method::GET, path);
        let answer = send_to(stage.gateway.admin, &ask).await;
        assert_eq!(answer.status.as_u16(), 200, "{path}");
        let front = stage.send(&ask).await;
        assert_eq!(
            front.header("x-execution").len(),
            1,
            "{path} is the upstream's here"
        );
    }
    stage.finish();
}

/// An upstream that is missing from the configuration is a failure before anything is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_broken_file_does_not_start() {
    let setup = Setup::to("http://127.0.0.1:9").config("lease = \"0s\"");
    let Err((status, errors)) = setup.try_start().await else {
        panic!("it started");
    };
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("lease"), "{errors}");
}
