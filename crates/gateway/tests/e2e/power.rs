//! The power is cut: what the disk had not taken by then is gone, whatever the system still held.
//!
//! A file system of its own on a loop device is shut down under the gateway, without writing what
//! is in memory nor the journal (`EXT4_IOC_SHUTDOWN`), and mounted anew. The gateway is stopped at
//! that moment, in the middle of whatever it does: without power nothing is answered.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onlyonce_conformance::http_suite::{Answer, same};
use tokio::task::JoinSet;

use crate::kit::{Call, Stage, UNKNOWN, try_connect, until};

const CUTS: usize = 3;
const CLIENTS: usize = 8;
const ANSWERS_BEFORE_A_CUT: usize = 150;

/// Small files, so that cuts also meet the change from one to the next.
const CONFIG: &str = "lease = \"1s\"\n\
    [engine]\nsweep_every = \"100ms\"\nstore_timeout = \"300ms\"\nsettle_patience = \"500ms\"\n\
    [embedded]\nsegment_bytes_max = \"64KiB\"\n";

/// Shuts a mounted ext4 down: flag 2, without flushing the journal.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys\n\
    folder = os.open(sys.argv[1], os.O_RDONLY)\n\
    fcntl.ioctl(folder, 0x8004587d, struct.pack('I', 2))\n";

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(errors)
}

/// A disk that can lose its power.
struct Disk {
    image: PathBuf,
    mounted: PathBuf,
}

impl Disk {
    fn new(folder: &Path) -> Result<Self, String> {
        let disk = Self {
            image: folder.join("disk.img"),
            mounted: folder.join("disk"),
        };
        let file = std::fs::File::create(&disk.image).expect("a file");
        file.set_len(128 * 1024 * 1024).expect("a sparse file");
        std::fs::create_dir(&disk.mounted).expect("a folder");
        run(Command::new("mkfs.ext4").arg("-q").arg(&disk.image))?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        run(mount
            .args(["-o", "loop"])
            .args([&self.image, &self.mounted]))
    }

    fn unmount(&self) -> Result<(), String> {
        run(Command::new("umount").arg(&self.mounted))
    }

    fn cut(&self) -> Result<(), String> {
        let mut python = Command::new("python3");
        run(python.args(["-c", SHUT_DOWN]).arg(&self.mounted))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a gateway that a panic left behind may still hold it.
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).output();
    }
}

/// A disk, if this machine can have one. Whoever reads the log sees if it cannot.
fn disk(folder: &Path) -> Option<Disk> {
    let made = Disk::new(folder);
    let why = made.as_ref().err().cloned();
    if let Some(why) = why {
        println!("NOT TESTED: a power cut is not possible here: no loop mount: {why}");
    }
    made.ok()
}

/// Clients that send new keys until they are told to stop, and what they were answered.
struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    tasks: JoinSet<Vec<(Call, Option<Answer>)>>,
}

impl Clients {
    fn start(stage: &Stage, round: usize) -> Self {
        let (stop, answered) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let (stop, answered): (Arc<AtomicBool>, Arc<AtomicUsize>) =
                (Arc::clone(&stop), Arc::clone(&answered));
            let address = stage.address();
            tasks.spawn(async move {
                let mut sent = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let call = Call::payment(&format!("{round}-{client}-{}", sent.len()));
                    let answer = try_connect(address, &call).await;
                    let created = answer.filter(|answer| answer.status.as_u16() == 201);
                    let is_answered = usize::from(created.is_some());
                    answered.fetch_add(is_answered, Ordering::SeqCst);
                    sent.push((call, created));
                }
                sent
            });
        }
        Self {
            stop,
            answered,
            tasks,
        }
    }

    async fn stop(mut self) -> Vec<(Call, Option<Answer>)> {
        self.stop.store(true, Ordering::SeqCst);
        let mut sent = Vec::new();
        while let Some(some) = self.tasks.join_next().await {
            sent.extend(some.expect("a client"));
        }
        sent
    }
}

/// Sends until the disk loses its power, and gives what was sent. The gateway has ended then, and
/// the disk is mounted again.
async fn until_the_cut(
    stage: &mut Stage,
    disk: &Disk,
    round: usize,
) -> Vec<(Call, Option<Answer>)> {
    let clients = Clients::start(stage, round);
    let enough = || clients.answered.load(Ordering::SeqCst) >= ANSWERS_BEFORE_A_CUT;
    until(|| enough().then_some(())).await;
    stage.gateway.signal("STOP").await;
    disk.cut().expect("a power cut");
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    let sent = clients.stop().await;
    disk.unmount().expect("unmounted");
    disk.mount().expect("mounted again");
    sent
}

/// Every answer that a client saw is there when the power is back, and nothing happens twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_loses_no_answer_and_doubles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = disk(folder.path()) else {
        return;
    };
    let mut stage = Stage::set_up(|setup| {
        let data = disk.mounted.join("data");
        setup.config(CONFIG).data(&data)
    })
    .await;
    let mut all = Vec::new();
    for round in 0..CUTS {
        all.extend(until_the_cut(&mut stage, &disk, round).await);
        stage.restart().await;
        let mut unknown = 0;
        for (call, first) in &all {
            let retry = stage.settled(call).await;
            match first {
                Some(first) => {
                    assert!(retry.is_replay(), "lost completion: {call:?}: {retry:?}");
                    same(first, &retry);
                }
                None if retry.status.as_u16() == 201 => {}
                None => {
                    retry.assert_problem(409, UNKNOWN);
                    unknown += 1;
                }
            }
        }
        println!("cut {round}: {} requests, {unknown} unknown", all.len());
    }
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
    stage.finish();
}

/// The cut is one: a gateway whose syncs do nothing loses answers by it.
#[tokio::test(flavor = "multi_thread")]
async fn without_syncs_a_power_cut_loses_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = disk(folder.path()) else {
        return;
    };
    let idle_syncs = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        "inject=fsync,fdatasync:retval=0",
    ];
    let mut stage = Stage::set_up(|setup| {
        let data = disk.mounted.join("data");
        setup.config(CONFIG).data(&data).under(&idle_syncs)
    })
    .await;
    let sent = until_the_cut(&mut stage, &disk, 0).await;
    stage.setup = stage.setup.clone().under(&[]);
    stage.restart().await;
    let mut lost = 0;
    for (call, first) in &sent {
        let retry = try_connect(stage.address(), call).await.expect("an answer");
        lost += usize::from(first.is_some() && !retry.is_replay());
    }
    println!("{lost} of {} answers lost", sent.len());
    assert!(lost > 0, "the disk kept what was never synced");
    stage.gateway.signal("KILL").await;
    stage.gateway.ended().await;
}
