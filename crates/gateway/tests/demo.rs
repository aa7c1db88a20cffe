//! `onlyonce demo`, as a user or a script runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let ran = command.arg("demo").args(arguments).output();
    ran.unwrap_or_else(|error| unreachable!("the binary runs: {error}"))
}

fn count(report: &Value, path: &str, field: &str) -> u64 {
    let value = report.get(path).and_then(|side| side.get(field)?.as_u64());
    value.unwrap_or_else(|| unreachable!("{path}.{field} is missing in {report}"))
}

/// The contract of `demo --json`, and the promise of the whole project: the same retries charge
/// twice without the gateway and never with it.
#[test]
fn three_seconds_show_duplicates_without_the_gateway_and_none_with_it() {
    let output = demo(&["--seconds", "3", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");

    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(count(&report, "gateway", "asked") > 0, "{report}");
    assert_eq!(
        count(&report, "gateway", "asked"),
        count(&report, "direct", "asked")
    );

    assert_eq!(count(&report, "gateway", "duplicates"), 0, "{report}");
    assert!(count(&report, "gateway", "executed") <= count(&report, "gateway", "asked"));
    assert!(count(&report, "gateway", "executed") >= count(&report, "gateway", "paid"));
    assert!(count(&report, "gateway", "replayed") > 0, "{report}");

    assert!(count(&report, "direct", "duplicates") > 0, "{report}");
    assert_eq!(count(&report, "direct", "replayed"), 0);
}

/// The ledger is there to be checked by anybody: two lines for one order are a duplicate.
#[test]
fn kept_ledgers_tell_the_same_story() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("kept");
    let output = demo(&[
        "--seconds",
        "1",
        "--json",
        "--keep",
        folder.to_str().expect("a path"),
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for (path, name) in [
        ("gateway", "through-onlyonce.jsonl"),
        ("direct", "straight-to-the-api.jsonl"),
    ] {
        let text = std::fs::read_to_string(folder.join(name)).expect("a ledger");
        let mut orders: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a charge")["order"].to_string())
            .collect();
        assert_eq!(orders.len() as u64, count(&report, path, "executed"));
        orders.sort();
        orders.dedup();
        let duplicates = text.lines().count() - orders.len();
        assert_eq!(duplicates as u64, count(&report, path, "duplicates"));
    }
}

#[test]
fn arguments_that_cannot_be_used_exit_with_2() {
    let parent = tempfile::tempdir().expect("a folder");
    std::fs::write(parent.path().join("mine"), "x").expect("a file");
    let folder = parent.path().to_str().expect("a path");
    let output = demo(&["--seconds", "1", "--keep", folder]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not empty"));
    assert!(parent.path().join("mine").exists());
    assert_eq!(demo(&["--seconds", "0"]).status.code(), Some(2));
}

/// Ctrl-C is how most runs end.
#[cfg(unix)]
#[test]
fn a_signal_ends_it_with_a_summary_and_leaves_nothing_behind() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;

    let temporary = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .arg("demo")
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    while !text.contains("curl -i http://127.0.0.1:") {
        let read = stdout.read_line(&mut text).expect("its output");
        assert!(read > 0, "it ended by itself: {text}");
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    stdout.read_to_string(&mut text).expect("its output");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(
        text.contains("Through onlyonce nothing was charged twice."),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "a pipe gets no colours");
    let left = std::fs::read_dir(temporary.path())
        .expect("the folder")
        .count();
    assert_eq!(left, 0, "the temporary folder is removed");
}
