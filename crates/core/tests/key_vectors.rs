//! RFC 9651: the published vectors, and a second parser as an oracle.
#![allow(
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "a test may stop at once"
)]

use onlyonce_core::key::{Key, KeyError, KeyLimits, parse_string_item};
use proptest::prelude::*;
use serde_json::Value;

macro_rules! vectors {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("vectors/structured-fields/", $name, ".json")))),*]
    };
}

/// Every vector of every file: a string item has its published value, and anything else is no
/// string.
#[test]
fn strings_agree_with_the_published_vectors() {
    let mut strings = 0;
    for (file, text) in
        vectors!["string" "string-generated" "token" "item" "binary" "boolean" "number"]
    {
        let vectors: Vec<Value> = serde_json::from_str(text).unwrap();
        for vector in &vectors {
            if vector["header_type"] != "item" {
                continue;
            }
            let raw = joined(vector);
            let ours = parse_string_item(&raw);
            // A string value is a JSON string; tokens and bytes are objects with a type.
            let expected = match vector.get("expected").and_then(|expected| expected.get(0)) {
                Some(Value::String(value)) if vector["must_fail"] != true => Some(value.clone()),
                _ => None,
            };
            strings += usize::from(expected.is_some());
            assert_eq!(ours, expected, "{file}: {}", vector["name"]);
            check_key(&raw, expected.as_deref());
        }
    }
    assert!(strings > 90, "{strings}");
}

/// Several lines are joined as HTTP joins them; `Key` never gets to see such a value.
fn joined(vector: &Value) -> Vec<u8> {
    let lines: Vec<&str> = vector["raw"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    lines.join(", ").into_bytes()
}

/// A published string is a key when all of it is visible, and refused for that reason otherwise.
fn check_key(raw: &[u8], value: Option<&str>) {
    let key = Key::from_header(raw, &KeyLimits::default());
    match value {
        Some("") => assert_eq!(key, Err(KeyError::Empty)),
        Some(value) => match value.bytes().position(|byte| !matches!(byte, 0x21..=0x7E)) {
            Some(at) => assert_eq!(key, Err(KeyError::NotVisible { position: at + 1 })),
            None => assert_eq!(key.unwrap().as_str(), value),
        },
        None if raw.trim_ascii_start().starts_with(b"\"") => assert!(key.is_err(), "{raw:?}"),
        None => {}
    }
}

fn bare_item() -> impl Strategy<Value = String> {
    prop_oneof![
        (-999_999_999_999_999_i64..=999_999_999_999_999).prop_map(|n| n.to_string()),
        "-?[0-9]{1,17}",
        "-?[0-9]{1,14}\\.[0-9]{0,4}",
        "\"[a-c\\\\\" ]{0,6}\"",
        "[a-zA-Z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]{0,8}",
        "\\?[0-3]",
        "@-?[0-9]{1,12}(\\.[0-9])?",
        "%\"([a-z ]|%[0-9a-f]{2}){0,5}\"",
        "(:([A-Za-z0-9+/]{4}){0,3}:)|(:([A-Za-z0-9+/]{4}){0,2}[A-Za-z0-9+/]{3}=:)",
        "[(),;=\\\\a-z0-9 \"]{0,4}",
    ]
}

fn parameters() -> impl Strategy<Value = String> {
    let key = prop_oneof!["[a-z*][a-z0-9_.*-]{0,4}", "[A-Z0-9_=; -]{0,3}"];
    let space = prop_oneof![Just(""), Just(" "), Just("  "), Just("\t")];
    let one = (space, key, proptest::option::of(bare_item())).prop_map(|(space, key, value)| {
        value.map_or_else(
            || format!(";{space}{key}"),
            |value| format!(";{space}{key}={value}"),
        )
    });
    proptest::collection::vec(one, 0..4).prop_map(|all| all.concat())
}

/// Keeps the value of an item when it is a string.
struct StringValue;

impl<'de> sfv::visitor::ItemVisitor<'de> for StringValue {
    type Out = Option<String>;
    type Error = std::convert::Infallible;

    fn bare_item(
        self,
        item: sfv::BareItemFromInput<'de>,
    ) -> Result<impl sfv::visitor::ParameterVisitor<'de, Out = Self::Out>, Self::Error> {
        Ok(IgnoreParameters(
            item.as_string().map(|text| text.as_str().to_owned()),
        ))
    }
}

struct IgnoreParameters(Option<String>);

impl<'de> sfv::visitor::ParameterVisitor<'de> for IgnoreParameters {
    type Out = Option<String>;
    type Error = std::convert::Infallible;

    fn parameter(
        &mut self,
        _key: &'de sfv::KeyRef,
        _value: sfv::BareItemFromInput<'de>,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    fn finish(self) -> Result<Self::Out, Self::Error> {
        Ok(self.0)
    }
}

fn oracle(value: &[u8]) -> Option<String> {
    sfv::Parser::new(value)
        .parse_item_with_visitor(StringValue)
        .ok()
        .flatten()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A key that we read differently from a gateway in front of us is two keys for one write.
    #[test]
    fn strings_with_parameters_agree_with_another_parser(
        text in "[ !#-\\[\\]-~]{0,12}|[ -~\\t]{0,12}",
        parameters in parameters(),
        tail in "( |\\t|x|,|;){0,1}",
    ) {
        let value = format!("\"{text}\"{parameters}{tail}");
        prop_assert_eq!(parse_string_item(value.as_bytes()), oracle(value.as_bytes()), "{}", value);
    }

    #[test]
    fn any_bytes_agree_with_another_parser(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        prop_assert_eq!(parse_string_item(&bytes), oracle(&bytes));
        let quoted = [b"\"", bytes.as_slice(), b"\""].concat();
        prop_assert_eq!(parse_string_item(&quoted), oracle(&quoted));
    }
}
