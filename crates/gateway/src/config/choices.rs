//! Choices between names.

use std::fmt;

use jsonwebtoken::Algorithm;
use onlyonce_http::{Compare, Mode, ReplayOlder};

use super::field::{Field, Wrong, named, no_such_choice, quoted, text, wrong};
use super::raw::Value;

/// Whether a guarded request must have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KeyNeed {
    /// Without one it is refused.
    #[default]
    Required,
    /// Without one it passes, unprotected and counted.
    Optional,
}

impl KeyNeed {
    pub(crate) const fn of(required: bool) -> Self {
        if required {
            Self::Required
        } else {
            Self::Optional
        }
    }
}

/// What a retry gets while the first request is at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InFlightKind {
    /// 409 with `Retry-After`.
    #[default]
    Reject,
    /// The first answer, if it comes in time.
    Wait,
    /// 202 with the address of the operation.
    Accepted,
}

/// What the upstream guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum UpstreamKind {
    /// Nothing.
    #[default]
    Opaque,
    /// It honours the key that is forwarded to it.
    Dedupes,
    /// It completes the key in its own transaction.
    Transactional,
}

/// The `Host` that the upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HostRule {
    /// The client's.
    #[default]
    Preserve,
    /// The upstream's own.
    Rewrite,
}

/// What becomes of `Forwarded` and `X-Forwarded-*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Forwarded {
    /// The peer is added to what came in.
    #[default]
    Append,
    /// What came in is dropped; only the peer is named.
    Replace,
    /// They pass as they are.
    Off,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

named!(
    Mode,
    Mode::Enforce = "enforce",
    Mode::Observe = "observe",
    Mode::Off = "off"
);
named!(
    Compare,
    Compare::Payload = "payload",
    Compare::KeyOnly = "key-only"
);
named!(
    ReplayOlder,
    ReplayOlder::Replay = "replay",
    ReplayOlder::Refuse = "refuse"
);
named!(
    InFlightKind,
    InFlightKind::Reject = "reject",
    InFlightKind::Wait = "wait",
    InFlightKind::Accepted = "accepted",
);
named!(
    UpstreamKind,
    UpstreamKind::Opaque = "opaque",
    UpstreamKind::Dedupes = "dedupes",
    UpstreamKind::Transactional = "transactional",
);
named!(
    HostRule,
    HostRule::Preserve = "preserve",
    HostRule::Rewrite = "rewrite"
);
named!(
    Forwarded,
    Forwarded::Append = "append",
    Forwarded::Replace = "replace",
    Forwarded::Off = "off",
);
named!(
    LogFormat,
    LogFormat::Text = "text",
    LogFormat::Json = "json"
);
named!(
    Algorithm,
    Algorithm::HS256 = "HS256",
    Algorithm::HS384 = "HS384",
    Algorithm::HS512 = "HS512",
    Algorithm::RS256 = "RS256",
    Algorithm::RS384 = "RS384",
    Algorithm::RS512 = "RS512",
    Algorithm::PS256 = "PS256",
    Algorithm::PS384 = "PS384",
    Algorithm::PS512 = "PS512",
    Algorithm::ES256 = "ES256",
    Algorithm::ES384 = "ES384",
    Algorithm::EdDSA = "EdDSA",
);

impl Field for KeyNeed {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const NAMES: [&str; 2] = ["required", "optional"];
        if matches!(value, Value::List(_)) {
            return wrong(
                "this says whether there must be a key: write \"required\" or \"optional\"; where \
                 it is, say with `key_from`, or in a profile with [[profiles.NAME.key]]",
            );
        }
        match text(value, "required")? {
            "required" => Ok(Self::Required),
            "optional" => Ok(Self::Optional),
            other => no_such_choice(other, &NAMES),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }))
    }
}

/// What is logged: a level, or levels by part, such as `info,onlyonce_engine=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLevel(String);

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Field for LogLevel {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let written = text(value, "info")?;
        for part in written.split(',') {
            let level = part
                .rsplit_once('=')
                .map_or(part, |(_, level)| level)
                .trim();
            if !LEVELS.contains(&level) {
                return no_such_choice(level, &LEVELS);
            }
        }
        Ok(Self(written.to_owned()))
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}
