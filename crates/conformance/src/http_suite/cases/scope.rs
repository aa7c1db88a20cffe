//! Whose key it is, and for what.

use http::Method;

use crate::http_suite::{Api, Call};

/// The worst bug there is: one tenant's answer shown to another.
pub async fn two_callers_never_share_a_key(api: &Api) {
    let alice = Call::payment("k").by("Bearer alice");
    let bob = Call::payment("k").by("Bearer bob");
    let first = api.send(&alice).await;
    let other = api.send(&bob).await;
    other.assert_executed(201);
    assert_ne!(first.body, other.body);
    api.assert_replays(&alice, &first).await;
    api.assert_replays(&bob, &other).await;
}

/// Whoever leaves the header out must not get what somebody with one was told.
pub async fn a_caller_without_a_name_is_not_one_with_a_name(api: &Api) {
    let known = Call::payment("k");
    let first = api.send(&known).await;
    let other = api.send(&known.without("authorization")).await;
    other.assert_executed(201);
    assert_ne!(first.body, other.body);
}

/// Two names for the caller: whichever counts here, the upstream may take the other.
pub async fn a_caller_with_two_names_is_refused(api: &Api) {
    let call = Call::payment("k").line("authorization", "Bearer bob");
    let executed = api.total();
    let answer = api.send(&call).await;
    assert!(answer.status.is_client_error(), "{}", answer.status);
    assert_eq!(api.total(), executed);
}

/// A refund must not be answered with the payment's receipt.
pub async fn the_same_key_on_another_path_is_another_operation(api: &Api) {
    let first = api.send(&Call::payment("k")).await;
    let other = api.send(&Call::payment("k").to("/refunds")).await;
    other.assert_executed(201);
    assert_ne!(first.body, other.body);
}

/// Paths are compared as they are: a guard that folds their case or escapes gives two resources
/// one answer.
pub async fn a_path_spelt_otherwise_is_never_answered_for_this_one(api: &Api) {
    let first = api.send(&Call::payment("k").to("/users/a")).await;
    for path in [
        "/users/A",
        "/users/a/",
        "/users//a",
        "/users/%61",
        "/users/a%2F",
    ] {
        let other = api.send(&Call::payment("k").to(path)).await;
        assert!(!other.is_replay(), "{path}");
        assert_ne!(other.body, first.body, "{path}");
    }
}

/// A change is not a creation.
pub async fn the_same_key_with_another_method_is_another_operation(api: &Api) {
    let first = api.send(&Call::payment("k")).await;
    let patch = Call::payment("k").method(Method::PATCH);
    let other = api.send(&patch).await;
    other.assert_executed(201);
    assert_ne!(first.body, other.body);
    api.assert_replays(&patch, &other).await;
}

/// A change needs a key as much as a creation does.
pub async fn a_patch_is_guarded(api: &Api) {
    let patch = Call::payment("k").method(Method::PATCH);
    let keyless = patch.without("idempotency-key");
    api.assert_refused(&keyless, 400, "idempotency_key_required")
        .await;
}

/// Reading is safe to repeat; a stored answer would be a stale one.
pub async fn a_get_passes_with_a_key_and_without(api: &Api) {
    let get = Call::new(Method::GET, "/payments/1");
    let first = api.send(&get).await;
    let second = api.send(&get.clone().header("idempotency-key", "k")).await;
    let third = api.send(&get.header("idempotency-key", "k")).await;
    for answer in [&first, &second, &third] {
        answer.assert_executed(201);
    }
    assert_ne!(second.body, third.body);
}

/// PUT and DELETE are idempotent by themselves.
pub async fn a_put_and_a_delete_pass(api: &Api) {
    for method in [Method::PUT, Method::DELETE] {
        let answer = api.send(&Call::new(method, "/payments/1")).await;
        answer.assert_executed(201);
    }
    assert_eq!(api.total(), 2);
}
