//! A profile in words.

use http::StatusCode;
use onlyonce_core::{ScopeParts, StateKind};

use super::{Profile, ProfileReuse, units};
use crate::dialect::{Line, Lines, Shape};
use crate::{
    Caller, Code, Compare, InFlight, KeyPattern, KeyPlace, KeySource, KeySyntax, Settle, Statuses,
};

impl Profile {
    /// What it says, line by line: a heading, and the choice in words.
    #[must_use]
    pub fn describe(&self) -> Vec<(&'static str, String)> {
        let first_sent = self.first_sent.as_ref().map_or_else(String::new, |rule| {
            let window = units::written(rule.window);
            format!(", {} within {window}", title_case(rule.header.as_str()))
        });
        let key = self.sources.iter().flatten().map(source);
        let key = key.collect::<Vec<_>>().join(" or ");
        let missing = match self.required {
            Some(false) => "passes unprotected".to_owned(),
            Some(true) | None => self.answer(Code::KeyRequired),
        };
        vec![
            ("key", format!("{key}{first_sent}")),
            ("methods", self.methods_in_words()),
            ("no key", missing),
            ("scope", self.scope_in_words()),
            ("kept for", self.retention_in_words()),
            ("other payload", self.mismatch_in_words()),
            ("in flight", self.in_flight_in_words()),
            ("saved", self.saved_in_words()),
            ("executed, added", lines(&self.dialect.executed)),
            ("replay, added", self.replay_in_words()),
        ]
    }

    fn methods_in_words(&self) -> String {
        let methods = self.methods.as_deref();
        let methods = methods.map(|methods| methods.iter().map(ToString::to_string));
        methods.map_or_else(
            || "POST, PATCH".to_owned(),
            |names| names.collect::<Vec<_>>().join(", "),
        )
    }

    fn scope_in_words(&self) -> String {
        let scope = self.scope.unwrap_or_default();
        let ScopeParts {
            principal,
            method,
            route,
            path,
            host,
        } = scope;
        let caller = match &self.caller {
            Some(Caller::AwsAccessKey) => "access key id",
            Some(Caller::Credentials(_)) => "credentials",
            Some(Caller::Configured) | None => "principal",
        };
        let parts = [
            (principal, caller),
            (method, "method"),
            (path, "path"),
            (route, "route"),
            (host, "host"),
        ];
        let parts = parts.into_iter().filter(|(counts, _)| *counts);
        parts.map(|(_, name)| name).collect::<Vec<_>>().join(" + ")
    }

    fn retention_in_words(&self) -> String {
        let whole = self
            .retention
            .map_or_else(|| "as configured".to_owned(), units::written);
        let paths = self.paths.iter().map(|(path, time)| {
            let (path, time) = (
                path.to_string().replace("/{*rest}", ""),
                units::written(*time),
            );
            format!("; {path} {time}")
        });
        whole + &paths.collect::<String>()
    }

    fn mismatch_in_words(&self) -> String {
        match (self.reuse, self.compare) {
            (Some(ProfileReuse::SingleUse), _) => self.answer(Code::AlreadyUsed),
            (Some(ProfileReuse::Conflict), Some(Compare::KeyOnly)) => {
                self.answer(Code::AlreadyUsed)
            }
            (_, Some(Compare::KeyOnly)) => "not compared".to_owned(),
            _ => self.answer(Code::KeyReused),
        }
    }

    fn in_flight_in_words(&self) -> String {
        let answer = self.answer(Code::InProgress);
        match self.in_flight.unwrap_or_default() {
            InFlight::Reject => answer,
            InFlight::Wait(time) => format!("waits {}, then {answer}", units::written(time)),
            InFlight::Accepted => "202".to_owned(),
        }
    }

    fn saved_in_words(&self) -> String {
        let table = self.table(Statuses::default());
        let mut saved = Vec::new();
        let settles = [Settle::Completed, Settle::Released, Settle::Unknown];
        for settle in settles {
            let of = |range: std::ops::Range<u16>| {
                range.filter(|status| table.of(*status) == settle).count()
            };
            let names: Vec<_> = (2..6_u16)
                .filter_map(|hundred| {
                    let count = of(hundred * 100..hundred * 100 + 100);
                    match count {
                        0 => None,
                        100 => Some(format!("{hundred}xx")),
                        // Most of a hundred, or a few of it.
                        50.. => Some(format!("most {hundred}xx")),
                        _ => {
                            let range = hundred * 100..hundred * 100 + 100;
                            let few = range.filter(|status| table.of(*status) == settle);
                            let few: Vec<_> = few.map(|status| status.to_string()).collect();
                            Some(few.join(", "))
                        }
                    }
                })
                .collect();
            if !names.is_empty() {
                let verb = match settle {
                    Settle::Completed => "saved",
                    Settle::Released => "run again",
                    Settle::Unknown => StateKind::Unknown.as_str(),
                    Settle::NotStored => "not saved",
                };
                saved.push(format!("{}: {verb}", names.join(", ")));
            }
        }
        saved.join("; ")
    }

    fn replay_in_words(&self) -> String {
        match self.reuse {
            Some(ProfileReuse::SingleUse) => "nothing is replayed".to_owned(),
            Some(ProfileReuse::Conflict) => {
                let path = self.dialect.resource_id.as_ref();
                let path = path.map(ToString::to_string).unwrap_or_default();
                format!(
                    "nothing is replayed: {}, with `{path}`",
                    self.answer(Code::AlreadyUsed)
                )
            }
            Some(ProfileReuse::Replay) | None => lines(&self.dialect.replayed),
        }
    }

    /// The status of a refusal, and what programs know it by.
    fn answer(&self, code: Code) -> String {
        let shape = self
            .dialect
            .answers
            .get(&code)
            .or(self.dialect.other.as_ref());
        let status = shape.and_then(|shape| shape.status);
        let status = status.unwrap_or(code.status()).as_u16();
        match shape {
            None => format!("{status} problem"),
            Some(shape) => match known_by(shape) {
                Some(name) => format!("{status} `{name}`"),
                None => status.to_string(),
            },
        }
    }

    /// Every answer that has a shape of its own: its name, status, and body.
    #[must_use]
    pub fn answers(&self) -> Vec<(&'static str, Option<StatusCode>, String)> {
        let named = super::answers::NAMES.iter().filter_map(|(name, code)| {
            let shape = match code {
                Some(code) => self.dialect.answers.get(code),
                None => self.dialect.other.as_ref(),
            };
            let shape = shape?;
            Some((*name, shape.status, shape.body.to_string()))
        });
        named.collect()
    }
}

/// Every preset, as `docs/profiles.md` has them: a section each.
#[cfg(test)]
pub(super) fn table() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for profile in Profile::presets().filter_map(Profile::preset) {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "\n### {}\n\n{}. After {}.\n\n",
            profile.name, profile.about, profile.follows
        );
        let _ = writeln!(text, "| | |\n|---|---|");
        for (name, value) in profile.describe() {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        if !profile.notes.is_empty() {
            text.push('\n');
        }
        for note in &profile.notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    text.push('\n');
    text
}

/// The most telling word of a body: its code, issue, reason or type.
fn known_by(shape: &Shape) -> Option<String> {
    let body = shape.body.to_string();
    let words = [
        ("\"issue\":\"", '"'),
        ("\"errorCode\":\"", '"'),
        ("\"reason\":\"", '"'),
        ("\"code\":\"", '"'),
        ("<Code>", '<'),
        ("\"__type\":\"", '"'),
        ("\"type\":\"", '"'),
    ];
    let word = words.iter().find_map(|(before, after)| {
        let rest = body.split_once(before)?.1;
        rest.split_once(*after).map(|(word, _)| word)
    })?;
    let word = word.rsplit('#').next().unwrap_or(word);
    (!word.contains('{')).then(|| word.to_owned())
}

fn source(source: &KeySource) -> String {
    let place = match &source.place {
        KeyPlace::Header { name, syntax } => {
            let syntax = match syntax {
                KeySyntax::Either => "",
                KeySyntax::Bare => ", bare",
                KeySyntax::Structured => ", quoted",
            };
            format!("`{}`{syntax}", title_case(name.as_str()))
        }
        KeyPlace::Json { pointer } => format!("JSON `{pointer}`"),
        KeyPlace::Form { field } => format!("form `{field}`"),
        KeyPlace::Query { name } => format!("query `{name}`"),
    };
    let pattern = match &source.pattern {
        KeyPattern::Any => String::new(),
        pattern @ (KeyPattern::Guid | KeyPattern::Chars(_)) => format!(", `{pattern}`"),
    };
    format!("{place}, at most {}{pattern}", source.chars_max)
}

fn lines(lines: &Lines) -> String {
    let names = lines.0.iter().map(|(name, line)| match line {
        Line::Same(value) => {
            let value = value.to_str().unwrap_or_default();
            format!("`{}: {value}`", title_case(name.as_str()))
        }
        Line::Filled(_) => format!("`{}`", title_case(name.as_str())),
    });
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "–".to_owned();
    }
    names.join(", ")
}

/// `idempotency-key` as people write it.
fn title_case(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}
