use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use super::*;

fn header(value: impl AsRef<[u8]>) -> Result<Key, KeyError> {
    Key::from_header(value.as_ref(), &KeyLimits::default())
}

fn text(value: impl AsRef<[u8]>) -> String {
    header(value).expect("a key").as_str().to_string()
}

/// Clients disagree about quoting. If the two spellings were two keys, a client library upgrade
/// in the middle of a retry would charge twice.
#[test]
fn bare_and_quoted_spell_the_same_key() {
    assert_eq!(header("abc"), header("\"abc\""));
    assert_eq!(
        text(" \t8e03978e-40d5-43dd-bc93-6894a57f9324\t "),
        "8e03978e-40d5-43dd-bc93-6894a57f9324"
    );
    assert_eq!(text("\"a\\\"b\\\\c\""), "a\"b\\c");
}

/// Two lines joined by a proxy look like one value. Either key alone would be the wrong one.
#[test]
fn two_lines_are_refused_joined_or_not() {
    let limits = KeyLimits::default();
    let lines: [&[u8]; 2] = [b"abc", b"abc"];
    assert_eq!(
        Key::from_header_lines(lines, &limits),
        Err(KeyError::Repeated)
    );
    assert_eq!(Key::from_header_lines([], &limits), Err(KeyError::Missing));
    assert_eq!(
        header("abc, abc"),
        Err(KeyError::NeedsQuotes { position: 4 })
    );
    assert_eq!(
        header("\"abc\", \"abc\""),
        Err(KeyError::Malformed { position: 6 })
    );
}

#[test]
fn a_bare_key_that_may_end_early_must_be_quoted() {
    assert_eq!(header("a;b"), Err(KeyError::NeedsQuotes { position: 2 }));
    assert_eq!(header(" a\"b"), Err(KeyError::NeedsQuotes { position: 3 }));
    assert_eq!(text("\"a;b,c\""), "a;b,c");
}

#[test]
fn an_empty_key_is_refused_in_every_spelling() {
    for value in ["", "  ", "\t", "\"\"", " \"\" "] {
        assert_eq!(header(value), Err(KeyError::Empty), "{value:?}");
    }
    assert_eq!(Key::opaque("", &KeyLimits::default()), Err(KeyError::Empty));
}

#[test]
fn invisible_characters_are_refused_with_their_position() {
    assert_eq!(header("ab c"), Err(KeyError::NotVisible { position: 3 }));
    assert_eq!(
        header("\"ab c\""),
        Err(KeyError::NotVisible { position: 3 })
    );
    assert_eq!(
        header("ab\u{e9}"),
        Err(KeyError::NotVisible { position: 3 })
    );
    assert_eq!(
        header("\"ab\u{e9}\""),
        Err(KeyError::NotVisible { position: 3 })
    );
    assert_eq!(
        header(b"\"ab\x00\""),
        Err(KeyError::NotVisible { position: 3 })
    );
    assert_eq!(header(b"ab\x7f"), Err(KeyError::NotVisible { position: 3 }));
    assert_eq!(
        Key::opaque("a\nb", &KeyLimits::default()),
        Err(KeyError::NotVisible { position: 2 })
    );
}

#[test]
fn lengths_are_those_of_the_decoded_key() {
    let longest = "x".repeat(255);
    assert_eq!(text(format!("\"{longest}\"")), longest);
    let error = header("x".repeat(300)).expect_err("too long");
    assert_eq!(
        error.to_string(),
        "the key has 300 characters; at most 255 are allowed: send a shorter one, such as a UUID"
    );
    let limits = KeyLimits {
        chars_min: 8,
        chars_max: 10_000,
        ..KeyLimits::default()
    };
    assert_eq!(
        Key::opaque("1234567", &limits),
        Err(KeyError::TooShort {
            chars: 7,
            chars_min: 8
        })
    );
    assert_eq!(
        Key::opaque(&"x".repeat(256), &limits),
        Err(KeyError::TooLong {
            chars: 256,
            chars_max: 255
        })
    );
}

#[test]
fn a_narrow_class_refuses_other_visible_characters() {
    let limits = KeyLimits {
        class: CharClass::Unreserved,
        ..KeyLimits::default()
    };
    assert!(Key::opaque("aZ09-._~", &limits).is_ok());
    assert_eq!(
        Key::opaque("a/b", &limits),
        Err(KeyError::NotAllowed { position: 2 })
    );
}

/// RFC 9651 allows parameters; the key is the same with and without them.
#[test]
fn parameters_must_be_well_formed_and_are_ignored() {
    for good in [
        "\"k\";a",
        "\"k\";a=1;b=-1.5",
        "\"k\"; a=?0",
        "\"k\";a=\"x\\\"\"",
        "\"k\";a=:YQ==:",
        "\"k\";a=:YQ:",
        "\"k\";*a-_.*=tok/en:x",
        "\"k\";a=@1659578233",
        "\"k\";a=%\"f%c3%bc\"",
        "\"k\";a=::",
        "\"k\";a;a;a",
    ] {
        assert_eq!(text(good), "k", "{good}");
    }
    for bad in [
        "\"k\" ;a",
        "\"k\";",
        "\"k\";A",
        "\"k\";a=",
        "\"k\";a=1.",
        "\"k\";a=1234567890123456",
        "\"k\";a=1.2345",
        "\"k\";a=1234567890123.1",
        "\"k\";a=?2",
        "\"k\";a=\"x",
        "\"k\";a=:YQ",
        "\"k\";a=:a:",
        "\"k\";a=:=:",
        "\"k\";a=@1.5",
        "\"k\";a=%\"f%C3%BC\"",
        "\"k\";a=%\"%ff\"",
        "\"k\";a=%\"x",
        "\"k\"x",
        "\"k",
        "\"k\\x\"",
        "\"k\";a=(1)",
        "\"k\";a = 1",
        "\"k\";a=--1",
    ] {
        assert!(
            matches!(header(bad), Err(KeyError::Malformed { .. })),
            "{bad}: {:?}",
            header(bad)
        );
    }
}

#[test]
fn a_key_and_its_errors_never_print_it() {
    assert_eq!(format!("{:?}", header("s3cret").expect("a key")), "Key(..)");
    for bad in ["s3cret,", "\"s3cret", "s3cret x"] {
        let error = header(bad).expect_err("refused");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}

fn clean(key: &str) -> Result<Key, KeyError> {
    Key::opaque(
        key,
        &KeyLimits {
            hygiene: true,
            ..KeyLimits::default()
        },
    )
}

/// Keys travel through logs and proxies: a card number in one would put the whole log in scope of an audit.
#[test]
fn hygiene_refuses_what_looks_like_a_person() {
    for (kind, keys) in [
        (
            PersonalData::Email,
            vec!["joe@example.com", "order:joe.b+x@mail.example.co.uk:1"],
        ),
        (
            PersonalData::Phone,
            vec![
                "+442071838750",
                "+1-555-123-4567",
                "555-123-4567",
                "(555)123-4567",
                "tel:555.123.4567",
            ],
        ),
        (
            PersonalData::Card,
            vec![
                "4111111111111111",
                "4111-1111-1111-1111",
                "charge_5555555555554444",
                "378282246310005",
                "3782-822463-10005",
            ],
        ),
        (
            PersonalData::SocialSecurity,
            vec!["078-05-1120", "user:078-05-1120"],
        ),
    ] {
        for key in keys {
            assert_eq!(clean(key), Err(KeyError::PersonalData(kind)), "{key}");
            assert!(Key::opaque(key, &KeyLimits::default()).is_ok());
        }
    }
}

#[test]
fn hygiene_lets_identifiers_pass() {
    for key in [
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
        "41111111-1111-4111-8111-411111111111",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "order-1700000000000",
        "evt_1700000000000000000",
        "2024-06-01-123456789012",
        "2024-06-01T12:00:00.123Z",
        "4111111111111112",
        "1700000000",
        "retry@3",
        "@scope/pkg",
        "v1.2.3",
    ] {
        assert!(clean(key).is_ok(), "{key}: {:?}", clean(key));
    }
}

proptest! {
    /// Hostile bytes in a header must never take the process down.
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let limits = KeyLimits { hygiene: true, ..KeyLimits::default() };
        let _ = Key::from_header(&bytes, &limits);
        let mut quoted = vec![b'"'];
        quoted.extend_from_slice(&bytes);
        let _ = Key::from_header(&quoted, &limits);
    }

    #[test]
    fn hostile_text_never_panics(text in "[0-9@.()+;,=:\"\\\\%a-f-]{0,48}") {
        let limits = KeyLimits { hygiene: true, ..KeyLimits::default() };
        let _ = Key::opaque(&text, &limits);
        let _ = Key::from_header(text.as_bytes(), &limits);
        let _ = Key::from_header(format!("\"k\";{text}").as_bytes(), &limits);
    }

    #[test]
    fn every_visible_key_survives_quoting(key in "[!-~]{1,255}") {
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        prop_assert_eq!(text(quoted), key);
    }

    /// A bare value is the key itself, byte for byte, or refused.
    #[test]
    fn a_bare_key_is_taken_whole_or_not_at_all(value in "[ -~]{0,40}") {
        if !value.trim_matches(' ').starts_with('"') && let Ok(key) = header(&value) {
            prop_assert_eq!(key.as_str(), value.trim_matches(' '));
        }
    }

    #[test]
    fn any_bytes_in_a_key_are_visible_afterwards(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(key) = header(&bytes) {
            let kept: Vec<u8> = key.as_str().bytes().collect();
            prop_assert!(!kept.is_empty() && kept.len() <= 255);
            prop_assert!(kept.iter().all(|byte| matches!(byte, 0x21..=0x7E)));
        }
    }
}
