//! A disk that fails, is cut off, or is full: nothing runs without a durable claim.

use std::path::{Path, PathBuf};
use std::process::Command;

use onlyonce_conformance::http_suite::{Upstream, same, serve};

use crate::kit::{
    Call, STORE_UNAVAILABLE, Setup, Stage, UNKNOWN, UNREACHABLE, send_to, soon, try_connect,
};

const SHORT_LEASE: &str = "lease = \"1s\"\n[engine]\nsweep_every = \"100ms\"\nstore_timeout = \"300ms\"\nsettle_patience = \"500ms\"";

/// Runs the gateway so that this happens at a sync. `-D` keeps the gateway the child of the test,
/// so that it is ended by its own number.
fn inject(what: &str) -> Vec<String> {
    let inject = format!("inject=fsync,fdatasync:{what}");
    let words = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
    ];
    let words = words.iter().map(ToString::to_string);
    words.chain([inject]).collect()
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

/// A gateway that is not started yet, over a folder that is new, or was made and written to by a
/// gateway before. strace counts for every thread: in a new folder the first syncs are those that
/// make it, in an old one those of claims and completions.
async fn prepared(is_new: bool) -> (Upstream, Setup) {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await).config(SHORT_LEASE);
    if !is_new {
        let mut before = setup.start().await;
        send_to(before.address, &Call::payment("before"))
            .await
            .assert_executed(201);
        before.signal("TERM").await;
        before.ended().await;
    }
    (upstream, setup)
}

/// Killed at its Nth sync, whichever that is: making the folder, a claim, a completion. After
/// the restart every answer that a client saw is there, and nothing has happened twice.
async fn killed_at_sync(number: usize, is_new: bool) -> bool {
    let line = inject(&format!("signal=SIGKILL:when={number}"));
    let (upstream, setup) = prepared(is_new).await;
    let traced = setup.clone().under(&words(&line)).try_start().await;
    let mut seen = Vec::new();
    let calls: Vec<_> = (0..4).map(|n| Call::payment(&format!("k{n}"))).collect();
    if let Ok(mut gateway) = traced {
        for call in &calls {
            match try_connect(gateway.address, call).await {
                Some(answer) if answer.status.as_u16() == 201 => seen.push((call, answer)),
                Some(answer) => panic!("sync {number}: {answer:?}"),
                None => break,
            }
        }
        if seen.len() == calls.len() {
            // Nothing fired: the sweep is over.
            return false;
        }
        gateway.ended().await;
    }
    let stage = Stage::of(upstream, setup).await;
    for (call, first) in &seen {
        let retry = stage.send(call).await;
        assert!(
            retry.is_replay(),
            "sync {number}: lost completion: {retry:?}"
        );
        same(first, &retry);
    }
    for call in &calls {
        let answer = stage.settled(call).await;
        if answer.status.as_u16() != 201 {
            answer.assert_problem(409, UNKNOWN);
        }
        assert!(stage.effects(call) <= 1, "sync {number}: double");
    }
    stage.finish();
    true
}

async fn sweep(name: &str, mut fires: impl AsyncFnMut(usize) -> bool) {
    let mut number = 1;
    while fires(number).await {
        number += 1;
        assert!(number < 60, "the sweep does not end");
    }
    println!("{name} each of {} syncs", number - 1);
    assert!(number > 8, "vacuous: only {number} syncs");
}

/// Acknowledged claims and completions survive a kill anywhere on the write path.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_at_every_sync_loses_no_answer_and_doubles_nothing() {
    sweep("killed at", async |number| {
        killed_at_sync(number, false).await
    })
    .await;
}

/// The same while the folder is made, and with an empty log.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_at_every_sync_of_the_first_start_loses_nothing() {
    sweep("killed at", async |number| {
        killed_at_sync(number, true).await
    })
    .await;
}

/// After a failed sync nobody knows what is on the disk, so the store stops: new work is refused,
/// what is known is still answered, and a restart finds out from the log.
async fn failed_at_sync(number: usize, is_new: bool) -> bool {
    let line = inject(&format!("error=EIO:when={number}"));
    let (upstream, setup) = prepared(is_new).await;
    let Ok(gateway) = setup.clone().under(&words(&line)).try_start().await else {
        return true;
    };
    let mut stage = Stage::over(upstream, setup, gateway);
    let calls: Vec<_> = (0..4).map(|n| Call::payment(&format!("k{n}"))).collect();
    let (mut seen, mut refused) = (Vec::new(), 0);
    for call in &calls {
        let answer = stage.send(call).await;
        match answer.status.as_u16() {
            201 => seen.push((call, answer)),
            502 => answer.assert_problem(502, UNKNOWN),
            _ => {
                answer.assert_problem(503, STORE_UNAVAILABLE);
                assert_eq!(
                    stage.effects(call),
                    0,
                    "nothing runs without a durable claim"
                );
                refused += 1;
            }
        }
    }
    if seen.len() == calls.len() {
        stage.gateway.signal("KILL").await;
        return false;
    }
    let new = Call::payment("new");
    stage
        .send(&new)
        .await
        .assert_problem(503, STORE_UNAVAILABLE);
    assert_eq!(stage.effects(&new), 0);
    for (call, first) in &seen {
        stage.assert_replays(call, first).await;
    }
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    stage.restart().await;
    for (call, first) in &seen {
        stage.assert_replays(call, first).await;
    }
    for call in &calls {
        let answer = stage.settled(call).await;
        if answer.status.as_u16() != 201 {
            answer.assert_problem(409, UNKNOWN);
        }
    }
    println!("sync {number}: {} answered, {refused} refused", seen.len());
    stage.finish();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_at_any_point_stops_the_store_and_a_restart_recovers() {
    sweep("failed at", async |number| {
        failed_at_sync(number, false).await
    })
    .await;
}

/// A store that cannot be made is not served from.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_the_first_start_is_no_start() {
    sweep("failed at", async |number| {
        failed_at_sync(number, true).await
    })
    .await;
}

/// A small file system, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path) -> Option<Self> {
        let path = folder.join("small");
        std::fs::create_dir(&path).expect("a folder");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4m", "onlyonce-test"])
            .arg(&path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self(path))
    }

    fn enlarge(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,size=32m"]).arg(&self.0);
        assert!(mount.status().expect("mount runs").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gateway that a panic left behind may still hold it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A full disk is the ordinary end of a log that nobody watches. Nothing may run that cannot be
/// remembered, and what is remembered is still given.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_nothing_runs_and_replays_are_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        println!("skipped: mounting a tmpfs is not permitted here");
        return;
    };
    let data = disk.0.join("data");
    let config = "[limits]\nstored_response = \"512KiB\"\n[engine]\nsettle_patience = \"500ms\"";
    let mut stage = Stage::set_up(|setup| setup.config(config).data(&data)).await;
    let large = |key: &str| Call::payment(key).header("x-test-body-bytes", "400000");
    let (mut seen, mut full) = (Vec::new(), 0);
    for number in 0..60 {
        let call = large(&format!("k{number}"));
        let answer = stage.send(&call).await;
        if answer.status.as_u16() == 201 {
            seen.push((call, answer));
            continue;
        }
        full += 1;
        let executed = stage.effects(&call);
        match answer.status.as_u16() {
            503 => assert_eq!(executed, 0, "refused and executed"),
            _ => answer.assert_problem(502, UNKNOWN),
        }
        if full > 3 {
            break;
        }
    }
    assert!(
        seen.len() > 3 && full > 3,
        "{} kept, {full} refused",
        seen.len()
    );
    let new = Call::payment("new");
    stage
        .send(&new)
        .await
        .assert_problem(503, STORE_UNAVAILABLE);
    assert_eq!(
        stage.effects(&new),
        0,
        "nothing runs without a durable claim"
    );
    for (call, first) in &seen {
        stage.assert_replays(call, first).await;
    }
    // A restart finds the disk as full as before, twice: it serves what it has.
    for number in 0..2 {
        stage.gateway.signal("KILL").await;
        stage.gateway.ended().await;
        stage.restart().await;
        let new = Call::payment(&format!("after {number}").replace(' ', "-"));
        let refused = stage.send(&new).await;
        refused.assert_problem(503, STORE_UNAVAILABLE);
        assert_eq!(stage.effects(&new), 0);
        for (call, first) in &seen {
            stage.assert_replays(call, first).await;
        }
        stage.gateway.logged("the disk is full").await;
    }
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    disk.enlarge();
    stage.restart().await;
    for (call, first) in &seen {
        stage.assert_replays(call, first).await;
    }
    stage.send(&new).await.assert_executed(201);
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    stage.finish();
}

/// The log may be on a disk that is full, or be read by a program that has ended. A line that cannot
/// be written must cost no more than the line.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_changes_nothing() {
    let nobody = tokio::net::TcpSocket::new_v4().expect("a socket");
    nobody
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let address = nobody.local_addr().expect("an address");
    let unwritable = ["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"];
    let config = "[log]\nlevel = \"debug\"";
    let setup = Setup::new(address).config(config).under(&unwritable);
    let mut gateway = setup.start().await;
    for _ in 0..2 {
        let refused = send_to(gateway.address, &Call::payment("k")).await;
        refused.assert_problem(503, UNREACHABLE);
    }
    gateway.signal("TERM").await;
    assert!(gateway.ended().await.success());
}

/// A named pipe, open for both: it has a reader, who may never read.
struct Pipe {
    path: String,
    both: std::fs::File,
    _folder: tempfile::TempDir,
}

impl Pipe {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let mut both = std::fs::OpenOptions::new();
        let both = both.read(true).write(true).open(&path).expect("a pipe");
        let path = path.to_str().expect("text").to_owned();
        Self {
            path,
            both,
            _folder: folder,
        }
    }

    /// Writes to it until it takes no more.
    async fn fill(&self) {
        let mut filling = tokio::net::unix::pipe::OpenOptions::new();
        let filling = filling.read_write(true).open_sender(&self.path);
        let filling = filling.expect("a pipe");
        soon(filling.writable()).await.expect("room");
        while filling.try_write(&[b'x'; 4096]).is_ok() {}
    }

    /// A command whose standard error this is.
    fn redirect(&self) -> String {
        format!("exec \"$@\" 2>'{}'", self.path)
    }

    /// Everything that comes, until nobody writes to it any more.
    fn read_to_end(self) -> std::thread::JoinHandle<String> {
        let mut reader = std::fs::File::open(&self.path).expect("a pipe");
        drop(self.both);
        std::thread::spawn(move || {
            let mut all = String::new();
            std::io::Read::read_to_string(&mut reader, &mut all).expect("text");
            all
        })
    }
}

/// A pipe takes 64 KiB, and then nothing more until somebody reads. Lines that find no room are lost; how
/// many is told in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_nobody_up_and_tells_what_it_lost() {
    let pipe = Pipe::new();
    let redirect = pipe.redirect();
    let upstream = serve(Upstream::new()).await;
    let mut gateway = Setup::new(upstream)
        .config("[log]\nlevel = \"debug\"")
        .under(&["sh", "-c", redirect.as_str(), "sh"])
        .start()
        .await;
    // Several lines of each request have its path, and 4 MiB may wait.
    let long = "x".repeat(30_000);
    for number in 0..100 {
        let mut call = Call::payment(&format!("k{number}"));
        call.target = format!("/payments/{long}");
        send_to(gateway.address, &call).await;
    }
    let log = pipe.read_to_end();
    gateway.signal("TERM").await;
    assert!(gateway.ended().await.success());
    let log = log.join().expect("a reader");
    let told = log.lines().any(|line| {
        line.contains("ERROR")
            && line.contains("lines of the log were lost")
            && !line.contains("xxx")
    });
    assert!(told, "{} bytes", log.len());
}

/// The complaint of a gateway that cannot start is a line like any other: it must not keep the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_cannot_start_ends_though_nobody_reads_why() {
    let pipe = Pipe::new();
    pipe.fill().await;
    let redirect = pipe.redirect();
    let nobody = "127.0.0.1:9".parse().expect("an address");
    let started = Setup::new(nobody)
        .store("embedded:/dev/null/nowhere")
        .under(&["sh", "-c", redirect.as_str(), "sh"])
        .try_start()
        .await;
    let (status, _) = started.err().expect("no folder, no gateway");
    assert_eq!(status.code(), Some(1));
    drop(pipe);
}
