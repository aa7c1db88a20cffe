//! What is promised in every state, and what must be reachable for that to mean anything.
//!
//! *Stuck* is checked as it is defined: from **every** state, with every executor silent from
//! then on, the sweeper and the reconciler alone must settle the key or hand it to a person
//! within the lease, the reconcile delay and two polls. That is stronger than looking at final
//! states, of which a world with an unbounded clock has none.

use onlyonce_core::Decision;
use stateright::Property;

use crate::model::World;
use crate::state::{Heard, Id, Phase, Probe, RowState, Settle, State};
use crate::upstream::Kind;

/// At most one effect within the retention.
pub const NO_DOUBLE: &str = "no double";
/// An opaque upstream sees one dispatch, unless an earlier one is proven to be without effect.
pub const ONE_DISPATCH: &str = "one dispatch";
/// Nobody is told of a success that did not happen.
pub const NO_FALSE_SUCCESS: &str = "no false success";
/// Who asks after somebody got the answer gets the answer.
pub const NO_LOST_COMPLETION: &str = "no lost completion";
/// Nobody settles an execution that was granted to another.
pub const FENCED_OFF: &str = "only the holder settles";
/// Every key ends, or reaches a person.
pub const NEVER_STUCK: &str = "never stuck";

/// The properties of a world with this upstream.
#[must_use]
pub fn of(kind: Kind) -> Vec<Property<World>> {
    let mut all = promises();
    if kind.is_opaque() {
        let one: Condition = |_, state| state.truth.dispatches <= 1;
        all.push(Property::always(ONE_DISPATCH, one));
    }
    if kind.has_wire() {
        all.push(Property::sometimes(
            "a verdict completes",
            verdict_completes,
        ));
        let late = "a request is on the wire when its key is given up";
        all.push(Property::sometimes(late, late_request));
    }
    all.extend(reachable());
    all
}

type Condition = fn(&World, &State) -> bool;

fn promises() -> Vec<Property<World>> {
    let promises: [(&'static str, Condition); 5] = [
        (NO_DOUBLE, |_, state| state.truth.effects <= 1),
        (NO_FALSE_SUCCESS, |_, state| {
            !state.truth.broken.false_success
        }),
        (NO_LOST_COMPLETION, |_, state| {
            !state.truth.broken.lost_completion
        }),
        (FENCED_OFF, |_, state| !state.truth.broken.fence),
        (NEVER_STUCK, World::recovers),
    ];
    let always = |(name, holds)| Property::always(name, holds);
    promises.map(always).into()
}

/// Without these a run would prove nothing.
fn reachable() -> Vec<Property<World>> {
    let reachable: [(&'static str, Condition); 9] = [
        ("completed", |_, state| {
            matches!(state.row_state(), Some(RowState::Completed { .. }))
        }),
        ("unknown", |_, state| {
            matches!(state.row_state(), Some(RowState::Unknown { .. }))
        }),
        ("dead letter", |_, state| {
            state.row_state() == Some(RowState::DeadLetter)
        }),
        ("replayed", replayed),
        ("released and run again", |_, state| {
            let released = matches!(state.row_state(), Some(RowState::Released { .. }));
            released && about_to(state, Decision::Execute, |_| true)
        }),
        ("a late completion is accepted", late_completion),
        ("a late settlement is fenced", fenced),
        ("an unacknowledged claim finds its own row", |_, state| {
            holder_is(state, |phase| matches!(phase, Phase::Again))
        }),
        ("forgotten and run anew", |_, state| {
            let over = matches!(state.row_state(), Some(RowState::Completed { left: 0 }));
            over && about_to(state, Decision::Execute, |_| true)
        }),
    ];
    let sometimes = |(name, holds)| Property::sometimes(name, holds);
    reachable.map(sometimes).into()
}

fn about_to(state: &State, decision: Decision, of: fn(Phase) -> bool) -> bool {
    state
        .workers
        .iter()
        .any(|worker| of(worker.phase) && worker.swap.is_some_and(|swap| swap.decision == decision))
}

fn holder_is(state: &State, of: fn(Phase) -> bool) -> bool {
    state
        .row
        .is_some_and(|row| of(state.worker(row.holder).phase))
}

fn given_up(state: &State) -> bool {
    matches!(
        state.row_state(),
        Some(RowState::Unknown { .. } | RowState::DeadLetter)
    )
}

/// The next client gets the first answer.
fn replayed(world: &World, state: &State) -> bool {
    Id::all().any(|id| {
        state.worker(id).phase == Phase::Idle
            && world.ask(state, &world.command_of(state, id)).0 == Decision::Replay
    })
}

/// The case in which "not found" proves nothing.
fn late_request(_: &World, state: &State) -> bool {
    given_up(state) && state.row.is_some_and(|row| state.worker(row.holder).wire)
}

/// Somebody else's word is about to complete a key that was given up on.
fn verdict_completes(_: &World, state: &State) -> bool {
    let heard = |probe: &Probe| {
        probe.heard == Some(Heard::Completed)
            && state.row.is_some_and(|row| row.holder == probe.holder)
    };
    given_up(state) && state.probes.iter().flatten().any(heard)
}

/// The holder of a row that was given up on is about to complete it.
fn late_completion(world: &World, state: &State) -> bool {
    if world.kind.has_wire() {
        let completes = |phase| phase == Phase::Settling(Settle::Complete);
        given_up(state) && about_to(state, Decision::Settled, completes)
    } else {
        given_up(state) && holder_is(state, |phase| phase == Phase::Granted)
    }
}

/// An executor is at work on a key that is another's by now.
fn fenced(world: &World, state: &State) -> bool {
    Id::all().any(|id| {
        let works = match state.worker(id).phase {
            Phase::Granted | Phase::Sent | Phase::Settling(_) => true,
            Phase::Idle | Phase::Again | Phase::Done => false,
        };
        let complete = world.settle_command(state, id, Settle::Complete);
        works && state.row.is_some() && world.ask(state, &complete).0 == Decision::Fenced
    })
}
