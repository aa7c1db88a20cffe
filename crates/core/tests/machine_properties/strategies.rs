//! Random rows, commands and policies, with times at both ends of the clock.

use std::ops::Range;
use std::time::Duration;

use onlyonce_core::{
    Command, Doubt, Expiry, Fence, Policy, Reconcile, Record, Resolution, Response, Reuse, State,
    Timestamp, TombstoneReason, UnknownReason, Upstream, Verdict,
};
use proptest::prelude::*;

use crate::common::*;

pub(crate) fn any_time() -> impl Strategy<Value = Timestamp> {
    let near_the_end = u64::MAX - 200_000..=u64::MAX;
    prop_oneof![0..200_000_u64, near_the_end, any::<u64>()].prop_map(Timestamp::from_millis)
}

pub(crate) fn any_duration(at_least: Duration) -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..200_000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_millis),
        Just(Duration::MAX)
    ]
    .prop_map(move |duration| duration.max(at_least))
}

pub(crate) fn any_fence() -> impl Strategy<Value = Fence> {
    prop_oneof![
        (1..4_u8).prop_map(fence),
        any::<[u8; 16]>().prop_map(Fence::from_bytes)
    ]
}

pub(crate) fn any_response() -> impl Strategy<Value = Response> {
    prop_oneof![
        ".{0,20}".prop_map(|text| answer(&text)),
        Just(sealed(b"ciphertext")),
        proptest::sample::select(&TombstoneReason::ALL[..]).prop_map(Response::Tombstone)
    ]
}

pub(crate) fn any_reason() -> impl Strategy<Value = UnknownReason> {
    proptest::sample::select(&UnknownReason::ALL[..])
}

/// The kinds are numbered in the order of a key's life, the unsettled ones first.
fn any_state(kinds: Range<u8>) -> impl Strategy<Value = State> {
    let times = (any_time(), any_time());
    (kinds, times, any_reason(), any::<u16>(), any_response()).prop_map(
        |(kind, (since, deadline), reason, attempts, response)| match kind {
            0 => State::Executing {
                lease_until: deadline,
                doubt: (attempts % 2 == 1).then_some(Doubt { reason, since }),
            },
            1 => State::Unknown {
                reason,
                since,
                reconcile_at: deadline,
                attempts,
            },
            2 => State::DeadLetter {
                reason,
                since,
                attempts,
            },
            3 => State::Released {
                expires_at: deadline,
            },
            4 => State::Completed {
                response,
                expires_at: deadline,
            },
            _ => State::Expired { purge_at: deadline },
        },
    )
}

pub(crate) fn any_row() -> impl Strategy<Value = Record> {
    any_row_of(0..6)
}

pub(crate) fn any_unsettled_row() -> impl Strategy<Value = Record> {
    any_row_of(0..3)
}

fn any_row_of(kinds: Range<u8>) -> impl Strategy<Value = Record> {
    (any_state(kinds), any_fence(), any::<u16>(), any_time()).prop_map(
        |(state, fence, attempt, created_at)| Record {
            fence,
            attempt,
            created_at,
            ..row(state)
        },
    )
}

pub(crate) fn any_upstream() -> impl Strategy<Value = Upstream> {
    let opt_in = any_duration(seconds(200));
    prop_oneof![
        proptest::sample::select(&EVERY_UPSTREAM[..]),
        opt_in.prop_map(|delay| Upstream::Opaque {
            release_after: Some(delay)
        })
    ]
}

pub(crate) fn any_policy(
    upstream: impl Strategy<Value = Upstream>,
) -> impl Strategy<Value = Policy> {
    let pause = || any_duration(Duration::from_millis(10));
    let pauses = (pause(), pause(), 1..=u16::MAX);
    let (retention, keep) = (any_duration(seconds(1)), any_duration(seconds(1)));
    let reuse = prop_oneof![Just(Reuse::Replay), Just(Reuse::SingleUse)];
    (
        upstream,
        retention,
        proptest::option::of(keep),
        reuse,
        pauses,
    )
        .prop_map(
            |(upstream, retention, keep, reuse, (one, other, attempts_max))| {
                Policy::builder()
                    .upstream(upstream)
                    .retention(retention)
                    .expiry(keep.map_or(Expiry::Delete, Expiry::Keep))
                    .reuse(reuse)
                    .reconcile(Reconcile {
                        delay: one.min(other),
                        delay_max: one.max(other),
                        attempts_max,
                    })
                    .build()
                    .unwrap()
            },
        )
}

pub(crate) fn any_command() -> impl Strategy<Value = Command> {
    (any_fence(), 1..3_u8, any_response(), any_reason(), 0..14).prop_map(
        |(fence, of, response, reason, kind)| match kind {
            0 => claim_of(payload(of), fence),
            1 => renew(fence),
            2 => complete(fence, response),
            3 => release(fence),
            4 => evict(fence),
            5 => Command::MarkUnknown { fence, reason },
            6 => reconcile(fence, Verdict::Completed(response)),
            7 => reconcile(fence, Verdict::NotFound),
            8 => reconcile(fence, Verdict::Pending),
            9 => resolve(fence, Resolution::Completed(response)),
            10 => resolve(fence, Resolution::Released),
            11 => resolve(fence, Resolution::Forget),
            12 => resolve(fence, Resolution::AskAgain),
            _ => Command::Sweep,
        },
    )
}
