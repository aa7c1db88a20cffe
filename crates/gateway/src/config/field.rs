//! How each type of value is read from a file, an environment variable or a flag, and written.
//!
//! Every key is named once, in a `visit` function of `sections.rs` or `route.rs`; a [`Visitor`]
//! that reads and one that writes both go through it, so what is printed can always be read.

use std::fmt::Write as _;
use std::time::Duration;

use super::error::did_you_mean;
use super::raw::Value;
use super::values::{Size, SizeOrZero, TimeOrZero};

/// Goes through the keys of a configuration, in the order of `config.default.toml`.
pub(crate) trait Visitor {
    /// The keys that follow are in this section.
    fn section(&mut self, name: &'static str);

    /// One key, with its value so far.
    fn key<T: Field>(&mut self, name: &'static str, value: &mut T);

    /// A key whose value is a size in bytes.
    fn size(&mut self, name: &'static str, value: &mut usize) {
        let mut size = Size(u64::try_from(*value).unwrap_or(u64::MAX));
        self.key(name, &mut size);
        *value = usize::try_from(size.0).unwrap_or(usize::MAX);
    }

    /// The same for large ones.
    fn large_size(&mut self, name: &'static str, value: &mut u64) {
        let mut size = Size(*value);
        self.key(name, &mut size);
        *value = size.0;
    }

    /// A size that may be nothing at all.
    fn size_or_zero(&mut self, name: &'static str, value: &mut usize) {
        let mut size = SizeOrZero(u64::try_from(*value).unwrap_or(u64::MAX));
        self.key(name, &mut size);
        *value = usize::try_from(size.0).unwrap_or(usize::MAX);
    }

    /// A key whose value is a time that may be none at all.
    fn time_or_zero(&mut self, name: &'static str, value: &mut Duration) {
        let mut time = TimeOrZero(*value);
        self.key(name, &mut time);
        *value = time.0;
    }
}

/// Why a value cannot be read: one text for each reason.
pub(crate) type Wrong = Vec<String>;

/// A value of one type.
pub(crate) trait Field: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// Everything that is wrong with it, and what to write instead.
    fn read(value: &Value) -> Result<Self, Wrong>;

    /// As TOML; `None` for a key that is better left out.
    fn write(&self) -> Option<String>;

    /// A variable or flag has only text: the value that it stands for.
    fn from_text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// One reason.
pub(crate) fn wrong<T>(reason: impl Into<String>) -> Result<T, Wrong> {
    Err(vec![reason.into()])
}

/// The text of a value that must be text.
pub(crate) fn text<'a>(value: &'a Value, example: &str) -> Result<&'a str, Wrong> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Integer(_)
        | Value::Boolean(_)
        | Value::List(_)
        | Value::Table(_)
        | Value::Fraction(_)
        | Value::Other(_) => wrong(format!(
            "this is {}: write text in quotes, such as \"{example}\"",
            value.kind()
        )),
    }
}

/// The name of a choice that is not one of these.
pub(crate) fn no_such_choice<T>(written: &str, names: &[&str]) -> Result<T, Wrong> {
    let fix = did_you_mean(written, names.iter().copied()).unwrap_or_else(|| {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("write {}", names.join(" or "))
    });
    wrong(format!("\"{written}\" is not a choice here: {fix}"))
}

/// Text in quotes, as TOML wants it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                // Writing to a `String` cannot fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A choice between names: `named!(Type, "a choice", Type::A = "a", Type::B = "b")`.
macro_rules! named {
    ($type:ty, $($variant:path = $name:literal),+ $(,)?) => {
        impl $crate::config::field::Field for $type {
            fn read(value: &$crate::config::raw::Value) -> Result<Self, Vec<String>> {
                const NAMES: &[&str] = &[$($name),+];
                let example = NAMES.first().copied().unwrap_or_default();
                match $crate::config::field::text(value, example)? {
                    $($name => Ok($variant),)+
                    other => $crate::config::field::no_such_choice(other, NAMES),
                }
            }

            fn write(&self) -> Option<String> {
                Some($crate::config::field::quoted(match self { $($variant => $name),+ }))
            }
        }
    };
}
pub(crate) use named;
