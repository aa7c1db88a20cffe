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

/// A container sets variables more easily than arguments.
#[test]
fn the_file_may_be_named_by_the_environment_and_a_flag_wins() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, port: u16| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("listen = \"127.0.0.1:{port}\"\n")).unwrap();
        path
    };
    let (named, given) = (file("named.toml", 1111), file("given.toml", 2222));
    let printed = |flags: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.env("ONLYONCE_CONFIG", &named);
        command.args(["serve", "--print-config"]);
        for flag in flags {
            command.arg("--config").arg(flag);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(printed(&[]).contains("127.0.0.1:1111"));
    assert!(printed(&[&given]).contains("127.0.0.1:2222"));
}
