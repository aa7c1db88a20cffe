//! Deciding how a body is read: by value, by parts, or byte by byte.

use alloc::vec::Vec;

use crate::json::Document;

use super::multipart::{self, Part};
use super::{Algorithm, FingerprintPolicy, Payload};

/// A body, read as far as it is safe to read it.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Json(Document<'a>),
    Multipart(Vec<Part<'a>>),
    Raw,
}

impl<'a> Content<'a> {
    pub(super) fn read(policy: &FingerprintPolicy, payload: &Payload<'a>) -> Self {
        let Some(content_type) = payload.content_type else {
            return Self::Raw;
        };
        if is_encoded(payload) {
            return Self::Raw;
        }
        if is_json(content_type) {
            Document::parse(payload.body, policy.json()).map_or(Self::Raw, Self::Json)
        } else if is_multipart(content_type) {
            multipart::parse(content_type, payload.body).map_or(Self::Raw, Self::Multipart)
        } else {
            Self::Raw
        }
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Json(_) => Algorithm::JsonCanonical,
            Self::Multipart(_) => Algorithm::Multipart,
            Self::Raw => Algorithm::Raw,
        }
    }
}

/// Is there a `Content-Encoding` other than `identity`?
fn is_encoded(payload: &Payload<'_>) -> bool {
    payload
        .header_lines("content-encoding")
        .any(|line| !line.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

/// `type/subtype` without parameters, in the case it was sent in.
pub(super) fn essence(content_type: &[u8]) -> &[u8] {
    let end = content_type
        .iter()
        .position(|byte| *byte == b';')
        .unwrap_or(content_type.len());
    content_type.get(..end).unwrap_or_default().trim_ascii()
}

/// A media type as it counts: what only differs in spelling is the same, what may change the
/// meaning of the body is not.
///
/// Parameters count, but for a multipart boundary, which is new on every retry and does not
/// change the parts, and for `charset=utf-8` on JSON, which says what is so anyway. Parameters
/// that cannot be read count as they are.
pub(super) fn media_type(content_type: &[u8]) -> Vec<u8> {
    let mut counted = essence(content_type).to_ascii_lowercase();
    for parameter in parameters(content_type) {
        let (name, value) = match parameter {
            Some(pair) => pair,
            None => (Vec::new(), content_type.to_vec()),
        };
        let is_utf8 = name == b"charset" && value.eq_ignore_ascii_case(b"utf-8");
        let is_boundary = name == b"boundary" && is_multipart(content_type);
        if is_boundary || (is_utf8 && is_json(content_type)) {
            continue;
        }
        for part in [&name, &value] {
            counted.push(0);
            counted.extend_from_slice(&(part.len() as u64).to_be_bytes());
            counted.extend_from_slice(part);
        }
    }
    counted
}

/// The parameters, names in lower case, values without quotes; `None` for one that is not
/// `name=token` or `name="text"`.
fn parameters(content_type: &[u8]) -> impl Iterator<Item = Option<(Vec<u8>, Vec<u8>)>> {
    // A quoted `;` would be cut in two; neither half is a parameter, so the whole field counts.
    let pieces = content_type.split(|byte| *byte == b';').skip(1);
    pieces
        .map(<[u8]>::trim_ascii)
        .filter(|piece| !piece.is_empty())
        .map(|piece| {
            let at = piece.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (
                piece.get(..at)?.trim_ascii(),
                piece.get(at + 1..)?.trim_ascii(),
            );
            let quoted = value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_suffix(b"\""));
            let plain = |text: &&[u8]| !text.iter().any(|byte| matches!(byte, b'"' | b'\\'));
            let value = quoted
                .filter(plain)
                .or_else(|| Some(value).filter(|value| is_token(value)))?;
            is_token(name).then(|| (name.to_ascii_lowercase(), value.to_vec()))
        })
}

fn is_json(content_type: &[u8]) -> bool {
    let essence = essence(content_type);
    if essence.eq_ignore_ascii_case(b"application/json") {
        return true;
    }
    let suffix = essence
        .len()
        .checked_sub(b"+json".len())
        .and_then(|at| essence.get(at..));
    suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json")) && is_media_type(essence)
}

pub(super) fn is_multipart(content_type: &[u8]) -> bool {
    let essence = essence(content_type);
    let prefix = essence.get(..b"multipart/".len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"multipart/"))
        && is_media_type(essence)
}

/// Exactly two tokens: two joined header lines are no media type.
fn is_media_type(essence: &[u8]) -> bool {
    let mut tokens = essence.split(|byte| *byte == b'/');
    let is_pair = tokens
        .by_ref()
        .take(2)
        .filter(|token| is_token(token))
        .count()
        == 2;
    is_pair && tokens.next().is_none()
}

/// A token of RFC 9110: the alphabet of header names and media types.
pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text.iter().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'!' | b'#'
                        | b'$'
                        | b'%'
                        | b'&'
                        | b'\''
                        | b'*'
                        | b'+'
                        | b'-'
                        | b'.'
                        | b'^'
                        | b'_'
                        | b'`'
                        | b'|'
                        | b'~'
                )
        })
}
