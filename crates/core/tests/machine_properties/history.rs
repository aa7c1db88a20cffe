//! What must hold for any history of a key: several actors, lost acknowledgements, zombies,
//! verdicts, people and clocks that jump.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use onlyonce_core::{
    Command, Decision, Fence, Policy, Record, Response, StateKind, Timestamp, TombstoneReason,
    Upstream,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::*;
use crate::strategies::*;
use crate::{answers, fence_of, is_free};

/// Wherever an unknown key waits for somebody who knows.
const NO_REEXECUTION: [Upstream; 4] = [OPAQUE, OPAQUE_OPT_IN, DEDUPES, Upstream::Transactional];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    /// The heart of the product: while the outcome is open, nothing that others ask for, and no
    /// clock, right or wrong, ever makes the rules hand the key to anybody else.
    #[test]
    fn an_unsettled_key_is_never_granted_to_others(
        policy in any_policy(proptest::sample::select(&NO_REEXECUTION[..])),
        row in any_unsettled_row(),
        commands in proptest::collection::vec((any_command(), any_time()), 1..40),
    ) {
        let owner = row.fence;
        let mut store = Some(row);
        for (command, now) in commands.iter().filter(|(command, _)| fence_of(command) != Some(owner)) {
            let told = apply(&policy, &mut store, command, *now);
            prop_assert_ne!(told, Decision::Execute);
            let row = store.as_ref().unwrap();
            prop_assert!(!row.state.kind().is_settled());
            prop_assert_eq!(row.fence, owner);
        }
    }
}

/// Whatever three actors, a sweeper, a prober and a person do to one key in any order, every
/// grant is of a free key, and no fence executes twice.
#[test]
fn every_execution_of_any_history_is_of_a_free_key() {
    let config = ProptestConfig {
        cases: 2048,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let policies = proptest::sample::select(every_policy());
    let moves = proptest::collection::vec(any_move(), 1..80);
    let heard = RefCell::new(BTreeSet::new());
    let outcome = TestRunner::new(config).run(&(policies, moves), |(policy, moves)| {
        let mut world = World::new(policy);
        for next in moves {
            world.play(&next);
        }
        heard.borrow_mut().append(&mut world.heard);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    // Histories in which something never happens prove nothing about it.
    let commands = every_command(fence(1), payload(1));
    let every_decision: BTreeSet<Decision> = commands.iter().flat_map(answers).copied().collect();
    assert_eq!(heard.into_inner(), every_decision);
}

const ACTORS: usize = 3;

/// One thing that happens.
#[derive(Debug, Clone)]
struct Move {
    actor: usize,
    /// Which of the actor's fences, counted back from the latest: a zombie uses an old one.
    fences_back: usize,
    act: Act,
    /// By how much the clock moves first; it may be set back.
    clock_ms: i64,
}

#[derive(Debug, Clone)]
enum Act {
    /// A new request.
    Claim {
        payload: u8,
        acknowledged: bool,
    },
    /// The latest claim again, if its acknowledgement was lost.
    ClaimAgain,
    /// One of the executor's commands, by index.
    Executor(usize),
    /// One of the judgements about the row as it is, by index.
    Judge(usize),
    Sweep,
}

fn any_move() -> impl Strategy<Value = Move> {
    let act = prop_oneof![
        4 => (1..3_u8, any::<bool>())
            .prop_map(|(payload, acknowledged)| Act::Claim { payload, acknowledged }),
        2 => Just(Act::ClaimAgain),
        4 => (0..6_usize).prop_map(Act::Executor),
        2 => (0..7_usize).prop_map(Act::Judge),
        3 => Just(Act::Sweep),
    ];
    (0..ACTORS, 0..3_usize, act, -2_000..40_000_i64).prop_map(
        |(actor, fences_back, act, clock_ms)| Move {
            actor,
            fences_back,
            act,
            clock_ms,
        },
    )
}

/// A store of one row, the actors' memories, and what was executed.
struct World {
    policy: Policy,
    now: Timestamp,
    row: Option<Record>,
    claims: [Vec<Claimed>; ACTORS],
    fences_drawn: u8,
    executions: HashMap<Fence, u32>,
    heard: BTreeSet<Decision>,
}

#[derive(Debug, Clone)]
struct Claimed {
    fence: Fence,
    command: Command,
    acknowledged: bool,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: at(1_000),
            row: None,
            claims: Default::default(),
            fences_drawn: 0,
            executions: HashMap::new(),
            heard: BTreeSet::new(),
        }
    }

    fn play(&mut self, next: &Move) {
        let millis = self.now.as_millis().saturating_add_signed(next.clock_ms);
        self.now = Timestamp::from_millis(millis);
        match next.act {
            Act::Claim {
                payload: of,
                acknowledged,
            } => {
                self.fences_drawn += 1;
                let fence = fence(self.fences_drawn);
                let command = claim_of(payload(of), fence);
                self.claim(
                    next.actor,
                    Claimed {
                        fence,
                        command,
                        acknowledged,
                    },
                );
            }
            Act::ClaimAgain => {
                let lost = self.claims[next.actor].pop_if(|claimed| !claimed.acknowledged);
                if let Some(lost) = lost {
                    self.claim(
                        next.actor,
                        Claimed {
                            acknowledged: true,
                            ..lost
                        },
                    );
                }
            }
            Act::Executor(which) => {
                let mut begun = self.claims[next.actor].iter().rev();
                let begun = begun
                    .by_ref()
                    .filter(|claimed| self.executions.contains_key(&claimed.fence));
                if let Some(fence) = begun.map(|claimed| claimed.fence).nth(next.fences_back) {
                    self.settle(&everything_an_executor_says(fence)[which]);
                }
            }
            Act::Judge(which) => {
                if let Some(fence) = self.row.as_ref().map(|row| row.fence) {
                    self.settle(&judgements(fence)[which]);
                }
            }
            Act::Sweep => self.settle(&Command::Sweep),
        }
    }

    /// An actor that hears "execute" executes; one that hears nothing does not, and may ask
    /// again with the same fence.
    fn claim(&mut self, actor: usize, claimed: Claimed) {
        let before = self.row.clone();
        let told = self.apply(&claimed.command);
        if told == Decision::Execute && claimed.acknowledged {
            let executions = self.executions.entry(claimed.fence).or_default();
            *executions += 1;
            assert_eq!(*executions, 1, "one grant was executed twice");
            if let Some(before) = before {
                let own = before.fence == claimed.fence;
                assert!(
                    own || is_free(&self.policy, &before, self.now),
                    "{before:?}"
                );
            }
        }
        self.claims[actor].push(claimed);
    }

    /// Any other command: it grants nothing, and a stored answer outlives everything but its
    /// retention and a person who forgets it.
    fn settle(&mut self, command: &Command) {
        let before = self.row.clone();
        let told = self.apply(command);
        assert_ne!(told, Decision::Execute);
        let Some(before) = before else {
            return assert_eq!(self.row, None, "{command:?} made a row of nothing");
        };
        if before.state.kind() == StateKind::Completed && told != Decision::Purged {
            let changed = self.row.as_ref() != Some(&before);
            let forgotten = self.row.is_none() && matches!(command, Command::Resolve { .. });
            assert!(!changed || forgotten || told == Decision::Expired);
        }
    }

    fn apply(&mut self, command: &Command) -> Decision {
        let told = apply(&self.policy, &mut self.row, command, self.now);
        self.heard.insert(told);
        told
    }
}

fn everything_an_executor_says(fence: Fence) -> Vec<Command> {
    let nothing_to_replay = Response::Tombstone(TombstoneReason::Stream);
    let mut commands = executor_commands(fence);
    commands.push(complete(fence, nothing_to_replay));
    commands
}
