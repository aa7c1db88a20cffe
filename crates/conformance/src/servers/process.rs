//! One server process: started, watched until it answers, stopped, frozen and killed by its id.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it answers, also on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How much of a log is worth reading when a server does not start.
const LOG_LINES: usize = 20;

/// A server. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a server with its output in `log`, and waits until `ready` says that it answers.
    ///
    /// # Panics
    /// When it cannot be started (naming `package`, which brings it), ends, or stays silent.
    #[must_use]
    pub fn start(
        command: &mut Command,
        package: &str,
        log: &Path,
        mut ready: impl FnMut() -> bool,
    ) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log file"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start ({error}): install {package}"));
        let mut server = Self {
            child,
            log: log.into(),
        };
        let started = Instant::now();
        while !ready() {
            if let Some(status) = server.child.try_wait().expect("a child") {
                panic!("{name} ended with {status}: {}", server.last_words());
            }
            let patient = started.elapsed() < START_PATIENCE;
            assert!(patient, "{name} does not answer: {}", server.last_words());
            std::thread::sleep(LOOK_EVERY);
        }
        server
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name: `STOP`, `CONT`, `TERM`, ….
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status()
            .expect("kill comes with procps");
        assert!(status.success(), "SIG{name} to {}", self.pid());
        if name == "STOP" {
            self.until_stopped();
        }
    }

    /// A signal is sent before it has its effect.
    fn until_stopped(&self) {
        let path = format!("/proc/{}/stat", self.pid());
        let is_stopped = || {
            let stat = std::fs::read_to_string(&path).unwrap_or_default();
            // The state follows the name, which is in parentheses and may contain anything.
            stat.rsplit_once(')')
                .is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'Z', 'X']))
        };
        while !is_stopped() {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills it at once, as `kill -9` does, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(&mut self) {
        self.signal("TERM");
        let _ = self.child.wait();
    }

    /// The end of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let skipped = lines.len().saturating_sub(LOG_LINES);
        lines.get(skipped..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that nobody uses at this moment.
#[must_use]
pub fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    socket.local_addr().expect("an address").port()
}
