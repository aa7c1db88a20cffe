//! Visiting a subtree in canonical order, with children left out on request.
//!
//! A member that is left out leaves nothing: having it or not is the same. An element that is
//! left out leaves a [`Step::Hole`], because without one the elements behind it would move into
//! its place and two different arrays could become one.

use alloc::vec::Vec;

use super::{Document, Node, Pointer, Span, text};

/// One step of a [`Walk`].
#[derive(Debug)]
pub(crate) enum Step<'d, 'a> {
    /// A container begins.
    Enter { place: Place<'d>, is_object: bool },
    /// The innermost container ends.
    Leave { is_object: bool },
    /// A string, number, boolean or null.
    Scalar {
        place: Place<'d>,
        value: &'d Node<'a>,
    },
    /// An element that does not count, though its place does.
    Hole { place: Place<'d> },
}

/// Where a value stands in its container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'d> {
    /// Nothing was visited in this container before.
    pub(crate) is_first: bool,
    /// `None` for the value the walk began at.
    pub(crate) token: Option<Token<'d>>,
    /// A name that canonical text spells as it is.
    pub(crate) is_plain: bool,
}

/// One step down from a container to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'d> {
    Name(&'d str),
    Index(u32),
}

/// An iterator over the steps of one subtree.
#[derive(Debug)]
pub(crate) struct Walk<'d, 'a> {
    document: &'d Document<'a>,
    begin: Option<&'d Node<'a>>,
    holes: &'d [u32],
    open: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    is_object: bool,
    is_fresh: bool,
    span: Span,
    next: u32,
}

impl<'d, 'a> Walk<'d, 'a> {
    pub(super) fn new(document: &'d Document<'a>, begin: &'d Node<'a>, holes: &'d [u32]) -> Self {
        Self {
            document,
            begin: Some(begin),
            holes,
            open: Vec::with_capacity(8),
        }
    }

    fn visit(&mut self, place: Place<'d>, value: &'d Node<'a>) -> Step<'d, 'a> {
        let (is_object, span) = match value {
            Node::Object(span) => (true, *span),
            Node::Array(span) => (false, *span),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => {
                return Step::Scalar { place, value };
            }
        };
        self.open.push(Frame {
            is_object,
            is_fresh: true,
            span,
            next: span.start,
        });
        Step::Enter { place, is_object }
    }
}

impl<'d, 'a> Iterator for Walk<'d, 'a> {
    type Item = Step<'d, 'a>;

    fn next(&mut self) -> Option<Step<'d, 'a>> {
        if let Some(value) = self.begin.take() {
            let place = Place {
                is_first: true,
                token: None,
                is_plain: true,
            };
            return Some(self.visit(place, value));
        }
        let document = self.document;
        let frame = self.open.last_mut()?;
        loop {
            let index = frame.next;
            let child = match document.children.get(index as usize) {
                Some(child) if index < frame.span.end => child,
                _ => break,
            };
            frame.next += 1;
            let is_hole = !self.holes.is_empty() && self.holes.contains(&index);
            if is_hole && frame.is_object {
                continue;
            }
            let token = if frame.is_object {
                Token::Name(&child.name)
            } else {
                Token::Index(index - frame.span.start)
            };
            let is_plain = matches!(child.name, alloc::borrow::Cow::Borrowed(_));
            let is_first = core::mem::take(&mut frame.is_fresh);
            let place = Place {
                is_first,
                token: Some(token),
                is_plain,
            };
            if is_hole {
                return Some(Step::Hole { place });
            }
            return Some(self.visit(place, &child.value));
        }
        let is_object = frame.is_object;
        self.open.pop();
        Some(Step::Leave { is_object })
    }
}

/// A value that a [`Pointer`] led to.
#[derive(Debug)]
pub(crate) struct Found<'d, 'a> {
    pub(crate) node: &'d Node<'a>,
    /// Its number among the children of the document; `None` for the root.
    pub(crate) child: Option<u32>,
    pub(crate) path: Vec<Token<'d>>,
}

impl<'a> Document<'a> {
    /// Follows a pointer. `-` and indices with leading zeros lead nowhere.
    pub(crate) fn find<'d>(&'d self, pointer: &'d Pointer) -> Option<Found<'d, 'a>> {
        let mut found = Found {
            node: &self.root,
            child: None,
            path: Vec::new(),
        };
        for token in pointer.tokens() {
            let (span, offset, step) = match found.node {
                Node::Object(span) => {
                    let members = self.children_of(*span);
                    let offset = members
                        .binary_search_by(|member| text::compare_utf16(&member.name, token))
                        .ok()?;
                    (span, u32::try_from(offset).ok()?, Token::Name(token))
                }
                Node::Array(span) => {
                    let index = index(token)?;
                    (span, index, Token::Index(index))
                }
                Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => return None,
            };
            let number = span
                .start
                .checked_add(offset)
                .filter(|number| *number < span.end)?;
            found.node = &self.children.get(number as usize)?.value;
            found.child = Some(number);
            found.path.push(step);
        }
        Some(found)
    }
}

fn index(token: &str) -> Option<u32> {
    let is_canonical = token == "0" || !token.starts_with(['0', '+']);
    if is_canonical {
        token.parse().ok()
    } else {
        None
    }
}
