//! What is noted of a request at its claim, so that its outcome can be asked about later.
//!
//! Only what a question has a place for is noted, and the store keeps it only while the outcome is
//! open. It lies there as it is: keep out of questions what must not lie in a store. A credential
//! is never noted.

use std::borrow::Cow;
use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use onlyonce_core::Key;

use super::json::Json;
use super::template::{Template, Variable};
use crate::{Pattern, Principal};

/// The largest memo, in bytes. A value that would make it larger is left out, and the question
/// that needs it is not put.
pub const MEMO_BYTES_MAX: usize = 4 * 1024;

/// The form of a memo. An unknown one says nothing.
const VERSION: u8 = 1;

/// In place of a length: there was a value, and it did not fit.
const TOO_LONG: u16 = u16::MAX;

/// What is to be noted of the requests of one route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes(Vec<Variable>);

/// A request, as far as it can be noted.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its key.
    pub key: &'a Key,
    /// Its caller.
    pub principal: &'a Principal,
    /// The pattern of its route.
    pub pattern: &'a Pattern,
    /// Its path.
    pub path: &'a str,
    /// Its body.
    pub body: &'a [u8],
}

impl Notes {
    /// What these templates need.
    #[must_use]
    pub fn of<'a>(templates: impl IntoIterator<Item = &'a Template>) -> Self {
        let mut needed: Vec<Variable> = Vec::new();
        for variable in templates.into_iter().flat_map(Template::variables) {
            if variable.is_noted() && !needed.contains(variable) {
                needed.push(variable.clone());
            }
        }
        Self(needed)
    }

    /// The memo of a request: empty where nothing is needed.
    #[must_use]
    pub fn memo(&self, subject: &Subject<'_>) -> Bytes {
        if self.0.is_empty() {
            return Bytes::new();
        }
        let reads_body = self
            .0
            .iter()
            .any(|variable| matches!(variable, Variable::Body(_)));
        let json = reads_body.then(|| Json::parse(subject.body)).flatten();
        let mut writer = Writer::default();
        for variable in &self.0 {
            if let Some(value) = read(variable, subject, json.as_ref()) {
                writer.put(&variable.to_string(), &value);
            }
        }
        writer.finish()
    }
}

fn read(variable: &Variable, subject: &Subject<'_>, json: Option<&Json<'_>>) -> Option<String> {
    match variable {
        Variable::Key => Some(subject.key.as_str().to_owned()),
        Variable::Principal => subject.principal.name().map(str::to_owned),
        Variable::Body(pointer) => json?.scalar(pointer).map(Cow::into_owned),
        Variable::Path(name) => subject.pattern.parameter(name, subject.path),
        // Known later, too.
        Variable::Child(_) | Variable::Operation => None,
    }
}

#[derive(Default)]
struct Writer(BytesMut);

impl Writer {
    fn put(&mut self, name: &str, value: &str) {
        let Ok(name_length) = u8::try_from(name.len()) else {
            return;
        };
        let room = MEMO_BYTES_MAX.saturating_sub(self.0.len() + name.len() + 4);
        let length = u16::try_from(value.len())
            .ok()
            .filter(|_| value.len() <= room);
        // Where not even the mark for that fits, it is as if there were no value.
        if length.is_none() && room == 0 {
            return;
        }
        if self.0.is_empty() {
            self.0.put_u8(VERSION);
        }
        self.0.put_u8(name_length);
        self.0.put_slice(name.as_bytes());
        self.0.put_u16(length.unwrap_or(TOO_LONG));
        if length.is_some() {
            self.0.put_slice(value.as_bytes());
        }
    }

    fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// What was noted of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted<'a> {
    /// The value.
    Value(&'a str),
    /// There was one, and it was too long.
    TooLong,
}

/// A memo that was read back.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Memo(Vec<(String, Option<String>)>);

impl Memo {
    /// Reads a record's memo. One that cannot be read says nothing.
    #[must_use]
    pub fn parse(bytes: &Bytes) -> Self {
        Self(parse(bytes.clone()).unwrap_or_default())
    }

    /// A memo of these values.
    #[must_use]
    pub fn from_values<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let values = values.into_iter();
        Self(
            values
                .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
                .collect(),
        )
    }

    /// What was noted under a name, such as `key` or `body:/order/id`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Noted<'_>> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value.as_deref().map_or(Noted::TooLong, Noted::Value))
    }
}

impl fmt::Debug for Memo {
    /// Names only: values are the client's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

fn parse(mut bytes: Bytes) -> Option<Vec<(String, Option<String>)>> {
    if bytes.is_empty() || bytes.get_u8() != VERSION {
        return None;
    }
    let mut values = Vec::new();
    while bytes.has_remaining() {
        let length = usize::from(bytes.try_get_u8().ok()?);
        let name = text(&mut bytes, length)?;
        let value = match bytes.try_get_u16().ok()? {
            TOO_LONG => None,
            length => Some(text(&mut bytes, usize::from(length))?),
        };
        values.push((name, value));
    }
    Some(values)
}

fn text(bytes: &mut Bytes, length: usize) -> Option<String> {
    let part = (bytes.remaining() >= length).then(|| bytes.split_to(length))?;
    String::from_utf8(part.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use onlyonce_core::KeyLimits;

    use super::*;

    fn memo(template: &str, principal: &Principal, body: &[u8]) -> (Bytes, Memo) {
        let template = Template::parse(template).unwrap();
        let key = Key::opaque("k-1", &KeyLimits::default()).unwrap();
        let pattern = Pattern::parse("/shops/{shop}/orders/{*rest}").unwrap();
        let bytes = Notes::of([&template, &template]).memo(&Subject {
            key: &key,
            principal,
            pattern: &pattern,
            path: "/shops/a%20b/orders/1/2",
            body,
        });
        (bytes.clone(), Memo::parse(&bytes))
    }

    #[test]
    fn only_what_is_needed_is_noted_and_comes_back() {
        let alice = Principal::new("header", b"alice");
        let text =
            "{key} {principal} {path:shop} {path:rest} {path:x} {body:/o/n} {body:/o} {operation}";
        let (_, memo) = memo(text, &alice, br#"{"o":{"n":1.50}}"#);
        for (name, expected) in [
            ("key", Some("k-1")),
            ("principal", Some("alice")),
            ("path:shop", Some("a b")),
            ("path:rest", Some("1/2")),
            ("path:x", None),
            ("body:/o/n", Some("1.50")),
            ("body:/o", None),
            ("operation", None),
        ] {
            assert_eq!(memo.get(name), expected.map(Noted::Value), "{name}");
        }
        assert_eq!(self::memo("{child:a}", &alice, b"").0, Bytes::new());
        assert!(!format!("{memo:?}").contains("alice"));
    }

    /// A stored credential is a leaked one.
    #[test]
    fn a_credential_is_never_noted() {
        let bearer = Principal::new("authorization", b"Bearer secret");
        let (bytes, memo) = memo("{key}{principal}", &bearer, b"");
        assert_eq!(memo.get("principal"), None);
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said_so() {
        let anonymous = Principal::anonymous();
        let body = format!(r#"{{"a":"{}","b":"short"}}"#, "x".repeat(MEMO_BYTES_MAX));
        let (bytes, memo) = memo("{body:/a}{body:/b}", &anonymous, body.as_bytes());
        assert!(bytes.len() < 100);
        assert_eq!(memo.get("body:/a"), Some(Noted::TooLong));
        assert_eq!(memo.get("body:/b"), Some(Noted::Value("short")));
    }

    #[test]
    fn a_torn_or_newer_memo_says_nothing() {
        let (bytes, whole) = memo("{key}", &Principal::anonymous(), b"");
        assert_eq!(whole.get("key"), Some(Noted::Value("k-1")));
        for end in 0..bytes.len() {
            assert_eq!(Memo::parse(&bytes.slice(..end)), Memo::default(), "{end}");
        }
        let mut newer = bytes.to_vec();
        newer[0] = 9;
        assert_eq!(Memo::parse(&newer.into()), Memo::default());
    }
}
