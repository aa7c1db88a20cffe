//! What one schedule is about: how many processes, which keys, which upstream, which policy.

use std::sync::LazyLock;
use std::time::Duration;

use onlyonce_core::fingerprint::{Payload, fingerprint};
use onlyonce_core::{
    Expiry, Fingerprint, Key, KeyLimits, Policy, Reconcile, RecordId, Reuse, RouteName, Scope,
    Secret, Upstream,
};
use onlyonce_engine::{EngineConfig, Identity, Policies};

use crate::bugs::Bug;
use crate::rng::Rng;

pub(crate) const LEASE_MS: u64 = 1000;
pub(crate) const STORE_TIMEOUT_MS: u64 = 300;
pub(crate) const SWEEP_EVERY_MS: u64 = 400;
pub(crate) const RECONCILE_DELAY_MAX_MS: u64 = 800;
pub(crate) const CLOCK_REFRESH_MS: u64 = 1000;
/// After so long an upstream that was found to know nothing is believed, where a bug says so.
pub(crate) const RELEASE_AFTER_MS: u64 = 2 * LEASE_MS;
/// Short enough to pass within a schedule.
const RETENTION_SHORT: Duration = Duration::from_millis(1500);
const RETENTION_LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// The engine's limits at the scale of a schedule.
pub(crate) const CONFIG: EngineConfig = EngineConfig {
    store_timeout: Duration::from_millis(STORE_TIMEOUT_MS),
    settle_patience: Duration::from_millis(2500),
    rounds_max: 32,
    executions_max: 4,
    waiters_per_key_max: 2,
    waiters_max: 3,
    wait_poll_min: Duration::from_millis(25),
    wait_poll_max: Duration::from_millis(200),
    sweep_every: Duration::from_millis(SWEEP_EVERY_MS),
    sweep_batch: 2,
    sweep_concurrency: 2,
    probes_max: 2,
    clock_refresh: Duration::from_millis(CLOCK_REFRESH_MS),
    callers_work: false,
};

/// What the upstream really does with a second dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Opaque,
    Dedupes,
    Transactional,
}

/// One logical operation: a tenant and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) tenant: u8,
    pub(crate) key: u8,
}

impl Operation {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    pub(crate) const fn index(self) -> usize {
        (self.tenant * 2 + self.key) as usize
    }
}

/// What one schedule is about.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent yes-or-no choices"
)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) operations: Vec<Operation>,
    pub(crate) truth: Truth,
    policies: usize,
    pub(crate) single_use: bool,
    pub(crate) forgets_soon: bool,
    /// One store operation in so many goes wrong; 0 for none.
    pub(crate) fault_one_in: u64,
    /// Whether works ask if they still hold their key before the effect.
    pub(crate) asks_if_held: bool,
    /// Whether reads are cheap, so that claims read before they write.
    pub(crate) cheap_reads: bool,
    /// Whether works run in the tasks of their callers.
    pub(crate) callers_work: bool,
    /// Whether the hashing secret changes in the middle of it.
    pub(crate) changes_secret: bool,
    /// Which secret new keys are hashed with.
    secret: usize,
    bug: Option<Bug>,
}

impl Shape {
    pub(crate) fn draw(rng: &mut Rng, bug: Option<Bug>) -> Self {
        let changes_secret = rng.aside().once_in(4);
        let first = rng.index(Operation::COUNT);
        let count = 1 + rng.index(3);
        // Neighbours share a key text or a tenant, so that mixing them up shows.
        let operations = (0..count).map(|nth| (first + nth * 2 + nth / 2) % Operation::COUNT);
        let opaque_bug = matches!(
            bug,
            Some(Bug::OpaqueCalledDedupes | Bug::OpaqueReleasedEarly)
        );
        let (truth, mut upstream) = match rng.below(8) {
            4 if !opaque_bug => (Truth::Dedupes, 2),
            5 if !opaque_bug => (Truth::Dedupes, 3),
            6 | 7 if !opaque_bug => (Truth::Transactional, 4),
            _ => (Truth::Opaque, 0),
        };
        match bug {
            Some(Bug::OpaqueReleasedEarly) => upstream = 1,
            Some(Bug::OpaqueCalledDedupes) => upstream = 2 + rng.index(2),
            _ => {}
        }
        // A dispatch that outlives the retention is another operation to a deduping upstream.
        let may_forget = truth != Truth::Dedupes && !opaque_bug;
        let retention = if may_forget && rng.once_in(4) {
            1 + rng.index(2)
        } else {
            0
        };
        let single_use = rng.once_in(12);
        Self {
            nodes: 1 + rng.index(3),
            operations: operations.map(|index| OPERATIONS[index]).collect(),
            truth,
            policies: (upstream * 3 + retention) * 2 + usize::from(single_use),
            single_use,
            forgets_soon: retention > 0,
            fault_one_in: [0, 40, 16, 8][rng.index(4)],
            asks_if_held: rng.once_in(2),
            cheap_reads: rng.once_in(2),
            callers_work: rng.once_in(2),
            changes_secret,
            secret: 0,
            bug,
        }
    }

    pub(crate) fn policies(&self) -> &'static Policies {
        &TABLES.policies[self.policies]
    }

    pub(crate) fn policy(&self) -> &'static Policy {
        self.policies().of(&TABLES.route)
    }

    /// The secret of new keys, and the one before.
    pub(crate) fn secrets(&self) -> (&'static Secret, Option<&'static Secret>) {
        let secret = |number: usize| &TABLES.hashes[number].secret;
        let previous = self.secret.checked_sub(1);
        (secret(self.secret), previous.map(secret))
    }

    pub(crate) fn change_secret(&mut self) {
        self.secret = 1;
    }

    /// The ids under which an operation may be found, the newest first.
    pub(crate) fn ids(&self, operation: Operation) -> impl Iterator<Item = RecordId> {
        let tenant = if self.bug == Some(Bug::SharedScope) {
            0
        } else {
            operation.tenant
        };
        let index = Operation {
            tenant,
            ..operation
        }
        .index();
        (0..=self.secret)
            .rev()
            .map(move |secret| TABLES.hashes[secret].ids[index])
    }

    pub(crate) fn operation(&self, id: &RecordId) -> Option<Operation> {
        self.operations
            .iter()
            .copied()
            .find(|operation| self.ids(*operation).any(|own| own == *id))
    }

    /// What a request says who it is: under the secret of new keys, and under the one before.
    pub(crate) fn identities(
        &self,
        operation: Operation,
        payload: u8,
    ) -> impl Iterator<Item = Identity> {
        let counted = if self.bug == Some(Bug::BlindFingerprint) {
            0
        } else {
            payload
        };
        let secrets = (0..=self.secret).rev();
        (self.ids(operation).zip(secrets)).map(move |(id, secret)| Identity {
            id,
            fingerprint: TABLES.hashes[secret].fingerprints[usize::from(counted)],
            fields: onlyonce_core::FieldDigests::default(),
        })
    }

    /// The payload that a row belongs to.
    pub(crate) fn payload(fingerprint: Fingerprint) -> u8 {
        let is_second = |hashes: &Hashes| hashes.fingerprints[1] == fingerprint;
        u8::from(TABLES.hashes.iter().any(is_second))
    }

    /// The secret that an id was made with.
    pub(crate) fn secret_of(id: &RecordId) -> &'static Secret {
        let [first, second] = &TABLES.hashes;
        let made = if second.ids.contains(id) {
            second
        } else {
            first
        };
        &made.secret
    }
}

const OPERATIONS: [Operation; Operation::COUNT] = [
    Operation { tenant: 0, key: 0 },
    Operation { tenant: 0, key: 1 },
    Operation { tenant: 1, key: 0 },
    Operation { tenant: 1, key: 1 },
];

/// What is the same in every schedule, made once.
pub(crate) struct Tables {
    pub(crate) route: RouteName,
    hashes: [Hashes; 2],
    policies: Vec<Policies>,
}

/// What is made with one secret.
struct Hashes {
    secret: Secret,
    ids: Vec<RecordId>,
    fingerprints: Vec<Fingerprint>,
}

pub(crate) static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables {
    route: RouteName::new("charges").unwrap(),
    hashes: [42, 43].map(|byte| hashes(Secret::new([byte; 32]))),
    policies: policies(),
});

fn hashes(secret: Secret) -> Hashes {
    let defaults = Policy::default();
    let id = |operation: &Operation| {
        let key = Key::opaque(
            ["order-1", "order-2"][usize::from(operation.key)],
            &KeyLimits::default(),
        );
        let scope = Scope {
            principal: [b"alice", b"mallo"][usize::from(operation.tenant)],
            method: "POST",
            route: "charges",
            path: "/charges",
            host: "",
        };
        RecordId::new(&secret, defaults.scope(), &scope, &key.unwrap())
    };
    let print = |body: &&[u8]| {
        let payload = Payload {
            method: "POST",
            path: "/charges",
            query: None,
            headers: &[],
            content_type: None,
            body,
        };
        fingerprint(&secret, defaults.fingerprint(), &payload).0
    };
    Hashes {
        ids: OPERATIONS.iter().map(id).collect(),
        fingerprints: [&b"12.00 EUR"[..], b"99.00 EUR"]
            .iter()
            .map(print)
            .collect(),
        secret,
    }
}

fn policies() -> Vec<Policies> {
    let release_after = Some(Duration::from_millis(RELEASE_AFTER_MS));
    let upstreams = [
        Upstream::Opaque {
            release_after: None,
        },
        Upstream::Opaque { release_after },
        Upstream::Dedupes { reexecute: true },
        Upstream::Dedupes { reexecute: false },
        Upstream::Transactional,
    ];
    let retentions = [
        (RETENTION_LONG, Expiry::Delete),
        (RETENTION_SHORT, Expiry::Delete),
        (RETENTION_SHORT, Expiry::Keep(Duration::from_secs(1))),
    ];
    let mut all = Vec::new();
    for upstream in upstreams {
        for (retention, expiry) in retentions {
            for reuse in [Reuse::Replay, Reuse::SingleUse] {
                let builder = Policy::builder()
                    .lease(Duration::from_millis(LEASE_MS))
                    .retention(retention)
                    .expiry(expiry)
                    .reuse(reuse)
                    .upstream(upstream)
                    .reconcile(Reconcile {
                        delay: Duration::from_millis(200),
                        delay_max: Duration::from_millis(RECONCILE_DELAY_MAX_MS),
                        attempts_max: 3,
                    });
                all.push(Policies::new(builder.build().unwrap()));
            }
        }
    }
    all
}
