//! A configuration as a file that loads back to the same.

use std::fmt::Write as _;

use super::field::{Field, Visitor};

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
