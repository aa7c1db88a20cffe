//! The servers that are measured: throwaway processes that never outlive the benchmark.
//!
//! Each is ended when its [`Process`] is dropped, so also by a panic; a signal ends all of them
//! before it ends the benchmark.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::machine::{descendants, processor_time_of, resident_bytes_of};

/// What a signal has to clean up.
static LEFTOVERS: Mutex<Leftovers> = Mutex::new(Leftovers {
    pids: Vec::new(),
    folders: Vec::new(),
});

struct Leftovers {
    pids: Vec<u32>,
    folders: Vec<PathBuf>,
}

/// A server in a process of its own, listening on loopback.
pub(crate) struct Process {
    child: Child,
    pub(crate) port: u16,
}

impl Process {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// With the reason why it is not measured.
    pub(crate) fn start(command: &mut Command, port: u16, log: &Path) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .map_err(|error| format!("{name} does not start ({error})"))?;
        LEFTOVERS.lock().unwrap().pids.push(child.id());
        let mut process = Self { child, port };
        // Opening a store of millions of keys takes a while.
        for _ in 0..2400 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(process);
            }
            if process.child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let said: Vec<&str> = said.lines().rev().take(3).collect();
        Err(format!("{name} does not answer: {}", said.join(" ⏎ ")))
    }

    /// Ends the server as its operator would, and waits until it has.
    ///
    /// # Errors
    /// When it says that it did not end well.
    pub(crate) fn end(mut self) -> Result<(), String> {
        signal("-TERM", &[self.child.id()]);
        let status = self.child.wait().unwrap();
        status
            .success()
            .then_some(())
            .ok_or_else(|| format!("ended with {status}"))
    }

    /// Processor time of the server and all its workers so far.
    pub(crate) fn processor_time(&self) -> Duration {
        self.all().into_iter().map(processor_time_of).sum()
    }

    /// Memory of the server and all its workers, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.all().into_iter().map(resident_bytes_of).sum()
    }

    fn all(&self) -> Vec<u32> {
        let mut all = descendants(self.child.id());
        all.push(self.child.id());
        all
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = self.child.id();
        let workers = descendants(pid);
        let _ = self.child.kill();
        signal("-9", &workers);
        let _ = self.child.wait();
        if let Ok(mut leftovers) = LEFTOVERS.lock() {
            leftovers.pids.retain(|other| *other != pid);
        }
    }
}

/// A loopback port that nobody uses.
pub(crate) fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap().port()
}

/// Removes a folder if a signal ends the benchmark.
pub(crate) fn remove_at_signal(folder: &Path) {
    LEFTOVERS.lock().unwrap().folders.push(folder.into());
}

/// From now on SIGINT and SIGTERM end every server before they end the benchmark.
pub(crate) fn end_with_signals() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate()).unwrap();
            let mut interrupt = signal(SignalKind::interrupt()).unwrap();
            std::future::poll_fn(|context| {
                let terminated = terminate.poll_recv(context).is_ready();
                if terminated || interrupt.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(());
                }
                std::task::Poll::Pending
            })
            .await;
        });
        let leftovers = LEFTOVERS.lock().unwrap();
        for pid in &leftovers.pids {
            signal("-9", &[vec![*pid], descendants(*pid)].concat());
        }
        for folder in &leftovers.folders {
            let _ = std::fs::remove_dir_all(folder);
        }
        std::process::exit(130);
    });
}

fn signal(signal: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let pids = pids.iter().map(ToString::to_string);
    let _ = Command::new("kill")
        .arg(signal)
        .args(pids)
        .stderr(Stdio::null())
        .status();
}
