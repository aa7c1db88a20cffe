//! A JSON document of somebody else's, and the exact bytes of its parts.
//!
//! A document that names a member twice is none: which of the two counts is anybody's guess, and
//! here a guess may settle a payment.

use std::borrow::Cow;

use onlyonce_core::json::{Pointer, rfc8785};
use serde_json::Value;

/// A document that was checked from its first byte to its last.
#[derive(Debug, Clone, Copy)]
pub struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// Reads a document; `None` when it is not JSON, repeats a member name, or is nested or long
    /// beyond reason.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        rfc8785(bytes).ok().map(|_| Self(bytes.trim_ascii()))
    }

    /// The bytes of the value at a place, as they were written.
    #[must_use]
    pub fn at(&self, pointer: &Pointer) -> Option<&'a [u8]> {
        let mut value = self.0;
        for token in pointer.as_str().split('/').skip(1) {
            let name = token.replace("~1", "/").replace("~0", "~");
            value = child(value, &name)?;
        }
        Some(value)
    }

    /// The value at a place.
    #[must_use]
    pub fn value(&self, pointer: &Pointer) -> Option<Value> {
        serde_json::from_slice(self.at(pointer)?).ok()
    }

    /// Text, a number as it was written, or `true` and `false`. `None` for anything else.
    #[must_use]
    pub fn scalar(&self, pointer: &Pointer) -> Option<Cow<'a, str>> {
        let raw = self.at(pointer)?;
        match raw.first()? {
            b'"' => serde_json::from_slice::<String>(raw).ok().map(Cow::Owned),
            b'{' | b'[' | b'n' => None,
            _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
        }
    }

    /// How many values a list has; `None` when there is no list.
    #[must_use]
    pub fn count(&self, pointer: &Pointer) -> Option<usize> {
        let raw = self.at(pointer)?;
        (raw.first() == Some(&b'[')).then(|| Children::of(raw).count())
    }
}

/// The child of a container that is known to be well formed.
fn child<'a>(container: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut children = Children::of(container);
    if container.first() == Some(&b'{') {
        let named = |key: Option<&[u8]>| {
            key.and_then(|key| serde_json::from_slice::<String>(key).ok())
                .is_some_and(|key| key == name)
        };
        return children
            .find(|(key, _)| named(*key))
            .map(|(_, value)| value);
    }
    let plain = name == "0" || !name.starts_with('0');
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let index = name.parse().ok().filter(|_| plain && digits)?;
    children.nth(index).map(|(_, value)| value)
}

/// Goes through the children of a container: the raw name, if there is one, and the raw value.
struct Children<'a> {
    rest: &'a [u8],
    named: bool,
}

impl<'a> Children<'a> {
    fn of(container: &'a [u8]) -> Self {
        let (open, rest) = container.split_at(container.len().min(1));
        Self {
            rest: if matches!(open, b"{" | b"[") {
                rest
            } else {
                &[]
            },
            named: open == b"{",
        }
    }

    /// Takes the next value, and the comma or bracket behind it.
    fn take(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.trim_ascii_start();
        let (value, rest) = rest.split_at_checked(length(rest))?;
        let rest = rest.trim_ascii_start();
        self.rest = rest.get(1..).unwrap_or_default();
        Some(value).filter(|value| !value.is_empty())
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = (Option<&'a [u8]>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name = if self.named { Some(self.take()?) } else { None };
        Some((name, self.take()?))
    }
}

/// How long the value is that these bytes begin with.
fn length(bytes: &[u8]) -> usize {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    in_text = false;
                    if depth == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return at + usize::from(depth == 1),
            b'}' | b']' => depth -= 1,
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return at,
            _ => {}
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(document: &str, pointer: &str) -> Option<String> {
        let pointer = Pointer::parse(pointer).unwrap();
        let raw = Json::parse(document.as_bytes())?.at(&pointer)?;
        Some(String::from_utf8(raw.to_vec()).unwrap())
    }

    const DOCUMENT: &str = r#" { "a" : [ 1.10 , {"b\u0022,": "x\\\"]"} , [] ] , "c/d~":
        true, "": null, "n": 12345678901234567890123 } "#;

    #[test]
    fn parts_keep_their_exact_bytes() {
        for (pointer, expected) in [
            ("/a/0", Some("1.10")),
            ("/a/1", Some(r#"{"b\u0022,": "x\\\"]"}"#)),
            ("/a/1/b\",", Some(r#""x\\\"]""#)),
            ("/a/2", Some("[]")),
            ("/a/3", None),
            ("/a/00", None),
            ("/a/+1", None),
            ("/a/-", None),
            ("/a/2/0", None),
            ("/c~1d~0", Some("true")),
            ("/", Some("null")),
            ("/n", Some("12345678901234567890123")),
            ("/n/0", None),
            ("/x", None),
            ("", Some(DOCUMENT.trim())),
        ] {
            assert_eq!(at(DOCUMENT, pointer).as_deref(), expected, "{pointer}");
        }
    }

    /// Of two members with one name readers take the first or the last. Neither is proof.
    #[test]
    fn what_could_be_read_in_two_ways_is_no_document() {
        for document in [
            r#"{"status":"failed","status":"paid"}"#,
            r#"{"a":{"b":1,"b":2},"status":"paid"}"#,
            "{\"a\":1} x",
            "{",
            "",
            "<html>",
            "\u{feff}{}",
            &"[".repeat(200),
        ] {
            assert!(Json::parse(document.as_bytes()).is_none(), "{document}");
        }
    }

    #[test]
    fn scalars_and_counts() {
        let json = Json::parse(br#"{"t":"a b","n":1.50,"b":false,"x":null,"l":[1,[2,3]],"o":{}}"#);
        let json = json.unwrap();
        let pointer = |text| Pointer::parse(text).unwrap();
        for (place, expected) in [
            ("/t", Some("a b")),
            ("/n", Some("1.50")),
            ("/b", Some("false")),
            ("/x", None),
            ("/l", None),
            ("/o", None),
        ] {
            assert_eq!(json.scalar(&pointer(place)).as_deref(), expected, "{place}");
        }
        assert_eq!(json.count(&pointer("/l")), Some(2));
        assert_eq!(json.count(&pointer("/o")), None);
    }
}
