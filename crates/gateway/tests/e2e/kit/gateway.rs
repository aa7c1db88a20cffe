//! The process: started on free ports, found by what it announces, ended by its number.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{PATIENCE, soon, until};

/// What to start, and around which folder. A clone starts again on the same folder.
#[derive(Clone)]
pub(crate) struct Setup {
    upstreams: Vec<String>,
    config: String,
    wrapper: Vec<String>,
    store: String,
    folder: Arc<TempDir>,
}

impl Setup {
    /// A gateway with the default configuration in front of this upstream.
    pub(crate) fn new(upstream: SocketAddr) -> Self {
        Self::to(&format!("http://{upstream}"))
    }

    /// The same, by its URL.
    pub(crate) fn to(url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            upstreams: vec![url.to_owned()],
            config: String::new(),
            wrapper: Vec::new(),
            store: embedded(&folder.path().join("data")),
            folder: Arc::new(folder),
        }
    }

    /// With one more address of the upstream.
    pub(crate) fn also(mut self, upstream: SocketAddr) -> Self {
        self.upstreams.push(format!("http://{upstream}"));
        self
    }

    /// With this configuration file.
    pub(crate) fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// Started by this command, to which the gateway's own is appended.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
        self
    }

    /// With its data in this folder.
    pub(crate) fn data(mut self, folder: &Path) -> Self {
        self.store = embedded(folder);
        self
    }

    /// With its keys in this store.
    pub(crate) fn store(mut self, url: &str) -> Self {
        url.clone_into(&mut self.store);
        self
    }

    /// A path in the test's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the test's folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path.to_str().expect("text").to_owned()
    }

    fn command(&self) -> Command {
        let config = self.file("onlyonce.toml", &self.config);
        let mut line: Vec<OsString> = self.wrapper.iter().map(OsString::from).collect();
        line.push(env!("CARGO_BIN_EXE_onlyonce").into());
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).arg("serve");
        for (flag, value) in [
            ("--listen", "127.0.0.1:0"),
            ("--admin", "127.0.0.1:0"),
            ("--config", &config),
            ("--store", &self.store),
        ] {
            command.args([flag, value]);
        }
        for upstream in &self.upstreams {
            command.args(["--upstream", upstream]);
        }
        without_settings(&mut command);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts it and waits until it accepts connections.
    pub(crate) async fn start(&self) -> Gateway {
        match self.try_start().await {
            Ok(gateway) => gateway,
            Err((status, text)) => panic!("the gateway did not start: {status}: {text}"),
        }
    }

    /// The same where it may end instead: then how, and with what words.
    pub(crate) async fn try_start(&self) -> Result<Gateway, (ExitStatus, String)> {
        let log = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a log");
        let (log_file, log) = log.keep().expect("a log");
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().expect("the binary runs");
        let output = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(output).lines();
        let announced = soon(async {
            let front = lines.next_line().await.expect("text")?;
            let admin = lines.next_line().await.expect("text")?;
            Some((front, admin))
        });
        let Some((front, admin)) = announced.await else {
            let status = soon(child.wait()).await.expect("an end");
            return Err((status, std::fs::read_to_string(log).expect("a log")));
        };
        Ok(Gateway {
            address: address_in(&front),
            admin: address_in(&admin),
            child,
            log,
            lines,
            _folder: Arc::clone(&self.folder),
        })
    }
}

fn embedded(folder: &Path) -> String {
    format!("embedded:{}", folder.display())
}

/// The settings of whoever runs the tests are not those of the gateway under test.
fn without_settings(command: &mut Command) {
    // A DynamoDB of the test's own takes any credentials, but not none.
    command.envs([
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONLYONCE_")) {
        command.env_remove(name);
    }
}

/// Runs the binary with these arguments to its end.
pub(crate) async fn binary(arguments: &[&str]) -> Output {
    binary_with(arguments, &[]).await
}

/// The same with these variables in its environment.
pub(crate) async fn binary_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    without_settings(&mut command);
    command.envs(variables.iter().copied());
    soon(command.output()).await.expect("the binary runs")
}

fn address_in(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once("://").expect("an address");
    let address = rest.split_whitespace().next().expect("an address");
    address.parse().expect("an address")
}

/// A gateway that accepts connections. Killed when dropped, also by a panic.
pub(crate) struct Gateway {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where operators connect.
    pub(crate) admin: SocketAddr,
    child: Child,
    log: PathBuf,
    // Held open, or the gateway would write to nobody.
    lines: Lines<BufReader<ChildStdout>>,
    _folder: Arc<TempDir>,
}

impl Gateway {
    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("running")
    }

    /// Sends it a signal, by name: TERM, KILL, STOP, CONT, HUP.
    pub(crate) async fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args([&format!("-{name}"), &self.pid().to_string()]);
        let sent = kill.status().await.expect("kill runs");
        assert!(sent.success(), "kill -{name}");
    }

    /// The address in its next announcement, after those of clients and operators.
    pub(crate) async fn announced(&mut self) -> SocketAddr {
        let line = soon(self.lines.next_line()).await.expect("text");
        address_in(&line.expect("an announcement"))
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        soon(self.child.wait()).await.expect("an end")
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a status").is_some()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Waits until it has logged this.
    pub(crate) async fn logged(&self, text: &str) {
        let found = until(|| self.log().contains(text).then_some(()));
        tokio::select! {
            () = found => {}
            () = tokio::time::sleep(PATIENCE / 2) => panic!("no {text:?} in {}", self.log()),
        }
    }
}
