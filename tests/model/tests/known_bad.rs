//! Rules that are known to be wrong are found out. If one of these tests fails, the model has
//! gone blind, and the shipped rules passing it means nothing.
#![expect(
    clippy::unwrap_used,
    reason = "limits that no route may have are a failed test"
)]

use onlyonce_model::model::Limits;
use onlyonce_model::properties::{
    FENCED_OFF, NO_DOUBLE, NO_FALSE_SUCCESS, NO_LOST_COMPLETION, ONE_DISPATCH,
};
use onlyonce_model::report::counterexample;
use onlyonce_model::{Kind, Variant, World};

fn world(variant: Variant, kind: Kind) -> World {
    World::new(variant, kind, Limits::SHORT).unwrap()
}

/// Insists on a way to break the promise. The shortest is printed.
fn breaks(world: &World, promise: &'static str) {
    assert!(
        counterexample(world, promise).is_some(),
        "{promise} holds with a broken rule: the model is blind"
    );
}

fn breaks_with(variant: Variant, kind: Kind, promise: &'static str) {
    breaks(&world(variant, kind), promise);
}

/// A stalls, its lease ends, the provider has no such object, B runs, and A wakes: the rule that
/// is easy to get wrong. Looking at the lease before sending does not help a request that is on
/// the wire already.
#[test]
fn reconcile_then_retry_on_an_opaque_upstream_is_found_out() {
    breaks_with(Variant::ReconcileThenRetry, Kind::Opaque, NO_DOUBLE);
    breaks_with(Variant::ReconcileThenRetry, Kind::Opaque, ONE_DISPATCH);
    let careful = world(Variant::ReconcileThenRetry, Kind::Opaque).checking_leases();
    breaks(&careful, NO_DOUBLE);
}

/// The opt-in says that a dispatch delayed for longer executes twice. It does.
#[test]
fn the_opt_in_to_release_an_opaque_key_doubles_as_documented() {
    breaks_with(Variant::Shipped, Kind::OpaqueReleasing(2), NO_DOUBLE);
}

/// Without fences a late settlement frees, or answers, somebody else's execution.
#[test]
fn settling_without_a_fence_is_found_out() {
    breaks_with(Variant::NoFence, Kind::Opaque, FENCED_OFF);
    breaks_with(Variant::NoFence, Kind::Opaque, NO_DOUBLE);
}

/// The handler's panic or the gateway's timeout says nothing about the effect.
#[test]
fn evicting_on_a_timeout_is_found_out() {
    breaks_with(Variant::EvictOnTimeout, Kind::Opaque, NO_DOUBLE);
}

/// A lease that frees the key when it ends is a lock with a timeout, and charges twice.
#[test]
fn an_ended_lease_that_frees_the_key_is_found_out() {
    breaks_with(Variant::NullLease, Kind::Opaque, NO_DOUBLE);
}

/// Check, then act.
#[test]
fn writing_without_comparing_versions_is_found_out() {
    breaks_with(Variant::BlindWrite, Kind::Opaque, NO_DOUBLE);
    breaks_with(Variant::BlindWrite, Kind::Opaque, NO_LOST_COMPLETION);
}

/// A counter starts again when its row is removed, and a zombie then acts on its successor.
#[test]
fn a_fence_that_is_counted_per_row_is_found_out() {
    let kind = Kind::Dedupes { reexecute: false };
    breaks_with(Variant::CountedFence, kind, FENCED_OFF);
}

/// A claim was written and not acknowledged, and its client slept through the key's whole life.
/// If it then claims with the same fence, a verdict from that earlier life settles the new one.
#[test]
fn a_fence_that_is_claimed_with_again_is_found_out() {
    breaks_with(Variant::FenceKept, Kind::Transactional, NO_FALSE_SUCCESS);
}
