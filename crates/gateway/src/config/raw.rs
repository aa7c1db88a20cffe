//! The configuration file as it is written: names, values and lines, nothing checked yet.
//!
//! The syntax is TOML's; every syntax error is reported, not only the first. What a value must
//! look like is the business of [`Field`](super::field::Field), because a file has to be read to
//! its end before anybody can say everything that is wrong with it.

use toml::de::{DeInteger, DeTable, DeValue};

/// A value, of any key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// `"text"`
    Text(String),
    /// `12`
    Integer(i64),
    /// `true`
    Boolean(bool),
    /// `[1, 2]`
    List(Vec<Value>),
    /// `{ name = 1 }`, or a `[section]`
    Table(Table),
    /// `0.5`, as written
    Fraction(String),
    /// Something that no key takes: a date, a number beyond 64 bits.
    Other(&'static str),
}

impl Value {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Fraction(_) => "a fraction",
            Self::Other(kind) => kind,
        }
    }
}

/// The keys of a section, in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table(Vec<Entry>);

/// One key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The name, as written.
    pub(crate) key: String,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The value.
    pub(crate) value: Value,
}

impl Table {
    /// Takes a key out.
    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(at))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// All of them.
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.0
    }
}

/// Something that is not TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Where.
    pub(crate) line: usize,
    /// Why.
    pub(crate) reason: String,
}

/// Reads a file's text.
///
/// # Errors
/// Every place that is not TOML.
pub(crate) fn parse(text: &str) -> Result<Table, Vec<SyntaxError>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines(text);
    if errors.is_empty() {
        return Ok(lines.table(table.get_ref()));
    }
    let errors = errors.into_iter().map(|error| SyntaxError {
        line: lines.of(error.span().map_or(0, |span| span.start)),
        reason: error.message().trim().replace('\n', ", "),
    });
    Err(errors.collect())
}

/// Finds lines by byte offset.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, offset: usize) -> usize {
        let before = self.0.as_bytes().iter().take(offset);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        let entries = table.iter().map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            line: self.of(key.span().start),
            value: self.value(value.get_ref()),
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| entry.line);
        Table(entries)
    }

    fn value(&self, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(integer) => number(integer),
            DeValue::Float(float) => Value::Fraction(float.as_str().to_owned()),
            DeValue::Boolean(boolean) => Value::Boolean(*boolean),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Array(list) => {
                Value::List(list.iter().map(|item| self.value(item.get_ref())).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }
}

fn number(integer: &DeInteger<'_>) -> Value {
    i64::from_str_radix(integer.as_str(), integer.radix())
        .map_or(Value::Other("a number beyond 64 bits"), Value::Integer)
}
