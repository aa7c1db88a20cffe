//! Logs, and what the engine's events are in them. Keys appear as short digests only.

use std::fmt;
use std::io::IsTerminal;

use onlyonce_core::{Decision, RecordId};
use onlyonce_engine::{Event, Observer};
use onlyonce_http::{Observation, Observations};
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::config::LogFormat;

/// Starts logging to standard error.
///
/// # Errors
/// When the level is no filter.
pub(crate) fn start(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("log.level: {error}"))?;
    // Colours are for a terminal; in a file or a journal they are noise in every line.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .with_target(false);
    let started = match format {
        LogFormat::Text => builder.fmt_fields(PlainFields).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| error.to_string())
}

/// Writes `name=value` without more ado: the fields of a request's span are written for every
/// request, whether a line is logged or not.
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

impl Observer for LogObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Claimed {
                id,
                route,
                decision,
                attempt: _,
                took,
            } => {
                let took_us = took.as_micros();
                tracing::debug!(key = short(id), %route, ?decision, took_us, "claimed");
                if *decision == Decision::Mismatch {
                    tracing::info!(key = short(id), %route, "a key was used for another payload");
                }
            }
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
        }
    }
}
