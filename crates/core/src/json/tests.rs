use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use super::*;

fn canonical(text: &str) -> String {
    String::from_utf8(canonicalize(text.as_bytes()).expect("canonical")).expect("UTF-8")
}

fn refused(text: &str) -> NotCanonical {
    canonicalize(text.as_bytes()).expect_err("refused")
}

fn deep(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

const NO_LIMITS: JsonLimits = JsonLimits {
    depth_max: usize::MAX,
    values_max: usize::MAX,
};

#[test]
fn spelling_does_not_matter() {
    assert_eq!(
        canonical(" {\t\"b\" : [ 1.0 , 1E0, 10e-1 ] ,\r\n\"a\":\"\\u0041\\/\" } "),
        r#"{"a":"A/","b":[1,1,1]}"#
    );
    assert_eq!(
        canonical(r#""\u20ac\u000F\u000aA'\u0042\u0022\u005c\\\"\/""#),
        "\"\u{20ac}\\u000f\\nA'B\\\"\\\\\\\\\\\"/\""
    );
    assert_eq!(canonical("\"\\ud83d\\ude00\""), "\"\u{1f600}\"");
    assert_eq!(
        canonical("[null,true,false,\"\",{},[]]"),
        "[null,true,false,\"\",{},[]]"
    );
}

/// A double has 53 bits. Were these accepted, amounts that differ would share a fingerprint.
#[test]
fn numbers_that_would_lose_digits_are_refused() {
    for inexact in [
        "9007199254740993",
        "-9007199254740993",
        "0.10000000000000000001",
        "1e400",
        "-1e400",
        "1e-400",
        "-0",
        "-0.0",
        "-0e9",
        "123456789012345678901",
        "1.00000000000000000000001",
        "1e999999999999",
        "1e-999999999999999999999999",
        "4.9e-324",
        "2.4703282292062327e-324",
        "1.7976931348623159e308",
        "100000000000000000000001",
    ] {
        let text = format!("[0, {inexact}]");
        assert_eq!(
            refused(&text),
            NotCanonical::InexactNumber { offset: 4 },
            "{inexact}"
        );
    }
}

#[test]
fn numbers_that_keep_their_value_are_accepted() {
    for (source, expected) in [
        ("0", "0"),
        ("0.0", "0"),
        ("0e0", "0"),
        ("0e999999999999", "0"),
        ("0.000e-5", "0"),
        ("1", "1"),
        ("-1", "-1"),
        ("1.0", "1"),
        ("10e-1", "1"),
        ("1E0", "1"),
        ("1e+0", "1"),
        ("0.1", "0.1"),
        ("0.100", "0.1"),
        ("1e-1", "0.1"),
        ("9007199254740992", "9007199254740992"),
        ("9007199254740994", "9007199254740994"),
        ("100000000000000000000", "100000000000000000000"),
        ("1000000000000000000000", "1e+21"),
        ("1e23", "1e+23"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("999999999999999", "999999999999999"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("12.50", "12.5"),
        ("1250e-2", "12.5"),
        ("0.00125e4", "12.5"),
        ("-120.0e1", "-1200"),
    ] {
        assert_eq!(canonical(source), expected, "{source}");
    }
}

/// A megabyte of digits must not buy more than a megabyte of work.
#[test]
fn endless_digits_cost_linear_time() {
    let zeros = "0".repeat(1_000_000);
    assert_eq!(canonical(&format!("1.{zeros}")), "1");
    assert_eq!(canonical(&format!("1e-{zeros}0")), "1");
    let inexact = NotCanonical::InexactNumber { offset: 0 };
    // Both are 1, but `core` gives up on exponents that long. Refusing is the safe side.
    assert_eq!(refused(&format!("0.{zeros}1e1000001")), inexact);
    assert_eq!(refused(&format!("1{zeros}e-1000000")), inexact);
    assert_eq!(refused(&format!("1.{zeros}1")), inexact);
    assert_eq!(refused(&"9".repeat(1_000_000)), inexact);
    assert_eq!(refused(&format!("1e{}", "9".repeat(1_000_000))), inexact);
}

/// Readers disagree about which of two equal names counts, so neither may be dropped.
#[test]
fn repeated_names_are_refused_after_unescaping() {
    assert_eq!(
        refused(r#"{"a":1,"a":2}"#),
        NotCanonical::DuplicateName { offset: 7 }
    );
    assert_eq!(
        refused(r#"{"a":1,"b":{"x":0,"\u0078":0}}"#),
        NotCanonical::DuplicateName { offset: 18 }
    );
    assert_eq!(
        refused(r#"{"":1,"":1}"#),
        NotCanonical::DuplicateName { offset: 6 }
    );
    assert_eq!(
        canonical(r#"{"a":{"a":1},"b":{"a":1}}"#),
        r#"{"a":{"a":1},"b":{"a":1}}"#
    );
}

#[test]
fn names_are_sorted_by_utf16_units() {
    // U+FB33 is one unit above the surrogates of U+1F600, though its code point is below.
    assert_eq!(
        canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2,\"a\":3,\"\u{20ac}\":4}"),
        "{\"a\":3,\"\u{20ac}\":4,\"\u{1f600}\":2,\"\u{fb33}\":1}"
    );
    let names = [
        "",
        "a",
        "ab",
        "b",
        "\u{7f}",
        "\u{80}",
        "\u{7ff}",
        "\u{800}",
        "\u{d7ff}",
        "\u{e000}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
        "a\u{e000}",
        "a\u{10000}",
    ];
    for left in names {
        for right in names {
            let expected = left.encode_utf16().cmp(right.encode_utf16());
            assert_eq!(
                text::compare_utf16(left, right),
                expected,
                "{left:?} {right:?}"
            );
        }
    }
}

#[test]
fn only_strict_json_is_read() {
    for bad in [
        "",
        " ",
        "{",
        "[",
        "]",
        "}",
        "[1,]",
        "[,1]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{1:1}",
        "[1 2]",
        "1 2",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "Infinity",
        "tru",
        "nulll",
        "\"",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u+123\"",
        "\"a\nb\"",
        "\"\t\"",
        "'a'",
        "[1}",
        "{\"a\":1]",
        "//",
        "[1]//",
        "\u{feff}1",
        "\u{a0}1",
        "1\u{0}",
        "--1",
        "\"\\\u{e9}\"",
    ] {
        assert!(
            matches!(refused(bad), NotCanonical::Syntax { .. }),
            "{bad:?}: {:?}",
            refused(bad)
        );
    }
    assert_eq!(refused("[1, x]"), NotCanonical::Syntax { offset: 4 });
    assert_eq!(canonicalize(b"\"\xff\""), Err(NotCanonical::NotUtf8));
}

#[test]
fn half_a_surrogate_pair_is_refused() {
    for bad in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800x""#,
        r#""\ud800\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud800\n""#,
        r#""\ud800A""#,
    ] {
        assert_eq!(
            refused(bad),
            NotCanonical::LoneSurrogate { offset: 1 },
            "{bad}"
        );
    }
}

/// Depth comes from the client. It may cost a refusal, never a stack overflow.
#[test]
fn depth_never_reaches_the_stack() {
    assert_eq!(canonical(&deep(128)), deep(128));
    assert_eq!(refused(&deep(129)), NotCanonical::TooDeep);
    assert_eq!(refused(&"[".repeat(1_000_000)), NotCanonical::TooDeep);
    let very_deep = deep(200_000);
    let document = Document::parse(very_deep.as_bytes(), &NO_LIMITS).expect("no limit");
    assert_eq!(document.canonical(), very_deep.as_bytes());
    drop(document.clone());
    let objects = "{\"a\":".repeat(100_000) + "1" + &"}".repeat(100_000);
    assert_eq!(
        Document::parse(objects.as_bytes(), &NO_LIMITS)
            .expect("no limit")
            .canonical(),
        objects.as_bytes()
    );
}

#[test]
fn too_many_values_are_refused() {
    let limits = JsonLimits {
        values_max: 4,
        ..JsonLimits::default()
    };
    assert!(Document::parse(b"[1,2,3]", &limits).is_ok());
    assert_eq!(
        Document::parse(b"[1,2,3,4]", &limits),
        Err(NotCanonical::TooLarge)
    );
    let many = format!("[{}0]", "0,".repeat(70_000));
    assert_eq!(refused(&many), NotCanonical::TooLarge);
}

#[test]
fn long_strings_pass_through_the_writer_whole() {
    for length in [0, 1, 509, 510, 511, 512, 513, 1024, 5000] {
        let plain = format!("[\"{}\",\"x\"]", "y".repeat(length));
        assert_eq!(canonical(&plain), plain);
        let escaped = format!("[\"{}\\n\"]", "y".repeat(length));
        assert_eq!(canonical(&escaped), escaped);
    }
}

#[test]
fn a_document_never_prints_its_values() {
    let document = Document::parse(b"{\"card\":\"4111\"}", &NO_LIMITS).expect("JSON");
    assert_eq!(format!("{document:?}"), "Document { values: 2, .. }");
}

#[test]
fn pointers_follow_rfc_6901() {
    let text = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
    let document = Document::parse(text.as_bytes(), &NO_LIMITS).expect("JSON");
    let at = |pointer: &str| {
        let pointer = Pointer::parse(pointer).expect(pointer);
        let found = document.find(&pointer)?;
        assert_eq!(&*render(&found.path), pointer.as_str());
        let mut bytes = Vec::new();
        document.write_subtree(found.node, &[], &mut |piece: &[u8]| {
            bytes.extend_from_slice(piece);
        });
        Some(String::from_utf8(bytes).expect("UTF-8"))
    };
    for (pointer, expected) in [
        ("/foo", "[\"bar\",\"baz\"]"),
        ("/foo/0", "\"bar\""),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        assert_eq!(at(pointer).as_deref(), Some(expected), "{pointer}");
    }
    assert_eq!(
        at("").map(|text| text.len()),
        Some(document.canonical().len())
    );
    for nowhere in [
        "/foo/2",
        "/foo/-",
        "/foo/00",
        "/foo/+1",
        "/foo/01",
        "/foo/",
        "/foo/0/x",
        "/x",
        "/foo/4294967296",
    ] {
        assert_eq!(at(nowhere), None, "{nowhere}");
    }
    assert_eq!(Pointer::parse("foo"), Err(PointerError::NoSlash));
    assert_eq!(Pointer::parse("/~"), Err(PointerError::BadEscape));
    assert_eq!(Pointer::parse("/~2"), Err(PointerError::BadEscape));
    assert_eq!(
        Pointer::parse("/~01").map(|p| p.tokens().map(ToString::to_string).collect()),
        Ok(vec!["~1".to_string()])
    );
}

/// Without a hole, `[1,2]` less its first element would equal `[2]`.
#[test]
fn a_left_out_element_keeps_its_place_and_a_member_does_not() {
    let shown = |text: &str, pointer: &str| {
        let document = Document::parse(text.as_bytes(), &NO_LIMITS).expect("JSON");
        let pointer = Pointer::parse(pointer).expect("a pointer");
        let holes: Vec<u32> = document
            .find(&pointer)
            .and_then(|found| found.child)
            .into_iter()
            .collect();
        let mut bytes = Vec::new();
        document.write_subtree(document.root(), &holes, &mut |piece: &[u8]| {
            bytes.extend_from_slice(piece);
        });
        String::from_utf8(bytes).expect("UTF-8")
    };
    assert_eq!(shown("[1,2]", "/0"), "[\0,2]");
    assert_eq!(shown("[1,2]", "/1"), "[1,\0]");
    assert_eq!(shown(r#"{"a":1,"b":2,"c":3}"#, "/a"), r#"{"b":2,"c":3}"#);
    assert_eq!(shown(r#"{"a":{"x":[1]}}"#, "/a/x"), r#"{"a":{}}"#);
}

/// Both reading and writing trust this search to stop at the first such byte, wherever it is.
#[test]
fn the_search_for_special_bytes_finds_the_first_one() {
    for length in 0..20 {
        for at in 0..=length {
            for byte in 0..=u8::MAX {
                for filler in [
                    b'a', 0x20, 0x21, 0x23, 0x5B, 0x5D, 0x7F, 0x80, 0xA2, 0xDC, 0xFF,
                ] {
                    let mut bytes = vec![filler; length];
                    bytes.insert(at, byte);
                    let slow = bytes
                        .iter()
                        .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F));
                    assert_eq!(text::find_special(&bytes), slow);
                }
            }
        }
    }
    assert_eq!(text::find_special(b"abc\x01\"\\ef0123"), Some(3));
}

/// The shortcut for short numbers must print what the long way prints.
#[test]
fn short_numbers_are_spelled_as_the_formatter_would() {
    let mut seed = 1_u64;
    for _ in 0..200_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let digits = (seed >> 20) % 10_u64.pow(u32::try_from(seed >> 60).expect("four bits"));
        let mut source = digits.to_string();
        let point = usize::try_from(seed >> 40 & 0xF).expect("four bits");
        if point > 0 {
            source = format!("{source:0>width$}", width = point + 1);
            source.insert(source.len() - point, '.');
        }
        if seed & 1 << 30 == 0 && digits != 0 {
            source.insert(0, '-');
        }
        let value: f64 = source.parse().expect("a number");
        assert_eq!(canonical(&source), format_number(value), "{source}");
    }
}

/// A key is read from where its client put it, or not at all.
#[test]
fn one_place_of_a_document_is_looked_at() {
    let look = |text: &str, pointer: &str| {
        at(
            text.as_bytes(),
            &Pointer::parse(pointer).unwrap(),
            &JsonLimits::default(),
        )
    };
    let text = r#"{"a":{"b":["x","\u0041/"]},"n":12345678901234567890,"z":null}"#;
    assert_eq!(look(text, "/a/b/1"), Ok(At::Text("A/".into())));
    assert_eq!(look(text, "/n"), Ok(At::Other("a number")));
    assert_eq!(look(text, "/a"), Ok(At::Other("an object")));
    assert_eq!(look(text, "/z"), Ok(At::Nothing));
    assert_eq!(look(text, "/a/c"), Ok(At::Nothing));
    assert!(look(r#"{"k":"a","k":"b"}"#, "/k").is_err());
    assert!(look("k=1", "/k").is_err());
}
