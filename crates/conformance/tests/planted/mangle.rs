//! What is wrong with a planted store's ids and records.

use bytes::Bytes;
use onlyonce_conformance::suite::samples::{at, lines};
use onlyonce_core::{
    Fence, FieldDigests, HeaderBlock, Record, RecordId, Response, RouteName, State, StoredResponse,
    Timestamp, TombstoneReason, UnknownReason,
};

use super::Bug;

pub(super) fn id(bug: Bug, id: &RecordId) -> RecordId {
    let mut bytes = *id.as_bytes();
    match bug {
        Bug::IdsEndAtAZeroByte => until_zero(&mut bytes),
        Bug::IdsAreCaseless => bytes.make_ascii_lowercase(),
        Bug::IdsLoseABit => bytes[31] &= 0xfe,
        Bug::IdsAreTrimmed if bytes.trim_ascii().is_empty() => bytes = [b' '; 32],
        _ => {}
    }
    RecordId::from_bytes(bytes)
}

fn until_zero(bytes: &mut [u8]) {
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        bytes[zero..].fill(0);
    }
}

pub(super) fn record(bug: Bug, record: &Record) -> Record {
    let mut record = record.clone();
    match bug {
        Bug::BodiesEndAt500Bytes => return cut(&record, 500),
        Bug::BodiesEndAt64Kib => return cut(&record, (1 << 16) - 1),
        Bug::BodiesEndAt1Mb => return cut(&record, 1_000_000),
        Bug::BodiesEndAt2Mib => return cut(&record, 2 << 20),
        Bug::TimesAreSigned => {
            record.updated_at = record.updated_at.min(at(u64::MAX >> 1));
        }
        Bug::CountsAreBytes => record.attempt &= 0xff,
        Bug::RouteNamesAreAscii => {
            let ascii: String = record
                .route
                .as_str()
                .chars()
                .filter(char::is_ascii)
                .collect();
            record.route = RouteName::new(&ascii).unwrap();
        }
        Bug::FieldDigestsAreLost => record.fields = FieldDigests::default(),
        Bug::FencesEndAtAZeroByte => {
            let mut fence = *record.fence.as_bytes();
            if fence[0] != 0 {
                fence[15] = 0;
            }
            record.fence = Fence::from_bytes(fence);
        }
        _ => state(bug, &mut record.state),
    }
    record
}

fn state(bug: Bug, state: &mut State) {
    match state {
        State::Unknown { reason, .. } | State::DeadLetter { reason, .. } => {
            if bug == Bug::ReasonsAreLost {
                *reason = UnknownReason::LeaseExpired;
            }
        }
        State::Expired { purge_at } => {
            if bug == Bug::ExpiredIsReleased {
                let expires_at: Timestamp = *purge_at;
                *state = State::Released { expires_at };
            }
        }
        State::Completed { response, .. } => outcome(bug, response),
        State::Executing { .. } | State::Released { .. } => {}
    }
}

fn outcome(bug: Bug, response: &mut Response) {
    match response {
        Response::Plain(plain) => {
            if bug == Bug::EmptyBodiesAreTombstones && plain.body.is_empty() {
                *response = Response::Tombstone(TombstoneReason::NotStorable);
            } else {
                answer(bug, plain);
            }
        }
        Response::Sealed(sealed) => {
            if bug == Bug::NoncesAreLost {
                sealed.nonce = [0; 12];
            }
        }
        Response::Tombstone(_) => {
            if bug == Bug::TombstonesAreEmptyAnswers {
                *response = Response::Plain(StoredResponse::default());
            }
        }
    }
}

fn answer(bug: Bug, answer: &mut StoredResponse) {
    let headers = answer.headers.clone();
    let kept: Vec<_> = headers.iter().collect();
    match bug {
        Bug::BodiesEndAtAZeroByte => {
            let text = answer.body.split(|byte| *byte == 0).next();
            answer.body = Bytes::copy_from_slice(text.unwrap_or_default());
        }
        Bug::RepeatedHeadersAreJoined => {
            let mut unique = kept;
            unique.dedup_by_key(|(name, _)| *name);
            answer.headers = lines(&unique);
        }
        Bug::EmptyHeadersAreDropped => {
            let filled: Vec<_> = kept.into_iter().filter(|line| !line.1.is_empty()).collect();
            answer.headers = lines(&filled);
        }
        Bug::TrailersAreLost => answer.trailers = HeaderBlock::default(),
        Bug::StatusesAreClamped => answer.status = answer.status.clamp(100, 599),
        _ => {}
    }
}

fn body(record: &Record) -> Option<&Bytes> {
    match &record.state {
        State::Completed {
            response: Response::Plain(plain),
            ..
        } => Some(&plain.body),
        _ => None,
    }
}

fn with_body(record: &Record, body: Bytes) -> Record {
    let mut record = record.clone();
    if let State::Completed {
        response: Response::Plain(plain),
        ..
    } = &mut record.state
    {
        plain.body = body;
    }
    record
}

/// Cuts a long body.
pub(super) fn cut(record: &Record, bytes_max: usize) -> Record {
    let body = body(record).cloned().unwrap_or_default();
    with_body(record, body.slice(..body.len().min(bytes_max)))
}

/// The new head with the old body.
pub(super) fn half(old: &Record, new: &Record) -> Record {
    with_body(new, body(old).cloned().unwrap_or_default())
}

/// The new body, followed by what is left of a longer old one.
pub(super) fn overlay(old: &Record, new: &Record) -> Record {
    match (body(old), body(new)) {
        (Some(old), Some(body)) if old.len() > body.len() => {
            with_body(new, [body, &old[body.len()..]].concat().into())
        }
        _ => new.clone(),
    }
}
