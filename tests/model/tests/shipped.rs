//! The shipped rules keep every promise in every reachable state.
#![expect(
    clippy::unwrap_used,
    reason = "limits that no route may have are a failed test"
)]

use onlyonce_model::model::Limits;
use onlyonce_model::report::explore;
use onlyonce_model::{Kind, Variant, World};

fn shipped(kind: Kind, limits: Limits) -> World {
    World::new(Variant::Shipped, kind, limits).unwrap()
}

/// Explores a world and insists that nothing breaks and that everything happens.
fn holds(world: &World) {
    let report = explore(world);
    assert_eq!(report.broken, [""; 0]);
    assert_eq!(report.unreached, [""; 0]);
}

/// Most APIs are like this, and here a second dispatch is a second charge. It must hold even
/// when a stalled executor never looks at its lease again.
#[test]
fn an_opaque_upstream_sees_at_most_one_dispatch() {
    holds(&shipped(Kind::Opaque, Limits::LONG));
}

/// Looking at the lease before sending must add to the promise, not carry it.
#[test]
fn an_opaque_upstream_sees_at_most_one_dispatch_when_leases_are_checked() {
    holds(&shipped(Kind::Opaque, Limits::SHORT).checking_leases());
}

/// Here a key is given out again while its first executor may still be at work, so every
/// settlement but the last holder's must be fenced off.
#[test]
fn a_deduplicating_upstream_has_one_effect() {
    holds(&shipped(Kind::Dedupes { reexecute: false }, Limits::SHORT));
}

/// The boldest setting: several executors at work on one key, and still one effect and one
/// answer.
#[test]
fn a_deduplicating_upstream_has_one_effect_when_unknown_keys_run_again_at_once() {
    holds(&shipped(Kind::Dedupes { reexecute: true }, Limits::SHORT));
}

/// The rules decide inside of the transaction, so a stale executor's effect must roll back.
#[test]
fn a_transactional_upstream_has_one_effect() {
    holds(&shipped(Kind::Transactional, Limits::LONG));
}
