//! A profile from TOML.

use http::{HeaderName, Method};
use onlyonce_core::ScopeParts;
use onlyonce_core::json::Pointer;
use toml::de::DeTable;

use super::table::{Item, Reading, Section, suggestion};
use super::{Profile, ProfileError, ProfileReuse, answers, units};
use crate::{
    Caller, Compare, FirstSent, InFlight, KeyPlace, KeySource, KeySyntax, Pattern, Settle,
};

/// Extending an extension of an extension is a riddle.
const EXTENDS_MAX: usize = 8;

pub(super) fn one(text: &str) -> Result<Profile, Vec<ProfileError>> {
    let reading = Reading::new(text);
    let Some(table) = parse(&reading) else {
        return Err(reading.errors());
    };
    let section = Section::new(&reading, &table);
    let profile = profile(section, &|name| Profile::preset(name));
    finished(&reading, profile)
}

pub(super) fn all(text: &str) -> Result<Vec<Profile>, Vec<ProfileError>> {
    let reading = Reading::new(text);
    let Some(table) = parse(&reading) else {
        return Err(reading.errors());
    };
    let root = Section::new(&reading, &table);
    let own: Vec<Item<'_>> = match root.take("profiles").and_then(Item::table) {
        Some(profiles) => profiles.items().collect(),
        None => Vec::new(),
    };
    let mut profiles = Vec::new();
    for item in &own {
        if Profile::source(item.key).is_some() {
            item.wrong("this is the name of a preset: choose another, and write `extends`");
            continue;
        }
        if let Some(section) = item.table() {
            let found = profile(section, &|name| named(&own, name, EXTENDS_MAX));
            profiles.push(Profile {
                name: item.key.to_owned(),
                ..found
            });
        }
    }
    finished(&reading, profiles)
}

fn finished<T>(reading: &Reading<'_>, read: T) -> Result<T, Vec<ProfileError>> {
    let mut errors = reading.errors();
    // What is wrong in a profile that others extend was found once for each.
    errors.sort_by(|a, b| (a.line, &a.reason).cmp(&(b.line, &b.reason)));
    errors.dedup();
    if errors.is_empty() {
        Ok(read)
    } else {
        Err(errors)
    }
}

fn parse<'a>(reading: &Reading<'a>) -> Option<DeTable<'a>> {
    let (table, errors) = DeTable::parse_recoverable(reading.text());
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        let reason = error.message().trim().replace('\n', ", ");
        reading.wrong(offset, format!("this is not TOML: {reason}"));
    }
    errors.is_empty().then(|| table.into_inner())
}

/// A preset, or another profile of the same file.
fn named(own: &[Item<'_>], name: &str, depth: usize) -> Option<Profile> {
    let depth = depth.checked_sub(1)?;
    match own.iter().find(|item| item.key == name) {
        Some(item) => {
            let section = item.table()?;
            Some(profile(section, &|name| named(own, name, depth)))
        }
        None => Profile::preset(name),
    }
}

fn profile(section: Section<'_>, base: &dyn Fn(&str) -> Option<Profile>) -> Profile {
    let mut profile = Profile::default();
    if let Some(extends) = section.take("extends")
        && let Some(name) = extends.text()
    {
        if let Some(found) = base(name) {
            profile = found;
        } else {
            let names: Vec<_> = Profile::presets().collect();
            let fix = suggestion(name, &names);
            extends.wrong(format!(
                "there is no profile \"{name}\" to begin with: {fix}"
            ));
        }
    }
    words(&section, &mut profile);
    keys(&section, &mut profile);
    memory(&section, &mut profile);
    statuses(&section, &mut profile);
    answers::read(&section, &mut profile);
    check(&section, &profile);
    section.finish();
    profile
}

/// Replaces a value if the key is there and can be read.
fn put<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn words(section: &Section<'_>, profile: &mut Profile) {
    let text = |key| {
        section
            .take(key)
            .and_then(Item::text)
            .map(ToOwned::to_owned)
    };
    put(&mut profile.about, text("about"));
    put(&mut profile.follows, text("follows"));
    if let Some(notes) = section.take("notes") {
        let notes = notes.list().into_iter().filter_map(Item::text);
        profile.notes = notes.map(ToOwned::to_owned).collect();
    }
}

fn keys(section: &Section<'_>, profile: &mut Profile) {
    if let Some(methods) = section.take("methods") {
        let methods = methods.list().into_iter();
        let methods = methods.filter_map(|item| {
            let upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase());
            let method = |text: &str| Method::from_bytes(text.as_bytes()).ok();
            item.read("no method: write one such as \"POST\"", |text| {
                method(text).filter(|_| upper(text))
            })
        });
        profile.methods = Some(methods.collect());
    }
    if let Some(sources) = section.take("key") {
        let tables = sources.list().into_iter().filter_map(Item::table);
        profile.sources = Some(tables.filter_map(source).collect());
    }
    let required = section.take("required").and_then(Item::boolean);
    profile.required = required.or(profile.required);
    if let Some(table) = section.take("first_sent").and_then(Item::table) {
        let header = table.take("header").and_then(header_name);
        let window = table.take("window").and_then(Item::time);
        let ahead = table.take("ahead").and_then(Item::time);
        table.finish();
        profile.first_sent = header.zip(window).map(|(header, window)| FirstSent {
            header,
            window,
            ahead: ahead.unwrap_or_default(),
        });
    }
    if let Some(caller) = section.take("caller") {
        profile.caller = if caller.is_text() {
            let choices = [
                ("configured", Caller::Configured),
                ("aws-access-key", Caller::AwsAccessKey),
            ];
            let names = choices.clone().map(|(name, _)| (name, name));
            let chosen = caller.choice(&names);
            choices
                .into_iter()
                .find_map(|(name, caller)| (Some(name) == chosen).then_some(caller))
        } else {
            let names = caller.list().into_iter().filter_map(header_name);
            Some(Caller::Credentials(names.collect()))
        };
    }
}

/// `{ header = "Idempotency-Key", syntax = "bare", chars_max = 64 }`
fn source(table: Section<'_>) -> Option<KeySource> {
    let syntax = table.take("syntax").and_then(|item| {
        item.choice(&[
            ("either", KeySyntax::Either),
            ("bare", KeySyntax::Bare),
            ("structured", KeySyntax::Structured),
        ])
    });
    let header = table.take("header").and_then(header_name);
    let header = header.map(|name| KeyPlace::Header {
        name,
        syntax: syntax.unwrap_or_default(),
    });
    let json = table
        .take("json")
        .and_then(|item| item.parse(Pointer::parse));
    let json = json.map(|pointer| KeyPlace::Json { pointer });
    let text = |key| table.take(key).and_then(Item::text).map(ToOwned::to_owned);
    let form = text("form").map(|field| KeyPlace::Form { field });
    let query = text("query").map(|name| KeyPlace::Query { name });
    let chars_max = table
        .take("chars_max")
        .and_then(|item| item.number(1..=255));
    let pattern = table
        .take("pattern")
        .and_then(|item| item.parse(str::parse));
    let first = table.items().next();
    let reading = table.reading;
    table.finish();
    let mut places = [header, json, form, query].into_iter().flatten();
    let place = match (places.next(), places.next(), first) {
        (Some(place), None, _) => place,
        (_, _, Some(first)) => {
            first.wrong("a key is in one place: write one of header, json, form, query");
            return None;
        }
        (_, _, None) => {
            reading.wrong(
                0,
                "key: a key is in one place: write header, json, form or query",
            );
            return None;
        }
    };
    let mut source = KeySource::at(place);
    put(&mut source.chars_max, chars_max.map(usize::from));
    put(&mut source.pattern, pattern);
    Some(source)
}

pub(super) fn header_name(item: Item<'_>) -> Option<HeaderName> {
    item.read("no header name: use letters, digits and \"-\"", |text| {
        text.parse().ok()
    })
}

fn memory(section: &Section<'_>, profile: &mut Profile) {
    if let Some(scope) = section.take("scope") {
        profile.scope = Some(scope_parts(scope));
    }
    let time = |key| section.take(key).and_then(Item::time);
    profile.retention = time("retention").or(profile.retention);
    if let Some(paths) = section.take("path") {
        let tables = paths.list().into_iter().filter_map(Item::table);
        let paths = tables.filter_map(|table| {
            let path = table.take("path");
            let path = path.and_then(|item| item.parse(Pattern::parse));
            let retention = table.take("retention").and_then(Item::time);
            table.finish();
            path.zip(retention)
        });
        profile.paths = paths.collect();
    }
    if let Some(compare) = section.take("compare") {
        let choices = [
            ("payload", Compare::Payload),
            ("key-only", Compare::KeyOnly),
        ];
        profile.compare = compare.choice(&choices);
    }
    let names = |key| section.take(key).map(Item::list).unwrap_or_default();
    let headers = |key| names(key).into_iter().filter_map(header_name);
    profile
        .fingerprint_headers
        .extend(headers("fingerprint_headers"));
    profile.drop_headers.extend(headers("drop_headers"));
    profile.cookies = section
        .take("cookies")
        .and_then(Item::boolean)
        .or(profile.cookies);
    let wait = time("wait");
    if let Some(in_flight) = section.take("in_flight") {
        let longest = wait.unwrap_or(std::time::Duration::from_secs(10));
        profile.in_flight = in_flight.choice(&[
            ("reject", InFlight::Reject),
            ("wait", InFlight::Wait(longest)),
            ("accepted", InFlight::Accepted),
        ]);
    } else if let (Some(wait), Some(InFlight::Wait(longest))) = (wait, &mut profile.in_flight) {
        *longest = wait;
    }
    if let Some(reuse) = section.take("reuse") {
        profile.reuse = reuse.choice(&[
            ("replay", ProfileReuse::Replay),
            ("single-use", ProfileReuse::SingleUse),
            ("conflict", ProfileReuse::Conflict),
        ]);
    }
}

fn scope_parts(scope: Item<'_>) -> ScopeParts {
    let known = ["principal", "method", "path", "route", "host"].map(|name| (name, name));
    let names = scope.list().into_iter();
    let names: Vec<_> = names.filter_map(|item| item.choice(&known)).collect();
    ScopeParts {
        principal: names.contains(&"principal"),
        method: names.contains(&"method"),
        route: names.contains(&"route"),
        path: names.contains(&"path"),
        host: names.contains(&"host"),
    }
}

fn statuses(section: &Section<'_>, profile: &mut Profile) {
    let Some(table) = section.take("statuses").and_then(Item::table) else {
        return;
    };
    for item in table.items() {
        let settle = item.choice(&[
            ("completed", Settle::Completed),
            ("not-stored", Settle::NotStored),
            ("released", Settle::Released),
            ("unknown", Settle::Unknown),
        ]);
        match (units::statuses(item.key), settle) {
            (Some(range), Some(settle)) => {
                profile.statuses.retain(|(other, _)| *other != range);
                profile.statuses.push((range, settle));
            }
            (None, _) => item.wrong("this is no status: write \"402\", \"400-409\" or \"4xx\""),
            (Some(_), None) => {}
        }
    }
    let width = |range: &std::ops::RangeInclusive<u16>| range.end() - range.start();
    profile
        .statuses
        .sort_by_key(|(range, _)| (u16::MAX - width(range), *range.start()));
}

/// What single keys cannot know.
fn check(section: &Section<'_>, profile: &Profile) {
    if let Some(key) = section.take("key")
        && key.list().is_empty()
    {
        key.wrong("there is no place to look for a key in: write one of header, json, form, query");
    }
    // A request that is accepted as young enough must find its key.
    if let (Some(first_sent), Some(retention)) = (&profile.first_sent, profile.retention)
        && retention < first_sent.window + first_sent.ahead
        && let Some(item) = section
            .take("retention")
            .or_else(|| section.take("first_sent"))
    {
        let least = units::written(first_sent.window + first_sent.ahead);
        item.wrong(format!(
            "a request that `first_sent` still accepts may find its key forgotten, and run again: \
             write \"{least}\" at least"
        ));
    }
    if profile.reuse == Some(ProfileReuse::Conflict)
        && profile.dialect.resource_id.is_none()
        && let Some(reuse) = section.take("reuse")
    {
        reuse.wrong("which resource? write `resource_id`, such as \"/*/id\"");
    }
}
