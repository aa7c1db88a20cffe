//! Logs, and what the engine's events are in them. Keys appear as short digests only.
//!
//! Once logging has started nobody else writes to standard error: whoever does waits for a reader.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use onlyonce_core::{Decision, RecordId, RouteName};
use onlyonce_engine::{Event, Observer};
use onlyonce_http::{Observation, Observations};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;
use crate::log_lines::{Drain, Lines};
use crate::request_id::About;

/// Where lines go and how to wait for them, once logging has started.
static STARTED: OnceLock<(Lines, Drain)> = OnceLock::new();

/// Writes what has been logged so far. To be called before the process ends.
pub(crate) fn end() {
    if let Some((_, drain)) = STARTED.get() {
        drain.wait();
    }
}

/// Calls [`end`] when it is dropped.
pub(crate) struct EndsLog;

impl Drop for EndsLog {
    fn drop(&mut self) {
        end();
    }
}

/// Writes a line for whoever has started the process, behind what was logged before.
pub(crate) fn complain(line: &str) {
    let _ = match STARTED.get() {
        Some((lines, _)) => writeln!(lines.clone(), "{line}"),
        None => writeln!(std::io::stderr().lock(), "{line}"),
    };
}

/// Starts logging to standard error.
///
/// # Errors
/// When the level is no filter.
pub(crate) fn start(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("log.level: {error}"))?;
    // Colours are for a terminal; in a file or a journal they are noise in every line.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let started = Lines::start(std::io::stderr(), tell_lost);
    let (lines, drain) = started.map_err(|error| error.to_string())?;
    let started = (lines.clone(), drain);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        // A line that cannot be written is lost. To say so on standard error, where it could not be
        // written, would panic, wherever the line was: in an execution, or in the store's writer.
        .log_internal_errors(false)
        .with_writer(move || lines.clone());
    let logs = match format {
        LogFormat::Text => builder
            .fmt_fields(PlainFields)
            .event_format(AboutRequest {
                line: format::format().with_target(false).with_ansi(colours),
                add: add_text,
            })
            .try_init(),
        LogFormat::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(AboutRequest {
                line: format::json().with_target(false).flatten_event(true),
                add: add_json,
            })
            .try_init(),
    };
    logs.map_err(|error| error.to_string())?;
    let _ = STARTED.set(started);
    log_panics();
    Ok(())
}

/// An error, so that a log that has lines at all has this one.
fn tell_lost(lost: u64) {
    tracing::error!(lost, "lines of the log were lost: it was not read in time");
}

/// Has panics written to the log. The hook that is there from the start writes from the thread that
/// panics, which then waits for a reader.
fn log_panics() {
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(ToString::to_string);
    // Only if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    let backtrace = is_captured.then(|| backtrace.to_string());
    let thread = thread::current();
    tracing::error!(text, place, backtrace, thread = thread.name(), "a panic");
}

/// Adds to every line which request it is about. A span would do the same, and cost every request
/// what only those with a line need.
struct AboutRequest<F> {
    line: F,
    add: fn(&mut String, &About),
}

impl<F, S, N> FormatEvent<S, N> for AboutRequest<F>
where
    F: FormatEvent<S, N>,
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let Some(about) = About::current() else {
            return self.line.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.line
            .format_event(context, Writer::new(&mut line), event)?;
        line.truncate(line.trim_end().len());
        (self.add)(&mut line, &about);
        writeln!(writer, "{line}")
    }
}

fn add_text(line: &mut String, about: &About) {
    // A path from outside must not be able to look like the next line; an id and a method cannot.
    let (id, method, path) = (about.id(), about.method(), about.path());
    let _ = write!(line, " request{{id={id:?} method={method} path={path:?}}}");
}

fn add_json(line: &mut String, about: &About) {
    let request = serde_json::json!({
        "id": about.id(), "method": about.method(), "path": about.path(),
    });
    // A line is one object, and this is its last member.
    if line.pop().is_some() {
        let _ = write!(line, ",\"request\":{request}}}");
    }
}

/// Writes `name=value`, so that no value can look like another field or another line.
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = PlainVisitor {
            writer,
            first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PlainVisitor<'writer> {
    writer: Writer<'writer>,
    first: bool,
    result: fmt::Result,
}

impl PlainVisitor<'_> {
    fn name(&mut self, name: &str) -> fmt::Result {
        if !std::mem::take(&mut self.first) {
            self.writer.write_char(' ')?;
        }
        // The message of an event has no name.
        if name != "message" {
            self.writer.write_str(name)?;
            self.writer.write_char('=')?;
        }
        Ok(())
    }
}

impl Visit for PlainVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let written = self.name(field.name());
        // A value from outside must not be able to look like the next field or the next line.
        let is_plain = value
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"\\'".contains(&byte));
        let written = written.and_then(|()| {
            if is_plain {
                self.writer.write_char('"')?;
                self.writer.write_str(value)?;
                self.writer.write_char('"')
            } else {
                write!(self.writer, "{value:?}")
            }
        });
        self.result = self.result.and(written);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = self.name(field.name());
        let written = written.and_then(|()| write!(self.writer, "{value:?}"));
        self.result = self.result.and(written);
    }
}

/// Writes the engine's events to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogObserver;

/// Enough of an id to find it, too little to be it.
pub(crate) fn short(id: &RecordId) -> String {
    id.to_string().chars().take(12).collect()
}

/// What a claim was told.
fn log_claim(id: &RecordId, route: &RouteName, decision: Decision, took: Duration) {
    let took_us = took.as_micros();
    tracing::debug!(key = short(id), %route, ?decision, took_us, "claimed");
    if decision == Decision::Mismatch {
        tracing::info!(key = short(id), %route, "a key was used for another payload");
    }
}

impl Observer for LogObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Claimed {
                id,
                route,
                decision,
                attempt: _,
                took,
            } => log_claim(id, route, *decision, *took),
            Event::Settled {
                id,
                route,
                outcome,
                decision,
                worked,
                took,
            } => {
                let (worked_us, took_us) = (worked.as_micros(), took.as_micros());
                tracing::debug!(key = short(id), %route, outcome, ?decision, worked_us, took_us, "settled");
            }
            Event::NotSettled { id, route, outcome } => {
                tracing::error!(key = short(id), %route, outcome, "an outcome could not be recorded");
            }
            Event::LeaseLost { id, route } => {
                tracing::warn!(key = short(id), %route, "an execution outlived its lease");
            }
            Event::BecameUnknown { id, route, reason } => {
                tracing::warn!(key = short(id), %route, reason = reason.as_str(), "outcome unknown");
            }
            Event::Swept {
                id,
                route,
                decision,
            } => {
                tracing::debug!(key = short(id), %route, ?decision, "swept");
            }
            Event::Reconciled {
                id,
                route,
                source,
                verdict,
                decision,
            } => {
                let source = source.as_str();
                tracing::info!(key = short(id), %route, source, verdict, ?decision, "reconciled");
            }
            Event::Resolved {
                id,
                route,
                resolution,
                decision,
            } => {
                tracing::info!(key = short(id), %route, resolution, ?decision, "resolved by a person");
            }
            Event::StoreFailed { operation, error } => {
                tracing::error!(?operation, %error, "the store failed");
            }
        }
    }
}

/// Writes what was let through to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogObservations;

impl Observations for LogObservations {
    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::Unprotected { route } => {
                tracing::info!(%route, "a write without a key passed unprotected");
            }
            Observation::WouldExecute { route } => {
                tracing::info!(%route, observed = "execute", "observed");
            }
            Observation::WouldReplay { route } => {
                tracing::info!(%route, observed = "replay", "observed: this was a repetition");
            }
            Observation::WouldRefuse { route, code } => {
                let code = code.as_str();
                tracing::info!(%route, observed = "refuse", code, "observed: would be refused");
            }
            Observation::WouldBeUnknown { route, caller_left } => {
                let reason = if *caller_left {
                    "caller_left"
                } else {
                    "no_complete_answer"
                };
                tracing::info!(%route, observed = "unknown", reason, "observed: nobody would know how it ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Whoever has panicked and goes on must not stop for a log that nobody reads. And what it says, which
    /// may be from outside, must not look like another line.
    #[test]
    fn a_panic_is_one_line_of_the_log() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(PlainFields)
            .with_writer(move || writer.clone());
        let before = std::panic::take_hook();
        log_panics();
        tracing::subscriber::with_default(subscriber.finish(), || {
            let _ = std::panic::catch_unwind(|| panic!("{}\n{}", "one", "two"));
        });
        std::panic::set_hook(before);
        let log = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains(r#"a panic text="one\ntwo" place="#), "{log}");
    }
}
