//! The same verdicts as another checker's, on thousands of small histories by chance.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test speaks"
)]

use onlyonce_linear::check;
use onlyonce_linear::check::Violation;
use onlyonce_linear::history::{Answer, Event, Operation, Seen, Write};
use onlyonce_linear::rng::Rng;
use onlyonce_linear::steps::{Act, Base, Step, steps};
use onlyonce_store::Version;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// How many histories are made.
const HISTORIES: u64 = 20_000;

/// How many calls each has; the other checker's time grows fast with them.
const CALLS_MAX: usize = 7;

/// The port's row, as the other checker wants it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct TheRow(Option<Write>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Ask {
    Load,
    Swap(Base, Option<Write>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Told {
    Row(Option<Write>),
    Won,
    Lost(Option<Write>),
}

impl SequentialSpec for TheRow {
    type Op = Ask;
    type Ret = Told;

    fn invoke(&mut self, ask: &Ask) -> Told {
        let Ask::Swap(from, to) = ask else {
            return Told::Row(self.0);
        };
        if self.0.map_or(Base::Nothing, Base::Row) != *from {
            return Told::Lost(self.0);
        }
        self.0 = *to;
        Told::Won
    }
}

/// Every call is a thread of its own: only the order of moments counts.
fn other_verdict(steps: &[Step]) -> bool {
    let mut tester = LinearizabilityTester::new(TheRow::default());
    let mut moments: Vec<_> = (0..steps.len())
        .flat_map(|step| {
            let end = steps[step].returned.map(|moment| (moment, step, true));
            [Some((steps[step].called, step, false)), end]
        })
        .flatten()
        .collect();
    moments.sort_unstable();
    for (_, thread, is_end) in moments {
        let (ask, told) = match steps[thread].act {
            Act::Saw { row, not: None } => (Ask::Load, Told::Row(row)),
            // What a loser would have written does not matter.
            Act::Saw {
                row,
                not: Some(base),
            } => (Ask::Swap(base, None), Told::Lost(row)),
            Act::Changed { from, to } => (Ask::Swap(from, to), Told::Won),
        };
        if is_end {
            tester.on_return(thread, told).unwrap();
        } else {
            tester.on_invoke(thread, ask).unwrap();
        }
    }
    tester.is_consistent()
}

/// Calls that overlap by chance and are answered as a row would that is asked in the order of
/// their ends; then, for some, one answer is changed.
fn history(rng: &mut Rng) -> Vec<Event> {
    let calls = 3 + rng.below(CALLS_MAX - 2);
    let mut row: Option<Seen> = None;
    let mut known: Vec<Option<Version>> = vec![None];
    let mut events = Vec::new();
    for write in (1..).take(calls) {
        let returned = 10 * write + 1;
        let back = u64::try_from(rng.below(35)).unwrap();
        let mut answer = Answer::Found(row);
        let mut operation = Operation::Load;
        if rng.percent(70) {
            let expected = match rng.below(4) {
                0 => known[rng.below(known.len())],
                _ => row.map(|row| row.version),
            };
            let next = (expected.is_none() || rng.percent(70)).then_some(write);
            operation = Operation::Swap { expected, next };
            let version = Version(100 + write);
            let fits = row.map(|row| row.version) == expected;
            let reaches = rng.percent(85);
            answer = if fits {
                Answer::Won(version)
            } else {
                Answer::Lost(row)
            };
            if fits && reaches {
                row = next.map(|write| Seen { write, version });
                known.push(Some(version));
            }
            if !reaches || rng.percent(15) {
                answer = Answer::Unanswered;
            }
        }
        events.push(Event {
            worker: 0,
            // Never two at one moment: ends are odd.
            called: 2 * (returned.saturating_sub(back) / 2) * 16 + 2 * write,
            returned: 16 * returned + 1,
            operation,
            answer,
        });
    }
    if rng.percent(50) {
        let (from, to) = (rng.below(calls), rng.below(calls));
        let (shown, loads) = (events[from].answer, events[to].operation == Operation::Load);
        if let (true, Answer::Found(row) | Answer::Lost(row)) = (loads, shown) {
            events[to].answer = Answer::Found(row);
        }
    }
    events
}

#[test]
fn another_checker_comes_to_the_same_verdicts() {
    let seed = Rng::seed();
    let mut rng = Rng::new(seed);
    let (mut accepted, mut rejected) = (0_u64, 0_u64);
    for number in 0..HISTORIES {
        let history = history(&mut rng);
        let Ok(steps) = steps(&history) else {
            continue;
        };
        let verdict = check(&history);
        assert_ne!(verdict, Err(Violation::TooHard));
        assert_eq!(
            verdict.is_ok(),
            other_verdict(&steps),
            "seed {seed}, history {number}: {verdict:?}\n{history:#?}"
        );
        match verdict {
            Ok(()) => accepted += 1,
            Err(_) => rejected += 1,
        }
    }
    let both = accepted.min(rejected) * 20 > HISTORIES;
    assert!(both, "{accepted} accepted, {rejected} rejected");
}
