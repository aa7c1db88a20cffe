//! A multipart body as the list of its parts (RFC 2046, RFC 7578).
//!
//! Clients draw a new boundary for every attempt, so the parts count and the boundary does not.
//! The reader is strict on purpose: no preamble or epilogue, no padding, no folded headers, and
//! the boundary nowhere but between parts. A body that any reader might split in another way has
//! no part list here, and counts byte by byte.

use alloc::vec::Vec;

use crate::KeyedHash;

use super::content::is_token;

/// The longest boundary of RFC 2046.
const BOUNDARY_BYTES_MAX: usize = 70;
/// More parts than any form has; past it the bytes count.
const PARTS_MAX: usize = 4_096;

/// One part: its header lines and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part<'a> {
    headers: Vec<(&'a [u8], &'a [u8])>,
    body: &'a [u8],
}

/// The parts, if the body has exactly one reading.
pub(super) fn parse<'a>(content_type: &[u8], body: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let mut delimiter = b"--".to_vec();
    delimiter.extend_from_slice(&boundary(content_type)?);
    let mut rest = body.strip_prefix(delimiter.as_slice())?;
    let search = Search::new(&delimiter);
    let mut parts = Vec::new();
    loop {
        // Right behind a delimiter.
        if let Some(end) = rest.strip_prefix(b"--") {
            return matches!(end, b"" | b"\r\n").then_some(parts);
        }
        let part = rest.strip_prefix(b"\r\n")?;
        let at = search.find(part)?;
        parts.push(read_part(part.get(..at)?.strip_suffix(b"\r\n")?)?);
        if parts.len() > PARTS_MAX {
            return None;
        }
        rest = part.get(at + delimiter.len()..)?;
    }
}

/// Hashes the parts in order. Every border is a length or a count.
pub(super) fn hash(hash: &mut KeyedHash, parts: &[Part<'_>]) {
    hash.stream(&(parts.len() as u64).to_be_bytes());
    for part in parts {
        hash.stream(&(part.headers.len() as u64).to_be_bytes());
        for (name, value) in &part.headers {
            hash.part(&name.to_ascii_lowercase()).part(value);
        }
        hash.part(part.body);
    }
}

/// Header lines, an empty line, and bytes.
fn read_part(part: &[u8]) -> Option<Part<'_>> {
    let mut headers = Vec::new();
    let mut rest = part;
    loop {
        if let Some(body) = rest.strip_prefix(b"\r\n") {
            return Some(Part { headers, body });
        }
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        let (line, tail) = rest.split_at_checked(end)?;
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        if !is_token(name) || value.iter().any(|byte| matches!(byte, b'\n' | 0)) {
            return None;
        }
        headers.push((name, value));
        rest = tail.strip_prefix(b"\r\n")?;
    }
}

/// The one boundary parameter, unquoted.
fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let start = content_type.iter().position(|byte| *byte == b';')?;
    let mut rest = content_type.get(start..)?;
    let mut found = None;
    while let Some(parameter) = rest.strip_prefix(b";") {
        let parameter = parameter.trim_ascii_start();
        let equals = parameter.iter().position(|byte| *byte == b'=')?;
        let name = parameter.get(..equals)?;
        let (value, tail) = parameter_value(parameter.get(equals + 1..)?)?;
        if !is_token(name) {
            return None;
        }
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
        rest = tail.trim_ascii_start();
    }
    found.filter(|value| rest.is_empty() && is_boundary(value))
}

/// A token or a quoted string, and what follows it.
fn parameter_value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let is_end = |byte: &u8| matches!(byte, b';' | b' ' | b'\t');
        let end = text.iter().position(is_end).unwrap_or(text.len());
        let (value, tail) = text.split_at_checked(end)?;
        // Some clients leave `:`, `/`, `=` or `?` unquoted: `is_boundary` decides.
        return Some((value.to_vec(), tail));
    };
    // A backslash could be read in two ways, and no boundary needs one.
    let end = quoted
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\'))?;
    let (value, tail) = quoted.split_at_checked(end)?;
    Some((value.to_vec(), tail.strip_prefix(b"\"")?))
}

fn is_boundary(value: &[u8]) -> bool {
    (1..=BOUNDARY_BYTES_MAX).contains(&value.len())
        && value.last() != Some(&b' ')
        && value.iter().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(
                    byte,
                    b'\''
                        | b'('
                        | b')'
                        | b'+'
                        | b'_'
                        | b','
                        | b'-'
                        | b'.'
                        | b'/'
                        | b':'
                        | b'='
                        | b'?'
                        | b' '
                )
        })
}

/// Knuth, Morris and Pratt: a body of dashes must not cost a boundary's length per byte.
struct Search<'n> {
    needle: &'n [u8],
    /// For each prefix of the needle, the length of the longest proper prefix it ends with.
    borders: Vec<usize>,
}

impl<'n> Search<'n> {
    fn new(needle: &'n [u8]) -> Self {
        let mut search = Self {
            needle,
            borders: Vec::with_capacity(needle.len()),
        };
        let mut matched = 0;
        for (at, byte) in needle.iter().enumerate() {
            matched = if at == 0 {
                0
            } else {
                search.step(matched, *byte)
            };
            search.borders.push(matched);
        }
        search
    }

    fn find(&self, haystack: &[u8]) -> Option<usize> {
        let mut matched = 0;
        for (at, byte) in haystack.iter().enumerate() {
            matched = self.step(matched, *byte);
            if matched == self.needle.len() {
                return (at + 1).checked_sub(matched);
            }
        }
        None
    }

    fn step(&self, mut matched: usize, byte: u8) -> usize {
        loop {
            if self.needle.get(matched) == Some(&byte) {
                return matched + 1;
            }
            match matched
                .checked_sub(1)
                .and_then(|last| self.borders.get(last))
            {
                Some(shorter) => matched = *shorter,
                None => return 0,
            }
        }
    }
}
