//! Rows that are no client's keys: notes for operators, such as the audit trail, kept in the same
//! store and forgotten by the same sweep.
//!
//! A note's id is derived under a purpose of its own, so no client's key can ever mean it, and its
//! route's name is a [reserved](RouteName::is_reserved) one. A note never touches any other row.

use bytes::Bytes;
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, Response, RouteName,
    SealError, State, StoredResponse, Timestamp,
};
use onlyonce_store::{Row, Store, StoreError, Swap, Version};

use crate::{Engine, EngineError, Runtime};

/// Something that is kept for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What kind of note it is: a reserved name.
    pub route: RouteName,
    /// What it says.
    pub body: Bytes,
    /// When it was made.
    pub at: Timestamp,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// A note as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNote {
    /// The note.
    pub note: Note,
    /// What the next write must expect.
    pub version: Version,
}

impl<S: Store, R: Runtime> Engine<S, R> {
    /// The id that these parts give a note, and the one that they gave it under the previous
    /// secret, while one is configured.
    #[must_use]
    pub fn note_id(&self, parts: &[&[u8]]) -> (RecordId, Option<RecordId>) {
        let previous = self.inner.previous_secret.as_ref();
        (
            RecordId::note(&self.inner.secret, parts),
            previous.map(|secret| RecordId::note(secret, parts)),
        )
    }

    /// The note under an id.
    ///
    /// # Errors
    /// When the store fails or the row cannot be read.
    pub async fn read_note(&self, id: &RecordId) -> Result<Option<KeptNote>, EngineError> {
        match self.inner.load(id).await? {
            Some(row) => self.note_of(id, row),
            None => Ok(None),
        }
    }

    /// What a row says that was listed. `None` when it is no note, or an expired one.
    ///
    /// # Errors
    /// When it is encrypted and cannot be read.
    pub fn note_of(&self, id: &RecordId, row: Row) -> Result<Option<KeptNote>, EngineError> {
        let Row { record, version } = row;
        let State::Completed { expires_at, .. } = record.state else {
            return Ok(None);
        };
        if !record.route.is_reserved() {
            return Ok(None);
        }
        let said = self.open_response(id, &record)?;
        Ok(said.map(|said| KeptNote {
            note: Note {
                route: record.route,
                body: said.body,
                at: record.created_at,
                expires_at,
            },
            version,
        }))
    }

    /// Writes a note where there is none, or over the one of this version. `None` when something
    /// else is there.
    ///
    /// # Errors
    /// When the note's name is not reserved, or the store fails; after an error that may have
    /// written, it may be there.
    pub async fn write_note(
        &self,
        id: &RecordId,
        over: Option<Version>,
        note: &Note,
    ) -> Result<Option<Version>, EngineError> {
        if !note.route.is_reserved() {
            let reason = format!("\"{}\" is not the name of a note", note.route);
            return Err(StoreError::unavailable(reason).into());
        }
        // Random, so that a write whose acknowledgement was lost knows itself again.
        let fence = Fence::from_bytes(self.entropy());
        let said = StoredResponse::from_bytes(note.body.clone());
        let response = self.inner.seal(id, fence, &said)?;
        let record = note_record(note, fence, response);
        match self.inner.swap(id, over, Some(&record)).await {
            Ok(Swap::Won(version)) => Ok(Some(version)),
            Ok(Swap::Lost(_)) => Ok(None),
            Err(error) if error.may_have_written() => match self.inner.load(id).await {
                Ok(Some(row)) if row.record.fence == fence => Ok(Some(row.version)),
                Ok(_) | Err(_) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The answer of a completed row, decrypted. `None` when it has none.
    ///
    /// # Errors
    /// When it is encrypted under a key that is not there.
    pub fn open_response(
        &self,
        id: &RecordId,
        record: &Record,
    ) -> Result<Option<StoredResponse>, EngineError> {
        let State::Completed { response, .. } = &record.state else {
            return Ok(None);
        };
        match response {
            Response::Plain(response) => Ok(Some(response.clone())),
            Response::Tombstone(_) => Ok(None),
            Response::Sealed(sealed) => {
                let ring = self.inner.keyring.as_ref();
                let ring = ring.ok_or(SealError::UnknownKey(sealed.key_id))?;
                Ok(Some(ring.open(id, record.fence, sealed)?))
            }
        }
    }

    /// Whether the store answers within its time. Gives its clock.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check_store(&self) -> Result<Timestamp, EngineError> {
        let now = self.inner.store_now().await?;
        self.inner.must_know_the_secret()?;
        Ok(now)
    }
}

fn note_record(note: &Note, fence: Fence, response: Response) -> Record {
    Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest: [0; 32],
        },
        fields: FieldDigests::default(),
        fence,
        attempt: 1,
        state: State::Completed {
            response,
            expires_at: note.expires_at,
        },
        created_at: note.at,
        updated_at: note.at,
        route: note.route.clone(),
        principal: PrincipalDigest::default(),
        response_schema: 0,
        memo: Bytes::new(),
    }
}
