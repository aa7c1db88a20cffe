//! The writer of RFC 8785: the steps of a walk as bytes, gathered into pieces worth hashing.

use alloc::borrow::Cow;

use super::walk::Place;
use super::{Node, Step, Token, Walk, text};

/// Stands for an element that does not count. Canonical JSON never contains this byte.
const HOLE: &[u8] = &[0];

/// Large enough that a hash is not called for every comma, small enough for any stack.
const PIECE_BYTES: usize = 512;

pub(super) fn write(walk: Walk<'_, '_>, sink: &mut impl FnMut(&[u8])) {
    let mut out = Out {
        sink,
        buffer: [0; PIECE_BYTES],
        filled: 0,
    };
    for step in walk {
        match step {
            Step::Enter { place, is_object } => {
                out.place(place);
                out.push(if is_object { b"{" } else { b"[" });
            }
            Step::Leave { is_object } => out.push(if is_object { b"}" } else { b"]" }),
            Step::Scalar { place, value } => {
                out.place(place);
                out.scalar(value);
            }
            Step::Hole { place } => {
                out.place(place);
                out.push(HOLE);
            }
        }
    }
    out.flush();
}

struct Out<'s, S: FnMut(&[u8])> {
    sink: &'s mut S,
    buffer: [u8; PIECE_BYTES],
    filled: usize,
}

impl<S: FnMut(&[u8])> Out<'_, S> {
    fn place(&mut self, place: Place<'_>) {
        if !place.is_first {
            self.push(b",");
        }
        if let Some(Token::Name(name)) = place.token {
            self.string(name, place.is_plain);
            self.push(b":");
        }
    }

    fn scalar(&mut self, value: &Node<'_>) {
        match value {
            Node::Null => self.push(b"null"),
            Node::Bool(true) => self.push(b"true"),
            Node::Bool(false) => self.push(b"false"),
            Node::Number(number) => number.with_text(|text| self.push(text)),
            Node::String(text) => self.string(text, matches!(text, Cow::Borrowed(_))),
            // A walk enters containers; it never hands them over as scalars.
            Node::Array(_) | Node::Object(_) => {}
        }
    }

    /// Text without escapes in strict JSON needs none in canonical JSON.
    fn string(&mut self, text: &str, is_plain: bool) {
        self.push(b"\"");
        if is_plain {
            self.push(text.as_bytes());
        } else {
            text::escape(text, |piece| self.push(piece));
        }
        self.push(b"\"");
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.fits(bytes) {
            return;
        }
        self.flush();
        if !self.fits(bytes) {
            (self.sink)(bytes);
        }
    }

    fn fits(&mut self, bytes: &[u8]) -> bool {
        let end = self.filled.saturating_add(bytes.len());
        match self.buffer.get_mut(self.filled..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.filled = end;
                true
            }
            None => false,
        }
    }

    fn flush(&mut self) {
        if let Some(piece) = self.buffer.get(..self.filled)
            && !piece.is_empty()
        {
            (self.sink)(piece);
        }
        self.filled = 0;
    }
}
