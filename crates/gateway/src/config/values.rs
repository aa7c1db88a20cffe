//! How plain values are read and written: numbers, text, times, sizes, lists.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use super::field::{Field, Wrong, quoted, text, wrong};
use super::raw::Value;
use super::units;

impl Field for bool {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match value {
            Value::Boolean(boolean) => Ok(*boolean),
            Value::Text(_)
            | Value::Integer(_)
            | Value::List(_)
            | Value::Table(_)
            | Value::Fraction(_)
            | Value::Other(_) => wrong(format!(
                "this is {}: write true or false, without quotes",
                value.kind()
            )),
        }
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn from_text(text: &str) -> Value {
        text.parse()
            .map_or_else(|_| Value::Text(text.to_owned()), Value::Boolean)
    }
}

fn whole(value: &Value, range: std::ops::RangeInclusive<i64>) -> Result<i64, Wrong> {
    let (least, most) = (range.start(), range.end());
    match value {
        Value::Integer(number) if range.contains(number) => Ok(*number),
        Value::Integer(number) if *most == i64::MAX => {
            wrong(format!("{number} is too small: write at least {least}"))
        }
        Value::Integer(number) => wrong(format!("{number} must be from {least} to {most}")),
        Value::Text(_)
        | Value::Boolean(_)
        | Value::List(_)
        | Value::Table(_)
        | Value::Fraction(_)
        | Value::Other(_) => wrong(format!(
            "this is {}: write a whole number, without quotes",
            value.kind()
        )),
    }
}

/// Implements [`Field`] for a whole number within a range.
macro_rules! number {
    ($type:ty, $range:expr) => {
        impl Field for $type {
            fn read(value: &Value) -> Result<Self, Wrong> {
                let number = whole(value, $range)?;
                Self::try_from(number).map_err(|_| vec![format!("{number} is too large")])
            }

            fn write(&self) -> Option<String> {
                Some(self.to_string())
            }

            fn from_text(text: &str) -> Value {
                text.parse()
                    .map_or_else(|_| Value::Text(text.to_owned()), Value::Integer)
            }
        }
    };
}

number!(u32, 0..=i64::from(u32::MAX));
number!(usize, 0..=i64::MAX);

impl Field for NonZeroU16 {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = whole(value, 1..=i64::from(u16::MAX))?;
        u16::try_from(number)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| vec![format!("{number} must be from 1 to {}", u16::MAX)])
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn from_text(text: &str) -> Value {
        u32::from_text(text)
    }
}

impl Field for String {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match text(value, "text")? {
            "" => wrong("this is empty: write something, or leave the key out"),
            text => Ok(text.to_owned()),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl Field for PathBuf {
    fn read(value: &Value) -> Result<Self, Wrong> {
        match text(value, "path/to/file")? {
            "" => wrong("this is empty: write the name of a file, or leave the key out"),
            text => Ok(text.into()),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

impl Field for Duration {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let time = TimeOrZero::read(value)?.0;
        if time.is_zero() {
            return wrong("a time of nothing is over before it begins: write at least \"1ms\"");
        }
        Ok(time)
    }

    fn write(&self) -> Option<String> {
        TimeOrZero(*self).write()
    }
}

/// A part of a whole, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio(pub(crate) f64);

impl Field for Ratio {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let number = match value {
            Value::Integer(number) => number.to_string(),
            Value::Fraction(number) | Value::Text(number) => number.clone(),
            Value::Boolean(_) | Value::List(_) | Value::Table(_) | Value::Other(_) => String::new(),
        };
        let ratio = number.parse::<f64>().ok();
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.map(Self).ok_or_else(|| {
            let found = if number.is_empty() {
                value.kind()
            } else {
                &number
            };
            vec![format!(
                "{found} is no part of a whole: write a number from 0 to 1, such as 0.1"
            )]
        })
    }

    fn write(&self) -> Option<String> {
        Some(format!("{:?}", self.0))
    }
}

/// A time that may be none at all.
pub(super) struct TimeOrZero(pub(super) Duration);

impl Field for TimeOrZero {
    fn read(value: &Value) -> Result<Self, Wrong> {
        if let Value::Integer(number) = value {
            return wrong(format!(
                "{number} has no unit: write \"{number}s\" for seconds, or \"{number}ms\""
            ));
        }
        let time = units::parse_time(text(value, "15s")?);
        time.map(Self).map_err(|reason| vec![reason])
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&units::write_time(self.0)))
    }
}

/// Bytes: a number, or text with a unit.
pub(super) struct Size(pub(super) u64);

/// The same, or nothing at all.
pub(super) struct SizeOrZero(pub(super) u64);

impl Field for SizeOrZero {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let is_zero = match value {
            Value::Integer(number) => *number == 0,
            Value::Text(text) => text.trim() == "0",
            Value::Boolean(_)
            | Value::List(_)
            | Value::Table(_)
            | Value::Fraction(_)
            | Value::Other(_) => false,
        };
        if is_zero {
            return Ok(Self(0));
        }
        Size::read(value).map(|Size(size)| Self(size))
    }

    fn write(&self) -> Option<String> {
        if self.0 == 0 {
            return Some("0".into());
        }
        Size(self.0).write()
    }

    fn from_text(text: &str) -> Value {
        Size::from_text(text)
    }
}

impl Field for Size {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let size = match value {
            Value::Integer(number) => u64::try_from(*number)
                .map_err(|_| format!("{number} is below nothing: write a size such as \"1MiB\"")),
            Value::Text(_)
            | Value::Boolean(_)
            | Value::List(_)
            | Value::Table(_)
            | Value::Fraction(_)
            | Value::Other(_) => units::parse_size(text(value, "1MiB")?),
        };
        match size {
            Ok(0) => wrong("a limit of nothing refuses everything: write at least 1"),
            Ok(bytes) => Ok(Self(bytes)),
            Err(reason) => wrong(reason),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&units::write_size(self.0)))
    }
}

impl<T: Field> Field for Option<T> {
    fn read(value: &Value) -> Result<Self, Wrong> {
        T::read(value).map(Some)
    }

    fn write(&self) -> Option<String> {
        self.as_ref().and_then(Field::write)
    }

    fn from_text(text: &str) -> Value {
        T::from_text(text)
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let Value::List(items) = value else {
            return wrong(format!(
                "this is {}: write a list in brackets, such as [\"one\", \"two\"]",
                value.kind()
            ));
        };
        let (mut read, mut reasons) = (Self::new(), Wrong::new());
        for item in items {
            match T::read(item) {
                Ok(item) => read.push(item),
                Err(wrong) => reasons.extend(wrong),
            }
        }
        if reasons.is_empty() {
            Ok(read)
        } else {
            Err(reasons)
        }
    }

    fn write(&self) -> Option<String> {
        let items: Vec<_> = self.iter().filter_map(Field::write).collect();
        Some(format!("[{}]", items.join(", ")))
    }

    /// Items are separated by commas.
    fn from_text(text: &str) -> Value {
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        Value::List(items.map(T::from_text).collect())
    }
}
