//! What a fingerprint must promise for any payload: a retry keeps it, any other change breaks it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once, and names the cases that it means"
)]

use onlyonce_core::Secret;
use onlyonce_core::fingerprint::{
    Algorithm, FieldDiff, FieldDigests, Fingerprint, FingerprintPolicy, FingerprintRules, Payload,
    explain, fingerprint,
};
use onlyonce_core::json::Pointer;
use proptest::prelude::*;
use serde_json::{Map, Value};

const BASE: Payload<'static> = Payload {
    method: "POST",
    path: "/charges",
    query: None,
    headers: &[],
    content_type: Some(b"application/json"),
    body: b"",
};

fn secret() -> Secret {
    Secret::new([3; 32])
}

fn print(policy: &FingerprintPolicy, payload: &Payload<'_>) -> (Fingerprint, FieldDigests) {
    fingerprint(&secret(), policy, payload)
}

fn digest(payload: &Payload<'_>) -> [u8; 32] {
    print(&FingerprintPolicy::default(), payload).0.digest
}

fn json_digest(policy: &FingerprintPolicy, value: &Value) -> [u8; 32] {
    print(
        policy,
        &Payload {
            body: value.to_string().as_bytes(),
            ..BASE
        },
    )
    .0
    .digest
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\u{e9}\"/~]{0,6}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            object(inner),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    proptest::collection::vec(("[a-e/~]{1,3}", inner), 0..5)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// The pointers of all scalars and empty containers.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                leaves(
                    value,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (index, value) in elements.iter().enumerate() {
                leaves(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

/// Spells members backwards and with white space.
fn respell(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .rev()
                .map(|(name, value)| {
                    format!("\n {} :\t{}", Value::from(name.as_str()), respell(value))
                })
                .collect();
            format!("{{{} }}", members.join(" ,"))
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(respell).collect();
            format!("[ {} ]", elements.join(" , "))
        }
        _ => format!(" {value}\r\n"),
    }
}

fn policy(include: &[String], exclude: &[String]) -> FingerprintPolicy {
    let parse = |list: &[String]| {
        list.iter()
            .map(|text| Pointer::parse(text).unwrap())
            .collect()
    };
    FingerprintPolicy::new(FingerprintRules {
        include: parse(include),
        exclude: parse(exclude),
        ..FingerprintRules::default()
    })
    .unwrap()
}

/// A part: header lines and bytes in which no boundary occurs.
fn part() -> impl Strategy<Value = (Vec<(String, String)>, Vec<u8>)> {
    let header = ("[A-Za-z]{1,8}", "[ -,.-~]{0,12}");
    (
        proptest::collection::vec(header, 0..3),
        "[\\x00-\\x2c\\x2e-\\x7f]{0,16}".prop_map(String::into_bytes),
    )
}

type Parts = Vec<(Vec<(String, String)>, Vec<u8>)>;

fn form(boundary: &str, parts: &Parts) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, content) in parts {
        body.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        for (name, value) in headers {
            body.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
        }
        body.extend_from_slice(b"\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

fn form_print(boundary: &str, parts: &Parts) -> Fingerprint {
    let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
    let body = form(boundary, parts);
    let payload = Payload {
        content_type: Some(content_type.as_bytes()),
        body: &body,
        ..BASE
    };
    print(&FingerprintPolicy::default(), &payload).0
}

fn lower(parts: &Parts) -> Parts {
    let headers = |list: &[(String, String)]| {
        list.iter()
            .map(|(name, value)| (name.to_lowercase(), value.clone()))
            .collect()
    };
    parts
        .iter()
        .map(|(list, content)| (headers(list), content.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn member_order_and_white_space_keep_the_fingerprint(value in value()) {
        let policy = FingerprintPolicy::default();
        let (plain, fields) = print(&policy, &Payload { body: value.to_string().as_bytes(), ..BASE });
        let body = respell(&value);
        let respelled = Payload { body: body.as_bytes(), ..BASE };
        prop_assert_eq!(plain.algorithm, Algorithm::JsonCanonical);
        prop_assert_eq!(print(&policy, &respelled), (plain, fields.clone()));
        prop_assert_eq!(explain(&secret(), &policy, &respelled, &fields), FieldDiff::default());
    }

    /// A different write under the same key must be refused, whatever part of it differs.
    #[test]
    fn different_values_have_different_fingerprints(left in value(), right in value()) {
        let policy = FingerprintPolicy::default();
        prop_assert_eq!(left == right, json_digest(&policy, &left) == json_digest(&policy, &right));
    }

    #[test]
    fn one_changed_field_changes_the_fingerprint_and_is_named(
        value in value(), at in any::<prop::sample::Index>(), fresh in scalar(),
    ) {
        let policy = FingerprintPolicy::default();
        let mut pointers = Vec::new();
        leaves(&value, "", &mut pointers);
        let pointer = at.get(&pointers).clone();
        let mut changed = value.clone();
        *changed.pointer_mut(&pointer).unwrap() = fresh;
        let (old, fields) = print(&policy, &Payload { body: value.to_string().as_bytes(), ..BASE });
        let text = changed.to_string();
        let payload = Payload { body: text.as_bytes(), ..BASE };
        let diff = explain(&secret(), &policy, &payload, &fields);
        if changed == value {
            prop_assert_eq!(diff, FieldDiff::default());
        } else {
            prop_assert_ne!(old.digest, print(&policy, &payload).0.digest);
            prop_assert_eq!(diff.changed, vec![pointer.into_boxed_str()]);
            prop_assert_eq!((diff.added.len(), diff.removed, diff.truncated), (0, 0, false));
        }
    }

    #[test]
    fn an_explanation_names_added_and_counts_removed_fields(left in value(), right in value()) {
        let policy = FingerprintPolicy::default();
        let (_, fields) = print(&policy, &Payload { body: left.to_string().as_bytes(), ..BASE });
        let text = right.to_string();
        let diff = explain(&secret(), &policy, &Payload { body: text.as_bytes(), ..BASE }, &fields);
        prop_assert_eq!(left == right, diff == FieldDiff::default());
        let (mut old, mut new) = (Vec::new(), Vec::new());
        leaves(&left, "", &mut old);
        leaves(&right, "", &mut new);
        prop_assert_eq!(old.len() - diff.removed, new.len() - diff.added.len());
        for name in diff.changed.iter().chain(&diff.added) {
            prop_assert!(new.iter().any(|pointer| **pointer == **name));
        }
    }

    #[test]
    fn excluded_fields_do_not_count_and_all_others_do(
        value in object(value()), at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
    ) {
        let mut pointers = Vec::new();
        leaves(&value, "", &mut pointers);
        let (excluded, other) = (at.get(&pointers).clone(), other.get(&pointers).clone());
        // The rules refuse to exclude the whole body.
        if excluded.is_empty() {
            return Ok(());
        }
        let policy = policy(&[], std::slice::from_ref(&excluded));
        let before = json_digest(&policy, &value);
        let marker = Value::from("a value that no strategy draws");
        for pointer in [&excluded, &other] {
            let mut changed = value.clone();
            *changed.pointer_mut(pointer).unwrap() = marker.clone();
            prop_assert_eq!(json_digest(&policy, &changed) == before, *pointer == excluded);
        }
    }

    #[test]
    fn included_fields_count_and_no_others_do(
        value in object(value()), at in any::<prop::sample::Index>(), other in any::<prop::sample::Index>(),
    ) {
        let mut pointers = Vec::new();
        leaves(&value, "", &mut pointers);
        let (included, other) = (at.get(&pointers).clone(), other.get(&pointers).clone());
        let policy = policy(std::slice::from_ref(&included), &[]);
        let before = json_digest(&policy, &value);
        let marker = Value::from("a value that no strategy draws");
        for pointer in [&included, &other] {
            let mut changed = value.clone();
            *changed.pointer_mut(pointer).unwrap() = marker.clone();
            prop_assert_eq!(json_digest(&policy, &changed) != before, *pointer == included);
        }
        let null = Value::Object(Map::from_iter([("zz".to_owned(), Value::Null)]));
        let absent = Value::Object(Map::new());
        let policy = self::policy(&["/zz".to_owned()], &[]);
        prop_assert_ne!(json_digest(&policy, &null), json_digest(&policy, &absent));
    }

    #[test]
    fn any_change_of_the_head_changes_the_fingerprint(
        method in "[A-Z]{1,4}", path in "/[a-z/]{0,6}", query in proptest::option::of("[a-z=]{0,3}"),
        tag in proptest::option::of("[a-z]{0,2}"), other_method in "[A-Z]{1,4}", other_path in "/[a-z/]{0,6}",
        other_query in proptest::option::of("[a-z=]{0,3}"), other_tag in proptest::option::of("[a-z]{0,2}"),
    ) {
        let header = |tag: &Option<String>| tag.clone().map(|tag| ("If-Match", tag.into_bytes()));
        let (left, right) = (header(&tag), header(&other_tag));
        let left: Vec<(&str, &[u8])> = left.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let right: Vec<(&str, &[u8])> = right.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let one = Payload { method: &method, path: &path, query: query.as_deref(), headers: &left, ..BASE };
        let two = Payload { method: &other_method, path: &other_path, query: other_query.as_deref(), headers: &right, ..BASE };
        let is_same = method == other_method && path == other_path && query == other_query && tag == other_tag;
        prop_assert_eq!(digest(&one) == digest(&two), is_same);
        for changed in [
            Payload { method: &other_method, ..one }, Payload { path: &other_path, ..one },
            Payload { query: other_query.as_deref(), ..one }, Payload { headers: &right, ..one },
        ] {
            let is_same = changed.method == one.method && changed.path == one.path
                && changed.query == one.query && changed.headers == one.headers;
            prop_assert_eq!(digest(&changed) == digest(&one), is_same);
        }
    }

    #[test]
    fn the_boundary_never_counts_and_the_parts_always_do(
        left in proptest::collection::vec(part(), 0..4), right in proptest::collection::vec(part(), 0..4),
        boundary in "[A-Za-z0-9'()+_,./:=?-]{1,70}", other in "-{0,40}[a-z]{1,30}",
    ) {
        let one = form_print(&boundary, &left);
        prop_assert_eq!(one.algorithm, Algorithm::Multipart);
        prop_assert_eq!(one, form_print(&other, &left));
        prop_assert_eq!(one == form_print(&other, &right), lower(&left) == lower(&right));
    }

    /// Bytes that only look like a form are never taken for one with the same parts.
    #[test]
    fn a_damaged_form_never_passes_for_the_whole_one(
        parts in proptest::collection::vec(part(), 1..4), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let body = form("xyz", &parts);
        let mut damaged = body.clone();
        let at = at.index(damaged.len());
        damaged[at] = byte;
        let content_type = Some(&b"multipart/mixed; boundary=xyz"[..]);
        let whole = Payload { content_type, body: &body, ..BASE };
        let other = Payload { content_type, body: &damaged, ..BASE };
        // The case of a header name is the one byte that does not count.
        if !body.eq_ignore_ascii_case(&damaged) {
            prop_assert_ne!(digest(&whole), digest(&other));
        }
    }

    /// Nothing that a client sends may take the process down.
    #[test]
    fn any_bytes_have_a_fingerprint(
        body in proptest::collection::vec(any::<u8>(), 0..96),
        content_type in proptest::option::of(prop_oneof![
            Just(b"application/json".to_vec()), Just(b"a/b+json".to_vec()), Just(b"multipart/x; boundary=-".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..24),
            "multipart/[a-z]{0,3};[ boundary=\";a\\\\-]{0,20}".prop_map(String::into_bytes),
        ]),
    ) {
        let policy = FingerprintPolicy::default();
        let payload = Payload { content_type: content_type.as_deref(), body: &body, ..BASE };
        let (_, fields) = print(&policy, &payload);
        prop_assert_eq!(explain(&secret(), &policy, &payload, &fields), FieldDiff::default());
    }

    #[test]
    fn raw_bodies_differ_byte_by_byte(left in "[ -~]{0,12}", right in "[ -~]{0,12}") {
        for content_type in [None, Some(&b"text/plain"[..]), Some(b"multipart/form-data")] {
            let one = Payload { content_type, body: left.as_bytes(), ..BASE };
            let two = Payload { content_type, body: right.as_bytes(), ..BASE };
            prop_assert_eq!(digest(&one) == digest(&two), left == right);
        }
    }
}
