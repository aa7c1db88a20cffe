//! What canonical JSON must promise for any document: spelling never counts, meaning always does.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "a test may stop at once, and means equal when it says equal"
)]

use onlyonce_core::json::{NotCanonical, canonicalize};
use proptest::prelude::*;
use serde_json::Value;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d]{0,2}",
        "[\u{1}-\u{7f}]{0,4}",
        any::<String>(),
        "[\u{d7f0}-\u{d7ff}\u{e000}-\u{e010}\u{fff0}-\u{ffff}\u{10000}-\u{10010}]{1,3}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no NaN, and -0 loses its sign", |number| {
                number.is_finite() && (*number != 0.0 || number.is_sign_positive())
            })
            .prop_map(Value::from),
        name().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Equal as mathematics sees it: `1` and `1.0` are one number.
fn same(left: &Value, right: &Value) -> bool {
    equal(left, right, |left, right| left == right)
}

/// Equal to a reader that, as `serde_json` does by default, may miss a double by its last bit.
fn close(left: &Value, right: &Value) -> bool {
    equal(left, right, |left, right| {
        left == right || (left - right).abs() <= left.abs() * 4.0 * f64::EPSILON + f64::MIN_POSITIVE
    })
}

fn equal(left: &Value, right: &Value, numbers: fn(f64, f64) -> bool) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            numbers(left.as_f64().unwrap(), right.as_f64().unwrap())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right, numbers))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| {
                    right
                        .get(name)
                        .is_some_and(|right| equal(value, right, numbers))
                })
        }
        (left, right) => left == right,
    }
}

/// Writes a value in one of its many spellings, chosen by `choices`.
struct Speller {
    choices: u64,
}

impl Speller {
    fn choose(&mut self, of: u64) -> u64 {
        self.choices = self
            .choices
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.choices >> 33) % of
    }

    fn space(&mut self) -> &'static str {
        ["", "", " ", "\n\t", "\r\n  "][usize::try_from(self.choose(5)).unwrap()]
    }

    fn text(&mut self, text: &str) -> String {
        let mut spelled = String::from("\"");
        for character in text.chars() {
            let must = matches!(character, '"' | '\\' | '\0'..='\x1f');
            if must || self.choose(3) == 0 {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    let digits = format!("{unit:04x}");
                    let digits = if self.choose(2) == 0 {
                        digits.to_uppercase()
                    } else {
                        digits
                    };
                    spelled.extend(["\\u", &digits]);
                }
            } else {
                spelled.push(character);
            }
        }
        spelled + "\""
    }

    fn number(&mut self, number: &serde_json::Number) -> String {
        match number.as_i64() {
            Some(whole) => match self.choose(4) {
                0 => format!("{whole}.000"),
                1 => format!("{whole}E+0"),
                2 if whole != 0 => format!("{whole}00e-2"),
                _ => whole.to_string(),
            },
            None => number.to_string(),
        }
    }

    fn spell(&mut self, value: &Value) -> String {
        let body = match value {
            Value::Null | Value::Bool(_) => value.to_string(),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(elements) => {
                let elements: Vec<String> =
                    elements.iter().map(|value| self.spell(value)).collect();
                format!("[{}{}]", self.space(), elements.join(","))
            }
            Value::Object(members) => {
                let mut members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| {
                        let (before, after) = (self.space(), self.space());
                        format!("{before}{}{after}:{}", self.text(name), self.spell(value))
                    })
                    .collect();
                for end in (1..members.len()).rev() {
                    let other = usize::try_from(self.choose(end as u64 + 1)).unwrap();
                    members.swap(end, other);
                }
                format!("{{{}{}}}", members.join(","), self.space())
            }
        };
        format!("{}{body}{}", self.space(), self.space())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// A retry is spelled by whatever library the client uses that day.
    #[test]
    fn spelling_does_not_change_the_canonical_form(value in value(), choices in any::<u64>()) {
        let plain = canonicalize(value.to_string().as_bytes()).unwrap();
        let spelled = Speller { choices }.spell(&value);
        prop_assert_eq!(canonicalize(spelled.as_bytes()), Ok(plain), "{}", spelled);
    }

    #[test]
    fn the_canonical_form_is_its_own_and_means_the_same(value in value()) {
        let canonical = canonicalize(value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(canonicalize(&canonical).unwrap(), canonical.clone());
        let back: Value = serde_json::from_slice(&canonical).unwrap();
        prop_assert!(close(&value, &back));
    }

    /// One canonical text for two meanings would answer one payment with another's receipt.
    #[test]
    fn different_documents_never_share_a_form(left in value(), right in value()) {
        let forms = [&left, &right].map(|value| canonicalize(value.to_string().as_bytes()).unwrap());
        prop_assert_eq!(forms[0] == forms[1], same(&left, &right));
    }

    /// Decimal arithmetic on the digits is the oracle: two numbers share a form only if they are
    /// the same decimal.
    #[test]
    fn numbers_share_a_form_only_if_their_decimals_are_equal(
        digits in "[1-9][0-9]{0,21}", zeros in 0_usize..4, point in 0_usize..24, change in 0_usize..22,
    ) {
        let scaled = |digits: &str| {
            let padded = format!("{digits:0>24}");
            let (whole, fraction) = padded.split_at(24 - point);
            let whole = whole.trim_start_matches('0');
            let whole = if whole.is_empty() { "0" } else { whole };
            if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}{}", "0".repeat(zeros)) }
        };
        let mut other = digits.clone().into_bytes();
        let at = change % other.len();
        other[at] = if other[at] == b'9' { b'8' } else { other[at] + 1 };
        let other = String::from_utf8(other).unwrap();
        let left = canonicalize(scaled(&digits).as_bytes());
        let right = canonicalize(scaled(&other).as_bytes());
        if let (Ok(left), Ok(right)) = (&left, &right) {
            prop_assert_ne!(left, right);
        }
        let shifted = format!("{digits}e-{point}");
        prop_assert_eq!(canonicalize(shifted.as_bytes()), left.clone());
        // Fifteen digits always fit a double.
        if digits.trim_end_matches('0').len() <= 15 {
            prop_assert!(left.is_ok());
        }
    }

    #[test]
    fn a_repeated_name_is_always_found(members in proptest::collection::vec(name(), 1..12), at in any::<prop::sample::Index>()) {
        let again = at.get(&members).clone();
        let all: Vec<String> = members.iter().chain([&again]).map(|name| format!("{}:0", Value::from(name.as_str()))).collect();
        let document = format!("{{{}}}", all.join(","));
        let is_refused = matches!(canonicalize(document.as_bytes()), Err(NotCanonical::DuplicateName { .. }));
        prop_assert!(is_refused);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = canonicalize(&bytes);
    }

    /// We must not accept what a strict reader refuses, or the server behind us sees another body.
    #[test]
    fn what_is_accepted_is_json_to_another_reader(text in "[\\[\\]{}:,\" \\\\u0-9eE.+a-f-]{0,24}|[ntfrualse\\[\\],]{0,12}") {
        let theirs = serde_json::from_str::<Value>(&text);
        match canonicalize(text.as_bytes()) {
            Ok(_) => prop_assert!(theirs.is_ok(), "{}", text),
            Err(NotCanonical::Syntax { .. }) => prop_assert!(theirs.is_err(), "{}", text),
            Err(_) => {}
        }
    }

    #[test]
    fn a_damaged_document_is_read_or_refused(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(canonical) = canonicalize(&bytes) {
            let theirs: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert!(close(&theirs, &serde_json::from_slice(&canonical).unwrap()));
        }
    }
}
