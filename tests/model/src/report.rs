//! Explores a world and says how far it got, on the standard error of the process itself: the
//! number of explored states is a result, not a log that a passing test may hide.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::World;
use crate::state::{State, WORKERS};

/// How far an exploration got.
#[derive(Debug, Clone)]
pub struct Report {
    /// Different states.
    pub unique: usize,
    /// All states met, also again.
    pub generated: usize,
    /// The longest of the shortest paths.
    pub depth: usize,
    /// Promises that were broken.
    pub broken: Vec<&'static str>,
    /// What was to be reached and was not.
    pub unreached: Vec<&'static str>,
}

/// Explores all of the world. Prints the whole way to every broken promise.
#[must_use]
pub fn explore(world: &World) -> Report {
    let about = describe(world);
    let properties = world.properties();
    // Two threads: explorations run beside each other in tests, and on small machines.
    let checker = world.clone().checker().threads(2).spawn_bfs().join();
    let mut report = Report {
        unique: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    let found = checker.discoveries();
    for property in &properties {
        match (&property.expectation, found.get(property.name)) {
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                say(&format!("{} is broken:\n{path}", property.name));
                report.broken.push(property.name);
            }
            (Expectation::Sometimes, None) => report.unreached.push(property.name),
            (Expectation::Always | Expectation::Eventually, None)
            | (Expectation::Sometimes, Some(_)) => {}
        }
    }
    say(&format!(
        "{about}: {} unique states, {} generated, depth {}; {} properties, broken {:?}, unreached {:?}",
        report.unique,
        report.generated,
        report.depth,
        properties.len(),
        report.broken,
        report.unreached,
    ));
    report
}

/// The shortest way to break the promise: every state on it, the first included. `None` when
/// it holds.
///
/// A worker's number in the printed actions is its place in the state before the action, since
/// states are kept in [canonical](crate::canonical) order.
#[must_use]
pub fn counterexample(world: &World, promise: &'static str) -> Option<Vec<State>> {
    let mut best: Option<Found> = None;
    // The checker works in blocks and keeps the last finding of a block, so the first answer is
    // short, and not always the shortest: ask for a shorter one until there is none.
    while let Some(found) = search(
        world,
        promise,
        best.as_ref().map(|found| found.actions.len()),
    ) {
        best = Some(found);
    }
    let told = best.as_ref().map_or("holds".to_owned(), |found| {
        let (length, states) = (found.actions.len(), found.unique);
        let actions = found.actions.join(", ");
        format!("is broken in {length} actions, found among {states} unique states: {actions}")
    });
    say(&format!("{}: \"{promise}\" {told}", describe(world)));
    best.map(|found| found.states)
}

/// A way to break a promise.
struct Found {
    actions: Vec<String>,
    states: Vec<State>,
    unique: usize,
}

fn search(world: &World, promise: &'static str, shorter_than: Option<usize>) -> Option<Found> {
    let only = HasDiscoveries::AllOf(BTreeSet::from([promise]));
    // One thread: of several, one may run ahead and find a longer way first.
    let checker = world.clone().checker().threads(1).finish_when(only);
    let checker = match shorter_than {
        // A path of `n` actions ends at depth `n + 1`, and the target is not visited itself.
        Some(actions) => checker.target_max_depth(actions + 1),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    let path = checker.discovery(promise)?;
    let actions = path.clone().into_actions();
    Some(Found {
        actions: actions.iter().map(|action| format!("{action:?}")).collect(),
        states: path.into_states(),
        unique: checker.unique_state_count(),
    })
}

fn describe(world: &World) -> String {
    let lease = if world.checks_lease {
        "checked"
    } else {
        "not checked"
    };
    let limits = world.limits;
    format!(
        "model: {:?} rules, {:?} upstream, {WORKERS} workers, lease {} ({lease} before sending), \
         retention {}, probes {}",
        world.variant, world.kind, limits.lease, limits.retention, limits.probes_max
    )
}

/// Writes past the test harness, which keeps what passing tests print to itself.
fn say(line: &str) {
    // A closed standard error is no reason to fail: the assertions are the result.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
