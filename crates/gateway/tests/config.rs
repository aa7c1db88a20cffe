//! `onlyonce check` over the files of `tests/fixtures/config`, as an operator runs it.

use std::path::Path;
use std::process::Command;

/// The text is for people, the exit code for scripts: 1 if and only if `serve` would refuse.
#[test]
fn check_prints_what_it_found_and_exits_1_on_errors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
            command.env_remove(name);
        }
        let output = command
            .args(["check", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let expected = std::fs::read_to_string(file.with_extension("txt")).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{}",
            file.display()
        );
        let code = i32::from(expected.starts_with("error: "));
        assert_eq!(output.status.code(), Some(code), "{}", file.display());
        checked += 1;
    }
    assert!(checked >= 10);
}
