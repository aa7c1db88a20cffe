//! A `PostgreSQL` server, from Debian's package.
//!
//! `initdb` takes seconds, so its result is kept in cargo's target folder and copied for every
//! server. `PostgreSQL` refuses to run as root; a test that does so starts it as the user that the
//! package brings, or as nobody.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{Process, free_port};

const PACKAGE: &str = "postgresql";

/// Where Debian puts the servers, one folder per major version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Who may log in, and how.
pub const USER: &str = "postgres";
/// The password of [`USER`].
pub const PASSWORD: &str = "a-secret-of-the-test";

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Whether it syncs. Without, a test is faster, and a crash of the *machine* loses data; a
    /// killed server does not.
    pub fsync: bool,
    /// Lines for `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// Certificate chain and key, in PEM: the server then accepts TLS.
    pub tls: Option<(String, String)>,
    /// Whether it is a hot standby, which answers reads and refuses writes.
    pub standby: bool,
}

impl PostgresOptions {
    /// One more line for `postgresql.conf`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// A server. Ended, with everything it started, when dropped.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    folder: TempDir,
    port: u16,
}

impl Postgres {
    /// Starts a server with the defaults: it does not sync.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&PostgresOptions::default())
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with(options: &PostgresOptions) -> Self {
        Self::on_copy_of(&template(), options)
    }

    /// Starts another server on a copy of this one's data, which must be stopped. As a standby it
    /// can be promoted, and is then on the next timeline.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn copy(&self, options: &PostgresOptions) -> Self {
        assert!(self.process.is_none(), "a running server's data is no copy");
        Self::on_copy_of(&self.data(), options)
    }

    fn on_copy_of(data: &Path, options: &PostgresOptions) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self {
            process: None,
            folder,
            port: free_port(),
        };
        run(Command::new("cp").arg("-a").arg(data).arg(server.data()));
        server.configure(options);
        own(server.folder.path());
        server.launch();
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its URL, with user and password.
    #[must_use]
    pub fn url(&self) -> String {
        url_at(self.address())
    }

    /// Kills it at once, as `kill -9` of every one of its processes does.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        // Stopped first, or it might start another child that would not be killed.
        process.signal("STOP");
        let children = children(process.pid());
        process.kill();
        for child in &children {
            signal("KILL", *child);
        }
        // A new server refuses to start while one of them is there.
        while !children.iter().all(|child| has_ended(*child)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end, and waits for that. Connections are cut.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            // A "fast" shutdown: SIGTERM would wait for every client to go by itself.
            process.signal("INT");
            wait_for_the_end_of(process);
        }
    }

    /// Starts it again on the same data and port, after [`kill`](Self::kill) or
    /// [`stop`](Self::stop).
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Stops every one of its processes in its tracks: connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    /// What it wrote to its log last.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.process
            .as_ref()
            .map(Process::last_words)
            .unwrap_or_default()
    }

    /// Its whole log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn signal_all(&self, name: &str) {
        let Some(process) = &self.process else {
            return;
        };
        process.signal(name);
        for child in children(process.pid()) {
            signal(name, child);
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn configure(&self, options: &PostgresOptions) {
        let on_off = |on| if on { "on" } else { "off" };
        let mut lines = vec![
            format!("port = {}", self.port),
            "listen_addresses = '127.0.0.1'".into(),
            "unix_socket_directories = ''".into(),
            "shared_buffers = 16MB".into(),
            "max_wal_size = 128MB".into(),
            format!("fsync = {}", on_off(options.fsync)),
        ];
        if let Some((chain, key)) = &options.tls {
            fs::write(self.data().join("server.crt"), chain).expect("a certificate");
            let key_file = self.data().join("server.key");
            fs::write(&key_file, key).expect("a key");
            fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).expect("0600");
            lines.push("ssl = on".into());
        }
        if options.standby {
            fs::write(self.data().join("standby.signal"), "").expect("a file");
        }
        let settings = &options.settings;
        lines.extend(settings.iter().map(|(name, value)| {
            let value = value.replace('\'', "''");
            format!("{name} = '{value}'")
        }));
        let file = self.data().join("postgresql.conf");
        fs::write(file, lines.join("\n")).expect("settings");
    }

    fn pid_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    /// Frees the segment of shared memory that a killed server leaves. A system has only so many,
    /// some thousands, and keeps them until it is restarted. A server that is started again on the
    /// same data does this itself.
    fn free_shared_memory(&self) {
        let text = fs::read_to_string(self.pid_file()).unwrap_or_default();
        if let Some(id) = shared_memory(&text) {
            let _ = Command::new("ipcrm").args(["--shmem-id", id]).output();
        }
    }

    fn launch(&mut self) {
        let ready = self.pid_file();
        let _ = fs::remove_file(&ready);
        let mut command = as_server(&binary("postgres"));
        command.arg("-D").arg(self.data());
        let is_ready = || {
            // The last line of the file says how far the start has come.
            let text = fs::read_to_string(&ready).unwrap_or_default();
            let last = text.lines().last().unwrap_or_default().trim_end();
            matches!(last, "ready" | "standby")
        };
        let process = Process::start(&mut command, PACKAGE, &self.log_file(), is_ready);
        self.process = Some(process);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        self.free_shared_memory();
    }
}

/// The segment of shared memory that a server's file of its process names: its key and its id
/// are in the seventh line.
fn shared_memory(pid_file: &str) -> Option<&str> {
    pid_file.lines().nth(6)?.split_whitespace().nth(1)
}

/// The URL of a server, or of a proxy before it.
#[must_use]
pub fn url_at(address: SocketAddr) -> String {
    format!("postgres://{USER}:{PASSWORD}@{address}/postgres")
}

/// A program of the newest server that is installed.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let binary = entry.path().join("bin").join(name);
            binary.exists().then_some((version, binary))
        })
        .max();
    let (_, binary) = newest.unwrap_or_else(|| panic!("no {name}: install {PACKAGE}"));
    binary
}

/// What `initdb` made, made once per target folder.
fn template() -> PathBuf {
    let server = binary("initdb");
    let version = server.ancestors().nth(2).and_then(Path::file_name);
    let version = version.and_then(OsStr::to_str).unwrap_or_default();
    let folder = target_folder().join(format!("postgres-{version}-template-{}", server_user()));
    if !folder.exists() {
        make_template(&folder);
    }
    folder
}

fn make_template(folder: &Path) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let password = scratch.path().join("password");
    fs::write(&password, PASSWORD).expect("a file");
    own(scratch.path());
    let data = scratch.path().join("data");
    run(as_server(&binary("initdb"))
        .arg("--pgdata")
        .arg(&data)
        .args(["--username", USER, "--encoding", "UTF8", "--locale", "C"])
        .args(["--auth", "scram-sha-256", "--no-sync", "--wal-segsize", "1"])
        .arg("--pwfile")
        .arg(&password));
    // Made aside and renamed: whoever comes at the same time finds all of it or nothing.
    let aside = folder.with_extension(format!("{}", std::process::id()));
    run(Command::new("cp").arg("-a").arg(&data).arg(&aside));
    if fs::rename(&aside, folder).is_err() {
        let _ = fs::remove_dir_all(&aside);
    }
}

/// Cargo's target folder, if a test of cargo's is what runs; or else that for temporary files.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // target/PROFILE/deps/NAME
    let is_test = program
        .parent()
        .is_some_and(|folder| folder.ends_with("deps"));
    let target = program.ancestors().nth(3).filter(|_| is_test);
    target.map_or_else(std::env::temp_dir, Path::to_path_buf)
}

fn is_root() -> bool {
    // Who owns this process's entry is who it runs as.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The user that the server runs as: by name if that is another than the test's.
fn server_user() -> String {
    if !is_root() {
        return "self".into();
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let has_own = users.lines().any(|line| line.starts_with("postgres:"));
    if has_own { "postgres" } else { "nobody" }.into()
}

/// A command that runs as the server's user.
fn as_server(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // Unlike `su` and `runuser` it becomes the program, so that the process id is the server's.
    let mut command = Command::new("setpriv");
    command
        .arg("--reuid")
        .arg(server_user())
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

/// Gives a folder to the server's user.
fn own(folder: &Path) {
    if is_root() {
        run(Command::new("chown")
            .arg("-R")
            .arg(server_user())
            .arg(folder));
    }
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start ({error})"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
}

fn children(pid: u32) -> Vec<u32> {
    let output = Command::new("pgrep")
        .args(["-P", &pid.to_string()])
        .output()
        .expect("pgrep comes with procps");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A process that is gone by now needs no signal.
fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .output();
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name in parentheses; Z has ended and is not yet waited for.
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    state.is_empty() || state.starts_with('Z')
}

fn wait_for_the_end_of(process: Process) {
    while !has_ended(process.pid()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(process);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers that are killed by the thousand, one for each test, must not use up the system's
    /// segments: the tests after them would not get a server.
    #[test]
    fn a_dropped_server_leaves_no_shared_memory() {
        let server = Postgres::start();
        let pid_file = fs::read_to_string(server.pid_file()).expect("it runs");
        let id = shared_memory(&pid_file).expect("it has a segment");
        assert!(segments().iter().any(|segment| segment == id));
        drop(server);
        assert!(!segments().iter().any(|segment| segment == id));
    }

    /// The ids of all segments that the system has.
    fn segments() -> Vec<String> {
        let table = fs::read_to_string("/proc/sysvipc/shm").expect("the system's table");
        let id = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        table.lines().filter_map(id).collect()
    }
}
