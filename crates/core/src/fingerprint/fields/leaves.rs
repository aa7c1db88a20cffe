//! Finding the fields of a document, and hashing their names and values.
//!
//! Every request passes here, so no field costs an allocation: the path is kept as one buffer of
//! bytes that grows and shrinks with the walk.

use alloc::vec;
use alloc::vec::Vec;

use crate::json::{Document, Node, Step, Token, Walk};

use super::super::FingerprintPolicy;
use super::sip::Key;
use super::{FieldDigest, FieldKeys};

/// What ends a name and begins an index in a hashed path.
const NAME_END: u8 = 0xFF;
const INDEX_BEGIN: u8 = 0xFE;
const INDEX_BYTES: usize = size_of::<u32>();
/// The kind of a hashed path.
const POINTER: u8 = b'/';

/// The fields of a document that count, with their digests.
pub(super) struct Leaves<'d, 'a> {
    document: &'d Document<'a>,
    holes: &'d [u32],
    /// Subtrees still to visit, last first.
    roots: Vec<(Vec<Token<'d>>, &'d Node<'a>)>,
    walk: Option<Walk<'d, 'a>>,
    tags: Key,
    values: Key,
    path: Vec<Token<'d>>,
    /// `path` as bytes, in one buffer that is reused for every field.
    name: Vec<u8>,
    /// Drop the last token before the next step.
    is_past: bool,
    /// Nothing was visited yet in the container just entered.
    is_bare: bool,
}

impl<'d, 'a> Leaves<'d, 'a> {
    pub(super) fn new(
        keys: &FieldKeys,
        policy: &'d FingerprintPolicy,
        document: &'d Document<'a>,
        holes: &'d [u32],
    ) -> Self {
        let roots = if policy.includes().is_empty() {
            vec![(Vec::new(), document.root())]
        } else {
            let found = policy
                .includes()
                .iter()
                .rev()
                .filter_map(|pointer| document.find(pointer));
            found.map(|found| (found.path, found.node)).collect()
        };
        Self {
            document,
            holes,
            roots,
            walk: None,
            tags: keys.tags,
            values: keys.values,
            path: Vec::with_capacity(8),
            name: Vec::with_capacity(64),
            is_past: false,
            is_bare: false,
        }
    }

    /// Where the field that came last stands.
    pub(super) fn path(&self) -> &[Token<'d>] {
        &self.path
    }

    pub(super) fn next_field(&mut self) -> Option<FieldDigest> {
        loop {
            if core::mem::take(&mut self.is_past) {
                self.ascend();
            }
            let Some(step) = self.walk.as_mut().and_then(Iterator::next) else {
                self.next_root()?;
                continue;
            };
            let was_bare = core::mem::take(&mut self.is_bare);
            match step {
                Step::Enter { place, .. } => {
                    self.descend(place.token);
                    self.is_bare = true;
                }
                Step::Leave { is_object } => {
                    self.is_past = true;
                    if was_bare {
                        return Some(self.field(if is_object { b'{' } else { b'[' }, b""));
                    }
                }
                Step::Scalar { place, value } => {
                    self.descend(place.token);
                    self.is_past = true;
                    return Some(self.scalar(value));
                }
                Step::Hole { .. } => {}
            }
        }
    }

    fn next_root(&mut self) -> Option<()> {
        let (path, node) = self.roots.pop()?;
        self.path.clear();
        self.name.clear();
        for token in path {
            self.descend(Some(token));
        }
        self.walk = Some(self.document.walk(node, self.holes));
        Some(())
    }

    /// The walk's own root adds no token: its path is there already.
    fn descend(&mut self, token: Option<Token<'d>>) {
        let Some(token) = token else { return };
        match token {
            // UTF-8 has neither 0xFF nor 0xFE, so no name can imitate a border or an index.
            Token::Name(name) => {
                self.name.extend_from_slice(name.as_bytes());
                self.name.push(NAME_END);
            }
            Token::Index(index) => {
                self.name.push(INDEX_BEGIN);
                self.name.extend_from_slice(&index.to_be_bytes());
            }
        }
        self.path.push(token);
    }

    fn ascend(&mut self) {
        let added = match self.path.pop() {
            Some(Token::Name(name)) => name.len() + 1,
            Some(Token::Index(_)) => INDEX_BYTES + 1,
            None => 0,
        };
        self.name.truncate(self.name.len().saturating_sub(added));
    }

    fn scalar(&self, value: &Node<'_>) -> FieldDigest {
        match value {
            Node::Null => self.field(b'0', b""),
            Node::Bool(false) => self.field(b'f', b""),
            Node::Bool(true) => self.field(b't', b""),
            Node::Number(number) => number.with_text(|text| self.field(b'n', text)),
            Node::String(text) => self.field(b's', text.as_bytes()),
            Node::Array(_) => self.field(b'[', b""),
            Node::Object(_) => self.field(b'{', b""),
        }
    }

    fn field(&self, kind: u8, value: &[u8]) -> FieldDigest {
        FieldDigest {
            tag: self.tags.short(POINTER, &self.name),
            value: self.values.short(kind, value),
        }
    }
}
