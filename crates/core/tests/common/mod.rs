//! Rows, commands and policies in a few letters, and the four things a step can do to a row.
//!
//! Every row here is of `fence(1)` and `payload(1)`, claimed at second 0. Fences made by
//! [`fence`] start with a zero byte, so no pause before a probe is spread by chance.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Claim, Command, Decision, Doubt, Expiry, Fence, FieldDigests, Fingerprint, HeaderBlock, Next,
    Policy, PrincipalDigest, Record, Resolution, Response, Reuse, RouteName, SealedResponse, State,
    StoredResponse, Timestamp, TombstoneReason, UnknownReason, Upstream, Verdict, step,
};

pub(crate) const fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub(crate) const END_OF_TIME: Timestamp = Timestamp::from_millis(u64::MAX);

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn fence(n: u8) -> Fence {
    Fence::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

pub(crate) const fn payload(n: u8) -> Fingerprint {
    Fingerprint {
        algorithm: Algorithm::Raw,
        digest: [n; 32],
    }
}

/// A stored answer whose body is `text`.
pub(crate) fn answer(text: &str) -> Response {
    Response::Plain(StoredResponse {
        status: 201,
        headers: HeaderBlock::from_lines([(&b"location"[..], &b"/charges/1"[..])]).unwrap(),
        body: Bytes::copy_from_slice(text.as_bytes()),
        trailers: HeaderBlock::default(),
    })
}

/// A stored answer that is encrypted.
pub(crate) fn sealed(ciphertext: &'static [u8]) -> Response {
    Response::Sealed(SealedResponse {
        key_id: 7,
        nonce: [3; 12],
        ciphertext: Bytes::from_static(ciphertext),
    })
}

// Policies. Lease 15 s, first probe after 5 s, as in the defaults; retention 100 s.

pub(crate) fn policy() -> Policy {
    policy_for(Upstream::default(), Reuse::Replay, Expiry::Delete)
}

pub(crate) fn single_use() -> Policy {
    policy_for(Upstream::default(), Reuse::SingleUse, Expiry::Delete)
}

pub(crate) fn keeping_expired_rows() -> Policy {
    let keep = Expiry::Keep(seconds(1000));
    policy_for(Upstream::default(), Reuse::Replay, keep)
}

pub(crate) fn upstream(upstream: Upstream) -> Policy {
    policy_for(upstream, Reuse::Replay, Expiry::Delete)
}

pub(crate) fn policy_for(upstream: Upstream, reuse: Reuse, expiry: Expiry) -> Policy {
    Policy::builder()
        .lease(seconds(15))
        .retention(seconds(100))
        .upstream(upstream)
        .reuse(reuse)
        .expiry(expiry)
        .response_schema(4)
        .build()
        .unwrap()
}

pub(crate) const OPAQUE: Upstream = Upstream::Opaque {
    release_after: None,
};
pub(crate) const OPAQUE_OPT_IN: Upstream = Upstream::Opaque {
    release_after: Some(seconds(60)),
};
pub(crate) const DEDUPES: Upstream = Upstream::Dedupes { reexecute: false };
pub(crate) const REEXECUTES: Upstream = Upstream::Dedupes { reexecute: true };

pub(crate) const EVERY_UPSTREAM: [Upstream; 5] = [
    OPAQUE,
    OPAQUE_OPT_IN,
    DEDUPES,
    REEXECUTES,
    Upstream::Transactional,
];

pub(crate) fn every_policy() -> Vec<Policy> {
    let mut policies = Vec::new();
    for upstream in EVERY_UPSTREAM {
        for reuse in [Reuse::Replay, Reuse::SingleUse] {
            for expiry in [Expiry::Delete, Expiry::Keep(seconds(1000))] {
                policies.push(policy_for(upstream, reuse, expiry));
            }
        }
    }
    policies
}

// Rows.

pub(crate) fn row(state: State) -> Record {
    Record {
        fingerprint: payload(1),
        fields: FieldDigests::default(),
        fence: fence(1),
        attempt: 1,
        state,
        created_at: at(0),
        updated_at: at(0),
        route: RouteName::new("charges").unwrap(),
        principal: PrincipalDigest::from_bytes([5; 8]),
        response_schema: 4,
        memo: bytes::Bytes::new(),
    }
}

/// Lease until second 15.
pub(crate) fn executing() -> Record {
    row(State::Executing {
        lease_until: at(15),
        doubt: None,
    })
}

/// Lease until second 15, of a second attempt; of the first nobody has known since second 0.
pub(crate) fn executing_in_doubt() -> Record {
    let state = State::Executing {
        lease_until: at(15),
        doubt: Some(Doubt {
            reason: UnknownReason::NoCompleteAnswer,
            since: at(0),
        }),
    };
    Record {
        attempt: 2,
        ..row(state)
    }
}

/// Unknown since second 15, to be asked about at second 20, never asked so far; the executor said so
/// itself.
pub(crate) fn doubted() -> Record {
    row(State::Unknown {
        reason: UnknownReason::HandlerSaidSo,
        since: at(15),
        reconcile_at: at(20),
        attempts: 0,
    })
}

/// Unknown since second 15, to be asked about at second 20, never asked so far.
pub(crate) fn unknown() -> Record {
    unknown_asked(0)
}

pub(crate) fn unknown_asked(attempts: u16) -> Record {
    row(State::Unknown {
        reason: UnknownReason::LeaseExpired,
        since: at(15),
        reconcile_at: at(20),
        attempts,
    })
}

/// Unknown since second 15.
pub(crate) fn dead_letter() -> Record {
    row(State::DeadLetter {
        reason: UnknownReason::LeaseExpired,
        since: at(15),
        attempts: 10,
    })
}

/// Forgotten at second 100.
pub(crate) fn released() -> Record {
    row(State::Released {
        expires_at: at(100),
    })
}

/// Answered "first", forgotten at second 100.
pub(crate) fn completed() -> Record {
    completed_with(answer("first"))
}

/// Nothing to replay, forgotten at second 100.
pub(crate) fn tombstone() -> Record {
    completed_with(Response::Tombstone(TombstoneReason::Stream))
}

pub(crate) fn completed_with(response: Response) -> Record {
    row(State::Completed {
        response,
        expires_at: at(100),
    })
}

/// Kept for audit until second 1100.
pub(crate) fn expired() -> Record {
    row(State::Expired { purge_at: at(1100) })
}

/// One row of every kind that the rules tell apart.
pub(crate) fn every_row() -> Vec<Record> {
    vec![
        executing(),
        executing_in_doubt(),
        unknown(),
        doubted(),
        unknown_asked(10),
        dead_letter(),
        released(),
        completed(),
        completed_with(sealed(b"ciphertext")),
        tombstone(),
        expired(),
    ]
}

// Commands.

/// Asks to execute `payload(1)`.
pub(crate) fn claim(fence: Fence) -> Command {
    claim_of(payload(1), fence)
}

pub(crate) fn claim_of(fingerprint: Fingerprint, fence: Fence) -> Command {
    Command::Claim(Claim {
        fingerprint,
        fields: FieldDigests::default(),
        fence,
        route: RouteName::new("charges").unwrap(),
        principal: PrincipalDigest::from_bytes([5; 8]),
        memo: bytes::Bytes::from_static(b"GET /charges/1"),
    })
}

pub(crate) fn renew(fence: Fence) -> Command {
    Command::Renew { fence }
}

pub(crate) fn complete(fence: Fence, response: Response) -> Command {
    Command::Complete { fence, response }
}

pub(crate) fn release(fence: Fence) -> Command {
    Command::Release { fence }
}

pub(crate) fn evict(fence: Fence) -> Command {
    Command::Evict { fence }
}

pub(crate) fn mark_unknown(fence: Fence) -> Command {
    Command::MarkUnknown {
        fence,
        reason: UnknownReason::NoCompleteAnswer,
    }
}

/// A verdict on a question put just after the outcome became unknown.
pub(crate) fn reconcile(fence: Fence, verdict: Verdict) -> Command {
    reconcile_asked(fence, at(16), verdict)
}

pub(crate) fn reconcile_asked(fence: Fence, asked_at: Timestamp, verdict: Verdict) -> Command {
    Command::Reconcile {
        fence,
        asked_at,
        verdict,
    }
}

pub(crate) fn resolve(fence: Fence, resolution: Resolution) -> Command {
    Command::Resolve { fence, resolution }
}

/// What only the holder of `fence` may do.
pub(crate) fn executor_commands(fence: Fence) -> Vec<Command> {
    vec![
        renew(fence),
        complete(fence, answer("second")),
        release(fence),
        evict(fence),
        mark_unknown(fence),
    ]
}

/// What the upstream and a person may say about the execution under `fence`.
pub(crate) fn judgements(fence: Fence) -> Vec<Command> {
    vec![
        reconcile(fence, Verdict::Completed(answer("second"))),
        reconcile(fence, Verdict::NotFound),
        reconcile(fence, Verdict::Pending),
        resolve(fence, Resolution::Completed(answer("second"))),
        resolve(fence, Resolution::Released),
        resolve(fence, Resolution::Forget),
        resolve(fence, Resolution::AskAgain),
    ]
}

/// Every command there is, for one fence and one payload.
pub(crate) fn every_command(fence: Fence, fingerprint: Fingerprint) -> Vec<Command> {
    let mut commands = vec![claim_of(fingerprint, fence), Command::Sweep];
    commands.extend(executor_commands(fence));
    commands.extend(judgements(fence));
    commands
}

// What a step does to a row: nothing, a write, or a removal.

/// The decision of a step that must leave the row alone.
pub(crate) fn kept(policy: &Policy, row: &Record, command: &Command, now: Timestamp) -> Decision {
    let (decision, next) = step(policy, Some(row), command, now);
    assert_eq!(next, Next::Keep, "{decision:?} wrote to {row:?}");
    decision
}

/// The decision of a step that must write, and what it wrote.
pub(crate) fn written(
    policy: &Policy,
    row: &Record,
    command: &Command,
    now: Timestamp,
) -> (Decision, Record) {
    match step(policy, Some(row), command, now) {
        (decision, Next::Put(next)) => (decision, *next),
        (decision, Next::Keep | Next::Remove) => panic!("{decision:?} wrote nothing over {row:?}"),
    }
}

/// The decision of a step that must remove the row.
pub(crate) fn removed(
    policy: &Policy,
    row: &Record,
    command: &Command,
    now: Timestamp,
) -> Decision {
    let (decision, next) = step(policy, Some(row), command, now);
    assert_eq!(next, Next::Remove, "{decision:?} did not remove {row:?}");
    decision
}

/// The step's decision, applied to a store of one row.
pub(crate) fn apply(
    policy: &Policy,
    store: &mut Option<Record>,
    command: &Command,
    now: Timestamp,
) -> Decision {
    let (decision, next) = step(policy, store.as_ref(), command, now);
    match next {
        Next::Keep => {}
        Next::Put(record) => *store = Some(*record),
        Next::Remove => *store = None,
    }
    decision
}
