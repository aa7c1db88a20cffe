//! New, retried, mismatched, in flight, without a key, and what is saved: for every preset.

use onlyonce_http::{Code, ProfileReuse};

use super::common::*;
use super::facts::{FACTS, Fact, Told};
use super::stage::{KEY, Stage};

#[track_caller]
fn assert_told(fact: &Fact, what: &str, answer: &Answer, told: Told) {
    if told.0 == 0 {
        // Not published: refused or not, it must be said in a form that somebody chose.
        assert!(!answer.body.is_empty(), "{} {what}", fact.name);
        return;
    }
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, told.0, "{} {what}: {body}", fact.name);
    assert!(body.contains(told.1), "{} {what}: {body}", fact.name);
}

/// Whether a retry of a completed request is answered with the first answer.
fn replays(stage: &Stage) -> bool {
    matches!(stage.profile.reuse, None | Some(ProfileReuse::Replay))
}

#[tokio::test]
async fn a_new_key_executes_and_a_retry_does_not() {
    for fact in &FACTS {
        let stage = Stage::new(fact.name, 201).await;
        let first = stage.ask(Some(KEY), 1).await;
        assert_eq!(first.status, 201, "{}: {first:?}", fact.name);
        let again = stage.ask(Some(KEY), 1).await;
        assert_eq!(stage.runs.count(), 1, "{}", fact.name);
        if !replays(&stage) {
            assert_eq!(again.status, 409, "{}", fact.name);
            continue;
        }
        assert_eq!(
            (again.status, &again.body),
            (201, &first.body),
            "{}",
            fact.name
        );
        for (name, value) in fact.replay {
            let sent = again.header(name);
            let fits = if *value == "*" {
                !sent.is_empty()
            } else {
                sent == *value
            };
            assert!(fits, "{}: {name}: {sent}", fact.name);
        }
    }
}

#[tokio::test]
async fn another_payload_is_told_what_is_known() {
    for fact in &FACTS {
        let stage = Stage::new(fact.name, 201).await;
        stage.ask(Some(KEY), 1).await;
        let other = stage.ask(Some(KEY), 2).await;
        assert_eq!(stage.runs.count(), 1, "{}", fact.name);
        assert_told(fact, "mismatch", &other, fact.mismatch);
    }
}

#[tokio::test]
async fn a_retry_in_flight_is_told_what_is_known() {
    for fact in &FACTS {
        let stage = Stage::held(fact.name).await;
        let (router, request) = (stage.router.clone(), stage.request(Some(KEY), 1));
        let first = tokio::spawn(async move { ask(&router, request).await });
        until(|| stage.runs.count() == 1).await;
        let second = stage.ask(Some(KEY), 1).await;
        assert_told(fact, "in flight", &second, fact.in_flight);
        assert!(second.status >= 400, "{}", fact.name);
        stage.let_go();
        assert_eq!(first.await.unwrap().status, 201, "{}", fact.name);
        assert_eq!(stage.runs.count(), 1, "{}", fact.name);
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_told_what_is_known() {
    for fact in &FACTS {
        let stage = Stage::new(fact.name, 201).await;
        let answer = stage.ask(None, 1).await;
        assert_told(fact, "missing", &answer, fact.missing);
        let passes = fact.missing.0 == 201;
        assert_eq!(stage.runs.count(), usize::from(passes), "{}", fact.name);
    }
}

#[tokio::test]
async fn what_is_known_to_be_saved_is_saved_and_the_rest_runs_again() {
    for fact in &FACTS {
        for (statuses, runs) in [(fact.saved, 1), (fact.again, 2)] {
            for status in statuses {
                let stage = Stage::new(fact.name, *status).await;
                let first = stage.ask(Some(KEY), 1).await;
                assert_eq!(first.status, *status, "{}", fact.name);
                let again = stage.ask(Some(KEY), 1).await;
                assert_eq!(stage.runs.count(), runs, "{} {status}", fact.name);
                assert_eq!(again.status, *status, "{} {status}", fact.name);
            }
        }
    }
}

/// Two callers never share a key, whatever the conventions.
#[tokio::test]
async fn another_caller_is_another_operation() {
    for fact in &FACTS {
        let stage = Stage::new(fact.name, 201).await;
        stage.ask(Some(KEY), 1).await;
        let other = with(stage.request(Some(KEY), 1), "authorization", "Bearer b");
        assert_eq!(ask(&stage.router, other).await.status, 201, "{}", fact.name);
        assert_eq!(stage.runs.count(), 2, "{}", fact.name);
    }
}

/// Whatever a refusal looks like, logs and metrics know what it was.
#[tokio::test]
async fn the_code_of_a_refusal_goes_with_it() {
    use tower::ServiceExt;
    for fact in FACTS.iter().filter(|fact| fact.missing.0 != 201) {
        let stage = Stage::new(fact.name, 201).await;
        let request = stage.request(None, 1);
        let response = stage.router.clone().oneshot(request).await.unwrap();
        let code = response.extensions().get::<Code>();
        assert_eq!(code, Some(&Code::KeyRequired), "{}", fact.name);
    }
}

/// A key that is too long, or not of the right form, is refused before anything runs.
#[tokio::test]
async fn a_key_beyond_the_limits_is_refused() {
    for fact in &FACTS {
        let stage = Stage::new(fact.name, 201).await;
        let longest = fact.chars_max.unwrap_or(255);
        let answer = stage.ask(Some(&"k".repeat(longest + 1)), 1).await;
        assert_eq!(answer.status, 400, "{}: {answer:?}", fact.name);
        assert_eq!(stage.runs.count(), 0, "{}", fact.name);
    }
}
