//! One table of a profile: takes keys by name, and says what is wrong or left over, with its line.

use std::cell::RefCell;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ProfileError, units};

/// The text that is read, and what was wrong in it so far.
pub(super) struct Reading<'a> {
    text: &'a str,
    errors: RefCell<Vec<ProfileError>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let errors = RefCell::default();
        Self { text, errors }
    }

    pub(super) fn wrong(&self, offset: usize, reason: impl Into<String>) {
        let before = self.text.as_bytes().iter().take(offset);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        let reason = reason.into();
        self.errors.borrow_mut().push(ProfileError { line, reason });
    }

    pub(super) fn errors(&self) -> Vec<ProfileError> {
        self.errors.take()
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }
}

/// A value, with where it is.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    reading: &'a Reading<'a>,
    /// The key that it belongs to.
    pub(super) key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// A table whose keys are taken one by one.
pub(super) struct Section<'a> {
    pub(super) reading: &'a Reading<'a>,
    table: &'a DeTable<'a>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(reading: &'a Reading<'a>, table: &'a DeTable<'a>) -> Self {
        Self {
            reading,
            table,
            known: RefCell::default(),
        }
    }

    /// The value of a key.
    pub(super) fn take(&self, key: &'static str) -> Option<Item<'a>> {
        self.known.borrow_mut().push(key);
        self.items().find(|item| item.key == key)
    }

    /// All values, under whatever names.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let reading = self.reading;
        self.table.iter().map(move |(key, value)| Item {
            reading,
            key: key.get_ref(),
            value,
        })
    }

    /// What nobody took is unknown.
    pub(super) fn finish(self) {
        let known = self.known.into_inner();
        for (key, _) in self.table {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let fix = suggestion(name, &known);
                let text = format!("unknown key \"{name}\": {fix}");
                self.reading.wrong(key.span().start, text);
            }
        }
    }
}

/// The name that was meant, or all of them.
pub(super) fn suggestion(written: &str, names: &[&str]) -> String {
    let slips_max = (written.chars().count() / 3).clamp(1, 3);
    let distance = |name: &&str| strsim::damerau_levenshtein(written, name);
    match names.iter().min_by_key(|name| distance(name)) {
        Some(name) if distance(name) <= slips_max => format!("did you mean \"{name}\"?"),
        _ => format!("write one of {}", names.join(", ")),
    }
}

impl<'a> Item<'a> {
    pub(super) fn wrong(&self, reason: impl AsRef<str>) {
        let text = format!("{}: {}", self.key, reason.as_ref());
        self.reading.wrong(self.value.span().start, text);
    }

    /// The same, about a place within a text.
    pub(super) fn wrong_at(&self, offset: usize, reason: &str) {
        let span = self.value.span();
        let source = self.reading.text().get(span.clone()).unwrap_or_default();
        // A multi-line text begins after its quotes, and after a line break right behind them.
        let is_long = source.starts_with("'''") || source.starts_with("\"\"\"");
        let quotes = if is_long { 3 } else { 1 };
        let breaks = usize::from(is_long && source.get(3..4) == Some("\n"));
        let text = format!("{}: {reason}", self.key);
        self.reading
            .wrong(span.start + quotes + breaks + offset, text);
    }

    /// A value that must be read by `read`.
    pub(super) fn read<T>(self, expected: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text()?;
        let value = read(text);
        if value.is_none() {
            self.wrong(format!("\"{text}\" is {expected}"));
        }
        value
    }

    /// A value that must be read by its own rules.
    pub(super) fn parse<T, E: std::fmt::Display>(
        self,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(self.text()?);
        parsed.map_err(|reason| self.wrong(reason.to_string())).ok()
    }

    pub(super) fn text(self) -> Option<&'a str> {
        let text = self.value.get_ref().as_str();
        if text.is_none() {
            self.wrong("write text in quotes");
        }
        text
    }

    pub(super) fn boolean(self) -> Option<bool> {
        let boolean = self.value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong("write true or false, without quotes");
        }
        boolean
    }

    pub(super) fn number(self, range: std::ops::RangeInclusive<u16>) -> Option<u16> {
        let number = self.value.get_ref().as_integer();
        let number = number.and_then(|number| number.as_str().parse::<u16>().ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            self.wrong(format!("write a whole number from {least} to {most}"));
        }
        number
    }

    pub(super) fn time(self) -> Option<Duration> {
        self.read(
            "no time: write one such as \"15s\", \"24h\" or \"30d\"",
            units::time,
        )
    }

    pub(super) fn choice<T: Copy>(self, choices: &[(&'static str, T)]) -> Option<T> {
        let written = self.text()?;
        let chosen = choices.iter().find(|(name, _)| *name == written);
        if chosen.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let fix = suggestion(written, &names);
            self.wrong(format!("\"{written}\" is not a choice here: {fix}"));
        }
        chosen.map(|(_, value)| *value)
    }

    /// A list, or one item in place of a list of one.
    pub(super) fn list(self) -> Vec<Item<'a>> {
        match self.value.get_ref().as_array() {
            Some(items) => items.iter().map(|value| Item { value, ..self }).collect(),
            None => vec![self],
        }
    }

    pub(super) fn table(self) -> Option<Section<'a>> {
        let table = self.value.get_ref().as_table();
        if table.is_none() {
            self.wrong("write a table");
        }
        table.map(|table| Section::new(self.reading, table))
    }

    pub(super) fn is_text(self) -> bool {
        self.value.get_ref().is_str()
    }
}
