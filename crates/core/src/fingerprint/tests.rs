use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::json::Pointer;

fn secret() -> Secret {
    Secret::new([9; 32])
}

const BASE: Payload<'static> = Payload {
    method: "POST",
    path: "/charges",
    query: None,
    headers: &[],
    content_type: Some(b"application/json"),
    body: b"{}",
};

fn print(payload: &Payload<'_>) -> Fingerprint {
    fingerprint(&secret(), &FingerprintPolicy::default(), payload).0
}

fn json(body: &str) -> Fingerprint {
    print(&Payload {
        body: body.as_bytes(),
        ..BASE
    })
}

fn rules(include: &[&str], exclude: &[&str]) -> FingerprintRules {
    let parse = |list: &[&str]| {
        list.iter()
            .map(|text| Pointer::parse(text).expect(text))
            .collect()
    };
    FingerprintRules {
        include: parse(include),
        exclude: parse(exclude),
        ..FingerprintRules::default()
    }
}

fn policy(include: &[&str], exclude: &[&str]) -> FingerprintPolicy {
    FingerprintPolicy::new(rules(include, exclude)).expect("consistent rules")
}

fn under(policy: &FingerprintPolicy, body: &str) -> [u8; 32] {
    fingerprint(
        &secret(),
        policy,
        &Payload {
            body: body.as_bytes(),
            ..BASE
        },
    )
    .0
    .digest
}

/// A client that builds its JSON anew for a retry must not be told that it changed its mind.
#[test]
fn spelling_of_json_does_not_matter() {
    let one = json(r#"{"amount":100,"to":"é"}"#);
    assert_eq!(one.algorithm, Algorithm::JsonCanonical);
    assert_eq!(one, json("{ \"to\" : \"\\u00e9\" ,\n\"amount\" : 1e2 }"));
    let vendor = Payload {
        content_type: Some(b"Application/Vnd.Api+JSON; charset=utf-8"),
        ..BASE
    };
    assert_eq!(print(&vendor).algorithm, Algorithm::JsonCanonical);
}

fn assert_all_differ(payloads: &[Payload<'_>]) {
    for (at, left) in payloads.iter().enumerate() {
        for right in payloads.iter().skip(at + 1) {
            assert_ne!(
                print(left).digest,
                print(right).digest,
                "{left:?} {right:?}"
            );
        }
    }
}

/// Any of these passing for another would replay the answer to another request.
#[test]
fn every_part_of_the_head_counts() {
    let (post, get) = (
        Payload {
            method: "post",
            ..BASE
        },
        Payload {
            method: "GET",
            ..BASE
        },
    );
    let (slash, mark) = (
        Payload {
            path: "/charges/",
            ..BASE
        },
        Payload {
            path: "/charges?",
            ..BASE
        },
    );
    let with_query = |query| Payload {
        query: Some(query),
        ..BASE
    };
    let with_type = |value| Payload {
        content_type: value,
        ..BASE
    };
    let with_headers = |headers| Payload { headers, ..BASE };
    assert_all_differ(&[
        BASE,
        post,
        get,
        slash,
        mark,
        with_query(""),
        with_query("a=1"),
        with_type(None),
        with_type(Some(b"")),
        with_type(Some(b"text/plain")),
        with_type(Some(b"application/x+json")),
        with_headers(&[("If-Match", b"")]),
        with_headers(&[("If-Match", b"1")]),
        with_headers(&[("If-Match", b"1"), ("if-match", b"1")]),
        with_headers(&[("Content-Encoding", b"identity")]),
        with_headers(&[("Content-Encoding", b"gzip")]),
    ]);
}

#[test]
fn every_body_counts() {
    let bodies: [&[u8]; 9] = [
        b"{}",
        b"[]",
        b"null",
        b"",
        b"{",
        b"{\"a\":1}",
        b"{\"a\":\"1\"}",
        b"{\"a\":null}",
        b"1",
    ];
    for content_type in [
        &b"application/json"[..],
        b"text/plain",
        b"multipart/form-data; boundary=b",
    ] {
        let content_type = Some(content_type);
        assert_all_differ(&bodies.map(|body| Payload {
            content_type,
            body,
            ..BASE
        }));
    }
}

/// Low-entropy payloads could be guessed from a plain hash.
#[test]
fn another_secret_gives_another_fingerprint() {
    let other = fingerprint(&Secret::new([8; 32]), &FingerprintPolicy::default(), &BASE).0;
    assert_ne!(print(&BASE), other);
}

#[test]
fn header_names_ignore_case_and_unchosen_headers_do_not_count() {
    let lower = Payload {
        headers: &[("if-match", b"\"1\""), ("user-agent", b"a")],
        ..BASE
    };
    let upper = Payload {
        headers: &[("User-Agent", b"b"), ("IF-MATCH", b"\"1\"")],
        ..BASE
    };
    assert_eq!(print(&lower), print(&upper));
}

/// The query may be left out by an operator; the encoding may not.
#[test]
fn the_policy_chooses_query_and_headers() {
    let rules = FingerprintRules {
        query: false,
        headers: vec!["X-Tenant".to_string()],
        ..FingerprintRules::default()
    };
    let policy = FingerprintPolicy::new(rules).expect("consistent rules");
    let print = |payload: &Payload<'_>| fingerprint(&secret(), &policy, payload).0;
    assert_eq!(policy.rules().headers, ["x-tenant", "content-encoding"]);
    assert_eq!(
        print(&BASE),
        print(&Payload {
            query: Some("a"),
            ..BASE
        })
    );
    assert_eq!(
        print(&BASE),
        print(&Payload {
            headers: &[("if-match", b"1")],
            ..BASE
        })
    );
    assert_ne!(
        print(&BASE),
        print(&Payload {
            headers: &[("x-tenant", b"1")],
            ..BASE
        })
    );
}

/// Canonical text would make each of these pairs one payload.
#[test]
fn json_that_canonical_text_would_change_counts_byte_by_byte() {
    for (left, right) in [
        ("{\"n\":9007199254740993}", "{\"n\":9007199254740992}"),
        ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
        ("{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":3}"),
        ("[-0]", "[0]"),
        ("[0.10000000000000000001]", "[0.1]"),
        ("[1e400]", "[2e400]"),
        ("\"\\ud800\"", "\"\\ud801\""),
    ] {
        assert_eq!(json(left).algorithm, Algorithm::Raw, "{left}");
        assert_ne!(json(left).digest, json(right).digest, "{left} {right}");
        assert_ne!(json(left).digest, json(&format!("{left} ")).digest);
    }
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    assert_eq!(json(&deep).algorithm, Algorithm::Raw);
}

/// A gzipped body is hashed as it came: inflating it here would be a way to exhaust memory.
#[test]
fn an_encoded_body_counts_byte_by_byte() {
    for encoded in [
        Payload {
            headers: &[("content-encoding", b"gzip")],
            ..BASE
        },
        Payload {
            headers: &[
                ("Content-Encoding", b"identity"),
                ("content-encoding", b"br"),
            ],
            ..BASE
        },
    ] {
        assert_eq!(print(&encoded).algorithm, Algorithm::Raw);
        assert_ne!(
            print(&encoded),
            print(&Payload {
                body: b"{} ",
                ..encoded
            })
        );
    }
    let identity = Payload {
        headers: &[("content-encoding", b" Identity ")],
        ..BASE
    };
    assert_eq!(print(&identity).algorithm, Algorithm::JsonCanonical);
}

#[test]
fn only_included_subtrees_count() {
    let policy = policy(&["/amount", "/to/id"], &[]);
    let one = under(&policy, r#"{"amount":1,"to":{"id":2,"name":"a"},"sent":1}"#);
    assert_eq!(
        one,
        under(&policy, r#"{"amount":1.0,"to":{"id":2,"name":"b"}}"#)
    );
    assert_ne!(one, under(&policy, r#"{"amount":2,"to":{"id":2}}"#));
    assert_ne!(one, under(&policy, r#"{"amount":1,"to":{"id":null}}"#));
    assert_ne!(
        under(&policy, r#"{"amount":1,"to":{"id":null}}"#),
        under(&policy, r#"{"amount":1,"to":{}}"#)
    );
    assert_ne!(
        under(&policy, r#"{"amount":1}"#),
        under(&policy, r#"{"to":{"id":1}}"#)
    );
    assert_ne!(
        under(&policy, "{}"),
        under(&FingerprintPolicy::default(), "{}")
    );
}

#[test]
fn excluded_subtrees_do_not_count() {
    let policy = policy(&[], &["/sent_at", "/items/0", "/deep/er"]);
    let one = under(
        &policy,
        r#"{"a":1,"sent_at":5,"items":[1,2],"deep":{"er":[1]}}"#,
    );
    assert_eq!(one, under(&policy, r#"{"a":1,"items":[9,2],"deep":{}}"#));
    assert_ne!(one, under(&policy, r#"{"a":1,"items":[9,3],"deep":{}}"#));
    assert_ne!(one, under(&policy, r#"{"a":1,"items":[2],"deep":{}}"#));
    assert_ne!(one, under(&policy, r#"{"a":1,"items":[1,2]}"#));
    assert_ne!(one, under(&policy, r#"{"a":2,"items":[1,2],"deep":{}}"#));
}

/// Exclusions need the parsed body. Where that is not safe the stricter reading holds.
#[test]
fn a_body_without_canonical_form_counts_whole() {
    let policy = policy(&[], &["/sent_at"]);
    assert_ne!(
        under(&policy, r#"{"a":1,"a":1,"sent_at":1}"#),
        under(&policy, r#"{"a":1,"a":1,"sent_at":2}"#)
    );
}

#[test]
fn contradicting_rules_are_refused() {
    use FingerprintPolicyError as Error;
    let refused = |include: &[&str], exclude: &[&str]| {
        FingerprintPolicy::new(rules(include, exclude)).expect_err("refused")
    };
    assert_eq!(refused(&[], &[""]), Error::ExcludesEverything);
    assert!(matches!(
        refused(&["/a/b"], &["/a"]),
        Error::IncludeWithinExclude { .. }
    ));
    assert!(matches!(
        refused(&["/a"], &["/a"]),
        Error::IncludeWithinExclude { .. }
    ));
    assert!(matches!(
        refused(&["/a", "/b", "/a/c"], &[]),
        Error::IncludeTwice { .. }
    ));
    assert!(matches!(
        refused(&["/a", "/a"], &[]),
        Error::IncludeTwice { .. }
    ));
    assert!(FingerprintPolicy::new(rules(&["/a", "/ab"], &["/a/x"])).is_ok());
    let headers = FingerprintRules {
        headers: vec!["a b".to_string()],
        ..FingerprintRules::default()
    };
    assert_eq!(
        FingerprintPolicy::new(headers),
        Err(Error::HeaderName("a b".into()))
    );
}

fn form(boundary: &str, body: &str) -> Fingerprint {
    let content_type = format!("multipart/form-data; boundary={boundary}");
    print(&Payload {
        content_type: Some(content_type.as_bytes()),
        body: body.as_bytes(),
        ..BASE
    })
}

/// The same bytes in another character set, or with another root part, are another payload.
#[test]
fn media_type_parameters_count_unless_they_say_nothing() {
    let of = |content_type: &str| {
        let payload = Payload {
            method: "POST",
            path: "/",
            query: None,
            headers: &[],
            content_type: Some(content_type.as_bytes()),
            body: b"{}",
        };
        fingerprint(
            &Secret::new([1; 32]),
            &FingerprintPolicy::default(),
            &payload,
        )
        .0
    };
    for (one, other) in [
        (
            "text/plain; charset=utf-8",
            "text/plain; charset=iso-8859-1",
        ),
        ("application/json", "application/json; charset=utf-7"),
        (
            "application/vnd.api+json",
            "application/vnd.api+json; ext=\"a\"",
        ),
        (
            "multipart/related; start=\"<a>\"",
            "multipart/related; start=\"<b>\"",
        ),
        ("text/plain; a=\"x;b=y\"", "text/plain; a=\"x\"; b=y"),
        ("text/plain; a=1; b=2", "text/plain; a=1"),
    ] {
        assert_ne!(of(one), of(other), "{one} and {other}");
    }
    for (one, other) in [
        ("application/json", "application/json; charset=utf-8"),
        ("application/json", "Application/JSON;Charset=\"UTF-8\""),
        (
            "text/plain; charset=utf-8",
            "text/plain ; Charset=\"utf-8\"",
        ),
    ] {
        assert_eq!(of(one), of(other), "{one} and {other}");
    }
}

fn parts(boundary: &str, parts: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (headers, content) in parts {
        body.extend(["--", boundary, "\r\n", headers, "\r\n", content, "\r\n"]);
    }
    body + "--" + boundary + "--\r\n"
}

const NAME_A: &str = "Content-Disposition: form-data; name=\"a\"\r\n";
const NAME_B: &str = "Content-Disposition: form-data; name=\"b\"\r\n";

/// Every client draws a new boundary for every attempt.
#[test]
fn a_new_boundary_is_the_same_form() {
    let list = [(NAME_A, "1"), (NAME_B, "x\r\ny"), ("", "")];
    let one = form("abc", &parts("abc", &list));
    assert_eq!(one.algorithm, Algorithm::Multipart);
    assert_eq!(
        one,
        form(
            "----WebKitFormBoundary7MA4YWx",
            &parts("----WebKitFormBoundary7MA4YWx", &list)
        )
    );
    assert_eq!(one, form("\"a b:c\"", &parts("a b:c", &list)));
    assert_eq!(one, form("abc", parts("abc", &list).trim_end()));
    let lower = NAME_A.replace("Content-Disposition", "content-disposition");
    assert_eq!(
        one,
        form("abc", &parts("abc", &[(&lower, "1"), list[1], list[2]]))
    );
    assert_eq!(form("a", "--a--"), form("b", "--b--\r\n"));
}

#[test]
fn every_part_of_a_form_counts() {
    let lists: Vec<Vec<(&str, &str)>> = vec![
        vec![],
        vec![("", "")],
        vec![(NAME_A, "1")],
        vec![(NAME_A, "2")],
        vec![(NAME_B, "1")],
        vec![(NAME_A, "1"), (NAME_A, "1")],
        vec![(NAME_A, "1"), (NAME_B, "1")],
        vec![(NAME_B, "1"), (NAME_A, "1")],
        vec![("", "1")],
        vec![(NAME_A, "1\r\n")],
        vec![("A: 1\r\nB: 2\r\n", "")],
        vec![("A: 1\r\n", "B: 2\r\n")],
        vec![("A:  1\r\nB: 2\r\n", "")],
    ];
    for (at, left) in lists.iter().enumerate() {
        let left = form("x-y", &parts("x-y", left));
        assert_eq!(left.algorithm, Algorithm::Multipart);
        for right in lists.iter().skip(at + 1) {
            assert_ne!(left, form("x-y", &parts("x-y", right)));
        }
    }
}

/// If any reader could split the body another way, its bytes decide.
#[test]
fn an_unclear_form_counts_byte_by_byte() {
    let good = parts("b", &[(NAME_A, "1")]);
    for (boundary, body) in [
        ("b", format!("preamble\r\n{good}")),
        ("b", format!("\r\n{good}")),
        ("b", format!("{good}epilogue")),
        ("b", format!("{good}\r\n")),
        ("b", good.replace("--b--", "--b")),
        ("b", good.replace("--b--\r\n", "")),
        ("c", good.clone()),
        ("b", good.replace("\r\n", "\n")),
        ("b", good.replace("--b\r\n", "--b \r\n")),
        ("b", good.replace('1', "1--b")),
        ("b", good.replace('1', "\r\n--bx")),
        ("b", good.replace('1', "\n--b\n")),
        ("b", good.replace("; name", ";\r\n name")),
        (
            "b",
            good.replace("Content-Disposition:", "Content-Disposition"),
        ),
        ("b", good.replace("Content-Disposition:", ":")),
        (
            "b",
            good.replace("Content-Disposition:", "Content Disposition:"),
        ),
        ("b", "--b\r\n--b--".to_string()),
        ("b; boundary=b", good.clone()),
        ("\"b", good.clone()),
        ("\"\\b\"", good.clone()),
        ("", good.clone()),
        ("b;x", good.clone()),
        ("b c", good.clone()),
        ("b,c", good.clone()),
        ("b", String::new()),
        ("b", "--b".to_string()),
        ("b", "--b\r\n".to_string()),
        ("b", "--b\r\n\r\n".to_string()),
    ] {
        assert_eq!(
            form(boundary, &body).algorithm,
            Algorithm::Raw,
            "{boundary} {body:?}"
        );
    }
    let missing = Payload {
        content_type: Some(b"multipart/form-data"),
        body: good.as_bytes(),
        ..BASE
    };
    assert_eq!(print(&missing).algorithm, Algorithm::Raw);
}

/// The boundary decides what raw multipart bytes mean, so it counts with them.
#[test]
fn raw_multipart_bytes_count_with_their_boundary() {
    assert_ne!(
        form("b", "--b\r\n\r\n1\r\n--c"),
        form("c", "--b\r\n\r\n1\r\n--c")
    );
}

fn fields(body: &str) -> FieldDigests {
    fingerprint(
        &secret(),
        &FingerprintPolicy::default(),
        &Payload {
            body: body.as_bytes(),
            ..BASE
        },
    )
    .1
}

fn differs(policy: &FingerprintPolicy, stored: &str, fresh: &str) -> FieldDiff {
    let stored = Payload {
        body: stored.as_bytes(),
        ..BASE
    };
    let fresh = Payload {
        body: fresh.as_bytes(),
        ..BASE
    };
    let (_, digests) = fingerprint(&secret(), policy, &stored);
    explain(&secret(), policy, &fresh, &digests)
}

fn names(list: &[&str]) -> Vec<alloc::boxed::Box<str>> {
    list.iter().map(|name| (*name).into()).collect()
}

#[test]
fn a_mismatch_is_named_field_by_field() {
    let diff = differs(
        &FingerprintPolicy::default(),
        r#"{"amount":100,"cur":"usd","items":[{"n":1},{}],"gone":1,"a/b":1,"t":[]}"#,
        r#"{"cur":"usd","amount":101,"items":[{"n":1},{"n":2}],"a/b":true,"new":null,"t":{}}"#,
    );
    assert_eq!(diff.changed, names(&["/a~1b", "/amount", "/t"]));
    assert_eq!(diff.added, names(&["/items/1/n", "/new"]));
    assert_eq!((diff.removed, diff.truncated), (2, false));
    let same = differs(
        &FingerprintPolicy::default(),
        r#"{"a":[1,{"b":2}]}"#,
        r#"{ "a": [1.0, {"b":2}] }"#,
    );
    assert_eq!(same, FieldDiff::default());
    let root = differs(&FingerprintPolicy::default(), "1", "2");
    assert_eq!(root.changed, names(&[""]));
}

#[test]
fn an_array_and_an_object_with_the_same_pointers_differ() {
    let diff = differs(&FingerprintPolicy::default(), "[1]", r#"{"0":1}"#);
    assert_eq!((diff.added, diff.removed), (names(&["/0"]), 1));
}

#[test]
fn an_explanation_sees_only_what_counts() {
    let policy = policy(&["/b", "/a"], &["/a/x", "/b/0"]);
    let diff = differs(
        &policy,
        r#"{"a":{"x":1,"y":1},"b":[1,2],"c":1}"#,
        r#"{"a":{"x":2,"y":2},"b":[2,3],"c":2}"#,
    );
    assert_eq!(diff.changed, names(&["/b/1", "/a/y"]));
    assert_eq!((diff.added, diff.removed), (vec![], 0));
    let emptied = differs(&policy, r#"{"a":{"x":1,"y":1}}"#, r#"{"a":{"x":1}}"#);
    assert_eq!((emptied.added, emptied.removed), (names(&["/a"]), 1));
}

/// The list is part of every record, so its size is bounded whatever the client sends.
#[test]
fn field_digests_are_bounded() {
    let body = |change: usize| {
        let list: Vec<String> = (0..100)
            .map(|n| {
                if n == change {
                    "true".to_string()
                } else {
                    n.to_string()
                }
            })
            .collect();
        format!("[{}]", list.join(","))
    };
    let stored = fields(&body(100));
    // Method, path and content type besides.
    assert_eq!((stored.len(), stored.is_truncated()), (64 + 3, true));
    let list: Vec<FieldDigest> = stored.iter().collect();
    assert_eq!(FieldDigests::from_parts(&list, true), stored);
    assert_eq!(
        FieldDigests::from_encoded(stored.encoded().clone(), true),
        Some(stored.clone())
    );
    assert_eq!(
        FieldDigests::from_encoded(stored.encoded().slice(1..), true),
        None
    );
    let diff = differs(&FingerprintPolicy::default(), &body(100), &body(3));
    assert_eq!(
        (diff.changed, diff.added, diff.removed, diff.truncated),
        (names(&["/3"]), vec![], 0, true)
    );
    let unseen = differs(&FingerprintPolicy::default(), &body(100), &body(80));
    assert_eq!(
        (
            unseen.changed,
            unseen.added,
            unseen.removed,
            unseen.truncated
        ),
        (vec![], vec![], 0, true)
    );
    let grown = differs(&FingerprintPolicy::default(), "[]", &body(100));
    assert_eq!((grown.added.len(), grown.truncated), (64, true));
    let exact = fields(&format!("[{}0]", "0,".repeat(63)));
    assert_eq!((exact.len(), exact.is_truncated()), (64 + 3, false));
}

#[test]
fn other_bodies_have_no_fields() {
    let text = Payload {
        content_type: Some(b"text/plain"),
        body: b"{\"a\":1}",
        ..BASE
    };
    let policy = FingerprintPolicy::default();
    let (_, kept) = fingerprint(&secret(), &policy, &text);
    assert_eq!(kept.len(), 3, "method, path and content type");
    assert_eq!(fields("{\"a\":1,\"a\":1}").len(), 3);
    let diff = explain(&secret(), &policy, &text, &fields("{\"a\":1}"));
    assert_eq!(
        (diff.changed, diff.removed),
        (names(&["content-type", "body"]), 1)
    );
}

/// What is no field is named, too: by elimination where nothing of the body was kept.
#[test]
fn parts_that_differ_are_named() {
    type Change = fn(&mut Payload<'_>);
    let policy = FingerprintPolicy::new(FingerprintRules {
        headers: vec!["if-match".into()],
        ..FingerprintRules::default()
    })
    .unwrap();
    let text = Payload {
        content_type: Some(b"text/plain"),
        headers: &[("if-match", b"1"), ("if-match", b"2")],
        body: b"one",
        ..BASE
    };
    let stored = fingerprint(&secret(), &policy, &text).1;
    let changed = |payload: &Payload<'_>| {
        let diff = explain(&secret(), &policy, payload, &stored);
        assert_eq!(
            (diff.added.len(), diff.removed, diff.truncated),
            (0, 0, false)
        );
        (diff.changed.clone(), diff.of_mismatch(&stored).changed)
    };
    assert_eq!(changed(&text), (vec![], names(&["body"])));
    let other_body = Payload {
        body: b"two",
        ..text
    };
    assert_eq!(changed(&other_body).1, names(&["body"]));
    let changes: [(Change, &str); 6] = [
        (|payload| payload.method = "PUT", "method"),
        (|payload| payload.path = "/other", "path"),
        (|payload| payload.query = Some(""), "query"),
        (|payload| payload.content_type = None, "content-type"),
        (|payload| payload.headers = &[], "if-match"),
        (
            |payload| payload.headers = &[("If-Match", b"1")],
            "if-match",
        ),
    ];
    for (change, name) in changes {
        let mut payload = text;
        change(&mut payload);
        assert_eq!(changed(&payload).1, names(&[name]));
    }
}

/// Records of the first version kept fields alone: they name fields alone.
#[test]
fn what_an_older_record_did_not_keep_is_not_named() {
    let policy = FingerprintPolicy::default();
    let stored = fields("{\"a\":1}");
    let old: Vec<FieldDigest> = stored.iter().skip(3).collect();
    let old = FieldDigests::from_parts(&old, false);
    let payload = Payload {
        query: Some("x"),
        body: b"{\"a\":2}",
        ..BASE
    };
    let diff = explain(&secret(), &policy, &payload, &old).of_mismatch(&old);
    assert_eq!((diff.changed, diff.removed), (names(&["/a"]), 0));
    let text = Payload {
        content_type: Some(b"text/plain"),
        ..BASE
    };
    let none = FieldDigests::default();
    let diff = explain(&secret(), &policy, &text, &none).of_mismatch(&none);
    assert_eq!(diff, FieldDiff::default());
}

#[test]
fn tags_of_algorithms_round_trip() {
    for tag in 0..=u8::MAX {
        assert!(Algorithm::from_tag(tag).is_none_or(|algorithm| algorithm.tag() == tag));
    }
    assert_eq!((1..=3).filter_map(Algorithm::from_tag).count(), 3);
}

#[test]
fn nothing_prints_the_payload_or_the_whole_digest() {
    let payload = Payload {
        path: "/s3cret",
        query: Some("s3cret"),
        body: b"s3cret",
        ..BASE
    };
    assert!(!format!("{payload:?}").contains("s3cret"));
    let shown = format!(
        "{:?}",
        Fingerprint {
            algorithm: Algorithm::Raw,
            digest: [0xab; 32]
        }
    );
    assert_eq!(shown, "Fingerprint(Raw, abababab..)");
}

/// Stored fingerprints outlive a release. A change here strands every key in flight.
#[test]
fn the_fingerprint_of_a_known_payload_never_changes() {
    let payload = Payload {
        query: Some("x=1"),
        headers: &[("If-Match", b"\"7\"")],
        body: b"{\"amount\":100,\"to\":[\"a\",null]}",
        ..BASE
    };
    let (print, fields) = fingerprint(&secret(), &FingerprintPolicy::default(), &payload);
    let expected: [u8; 32] = [
        0x0b, 0x4c, 0xf4, 0xa0, 0xf5, 0x82, 0xf6, 0x73, 0x1d, 0xf0, 0xd8, 0xd2, 0x06, 0xf1, 0x67,
        0x4d, 0x0e, 0x43, 0xac, 0xf3, 0x2a, 0xe1, 0x26, 0x1d, 0x98, 0x05, 0xbb, 0xf2, 0xe2, 0xf4,
        0x9d, 0x05,
    ];
    assert_eq!(print.digest, expected);
    // Behind method, path, query, content type and `If-Match`.
    let first = fields.iter().nth(5).unwrap();
    assert_eq!(
        (first.tag, first.value),
        ([10, 66, 185, 98], [229, 154, 250, 1])
    );
}
