//! The lines of the log on their way out.
//!
//! A thread of its own writes them. Whoever has something to say may be in the middle of an execution,
//! or be the store's writer: a pipe that is open and not read would hold it up, and with it leases,
//! other requests of its thread and everybody's writes. A line that finds no room is lost, and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How much may wait to be written: some ten thousand lines.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long the end of the process waits for what is still to be written.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Where lines are written to. Never waits.
#[derive(Clone)]
pub(crate) struct Lines {
    queue: Sender<Entry>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    /// Since the start: a line about lost ones may be lost, too, and the next one has the whole number.
    lost: AtomicU64,
}

enum Entry {
    Line(Vec<u8>),
    /// To be told when everything before it was written.
    Drained(Sender<()>),
}

/// Where to wait until everything is written.
pub(crate) struct Drain(Sender<Entry>);

impl Lines {
    /// Starts the thread that writes to `out`, and tells how many lines were lost so far when that has
    /// become more. Telling may write lines: they come behind what waits.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(
        out: impl Write + Send + 'static,
        tell_lost: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Drain)> {
        let (queue, entries) = mpsc::channel();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let thread = thread::Builder::new().name("onlyonce-log".into());
        thread.spawn(move || write_all(out, &entries, &counted, tell_lost))?;
        let drain = Drain(queue.clone());
        Ok((Self { queue, counts }, drain))
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let waiting = &self.counts.waiting_bytes;
        let before = waiting.fetch_add(line.len(), Ordering::Relaxed);
        if before.saturating_add(line.len()) > BYTES_MAX {
            waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            // Without a thread to write it the line is lost.
            let _ = self.queue.send(Entry::Line(line.to_vec()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(
    mut out: impl Write,
    entries: &Receiver<Entry>,
    counts: &Counts,
    tell_lost: impl Fn(u64),
) {
    let mut lost_told = 0;
    let mut next = entries.recv().ok();
    while let Some(entry) = next {
        let drained = match entry {
            Entry::Line(line) => {
                // There is nowhere to say that this failed.
                let _ = out.write_all(&line);
                counts
                    .waiting_bytes
                    .fetch_sub(line.len(), Ordering::Relaxed);
                None
            }
            Entry::Drained(tell) => Some(tell),
        };
        let waiting = entries.try_recv().ok();
        let lost = counts.lost.load(Ordering::Relaxed);
        // Not while others wait: what is told of them would take the place of lines, and be lost, too.
        if lost > lost_told && (waiting.is_none() || drained.is_some()) {
            lost_told = lost;
            tell_lost(lost);
        }
        if let Some(tell) = drained {
            // Whoever asked may have gone on.
            let _ = tell.send(());
        }
        next = waiting.or_else(|| entries.recv().ok());
    }
}

impl Drain {
    /// Waits for the lines that are there, but not for ever.
    pub(crate) fn wait(&self) {
        self.finish(&self.ask());
    }

    /// Asks to be told when everything before this was written.
    fn ask(&self) -> Receiver<()> {
        let (tell, told) = mpsc::channel();
        // Without the thread nobody is told, which ends the wait.
        let _ = self.0.send(Entry::Drained(tell));
        told
    }

    /// Waits for that, and for what it had said by then of lines that were lost, which is behind it.
    fn finish(&self, told: &Receiver<()>) {
        if told.recv_timeout(DRAIN_MAX).is_ok() {
            let _ = self.ask().recv_timeout(DRAIN_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock};

    use super::*;

    /// Takes nothing until its lock is free.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_in_their_order_and_before_the_end() {
        let out = Slow::default();
        let (mut lines, drain) = Lines::start(out.clone(), drop).unwrap();
        for number in 0..1000 {
            writeln!(lines, "{number}").unwrap();
        }
        drain.wait();
        let written = out.0.lock().unwrap();
        let written = std::str::from_utf8(&written).unwrap().lines();
        assert!(written.eq((0..1000).map(|number| number.to_string())));
    }

    /// Four times as much as there is room for, while nothing is taken: everybody goes on, and what is
    /// written in the end are whole lines, the first ones.
    #[test]
    fn nobody_waits_for_a_log_that_is_not_read() {
        let out = Slow::default();
        let (mut lines, drain) = Lines::start(out.clone(), drop).unwrap();
        let line = [b'x'; 1024];
        let held = out.0.lock().unwrap();
        for _ in 0..4 * BYTES_MAX / line.len() {
            lines.write_all(&line).unwrap();
        }
        assert!(lines.counts.lost.load(Ordering::Relaxed) >= 3 * 4096);
        drop(held);
        drain.wait();
        assert_eq!(out.0.lock().unwrap().len(), BYTES_MAX);
        assert_eq!(lines.counts.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    /// Also of those that were lost last, when nothing comes after them but the end.
    #[test]
    fn how_many_lines_were_lost_is_told_before_the_end() {
        let (out, own) = (Slow::default(), Arc::<OnceLock<Lines>>::default());
        let telling = Arc::clone(&own);
        let tell_lost = move |lost| {
            let mut lines = telling.get().cloned().unwrap();
            writeln!(lines, "lost {lost}").unwrap();
        };
        let (mut lines, drain) = Lines::start(out.clone(), tell_lost).unwrap();
        assert!(own.set(lines.clone()).is_ok());
        let mut line = [b'x'; 1024];
        line[1023] = b'\n';
        let held = out.0.lock().unwrap();
        for _ in 0..BYTES_MAX / line.len() + 3 {
            lines.write_all(&line).unwrap();
        }
        let asked = drain.ask();
        drop(held);
        drain.finish(&asked);
        let written = out.0.lock().unwrap();
        let last = written.rsplit(|byte| *byte == b'\n').nth(1).unwrap();
        assert_eq!(std::str::from_utf8(last).unwrap(), "lost 3");
    }
}
