//! The last hour in steps of five seconds: executed, replayed, refused, unknown.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_engine::Lanes;
use serde::Serialize;

/// The length of one step.
pub const STEP_MS: u64 = 5000;

/// How many steps are kept: an hour.
pub const STEPS_MAX: u64 = 720;

/// What is current, for the replay rate: a minute.
const NOW_STEPS: u64 = 12;

/// After how many steps a step counts half in the usual rate: a quarter of an hour.
const HALF_LIFE_STEPS: u32 = 180;

/// What a step counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// Executions that were granted.
    Executed,
    /// Retries that got the first answer.
    Replayed,
    /// Claims that got anything else.
    Refused,
    /// Outcomes that became unknown.
    Unknown,
}

const LINES: usize = 4;

/// The steps of one route, as every thread has counted them.
#[derive(Debug, Default)]
pub(super) struct Steps(Lanes<OnceLock<Ring>>);

impl Steps {
    pub(super) fn count(&self, line: Line, elapsed_ms: u64) {
        let mine = self.0.mine().get_or_init(Ring::new);
        mine.count(line, elapsed_ms);
    }

    fn point(&self, step: u64, at_ms: u64) -> Point {
        let mut sum = Point {
            at_ms,
            ..Point::default()
        };
        let rings = self.0.iter().filter_map(OnceLock::get);
        rings.for_each(|ring| sum.add(&ring.point(step, at_ms)));
        sum
    }
}

/// The steps of one thread, each written over after an hour.
///
/// A count carries the number of its step, so that one atomic word says both: no lock, no reset,
/// and nobody counts into a step that is over.
#[derive(Debug)]
struct Ring {
    cells: Vec<[AtomicU64; LINES]>,
}

impl Ring {
    fn new() -> Self {
        let cells = (0..STEPS_MAX).map(|_| <[AtomicU64; LINES]>::default());
        Self {
            cells: cells.collect(),
        }
    }

    fn cell(&self, step: u64, line: Line) -> Option<&AtomicU64> {
        let at = usize::try_from(step % STEPS_MAX).ok()?;
        self.cells.get(at)?.get(line as usize)
    }

    fn count(&self, line: Line, elapsed_ms: u64) {
        let step = elapsed_ms / STEP_MS;
        let Some(cell) = self.cell(step, line) else {
            return;
        };
        if cell.load(Ordering::Relaxed) >> 32 == tag(step) {
            // It stays this step's for the next hour.
            cell.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let first = tag(step) << 32;
        let next = |found: u64| {
            Some(
                if found >> 32 == tag(step) {
                    found
                } else {
                    first
                } + 1,
            )
        };
        // Never refuses: `next` always gives a value.
        let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn get(&self, step: u64, line: Line) -> u64 {
        let found = self
            .cell(step, line)
            .map(|cell| cell.load(Ordering::Relaxed));
        found
            .filter(|found| found >> 32 == tag(step))
            .map_or(0, |found| found & u64::from(u32::MAX))
    }

    fn point(&self, step: u64, at_ms: u64) -> Point {
        Point {
            at_ms,
            executed: self.get(step, Line::Executed),
            replayed: self.get(step, Line::Replayed),
            refused: self.get(step, Line::Refused),
            unknown: self.get(step, Line::Unknown),
        }
    }
}

/// The number of a step as a cell carries it; never 0, which a cell has before its first count.
fn tag(step: u64) -> u64 {
    (step + 1) & u64::from(u32::MAX)
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Point {
    /// When it began.
    pub at_ms: u64,
    /// Executions that were granted.
    pub executed: u64,
    /// Retries that got the first answer.
    pub replayed: u64,
    /// Claims that got anything else: in progress, misuse, not replayable, unknown.
    pub refused: u64,
    /// Outcomes that became unknown.
    pub unknown: u64,
}

impl Point {
    fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }
}

/// Steps in their order, the current one last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Series {
    /// The length of a step.
    pub step_ms: u64,
    /// When the first one began.
    pub from_ms: u64,
    /// All routes together.
    pub points: Vec<Point>,
    /// Each route by itself.
    pub routes: BTreeMap<String, Vec<Point>>,
}

/// The steps of the last `seconds`, as far as there are any. `date` gives the date of a moment.
pub(super) fn series<'a>(
    counted: impl Iterator<Item = (&'a str, &'a Steps)>,
    seconds: u64,
    elapsed_ms: u64,
    date: impl Fn(u64) -> u64,
) -> Series {
    let last = elapsed_ms / STEP_MS;
    let count = seconds.saturating_mul(1000).div_ceil(STEP_MS);
    let first = (last + 1).saturating_sub(count.clamp(1, STEPS_MAX));
    let steps = first..=last;
    let mut points: Vec<_> = steps
        .clone()
        .map(|step| Point {
            at_ms: date(step * STEP_MS),
            ..Point::default()
        })
        .collect();
    let mut routes = BTreeMap::new();
    for (name, counts) in counted {
        let own = steps
            .clone()
            .map(|step| counts.point(step, date(step * STEP_MS)));
        let own: Vec<_> = own.collect();
        for (sum, point) in points.iter_mut().zip(&own) {
            sum.add(point);
        }
        routes.insert(name.to_owned(), own);
    }
    Series {
        step_ms: STEP_MS,
        from_ms: date(first * STEP_MS),
        points,
        routes,
    }
}

/// How many of the answered requests were replays, lately and usually.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ReplayRate {
    /// In the last minute.
    pub now: f64,
    /// In the hour before that; what is a quarter of an hour older counts half.
    pub usual: f64,
    /// How many requests the usual rate is made of. With few it says little.
    pub samples: u64,
}

pub(super) fn replay_rate(points: &[Point]) -> ReplayRate {
    let split = points
        .len()
        .saturating_sub(usize::try_from(NOW_STEPS).unwrap_or(usize::MAX));
    let (before, now) = points.split_at_checked(split).unwrap_or((&[], points));
    let fading = 0.5_f64.powf(1.0 / f64::from(HALF_LIFE_STEPS));
    let (mut replayed, mut answered, mut samples) = (0.0, 0.0, 0);
    for point in before {
        let (own, all) = (point.replayed, point.replayed + point.executed);
        replayed = replayed * fading + real(own);
        answered = answered * fading + real(all);
        samples += all;
    }
    let sum = |count: fn(&Point) -> u64| real(now.iter().map(count).sum());
    ReplayRate {
        now: ratio(
            sum(|point| point.replayed),
            sum(|point| point.replayed + point.executed),
        ),
        usual: ratio(replayed, answered),
        samples,
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "beyond 2^53 requests a rate is a rate"
)]
fn real(count: u64) -> f64 {
    count as f64
}
