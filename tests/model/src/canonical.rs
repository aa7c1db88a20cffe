//! One state for all that differ only by who is who, or by who was forgotten.

use std::array;

use crate::state::{Id, Phase, Probe, State, Swap, WORKERS, Worker};

/// Forgets workers that nothing refers to, and puts the others in an order that depends on what
/// they do alone.
#[must_use]
pub fn canonical(mut state: State) -> State {
    state
        .probes
        .sort_unstable_by_key(|probe| probe.map(|probe| (probe.heard, probe.serial)));
    forget(&mut state);
    sort(&mut state);
    state
}

/// An executor that is over, has nothing on the wire, and whose fence nobody will show or meet
/// again is a fresh client.
fn forget(state: &mut State) {
    let referred: [bool; WORKERS] = array::from_fn(|index| {
        let refers = |holder: Id| usize::from(holder.0) == index;
        rows(state).any(|(_, holder)| refers(holder))
            || state
                .probes
                .iter()
                .flatten()
                .any(|probe| refers(probe.holder))
    });
    for (worker, referred) in state.workers.iter_mut().zip(referred) {
        if worker.phase == Phase::Done && !worker.wire && !referred {
            *worker = Worker::FRESH;
        }
    }
}

/// Every row in the world with its place, as a holder sees it.
fn rows(state: &State) -> impl Iterator<Item = (usize, Id)> {
    let swaps = state.workers.iter().map(|worker| worker.swap);
    let next = |swap: Option<Swap>| swap.and_then(|swap| swap.next);
    [state.row, next(state.sweeper)]
        .into_iter()
        .chain(swaps.map(next))
        .enumerate()
        .filter_map(|(place, row)| Some((place, row?.holder)))
}

fn sort(state: &mut State) {
    let holds_row = |id: Id| state.row.is_some_and(|row| row.holder == id);
    let probes_of = |id: Id| {
        state
            .probes
            .map(|probe: Option<Probe>| probe.is_some_and(|probe| probe.holder == id))
    };
    let mut order: [Id; WORKERS] = array::from_fn(|index| Id(u8::try_from(index).unwrap_or(0)));
    order.sort_by_key(|id| (*state.worker(*id), holds_row(*id), probes_of(*id)));
    let mut renamed = [Id(0); WORKERS];
    for (new, old) in Id::all().zip(order) {
        if let Some(name) = renamed.get_mut(usize::from(old.0)) {
            *name = new;
        }
    }
    let rename = |id: &mut Id| {
        if let Some(name) = renamed.get(usize::from(id.0)) {
            *id = *name;
        }
    };
    state.workers = order.map(|id| *state.worker(id));
    state.rows_mut().for_each(|row| rename(&mut row.holder));
    for probe in state.probes.iter_mut().flatten() {
        rename(&mut probe.holder);
    }
}
