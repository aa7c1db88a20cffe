//! The `OpenAPI` document against the binary, by a tool that knows nothing else about it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::kit::{Call, Stage, UNKNOWN};

const TOKEN: &str = "schema-token-0123456789";

/// The tool, as the Python package index has it.
const TOOL: &str = "schemathesis==4.32.5";

/// How long it may look for something, in seconds.
const SEARCH_SECONDS: &str = "45";

/// How long one step of it may take, installing included.
const PATIENCE: Duration = Duration::from_secs(300);

/// What must hold for every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,ignored_auth,\
                      unsupported_method";

async fn run(command: &mut Command) -> (bool, String) {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("in time").expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// The tool, in an environment of its own under the target folder; made when it is not there.
async fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("admin-schema");
    let marker = folder.join("installed");
    if std::fs::read_to_string(&marker).ok().as_deref() != Some(TOOL) {
        let mut venv = Command::new("python3");
        let (made, text) = run(venv.args(["-m", "venv"]).arg(&folder)).await;
        assert!(made, "install python3-venv: {text}");
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", TOOL]);
        let (done, text) = run(&mut pip).await;
        assert!(done, "{text}");
        std::fs::write(&marker, TOOL).expect("a file");
    }
    folder.join("bin/schemathesis")
}

/// Requests that the document allows, and that it does not: no answer is a server error, and none
/// is one that the document does not have.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_one_that_the_document_has() {
    let tool = installed().await;
    let stage = Stage::set_up(|setup| {
        let file = setup.file("tokens", format!("tool read,change,bodies {TOKEN}\n"));
        setup.config(&format!("[operators]\ntokens_file = \"{file}\""))
    })
    .await;
    let done = stage.send(&Call::payment("done")).await;
    done.assert_executed(201);
    let lost = Call::payment("lost").header("x-test-break", "panic");
    stage.send(&lost).await.assert_problem(502, UNKNOWN);
    let mut command = Command::new(tool);
    command
        .current_dir(stage.setup.path(""))
        .arg("run")
        .arg(format!("http://{}/api/openapi.json", stage.gateway.admin))
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--checks", CHECKS, "--mode", "all"])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "40", "--seed", "1"])
        .args(["--max-time", SEARCH_SECONDS])
        .args(["--generation-database", "none", "--no-color"]);
    let (passed, report) = run(&mut command).await;
    assert!(passed, "{report}");
    assert!(report.contains("generated"), "vacuous: {report}");
    println!("{report}");
    stage.finish();
}
