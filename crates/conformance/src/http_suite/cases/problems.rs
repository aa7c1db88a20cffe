//! Refusals that a program can read.

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::http_suite::{Answer, Api, Call};

#[track_caller]
fn complete(answer: &Answer) {
    let problem = answer.json();
    for member in ["type", "title", "detail", "instance", "code"] {
        let text = problem[member].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{member} in {problem}");
    }
    let code = problem["code"].as_str().expect("a code");
    let page = problem["type"].as_str().expect("a type");
    assert!(page.contains(code), "the type leads to the page: {page}");
    let instance = problem["instance"].as_str().expect("an instance");
    assert!(instance.starts_with("urn:uuid:"), "{instance}");
    assert_eq!(problem["status"], answer.status.as_u16());
    assert!(problem["retryable"].is_boolean(), "{problem}");
    assert_eq!(answer.header("cache-control"), "no-store");
}

/// Clients branch on these members; one that is missing is a branch that is never taken.
pub async fn every_problem_has_every_member(api: &Api) {
    let keyless = Call::payment("").without("idempotency-key");
    api.send(&Call::payment("k")).await.assert_executed(201);
    let lost = Call::payment("lost").test("status", "502");
    let stream = Call::payment("part").test("status", "206");
    api.send(&stream).await.assert_executed(206);
    let asked = [
        (keyless, false),
        (Call::payment("a b"), false),
        (Call::payment("k").body("{}"), false),
        (lost.clone(), true),
        (lost, true),
        (stream, false),
    ];
    for (call, retryable) in asked {
        let answer = api.send(&call).await;
        complete(&answer);
        assert_eq!(answer.json()["retryable"], retryable, "{}", answer.code());
    }
}

/// Support finds one occurrence among many by its number.
pub async fn every_occurrence_has_its_own_number(api: &Api) {
    let keyless = Call::payment("").without("idempotency-key");
    let number = |answer: &Answer| -> Value { answer.json()["instance"].clone() };
    let first = number(&api.send(&keyless).await);
    assert_ne!(first, number(&api.send(&keyless).await));
}

/// A problem that repeats the key puts it into every log between here and the client.
pub async fn no_problem_repeats_the_key(api: &Api) {
    let call = Call::payment("very-secret-key").test("status", "502");
    for _ in 0..2 {
        let answer = api.send(&call).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains("very-secret-key"), "{text}");
    }
}

/// Whoever does not know what happened is told where to look and when.
pub async fn an_unknown_outcome_leads_to_its_operation(api: &Api) {
    let call = Call::payment("k").test("status", "502");
    for status in [502, 409] {
        let answer = api.send(&call).await;
        answer.assert_problem(status, "idempotency_outcome_unknown");
        let path = answer.json()["operation"]
            .as_str()
            .expect("a link")
            .to_owned();
        assert!(answer.header("link").contains(&path));
        assert_ne!(answer.header("retry-after"), "");
        let ask = Call::new(http::Method::GET, &path).by("Bearer alice");
        let operation = api.send(&ask).await;
        assert_eq!(operation.json()["state"], "unknown");
        assert_eq!(operation.json()["settled"], false);
    }
}

/// A refused request's body, left on a kept connection, would be read as the next request.
pub async fn a_refused_body_is_never_read_as_a_request(api: &Api) {
    let smuggled = "POST /smuggled HTTP/1.1\r\nhost: api.test\r\nidempotency-key: s\r\n\
                    content-length: 0\r\n\r\n";
    let outer = format!(
        "POST /payments HTTP/1.1\r\nhost: api.test\r\ncontent-length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    );
    let mut socket = api.write(outer.as_bytes()).await;
    let answer = read_some(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("idempotency_key_required"), "{answer}");
    api.send(&Call::payment("k")).await.assert_executed(201);
    assert_eq!(api.total(), 1, "only the honest one");
}

/// Longer than any refusal takes.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The beginning of what a connection answers: the head, and the problem that came with it.
pub(crate) async fn read_some(socket: &mut TcpStream) -> String {
    let mut read = String::new();
    let mut buffer = [0; 4096];
    let reading = async {
        while !read.contains('}') {
            match socket.read(&mut buffer).await {
                Ok(bytes @ 1..) => read.push_str(&String::from_utf8_lossy(&buffer[..bytes])),
                Ok(0) | Err(_) => break,
            }
        }
    };
    let ended = tokio::time::timeout(READ_TIMEOUT, reading).await;
    assert!(ended.is_ok(), "no answer after {READ_TIMEOUT:?}");
    read
}
