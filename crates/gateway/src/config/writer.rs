//! A configuration as a file that loads back to the same.

use std::fmt::Write as _;

use super::field::{Field, Visitor, quoted};
use super::raw::{Table, Value};

/// Writes every key that it is shown.
#[derive(Default)]
pub(crate) struct Writer {
    text: String,
}

impl Writer {
    /// The keys that follow are those of one more table of a list.
    pub(crate) fn list(&mut self, name: &str) {
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(self.text, "\n[[{name}]]");
    }

    /// The file's own profiles, as they were written but for their layout.
    pub(crate) fn profiles(&mut self, profiles: &Table) {
        for entry in profiles.iter() {
            let _ = writeln!(self.text, "\n[profiles.{}]", quoted(&entry.key));
            if let Value::Table(table) = &entry.value {
                for line in lines(table) {
                    let _ = writeln!(self.text, "{line}");
                }
            }
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

impl Visitor for Writer {
    fn section(&mut self, name: &'static str) {
        let _ = writeln!(self.text, "\n[{name}]");
    }

    fn key<T: Field>(&mut self, name: &'static str, value: &mut T) {
        if let Some(value) = value.write() {
            let _ = writeln!(self.text, "{name} = {value}");
        }
    }
}

/// By name: two keys of one line have no order.
fn lines(table: &Table) -> Vec<String> {
    let entries = table.iter();
    let lines = entries.map(|entry| format!("{} = {}", quoted(&entry.key), inline(&entry.value)));
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn inline(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Fraction(number) => number.clone(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            format!("{{ {} }}", lines(table).join(", "))
        }
        // No profile takes one, so none is ever loaded.
        Value::Other(_) => "false".to_owned(),
    }
}
