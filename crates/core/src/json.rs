//! One JSON document, read strictly and written in the canonical form of RFC 8785.
//!
//! Canonical text forgets how a value was spelled, and two of the things it forgets are meaning:
//! a repeated member name and the digits that a double cannot hold. [`Document::parse`] therefore
//! refuses, with a [`NotCanonical`] reason, every document whose canonical form could equal that
//! of a different one. What it accepts, [`Document::canonical`] maps to equal bytes exactly when
//! the values are equal.
//!
//! Nothing here recurses: depth costs heap, within [`JsonLimits`], and never stack.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

mod number;
mod parse;
mod pointer;
mod text;
mod walk;
mod write;

pub(crate) use number::Number;
#[doc(hidden)]
pub use number::format_number;
pub(crate) use pointer::render;
pub use pointer::{Pointer, PointerError};
pub(crate) use walk::{Found, Step, Token, Walk};

/// How large a document may be before its canonical form is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Containers inside each other. Default: 128, more than any API nests by hand.
    pub depth_max: usize,
    /// Values of any kind. Default: 65,536. One costs about 60 bytes while a request is hashed,
    /// and `[0,0,0…` spells one in two bytes.
    pub values_max: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            depth_max: 128,
            values_max: 65_536,
        }
    }
}

/// Why the canonical form of a document must not stand for the document.
///
/// Offsets count bytes from the start of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// Not JSON as RFC 8259 defines it.
    #[error("not JSON at byte {offset}")]
    Syntax {
        /// The first byte that fits no rule, or the end.
        offset: usize,
    },
    /// An object names a member twice, and readers disagree about which one counts.
    #[error("an object repeats a member name at byte {offset}")]
    DuplicateName {
        /// The later of the two names.
        offset: usize,
    },
    /// A number that a double cannot hold, so that its neighbours would share its canonical text.
    #[error("the number at byte {offset} would lose digits or its sign")]
    InexactNumber {
        /// The first byte of the number.
        offset: usize,
    },
    /// More containers inside each other than [`JsonLimits::depth_max`].
    #[error("the document nests too deeply")]
    TooDeep,
    /// More values than [`JsonLimits::values_max`], or 4 GiB of text.
    #[error("the document has too many values")]
    TooLarge,
    /// Half of a surrogate pair, which no UTF-8 text can carry.
    #[error("half of a surrogate pair at byte {offset}")]
    LoneSurrogate {
        /// The first byte of the escape.
        offset: usize,
    },
    /// Not UTF-8.
    #[error("the document is not UTF-8")]
    NotUtf8,
}

/// A value; what a container holds is a range of [`Document::children`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Number(Number<'a>),
    /// Unescaped. Borrowed means that the source had nothing to unescape.
    String(Cow<'a, str>),
    Array(Span),
    Object(Span),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

/// A container's child. Elements of an array have an empty name.
#[derive(Debug, Clone, PartialEq)]
struct Child<'a> {
    name: Cow<'a, str>,
    name_at: u32,
    value: Node<'a>,
}

/// A parsed document whose canonical form is safe to use in its place.
///
/// One flat list holds every value, so dropping a deep document needs no recursion either.
#[derive(Clone, PartialEq)]
pub struct Document<'a> {
    root: Node<'a>,
    /// The children of one container lie together; members in the order of their UTF-16 names.
    children: Vec<Child<'a>>,
}

impl<'a> Document<'a> {
    /// Reads one document, and nothing after it.
    ///
    /// # Errors
    /// When the bytes are not JSON, exceed the limits, or mean more than canonical text can say.
    pub fn parse(bytes: &'a [u8], limits: &JsonLimits) -> Result<Self, NotCanonical> {
        parse::parse(bytes, limits, number::exact)
    }

    /// The document in the canonical form of RFC 8785.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_canonical(&mut |piece: &[u8]| bytes.extend_from_slice(piece));
        bytes
    }

    /// Hands the canonical form to `sink` piece by piece, so that hashing needs no second buffer.
    pub fn write_canonical(&self, sink: &mut impl FnMut(&[u8])) {
        write::write(self.walk(&self.root, &[]), sink);
    }

    /// Writes one subtree, leaving out the children listed in `holes`.
    pub(crate) fn write_subtree(
        &self,
        node: &Node<'a>,
        holes: &[u32],
        sink: &mut impl FnMut(&[u8]),
    ) {
        write::write(self.walk(node, holes), sink);
    }

    /// Visits a subtree in canonical order.
    pub(crate) fn walk<'d>(&'d self, node: &'d Node<'a>, holes: &'d [u32]) -> Walk<'d, 'a> {
        Walk::new(self, node, holes)
    }

    pub(crate) fn root(&self) -> &Node<'a> {
        &self.root
    }

    fn children_of(&self, span: Span) -> &[Child<'a>] {
        self.children
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }
}

impl fmt::Debug for Document<'_> {
    /// Tells the size only: a payload does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("values", &(self.children.len() + 1))
            .finish_non_exhaustive()
    }
}

/// RFC 8785 to the letter: numbers become the nearest double, so two documents may share a form.
///
/// For exchanging canonical text with others. A fingerprint takes [`Document::parse`], which
/// refuses what this would merge.
///
/// # Errors
/// When the bytes are not JSON without repeated names, or exceed the default limits.
pub fn rfc8785(bytes: &[u8]) -> Result<Vec<u8>, NotCanonical> {
    Ok(parse::parse(bytes, &JsonLimits::default(), number::rounded)?.canonical())
}

/// What a document has at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// Nothing, or `null`.
    Nothing,
    /// A string, unescaped.
    Text(String),
    /// Something that is no string; what it is, in words.
    Other(&'static str),
}

/// Looks at one place of a document, whose numbers may have any precision.
///
/// # Errors
/// When the bytes are not JSON without repeated names, or exceed the limits. A document that
/// repeats a name has two readings, and the other reader may take the other one.
pub fn at(bytes: &[u8], pointer: &Pointer, limits: &JsonLimits) -> Result<At, NotCanonical> {
    let document = parse::parse(bytes, limits, number::rounded)?;
    let found = document.find(pointer);
    Ok(match found.map(|found| found.node) {
        None | Some(Node::Null) => At::Nothing,
        Some(Node::String(text)) => At::Text(String::from(text.as_ref())),
        Some(Node::Bool(_)) => At::Other("true or false"),
        Some(Node::Number(_)) => At::Other("a number"),
        Some(Node::Array(_)) => At::Other("a list"),
        Some(Node::Object(_)) => At::Other("an object"),
    })
}

/// The canonical form of one document, within the default limits.
///
/// # Errors
/// As [`Document::parse`].
pub fn canonicalize(bytes: &[u8]) -> Result<Vec<u8>, NotCanonical> {
    Ok(Document::parse(bytes, &JsonLimits::default())?.canonical())
}

#[cfg(test)]
mod tests;
