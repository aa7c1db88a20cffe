//! The dashboard in a real browser, in front of a real gateway.
//!
//! This file sets the stage: an upstream that answers with payloads or loses its answers, a gateway
//! whose route is named with one, operators with tokens. What is looked at and clicked is in
//! `looking.mjs` and `changing.mjs`, which `run.mjs` runs in Chromium by way of Playwright; `kit.mjs`
//! is how they do it. Needs `chromium`, `node` and `npm`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and owns its clock"
)]

#[path = "../e2e/kit/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the kit of all tests of the binary; this one needs a part"
)]
mod kit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kit::{Gateway, Scripted, Seen, Setup, Wire};

/// All checks take about a minute, more on a busy machine; a browser that hangs fails here.
const BROWSER_PATIENCE: Duration = Duration::from_secs(540);

/// Sets a mark if it ever runs. `kit.mjs` has the same.
const PAYLOAD: &str = r#"<img src=x onerror="window.ran=1"><script>window.ran=2</script>"#;

const TOKEN: &str = "a-token-of-alice-3f9a1c77d2";
const TOKEN_READ: &str = "a-token-of-bob-81d20b4e5f60";

/// What runs in Node; the first file decides whether packages are installed anew.
const FILES: [&str; 5] = [
    "package.json",
    "run.mjs",
    "kit.mjs",
    "looking.mjs",
    "changing.mjs",
];

/// Answers payments with payloads, and loses the answers to everything else.
async fn upstream(mut wire: Wire, seen: Seen) {
    while let Some(request) = seen.request(&mut wire).await {
        if !request.start.starts_with("POST /payments ") {
            return;
        }
        let body = serde_json::json!({ "paid": PAYLOAD }).to_string();
        let answer = format!(
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nx-note: {PAYLOAD}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        wire.send(answer).await;
    }
}

/// A gateway for two operators: one may do everything, the other look.
async fn gateway(upstream: &Scripted) -> Gateway {
    let setup = Setup::new(upstream.address);
    let tokens = setup.file(
        "operators.tokens",
        format!("alice read,change,bodies {TOKEN}\nbob read {TOKEN_READ}\n"),
    );
    // Long pauses, so that nothing but the browser moves a key.
    let config = format!(
        "[operators]\ntokens_file = '{tokens}'\n\
         [[route]]\nname = '{PAYLOAD}'\npath = '/lost'\nreconcile_delay = '1h'\nreconcile_delay_max = '1h'\n\
         [[route]]\nname = 'payments'\npath = '/payments'\n"
    );
    setup.config(&config).start().await
}

/// The scripts under the target folder, with their packages.
fn installed() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dashboard");
    fs::create_dir_all(&folder).unwrap();
    for file in FILES {
        fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    let wanted = fs::read(source.join(FILES[0])).unwrap();
    let marker = folder.join("installed");
    if fs::read(&marker).ok().as_ref() != Some(&wanted) {
        let mut npm = Command::new("npm");
        npm.current_dir(&folder);
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error"]);
        let output = npm.output().expect("npm: install npm");
        assert!(output.status.success(), "npm: {}", words(&output));
        fs::write(marker, wanted).unwrap();
    }
    folder
}

fn words(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Every view, the charts, search, all four decisions, refusals, payloads, keyboard and phone: each
/// check is a line of the output.
#[tokio::test(flavor = "multi_thread")]
async fn people_see_and_settle_in_a_real_browser() {
    let upstream = Scripted::start(upstream).await;
    let gateway = gateway(&upstream).await;
    let mut node = tokio::process::Command::new("node");
    node.arg("run.mjs").current_dir(installed());
    node.envs([
        ("DASHBOARD_ADMIN", format!("http://{}", gateway.admin)),
        ("DASHBOARD_GATEWAY", format!("http://{}", gateway.address)),
        ("DASHBOARD_TOKEN", TOKEN.to_owned()),
        ("DASHBOARD_TOKEN_READ", TOKEN_READ.to_owned()),
    ]);
    node.stdin(Stdio::null()).kill_on_drop(true);
    let ran = tokio::time::timeout(BROWSER_PATIENCE, node.output()).await;
    let output = ran
        .expect("the browser ends")
        .expect("node: install nodejs");
    let said = words(&output);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{}", gateway.log());
    assert!(said.contains("all passed"), "{said}");
    for number in 0..12 {
        let count = upstream.seen.count(&format!("paid-{number}"));
        assert_eq!(count, 1, "paid-{number} was charged {count} times");
    }
}
