//! Many at once.

use http::Method;

use crate::http_suite::{Api, Call, same};

const IN_PROGRESS: &str = "idempotency_key_in_progress";

/// A retry storm: one effect, and everybody gets the one answer or is asked to wait.
pub async fn of_64_requests_with_one_key_one_executes(api: &Api) {
    let call = Call::payment("k");
    let answers = api.send_together(vec![call.clone(); 64]).await;
    assert_eq!(api.effects(&call), 1);
    let mut executed = answers
        .iter()
        .filter(|answer| answer.status.as_u16() == 201 && !answer.is_replay());
    let first = executed.next().expect("one was executed");
    assert!(executed.next().is_none(), "only one was");
    for answer in &answers {
        if answer.is_replay() {
            same(first, answer);
        } else if answer.status.as_u16() != 201 {
            answer.assert_problem(409, IN_PROGRESS);
        }
    }
    api.assert_replays(&call, first).await;
}

/// A guard that locks everything for one key would pass the other cases.
pub async fn keys_do_not_wait_for_each_other(api: &Api) {
    let held = api.hold(&Call::payment("slow"), "gate").await;
    let calls = (0..32).map(|number| Call::payment(&format!("k-{number}")));
    for answer in api.send_together(calls).await {
        answer.assert_executed(201);
    }
    assert_eq!(api.total(), 32);
    api.upstream().open("gate");
    held.await.expect("an answer").assert_executed(201);
}

/// The same key from many callers at once: no lock is shared either.
pub async fn callers_with_the_same_key_do_not_wait_for_each_other(api: &Api) {
    let held = api.hold(&Call::payment("k"), "gate").await;
    let other = Call::payment("k").by("Bearer bob");
    api.send(&other).await.assert_executed(201);
    api.upstream().open("gate");
    held.await.expect("an answer").assert_executed(201);
}

/// A client that is told when to come back, and gets the answer then.
pub async fn a_retry_in_flight_is_told_to_come_back(api: &Api) {
    let call = Call::payment("k");
    let held = api.hold(&call, "gate").await;
    let answer = api.assert_refused(&call, 409, IN_PROGRESS).await;
    let seconds: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!((1..=10).contains(&seconds), "{seconds}");
    api.upstream().open("gate");
    let first = held.await.expect("an answer");
    first.assert_executed(201);
    api.assert_replays(&call, &first).await;
}

/// A crowd that is told to come back in the same second comes back in the same second.
pub async fn not_everybody_is_told_the_same_second(api: &Api) {
    let call = Call::payment("k");
    let held = api.hold(&call, "gate").await;
    let answers = api.send_together(vec![call; 48]).await;
    let told = |answer: &crate::http_suite::Answer| answer.header("retry-after").to_owned();
    let first = told(&answers[0]);
    assert!(answers.iter().any(|answer| told(answer) != first));
    api.upstream().open("gate");
    held.await.expect("an answer");
}

/// Another payload is refused at once: waiting for the answer would tell it nothing.
pub async fn another_payload_is_refused_also_in_flight(api: &Api) {
    let held = api.hold(&Call::payment("k"), "gate").await;
    let other = Call::payment("k").body("{}");
    let code = "idempotency_key_reused_with_different_payload";
    api.assert_refused(&other, 422, code).await;
    api.upstream().open("gate");
    held.await.expect("an answer").assert_executed(201);
}

/// The link leads its owner to the operation, and tells nobody else that there is one.
pub async fn an_operation_is_shown_to_its_owner_alone(api: &Api) {
    let call = Call::payment("k");
    let held = api.hold(&call, "gate").await;
    let refusal = api.assert_refused(&call, 409, IN_PROGRESS).await;
    let told = refusal.json()["operation"].clone();
    let path = told.as_str().expect("a link to the operation");
    assert!(refusal.header("link").contains(path));
    let ask = Call::new(Method::GET, path);
    let mine = api.send(&ask.clone().by("Bearer alice")).await;
    assert_eq!(mine.json()["state"], "executing");
    assert_eq!(mine.header("cache-control"), "no-store");
    let strangers = [ask.clone(), ask.clone().by("Bearer bob")];
    let absent = ask.clone().to(&format!("{}0000", &path[..path.len() - 4]));
    let code = "idempotency_operation_not_found";
    for stranger in strangers.into_iter().chain([absent.by("Bearer alice")]) {
        api.send(&stranger).await.assert_problem(404, code);
    }
    api.upstream().open("gate");
    held.await.expect("an answer").assert_executed(201);
    let mine = api.send(&ask.by("Bearer alice")).await;
    assert_eq!(mine.json()["state"], "completed");
    assert_eq!(mine.json()["settled"], true);
}
