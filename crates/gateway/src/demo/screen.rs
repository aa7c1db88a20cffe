//! Where the demonstration is shown: a screen that refreshes, plain lines, or nothing until the
//! end.
//!
//! A reader that went away (`demo | head`) is no reason to fail, so errors of standard output are
//! ignored.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use super::client::Traffic;
use super::paint::Paint;
use super::view::{self, Addresses, Moment};

/// Often enough to look alive.
const REFRESH: Duration = Duration::from_millis(200);

/// Rare enough for a log.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(2);

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Plain,
    Silent,
}

/// The place where progress is shown. Gives the terminal back when it is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    mode: Mode,
    traffic: Traffic,
    addresses: Addresses,
}

impl Screen {
    /// Takes over the terminal, if there is one that likes it.
    pub(crate) fn open(silent: bool, traffic: Traffic, addresses: Addresses) -> Self {
        let mode = match silent {
            true => Mode::Silent,
            false if is_lively() => Mode::Live,
            false => Mode::Plain,
        };
        match mode {
            Mode::Live => write(ENTER),
            Mode::Plain => write(&lines(&view::commands(&addresses))),
            Mode::Silent => {}
        }
        Self {
            mode,
            traffic,
            addresses,
        }
    }

    /// How often to [`show`](Self::show).
    pub(crate) fn refresh(&self) -> Duration {
        match self.mode {
            Mode::Live => REFRESH,
            Mode::Plain | Mode::Silent => PLAIN_LINE_EVERY,
        }
    }

    pub(crate) fn show(&self, moment: &Moment, note: &str) {
        match self.mode {
            Mode::Live => {
                let paint = Paint(true);
                write(&frame(&view::screen(
                    moment,
                    self.traffic,
                    &self.addresses,
                    note,
                    paint,
                )));
            }
            Mode::Plain => write(&lines(&[view::plain_line(moment)])),
            Mode::Silent => {}
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.mode == Mode::Live {
            write(LEAVE);
        }
    }
}

/// Whether standard output is a terminal that may be coloured and redrawn.
pub(crate) fn is_lively() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdout().is_terminal() && !set("NO_COLOR") && !dumb
}

/// Every line at its own row: nothing scrolls, however small the terminal is.
fn frame(lines: &[String]) -> String {
    let placed = (1..)
        .zip(lines)
        .map(|(row, line)| format!("\x1b[{row};1H{line}\x1b[K"));
    placed.chain(["\x1b[J".to_owned()]).collect()
}

/// Lines, ended.
pub(crate) fn lines(lines: &[String]) -> String {
    lines
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect()
}

/// Writes to standard output at once.
pub(crate) fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_places_each_line_and_clears_what_was_there() {
        let frame = frame(&["one".into(), "two".into()]);
        assert_eq!(frame, "\x1b[1;1Hone\x1b[K\x1b[2;1Htwo\x1b[K\x1b[J");
    }
}
