//! A record as columns.
//!
//! Times are `bigint` milliseconds; the upper half of what a [`Timestamp`] can be wraps around to
//! negative numbers, so the end of time is -1. Whatever cannot be read is `Corrupt`, never "no row".

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Doubt, Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, Response,
    RouteName, SealedResponse, State, StoredResponse, Timestamp, TombstoneReason, UnknownReason,
};
use onlyonce_store::{Row, StoreError, Version};
use tokio_postgres::types::FromSql;

use crate::lines;

/// What the columns mean. Every released version stays readable.
pub(crate) const RECORD_VERSION: i32 = 1;

/// The columns of a row, in the order in which [`row`] reads them.
pub(crate) const NAMES: &str = "id, version, record_version, state, deadline, fence, attempt, \
     fingerprint_algorithm, fingerprint, fields, fields_truncated, route, principal, created_at, \
     updated_at, reason, unknown_since, probes, response_kind, response_status, response_headers, \
     response_trailers, response_body, seal_key_id, seal_nonce, response_schema, memo";

/// A record as it is written.
#[derive(Debug, Default)]
pub(crate) struct NewRow {
    pub(crate) state: &'static str,
    pub(crate) deadline: Option<i64>,
    pub(crate) fence: [u8; 16],
    pub(crate) attempt: i32,
    pub(crate) algorithm: &'static str,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) fields: Bytes,
    pub(crate) fields_truncated: bool,
    pub(crate) route: RouteName,
    pub(crate) principal: [u8; 8],
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) reason: Option<&'static str>,
    pub(crate) unknown_since: Option<i64>,
    pub(crate) probes: Option<i32>,
    pub(crate) response: NewResponse,
    pub(crate) response_schema: i64,
    pub(crate) memo: Bytes,
}

/// The columns of a response; empty in every state but `completed`.
#[derive(Debug, Default)]
pub(crate) struct NewResponse {
    pub(crate) kind: Option<&'static str>,
    pub(crate) status: Option<i32>,
    pub(crate) headers: Option<String>,
    pub(crate) trailers: Option<String>,
    pub(crate) body: Option<Bytes>,
    pub(crate) seal_key_id: Option<i64>,
    pub(crate) seal_nonce: Option<[u8; 12]>,
}

impl NewRow {
    /// The columns of a record.
    ///
    /// # Errors
    /// When the database could not hold it.
    pub(crate) fn new(record: &Record, bytes_max: u64) -> Result<Self, StoreError> {
        if record.route.as_str().contains('\0') {
            let reason =
                "the route's name has a NUL in it, which PostgreSQL cannot store: rename the route";
            return Err(StoreError::unavailable(reason));
        }
        let mut row = Self {
            state: record.state.kind().as_str(),
            deadline: record.state.deadline().map(millis),
            fence: *record.fence.as_bytes(),
            attempt: record.attempt.into(),
            algorithm: algorithm_name(record.fingerprint.algorithm),
            fingerprint: record.fingerprint.digest,
            fields: record.fields.encoded().clone(),
            fields_truncated: record.fields.is_truncated(),
            route: record.route.clone(),
            principal: *record.principal.as_bytes(),
            created_at: millis(record.created_at),
            updated_at: millis(record.updated_at),
            response_schema: record.response_schema.into(),
            memo: record.memo.clone(),
            ..Self::default()
        };
        row.put_state(&record.state);
        let bytes = row.bytes();
        if bytes > bytes_max {
            return Err(StoreError::TooLarge { bytes, bytes_max });
        }
        Ok(row)
    }

    fn put_state(&mut self, state: &State) {
        match state {
            State::Unknown {
                reason,
                since,
                attempts,
                ..
            }
            | State::DeadLetter {
                reason,
                since,
                attempts,
            } => {
                self.reason = Some(reason.as_str());
                self.unknown_since = Some(millis(*since));
                self.probes = Some((*attempts).into());
            }
            State::Completed { response, .. } => self.put_response(response),
            State::Executing { doubt, .. } => {
                self.reason = doubt.map(|doubt| doubt.reason.as_str());
                self.unknown_since = doubt.map(|doubt| millis(doubt.since));
            }
            State::Released { .. } | State::Expired { .. } => {}
        }
    }

    fn put_response(&mut self, response: &Response) {
        let kind = Some(kind_name(response));
        self.response = match response {
            Response::Plain(plain) => NewResponse {
                kind,
                status: Some(plain.status.into()),
                headers: Some(lines::to_text(&plain.headers)),
                trailers: Some(lines::to_text(&plain.trailers)),
                body: Some(plain.body.clone()),
                ..NewResponse::default()
            },
            Response::Sealed(sealed) => NewResponse {
                kind,
                body: Some(sealed.ciphertext.clone()),
                seal_key_id: Some(sealed.key_id.into()),
                seal_nonce: Some(sealed.nonce),
                ..NewResponse::default()
            },
            Response::Tombstone(reason) => {
                self.reason = Some(reason.as_str());
                NewResponse {
                    kind,
                    ..NewResponse::default()
                }
            }
        };
    }

    /// About how large the row is.
    pub(crate) fn bytes(&self) -> u64 {
        /// The columns of fixed size.
        const FIXED_BYTES: usize = 200;
        let response = &self.response;
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let body = response.body.as_ref().map_or(0, Bytes::len);
        let bytes = FIXED_BYTES
            + self.fields.len()
            + self.route.as_str().len()
            + self.memo.len()
            + text(&response.headers)
            + text(&response.trailers)
            + body;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

const fn kind_name(response: &Response) -> &'static str {
    match response {
        Response::Plain(_) => "plain",
        Response::Sealed(_) => "sealed",
        Response::Tombstone(_) => "tombstone",
    }
}

const fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::JsonCanonical => "json",
        Algorithm::Raw => "raw",
        Algorithm::Multipart => "multipart",
    }
}

/// A time as it is stored.
pub(crate) const fn millis(time: Timestamp) -> i64 {
    time.as_millis().cast_signed()
}

/// A time from how it is stored.
pub(crate) const fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.cast_unsigned())
}

/// Reads the row whose columns ([`NAMES`]) begin at `first`: its id, and its record if that can be
/// read. `None` when there is no id.
pub(crate) fn row(
    row: &tokio_postgres::Row,
    first: usize,
) -> Option<(RecordId, Result<Row, StoreError>)> {
    let mut reader = Reader { row, at: first };
    let id: Option<&[u8]> = reader.get("id").ok()?;
    let id = <[u8; 32]>::try_from(id?).ok().map(RecordId::from_bytes)?;
    let version: i64 = reader.get("version").unwrap_or_default();
    let version = Version(version.cast_unsigned());
    let record = reader.record().map_err(|what| StoreError::Corrupt {
        version,
        reason: what.into(),
    });
    let row = |record| Row {
        record: Box::new(record),
        version,
    };
    Some((id, record.map(row)))
}

struct Reader<'a> {
    row: &'a tokio_postgres::Row,
    at: usize,
}

impl<'a> Reader<'a> {
    fn get<T: FromSql<'a>>(&mut self, column: &str) -> Result<T, String> {
        let value = self.row.try_get(self.at);
        self.at += 1;
        value.map_err(|error| format!("column {column}: {error}"))
    }

    fn array<const N: usize>(&mut self, column: &str) -> Result<[u8; N], String> {
        let bytes: &[u8] = self.get(column)?;
        let found = bytes.len();
        <[u8; N]>::try_from(bytes)
            .map_err(|_| format!("column {column} has {found} bytes instead of {N}"))
    }

    fn number<T: TryFrom<i64>>(&mut self, column: &str) -> Result<T, String> {
        let number: i64 = self.get(column)?;
        T::try_from(number).map_err(|_| format!("column {column} is {number}"))
    }

    fn count(&mut self, column: &str) -> Result<u16, String> {
        let number: i32 = self.get(column)?;
        u16::try_from(number).map_err(|_| format!("column {column} is {number}"))
    }

    fn time(&mut self, column: &str) -> Result<Timestamp, String> {
        self.get(column).map(time)
    }

    fn record(&mut self) -> Result<Record, String> {
        let version: i32 = self.get("record_version")?;
        if version != RECORD_VERSION {
            return Err(format!(
                "it has record version {version}, this build reads {RECORD_VERSION}: upgrade onlyonce"
            ));
        }
        let state_name: &str = self.get("state")?;
        let deadline: Option<i64> = self.get("deadline")?;
        let fence = Fence::from_bytes(self.array("fence")?);
        let attempt = self.count("attempt")?;
        let algorithm = algorithm(self.get("fingerprint_algorithm")?)?;
        let digest = self.array("fingerprint")?;
        let fields = Bytes::copy_from_slice(self.get("fields")?);
        let is_truncated = self.get("fields_truncated")?;
        let fields = FieldDigests::from_encoded(fields, is_truncated)
            .ok_or("column fields has half a digest")?;
        let route: &str = self.get("route")?;
        let route = RouteName::new(route).ok_or("column route is too long")?;
        let principal = PrincipalDigest::from_bytes(self.array("principal")?);
        let created_at = self.time("created_at")?;
        let updated_at = self.time("updated_at")?;
        let state = self.state(state_name, deadline.map(time))?;
        Ok(Record {
            fingerprint: Fingerprint { algorithm, digest },
            fields,
            fence,
            attempt,
            state,
            created_at,
            updated_at,
            route,
            principal,
            response_schema: self.number("response_schema")?,
            memo: Bytes::copy_from_slice(self.get("memo")?),
        })
    }

    /// Reads the columns from `reason` up to and without `response_schema`.
    fn state(&mut self, name: &str, deadline: Option<Timestamp>) -> Result<State, String> {
        let reason: Option<&str> = self.get("reason")?;
        let after = self.at + 9;
        let state = match (name, deadline) {
            ("executing", Some(lease_until)) => State::Executing {
                lease_until,
                doubt: match reason {
                    None => None,
                    Some(_) => Some(Doubt {
                        reason: unknown_reason(reason)?,
                        since: self.time("unknown_since")?,
                    }),
                },
            },
            ("released", Some(expires_at)) => State::Released { expires_at },
            ("expired", Some(purge_at)) => State::Expired { purge_at },
            ("completed", Some(expires_at)) => {
                self.at += 2;
                State::Completed {
                    response: self.response(reason)?,
                    expires_at,
                }
            }
            ("unknown", Some(reconcile_at)) => State::Unknown {
                reason: unknown_reason(reason)?,
                since: self.time("unknown_since")?,
                reconcile_at,
                attempts: self.count("probes")?,
            },
            ("dead_letter", None) => State::DeadLetter {
                reason: unknown_reason(reason)?,
                since: self.time("unknown_since")?,
                attempts: self.count("probes")?,
            },
            (name, deadline) => {
                let has = if deadline.is_some() { "a" } else { "no" };
                return Err(format!("column state is {name:?}, with {has} deadline"));
            }
        };
        self.at = after;
        Ok(state)
    }

    fn response(&mut self, reason: Option<&str>) -> Result<Response, String> {
        let kind: &str = self.get("response_kind")?;
        match kind {
            "plain" => {
                let status = self.count("response_status")?;
                let headers = lines::from_text(self.get("response_headers")?)
                    .ok_or("column response_headers is not header lines")?;
                let trailers = lines::from_text(self.get("response_trailers")?)
                    .ok_or("column response_trailers is not header lines")?;
                Ok(Response::Plain(StoredResponse {
                    status,
                    headers,
                    body: Bytes::copy_from_slice(self.get("response_body")?),
                    trailers,
                }))
            }
            "sealed" => {
                self.at += 3;
                let ciphertext = Bytes::copy_from_slice(self.get("response_body")?);
                Ok(Response::Sealed(SealedResponse {
                    key_id: self.number("seal_key_id")?,
                    nonce: self.array("seal_nonce")?,
                    ciphertext,
                }))
            }
            "tombstone" => TombstoneReason::ALL
                .into_iter()
                .find(|known| Some(known.as_str()) == reason)
                .map(Response::Tombstone)
                .ok_or_else(|| format!("column reason is {reason:?}")),
            other => Err(format!("column response_kind is {other:?}")),
        }
    }
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    [
        Algorithm::JsonCanonical,
        Algorithm::Raw,
        Algorithm::Multipart,
    ]
    .into_iter()
    .find(|algorithm| algorithm_name(*algorithm) == name)
    .ok_or_else(|| format!("column fingerprint_algorithm is {name:?}"))
}

fn unknown_reason(name: Option<&str>) -> Result<UnknownReason, String> {
    UnknownReason::ALL
        .into_iter()
        .find(|reason| Some(reason.as_str()) == name)
        .ok_or_else(|| format!("column reason is {name:?}"))
}
