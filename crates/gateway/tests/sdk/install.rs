//! The SDKs, installed once under the target folder, at the versions that `tests/sdk` pins.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What runs a program of `tests/sdk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// A virtualenv with `requirements.txt`.
    Python,
    /// A folder with the packages of `package.json`.
    Node,
    /// A crate of its own.
    Rust,
}

/// The programs.
pub(crate) fn programs() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("tests/sdk").canonicalize().expect("tests/sdk")
}

impl Runner {
    /// The command that runs a program, installed first if it must be. Tests are processes that
    /// start at once, so all but one wait here for the first.
    pub(crate) fn command(self, program: &str) -> Command {
        let folder = folder(self.name());
        let lock = File::create(folder.join("lock")).expect("a lock");
        lock.lock().expect("a lock");
        self.install(&folder);
        drop(lock);
        let path = programs().join(program);
        match self {
            Self::Python => {
                let mut command = Command::new(folder.join("venv/bin/python"));
                // The programs' folder stays as it is.
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(path);
                command
            }
            Self::Node => {
                let mut command = Command::new("node");
                command.current_dir(folder).arg(path);
                command
            }
            Self::Rust => Command::new(folder.join("debug/sdk-async-stripe")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Rust => "rust",
        }
    }

    /// Installs, unless it was done with the same list before.
    fn install(self, folder: &Path) {
        let (list, install): (&str, fn(&Path)) = match self {
            Self::Python => ("requirements.txt", venv),
            Self::Node => ("package.json", npm),
            // Cargo knows by itself what has changed.
            Self::Rust => return cargo(folder),
        };
        let wanted = fs::read(programs().join(list)).expect("a list");
        let marker = folder.join("installed");
        if fs::read(&marker).ok().as_ref() != Some(&wanted) {
            install(folder);
            fs::write(marker, wanted).expect("a marker");
        }
    }
}

/// A folder under the target folder.
fn folder(name: &str) -> PathBuf {
    // CARGO_TARGET_TMPDIR is the target folder's `tmp`.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let folder = target.expect("a target folder").join("sdk").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn venv(folder: &Path) {
    let venv = folder.join("venv");
    done(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv),
        "python3 python3-venv",
    );
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--no-deps", "-r"]);
    done(pip.arg(programs().join("requirements.txt")), "python3-venv");
}

fn npm(folder: &Path) {
    let list = programs().join("package.json");
    fs::copy(list, folder.join("package.json")).expect("a copy");
    let mut npm = Command::new("npm");
    npm.current_dir(folder);
    npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error"]);
    done(&mut npm, "npm");
}

fn cargo(folder: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--manifest-path"]);
    cargo.arg(programs().join("async-stripe/Cargo.toml"));
    cargo.arg("--target-dir").arg(folder);
    // Flags that are meant for the tests themselves, such as coverage.
    cargo.env_remove("RUSTFLAGS");
    done(&mut cargo, "cargo");
}

fn done(command: &mut Command, package: &str) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: install {package}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}
