//! The counts of every route, found by its name without a lock and without an allocation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use onlyonce_core::RouteName;
use onlyonce_engine::Lanes;

use super::histogram::{Histogram, HistogramValue};
use super::series::Steps;

/// How many routes are counted by name. Rows may name routes that are no longer configured; what
/// comes beyond the limit is counted as [`OTHER`].
pub const ROUTES_MAX: usize = 128;

/// The name under which all further routes are counted.
pub const OTHER: &str = "other";

/// Twice as many places as routes, so that a free one is near.
const PLACES: usize = ROUTES_MAX * 2;

/// What is counted for each route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Created,
    Replay,
    InProgress,
    KeyMisuse,
    FailedRetry,
    Unknown,
    NotReplayable,
    Zombie,
    Pruned,
    Scheduled,
    Resolved,
    Failed,
    NotRecorded,
    Unprotected,
    WouldExecute,
    WouldReplay,
    WouldRefuse,
    WouldBeUnknown,
}

/// One place for each, up to the last.
const COUNTS: usize = Count::WouldBeUnknown as usize + 1;

/// The counts of one route.
#[derive(Debug)]
pub(super) struct RouteStats {
    pub(super) name: RouteName,
    counted: Lanes<Counted>,
    pub(super) steps: Steps,
}

/// What the requests of one thread came to.
#[derive(Debug, Default)]
pub(super) struct Counted {
    counts: [AtomicU64; COUNTS],
    pub(super) claim: Histogram,
    pub(super) complete: Histogram,
    pub(super) upstream: Histogram,
}

impl RouteStats {
    fn new(name: RouteName) -> Self {
        Self {
            name,
            counted: Lanes::default(),
            steps: Steps::default(),
        }
    }

    pub(super) fn count(&self, what: Count) {
        if let Some(count) = self.counted.mine().counts.get(what as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where the calling thread's latencies are counted.
    pub(super) fn latencies(&self) -> &Counted {
        self.counted.mine()
    }

    pub(super) fn get(&self, what: Count) -> u64 {
        let counts = self
            .counted
            .iter()
            .filter_map(|lane| lane.counts.get(what as usize));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// A latency, of all threads together.
    pub(super) fn latency(&self, of: fn(&Counted) -> &Histogram) -> HistogramValue {
        let mut all = HistogramValue::default();
        self.counted.iter().for_each(|lane| all.add(of(lane)));
        all
    }
}

/// All routes: a hash table whose places are taken once and never given back.
#[derive(Debug)]
pub(super) struct RouteTable {
    places: Vec<OnceLock<Box<RouteStats>>>,
    taken: AtomicUsize,
    other: OnceLock<Box<RouteStats>>,
}

impl RouteTable {
    pub(super) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| OnceLock::new()).collect(),
            taken: AtomicUsize::new(0),
            other: OnceLock::new(),
        }
    }

    /// The counts of a route, new ones if it is not known yet.
    pub(super) fn of(&self, name: &RouteName) -> &RouteStats {
        let start = hash(name.as_bytes());
        // A route of that very name is one with the rest: a series must not be there twice.
        let places = if name.as_bytes() == OTHER.as_bytes() {
            0
        } else {
            PLACES
        };
        for step in 0..places {
            let Some(place) = self.places.get(start.wrapping_add(step) % PLACES) else {
                break;
            };
            match place.get() {
                Some(route) if route.name == *name => return route,
                Some(_) => {}
                None => {
                    if self.taken.fetch_add(1, Ordering::Relaxed) >= ROUTES_MAX {
                        self.taken.fetch_sub(1, Ordering::Relaxed);
                        break;
                    }
                    // Another thread may take the place first, for the same route or for one
                    // that is looked for further on.
                    let route = place.get_or_init(|| Box::new(RouteStats::new(name.clone())));
                    if route.name == *name {
                        return route;
                    }
                    self.taken.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        let other = || Box::new(RouteStats::new(RouteName::new(OTHER).unwrap_or_default()));
        self.other.get_or_init(other)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<&RouteStats> {
        let places = self.places.iter().chain([&self.other]);
        let mut all: Vec<_> = places
            .filter_map(OnceLock::get)
            .map(AsRef::as_ref)
            .collect();
        all.sort_by(|one: &&RouteStats, two| one.name.as_str().cmp(two.name.as_str()));
        all
    }
}

/// FNV-1a: names are short, and come from the operator.
fn hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from(hash >> 32 ^ hash & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn name(number: usize) -> RouteName {
        RouteName::new(&format!("route-{number}")).unwrap()
    }

    /// A store may hold rows of any number of routes; none of them is lost from the sums.
    #[test]
    fn routes_beyond_the_limit_are_counted_together() {
        let table = RouteTable::new();
        for number in 0..ROUTES_MAX + 50 {
            table.of(&name(number)).count(Count::Pruned);
        }
        let all = table.all();
        assert_eq!(all.len(), ROUTES_MAX + 1);
        let other = all.iter().find(|route| route.name.as_str() == OTHER);
        assert_eq!(other.unwrap().get(Count::Pruned), 50);
        let known = table.of(&name(3));
        assert_eq!((known.name.clone(), known.get(Count::Pruned)), (name(3), 1));
    }

    /// A route called "other" would otherwise appear twice in one scrape.
    #[test]
    fn a_route_that_is_called_other_is_one_with_the_rest() {
        let table = RouteTable::new();
        table
            .of(&RouteName::new(OTHER).unwrap())
            .count(Count::Replay);
        for number in 0..=ROUTES_MAX {
            table.of(&name(number)).count(Count::Replay);
        }
        let names: Vec<_> = table.all().iter().map(|route| route.name.clone()).collect();
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len());
    }

    #[test]
    fn threads_that_meet_at_a_new_route_count_it_once() {
        let table = RouteTable::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for number in 0..ROUTES_MAX {
                        table.of(&name(number)).count(Count::Created);
                    }
                });
            }
        });
        let all = table.all();
        let sum: u64 = all.iter().map(|route| route.get(Count::Created)).sum();
        assert_eq!(sum, 8 * ROUTES_MAX as u64);
        let names: HashSet<_> = all.iter().map(|route| route.name.clone()).collect();
        assert_eq!(names.len(), all.len());
    }
}
