//! Answers, clear and unclear.

use super::*;

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

fn status(status: u16) -> Rule {
    Rule {
        statuses: vec![status..=status],
        at: None,
    }
}

fn at(place: &str, test: Test) -> Rule {
    Rule {
        statuses: Vec::new(),
        at: Some((pointer(place), test)),
    }
}

fn texts(values: &[&str]) -> Test {
    Test::OneOf(
        values
            .iter()
            .map(|text| Scalar::Text((*text).into()))
            .collect(),
    )
}

/// `GET /charges?operation=…`, as payment APIs answer it.
fn charges() -> Mapping {
    Mapping {
        completed: vec![at("/data/0/status", texts(&["paid", "failed"]))],
        not_found: vec![status(404), at("/data", Test::Empty)],
        pending: vec![at("/data/0/status", texts(&["processing"]))],
        single: Some(pointer("/data")),
        response: ResponseRule {
            status: StatusFrom::By(
                pointer("/data/0/status"),
                vec![("paid".into(), 201), ("failed".into(), 402)],
            ),
            body: Some(pointer("/data/0")),
            content_type: None,
        },
    }
}

fn read_about(mapping: &Mapping, status: u16, body: &str, about: Option<&str>) -> Read {
    let (body, place) = (
        Bytes::copy_from_slice(body.as_bytes()),
        pointer("/data/0/op"),
    );
    mapping.read(&Answer {
        status: Some(status),
        content_type: Some(b"application/json; charset=utf-8"),
        body: &body,
        about: about.map(|value| (&place, value)),
    })
}

fn read(mapping: &Mapping, status: u16, body: &str) -> Read {
    read_about(mapping, status, body, None)
}

fn pending(why: Why) -> Read {
    Read::Pending(why)
}

#[test]
fn a_created_object_is_completed_and_a_declined_one_with_its_failure() {
    for (said, status) in [("paid", 201), ("failed", 402)] {
        let object = format!(r#"{{"id": "ch_1", "amount": 12.00, "status": "{said}"}}"#);
        let body = format!(r#"{{"data": [ {object} ]}}"#);
        let Read::Completed(response) = read(&charges(), 200, &body) else {
            panic!("{said}")
        };
        assert_eq!(response.status, status);
        assert_eq!(response.body, object);
        let lines: Vec<_> = response.headers.iter().collect();
        assert_eq!(lines, [(&b"content-type"[..], &b"application/json"[..])]);
    }
}

#[test]
fn an_empty_list_is_not_found() {
    assert_eq!(read(&charges(), 200, r#"{"data":[]}"#), Read::NotFound);
    assert_eq!(read(&charges(), 404, "<html>gone"), Read::NotFound);
}

/// None of these is proof of anything. Taking one for "not found" would charge twice, taking
/// one for "completed" would lose a payment.
#[test]
fn whatever_is_unclear_is_pending() {
    let mapping = charges();
    for (status, body, why) in [
        (200, "<html>", Why::NotJson),
        (200, "", Why::NotJson),
        (200, r#"{"data":[{"status":"#, Why::NotJson),
        (
            200,
            r#"{"data":[],"data":[{"status":"paid"}]}"#,
            Why::NotJson,
        ),
        (200, r#"{"data":[{"status":"processing"}]}"#, Why::Said),
        (200, r#"{"data":[{"status":"odd"}]}"#, Why::NoRule),
        (200, r#"{"data":[{"status":7}]}"#, Why::NoRule),
        (200, r#"{"data":[{}]}"#, Why::NoRule),
        (200, "{}", Why::NoRule),
        (200, r#"{"error":"try later"}"#, Why::NoRule),
        (200, r#"{"data":0}"#, Why::NoRule),
        (500, r#"{"data":[]}"#, Why::NoRule),
        (302, r#"{"data":[]}"#, Why::NoRule),
        (401, "", Why::NoRule),
        (200, r#"{"data":[{"status":"paid"},{}]}"#, Why::Several),
    ] {
        assert_eq!(
            read(&mapping, status, body),
            pending(why),
            "{status} {body}"
        );
    }
    let torn = Mapping {
        not_found: vec![at("/gone", Test::There)],
        ..charges()
    };
    let body = r#"{"data":[{"status":"paid"}],"gone":true}"#;
    assert_eq!(read(&torn, 200, body), pending(Why::Ambiguous));
}

/// An API that ignores the parameters of a question answers with somebody else's object.
#[test]
fn an_answer_about_another_operation_decides_nothing() {
    let body = r#"{"data":[{"status":"paid","op":"7"}]}"#;
    let completed = read_about(&charges(), 200, body, Some("7"));
    assert!(matches!(completed, Read::Completed(_)));
    for other in ["8", ""] {
        let read = read_about(&charges(), 200, body, Some(other));
        assert_eq!(read, pending(Why::AboutAnother));
    }
    let without = r#"{"data":[{"status":"paid"}]}"#;
    let read = read_about(&charges(), 200, without, Some("7"));
    assert_eq!(read, pending(Why::AboutAnother));
}

#[test]
fn a_response_is_made_of_the_whole_answer_or_of_a_part() {
    let whole = Mapping {
        completed: vec![status(200)],
        ..Mapping::default()
    };
    let Read::Completed(response) = read(&whole, 200, "as it is") else {
        panic!("a fixed status needs no JSON")
    };
    assert_eq!(
        (response.status, &response.body[..]),
        (200, &b"as it is"[..])
    );
    let mut rule = whole.clone();
    rule.response.status = StatusFrom::At(pointer("/code"));
    for (body, status) in [(r#"{"code":409}"#, 409), (r#"{"code":"201"}"#, 201)] {
        let Read::Completed(response) = read(&rule, 200, body) else {
            panic!("{body}")
        };
        assert_eq!(response.status, status);
    }
    for body in [
        r#"{"code":99}"#,
        r#"{"code":206}"#,
        r#"{"code":null}"#,
        "{}",
        "x",
    ] {
        assert_eq!(read(&rule, 200, body), pending(Why::NoResponse), "{body}");
    }
    rule.response.status = StatusFrom::Fixed(204);
    let Read::Completed(response) = read(&rule, 200, "{}") else {
        panic!("204")
    };
    assert!(response.body.is_empty() && response.headers.iter().next().is_none());
    rule.response.body = Some(pointer("/nowhere"));
    assert_eq!(read(&rule, 200, "{}"), pending(Why::NoResponse));
}

#[test]
fn a_webhook_has_no_status() {
    let body = Bytes::from_static(br#"{"type":"charge.paid","data":{"n":3,"b":true}}"#);
    let answer = Answer {
        status: None,
        content_type: None,
        body: &body,
        about: None,
    };
    for (place, test) in [
        ("/type", texts(&["charge.paid"])),
        ("/data/n", Test::OneOf(vec![Scalar::Integer(3)])),
        ("/data/b", Test::OneOf(vec![Scalar::Boolean(true)])),
    ] {
        let mapping = Mapping {
            completed: vec![at(place, test)],
            ..Mapping::default()
        };
        let Read::Completed(response) = mapping.read(&answer) else {
            panic!("{place}")
        };
        assert_eq!(response.status, 200);
    }
}
