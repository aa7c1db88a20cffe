//! Between the model's rows and real records, so that `step` is called with what it gets in
//! production.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Claim, Doubt, Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, Response, RouteName,
    StoredResponse, Timestamp, UnknownReason,
};

use crate::state::{Id, Row, RowState};

/// One tick. Any length will do that every limit of a policy is a whole number of.
const TICK_MS: u64 = 1000;

/// The present. Far enough from the epoch for every "since" to lie between.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn ticks(count: u8) -> Duration {
    Duration::from_millis(u64::from(count) * TICK_MS)
}

fn within(count: u8) -> Timestamp {
    NOW.after(ticks(count))
}

fn left(deadline: Timestamp) -> u8 {
    count(deadline.since(NOW))
}

fn count(duration: Duration) -> u8 {
    let ticks = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) / TICK_MS;
    u8::try_from(ticks).unwrap_or(u8::MAX)
}

/// Fence number `n`. The first byte spreads the probes' pauses; zero keeps them whole ticks.
pub(crate) fn fence(n: u8) -> Fence {
    let mut bytes = [0; 16];
    if let Some(last) = bytes.last_mut() {
        *last = n;
    }
    Fence::from_bytes(bytes)
}

/// Which number a fence has.
pub(crate) fn number(fence: Fence) -> u8 {
    fence.as_bytes().last().copied().unwrap_or_default()
}

const FINGERPRINT: Fingerprint = Fingerprint {
    algorithm: Algorithm::Raw,
    digest: [7; 32],
};

pub(crate) fn claim(fence: Fence) -> Claim {
    Claim {
        fingerprint: FINGERPRINT,
        fields: FieldDigests::default(),
        fence,
        route: RouteName::default(),
        principal: PrincipalDigest::from_bytes([0; 8]),
        memo: Bytes::new(),
    }
}

pub(crate) fn answer() -> Response {
    Response::Plain(StoredResponse::from_bytes(Bytes::from_static(b"done")))
}

/// The record of a row whose fence is number `n`.
pub(crate) fn record(row: Row, n: u8) -> Record {
    Record {
        fingerprint: FINGERPRINT,
        fields: FieldDigests::default(),
        fence: fence(n),
        attempt: 1,
        state: record_state(row.state),
        created_at: NOW,
        updated_at: NOW,
        route: RouteName::default(),
        principal: PrincipalDigest::from_bytes([0; 8]),
        response_schema: 0,
        memo: bytes::Bytes::new(),
    }
}

fn record_state(state: RowState) -> onlyonce_core::State {
    use onlyonce_core::State;
    let reason = UnknownReason::LeaseExpired;
    match state {
        RowState::Executing { lease, doubt } => State::Executing {
            lease_until: within(lease),
            doubt: doubt.then_some(Doubt { reason, since: NOW }),
        },
        RowState::Unknown {
            age,
            probe_in,
            probes,
        } => State::Unknown {
            reason,
            since: Timestamp::from_millis(NOW.as_millis() - u64::from(age) * TICK_MS),
            reconcile_at: within(probe_in),
            attempts: u16::from(probes),
        },
        RowState::DeadLetter => State::DeadLetter {
            reason,
            since: NOW,
            attempts: 0,
        },
        RowState::Released { left } => State::Released {
            expires_at: within(left),
        },
        RowState::Completed { left } => State::Completed {
            response: answer(),
            expires_at: within(left),
        },
        RowState::Expired { left } => State::Expired {
            purge_at: within(left),
        },
    }
}

/// The row of a record. Reasons and counts that no rule looks at are left behind, and an age
/// beyond `age_max`, from which on it makes no difference.
pub(crate) fn row(record: &Record, holder: Id, serial: u8, age_max: u8) -> Row {
    use onlyonce_core::State;
    let state = match record.state {
        State::Executing { lease_until, doubt } => RowState::Executing {
            lease: left(lease_until),
            doubt: doubt.is_some(),
        },
        State::Unknown {
            since,
            reconcile_at,
            attempts,
            ..
        } => RowState::Unknown {
            age: count(NOW.since(since)).min(age_max),
            probe_in: left(reconcile_at),
            probes: u8::try_from(attempts).unwrap_or(u8::MAX),
        },
        State::DeadLetter { .. } => RowState::DeadLetter,
        State::Released { expires_at } => RowState::Released {
            left: left(expires_at),
        },
        State::Completed { expires_at, .. } => RowState::Completed {
            left: left(expires_at),
        },
        State::Expired { purge_at } => RowState::Expired {
            left: left(purge_at),
        },
    };
    Row {
        holder,
        serial,
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the model checks is only what ships if no row changes on its way to `step` and back.
    #[test]
    fn a_row_survives_the_way_to_a_record_and_back() {
        let states = [
            RowState::Executing {
                lease: 2,
                doubt: false,
            },
            RowState::Executing {
                lease: 1,
                doubt: true,
            },
            RowState::Unknown {
                age: 2,
                probe_in: 1,
                probes: 1,
            },
            RowState::DeadLetter,
            RowState::Released { left: 0 },
            RowState::Completed { left: 3 },
            RowState::Expired { left: 1 },
        ];
        let holder = Id(3);
        for state in states {
            let there = Row {
                holder,
                serial: 0,
                state,
            };
            let record = record(there, 9);
            assert_eq!(number(record.fence), 9);
            assert_eq!(row(&record, holder, 0, u8::MAX), there);
        }
    }
}
