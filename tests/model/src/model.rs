//! One world to explore: the rules, the upstream, the limits, and how a decision is asked for.

use onlyonce_core::{
    Command, Decision, Expiry, Fence, Next, Policy, PolicyError, Reconcile, Upstream,
};
use stateright::{Model, Property};

use crate::actions::Action;
use crate::canonical::canonical;
use crate::mirror::{self, ticks};
use crate::properties;
use crate::state::{Base, Id, Row, RowState, State};
use crate::upstream::Kind;
use crate::variants::Variant;

/// The route's limits, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a lease lasts.
    pub lease: u8,
    /// How long a settled key is remembered.
    pub retention: u8,
    /// How long after the outcome became unknown, and after a probe, the next probe is due.
    pub probe_delay: u8,
    /// How many probes before it becomes a dead letter.
    pub probes_max: u8,
    /// How long expired rows are kept for audit; 0 removes them at once.
    pub kept: u8,
}

impl Limits {
    /// The shortest that tell "in time" from "too late".
    pub const SHORT: Self = Self {
        lease: 1,
        retention: 1,
        probe_delay: 1,
        probes_max: 1,
        kept: 0,
    };

    /// Long enough for a second probe, for half a lease, and for rows kept for audit.
    pub const LONG: Self = Self {
        lease: 2,
        retention: 2,
        probe_delay: 1,
        probes_max: 2,
        kept: 1,
    };

    /// The age of an unknown outcome from which on it makes no difference.
    pub(crate) fn age_max(kind: Kind) -> u8 {
        match kind {
            Kind::OpaqueReleasing(after) => after,
            Kind::Opaque | Kind::Dedupes { .. } | Kind::Transactional => 0,
        }
    }
}

/// A row to be written; `None` removes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write(pub(crate) Option<Row>);

/// One world.
#[derive(Debug, Clone)]
pub struct World {
    /// The rules.
    pub variant: Variant,
    /// The upstream.
    pub kind: Kind,
    /// Whether executors look at their lease before they send. Nothing may depend on it.
    pub checks_lease: bool,
    /// The limits.
    pub limits: Limits,
    policy: Policy,
}

impl World {
    /// A world whose executors do not look at their lease.
    ///
    /// # Errors
    /// When the limits are not ones that a route may have.
    pub fn new(variant: Variant, kind: Kind, limits: Limits) -> Result<Self, PolicyError> {
        let upstream = match kind {
            Kind::Opaque => Upstream::Opaque {
                release_after: None,
            },
            Kind::OpaqueReleasing(after) => Upstream::Opaque {
                release_after: Some(ticks(after)),
            },
            Kind::Dedupes { reexecute } => Upstream::Dedupes { reexecute },
            Kind::Transactional => Upstream::Transactional,
        };
        let expiry = match limits.kept {
            0 => Expiry::Delete,
            kept => Expiry::Keep(ticks(kept)),
        };
        let policy = Policy::builder()
            .upstream(upstream)
            .lease(ticks(limits.lease))
            .retention(ticks(limits.retention))
            .expiry(expiry)
            .reconcile(Reconcile {
                delay: ticks(limits.probe_delay),
                delay_max: ticks(limits.probe_delay),
                attempts_max: u16::from(limits.probes_max),
            })
            .build()?;
        Ok(Self {
            variant,
            kind,
            checks_lease: false,
            limits,
            policy,
        })
    }

    /// The same world with executors that look at their lease before they send.
    #[must_use]
    pub fn checking_leases(self) -> Self {
        Self {
            checks_lease: true,
            ..self
        }
    }

    /// What the rules decide about the row as it is: `None` to write when it stays.
    pub(crate) fn ask(&self, state: &State, command: &Command) -> (Decision, Option<Write>) {
        let record = state
            .row
            .map(|row| mirror::record(row, self.number(row.holder, row.serial)));
        let (decision, next) =
            self.variant
                .decide(&self.policy, record.as_ref(), command, mirror::NOW);
        let next = match next {
            Next::Keep => None,
            Next::Remove => Some(Write(None)),
            Next::Put(record) => {
                let (holder, serial) = self.granted_to(state, mirror::number(record.fence));
                let age_max = Limits::age_max(self.kind);
                Some(Write(Some(mirror::row(&record, holder, serial, age_max))))
            }
        };
        (decision, next)
    }

    /// Whose fence `number` is. A counted one does not say; whoever claims puts that right.
    fn granted_to(&self, state: &State, number: u8) -> (Id, u8) {
        if self.variant.counts_fences() {
            (state.row.map_or(Id(0), |row| row.holder), number)
        } else {
            (Id(number.saturating_sub(1)), 0)
        }
    }

    /// Writes the row. Every other swap decided on the old row will lose, so it is dropped.
    pub(crate) fn write(&self, state: &mut State, Write(next): Write) {
        state.row = next;
        if self.variant.compares_versions() {
            let swaps = state.workers.iter_mut().map(|worker| &mut worker.swap);
            for swap in swaps.chain([&mut state.sweeper]) {
                if swap.is_some_and(|swap| swap.base == Base::Present) {
                    *swap = None;
                }
            }
        }
        if let Some(RowState::Completed { left }) = state.row_state() {
            state.truth.retained = left;
            if left == 0 {
                state.truth.end_life(self.kind.forgets());
            }
        }
    }

    fn number(&self, holder: Id, serial: u8) -> u8 {
        if self.variant.counts_fences() {
            serial
        } else {
            holder.0 + 1
        }
    }

    pub(crate) fn fence(&self, holder: Id, serial: u8) -> Fence {
        mirror::fence(self.number(holder, serial))
    }

    /// The fence that a worker was granted.
    pub(crate) fn fence_of(&self, state: &State, id: Id) -> Fence {
        self.fence(id, state.worker(id).serial)
    }

    /// The fence that a worker claims with.
    pub(crate) fn claim_fence(&self, state: &State, id: Id) -> Fence {
        let counted = state.row.map_or(1, |row| row.serial.saturating_add(1));
        self.fence(id, counted)
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::FRESH]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.enabled(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.perform(&mut next, action);
        self.read_what_is_final(&mut next);
        let next = canonical(next);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self.kind)
    }
}
