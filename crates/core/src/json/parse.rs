//! The reader: one pass, no recursion, strict RFC 8259.
//!
//! Children of containers that are still open wait on `waiting`; when one closes, its own are
//! sorted and moved to their place in the document, and the container becomes a value itself.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::{Child, Document, JsonLimits, Node, NotCanonical, Number, Span, text};

pub(super) fn parse<'a>(
    bytes: &'a [u8],
    limits: &JsonLimits,
    read_number: ReadNumber,
) -> Result<Document<'a>, NotCanonical> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(NotCanonical::TooLarge);
    }
    let text = core::str::from_utf8(bytes).map_err(|_| NotCanonical::NotUtf8)?;
    // A member takes about 16 bytes of real JSON; a wrong guess costs a reallocation.
    let guess = (bytes.len() / 16).min(limits.values_max) + 4;
    let mut parser = Parser {
        text,
        at: 0,
        limits: *limits,
        read_number,
        values: 0,
        open: Vec::with_capacity(8),
        waiting: Vec::with_capacity(guess.min(64)),
        children: Vec::with_capacity(guess),
    };
    let root = parser.root()?;
    Ok(Document {
        root,
        children: parser.children,
    })
}

/// How numbers are read: [`exact`](super::number::exact) or
/// [`rounded`](super::number::rounded).
pub(super) type ReadNumber = fn(&str) -> Option<Number<'_>>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    limits: JsonLimits,
    read_number: ReadNumber,
    values: usize,
    open: Vec<Open<'a>>,
    waiting: Vec<Child<'a>>,
    children: Vec<Child<'a>>,
}

/// A container whose end has not been read.
struct Open<'a> {
    is_object: bool,
    /// Where its children begin on `waiting`.
    first: usize,
    /// The name of the member being read.
    name: Cow<'a, str>,
    name_at: u32,
}

impl<'a> Parser<'a> {
    fn root(&mut self) -> Result<Node<'a>, NotCanonical> {
        loop {
            // Without a value a container has opened, and its first child is next.
            let Some(mut value) = self.value()? else {
                continue;
            };
            loop {
                self.space();
                let Some(parent) = self.open.last_mut() else {
                    return if self.at == self.text.len() {
                        Ok(value)
                    } else {
                        Err(self.syntax())
                    };
                };
                let is_object = parent.is_object;
                let name = core::mem::take(&mut parent.name);
                self.waiting.push(Child {
                    name,
                    name_at: parent.name_at,
                    value,
                });
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if is_object {
                            self.space();
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if is_object => value = self.close()?,
                    Some(b']') if !is_object => value = self.close()?,
                    _ => return Err(self.syntax()),
                }
            }
        }
    }

    /// A whole value, or nothing when a container opened that is not empty.
    fn value(&mut self) -> Result<Option<Node<'a>>, NotCanonical> {
        self.space();
        self.values += 1;
        if self.values > self.limits.values_max {
            return Err(NotCanonical::TooLarge);
        }
        let value = match self.peek() {
            Some(b'"') => Node::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'{') => return self.enter(true),
            Some(b'[') => return self.enter(false),
            Some(b't') => self.literal("true", Node::Bool(true))?,
            Some(b'f') => self.literal("false", Node::Bool(false))?,
            Some(b'n') => self.literal("null", Node::Null)?,
            _ => return Err(self.syntax()),
        };
        Ok(Some(value))
    }

    fn enter(&mut self, is_object: bool) -> Result<Option<Node<'a>>, NotCanonical> {
        if self.open.len() >= self.limits.depth_max {
            return Err(NotCanonical::TooDeep);
        }
        self.at += 1;
        let first = self.waiting.len();
        self.open.push(Open {
            is_object,
            first,
            name: Cow::Borrowed(""),
            name_at: 0,
        });
        self.space();
        match (self.peek(), is_object) {
            (Some(b'}'), true) | (Some(b']'), false) => self.close().map(Some),
            (_, true) => self.name().map(|()| None),
            (_, false) => Ok(None),
        }
    }

    /// Reads a member's name and its colon.
    fn name(&mut self) -> Result<(), NotCanonical> {
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        let name_at = u32::try_from(self.at).map_err(|_| NotCanonical::TooLarge)?;
        let name = self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.syntax());
        }
        self.at += 1;
        if let Some(parent) = self.open.last_mut() {
            parent.name = name;
            parent.name_at = name_at;
        }
        Ok(())
    }

    /// Turns the innermost open container into a value.
    fn close(&mut self) -> Result<Node<'a>, NotCanonical> {
        let Some(Open {
            is_object, first, ..
        }) = self.open.pop()
        else {
            return Err(self.syntax());
        };
        self.at += 1;
        if is_object && let Some(members) = self.waiting.get_mut(first..) {
            sort(members)?;
        }
        let start = u32::try_from(self.children.len()).map_err(|_| NotCanonical::TooLarge)?;
        self.children.extend(self.waiting.drain(first..));
        let end = u32::try_from(self.children.len()).map_err(|_| NotCanonical::TooLarge)?;
        let span = Span { start, end };
        Ok(if is_object {
            Node::Object(span)
        } else {
            Node::Array(span)
        })
    }

    fn string(&mut self) -> Result<Cow<'a, str>, NotCanonical> {
        let start = self.at + 1;
        let mut end = start;
        let mut escapes = false;
        loop {
            let rest = self.text.as_bytes().get(end..).unwrap_or_default();
            match text::find_special(rest) {
                None => {
                    return Err(NotCanonical::Syntax {
                        offset: self.text.len(),
                    });
                }
                Some(skip) => end += skip,
            }
            match self.text.as_bytes().get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escapes = true;
                    end += 2;
                }
                _ => return Err(NotCanonical::Syntax { offset: end }),
            }
        }
        self.at = end + 1;
        let raw = self
            .text
            .get(start..end)
            .ok_or(NotCanonical::Syntax { offset: start })?;
        if escapes {
            text::unescape(raw, start).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(raw))
        }
    }

    fn number(&mut self) -> Result<Node<'a>, NotCanonical> {
        let offset = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let source = self
            .text
            .get(offset..self.at)
            .ok_or(NotCanonical::Syntax { offset })?;
        (self.read_number)(source)
            .map(Node::Number)
            .ok_or(NotCanonical::InexactNumber { offset })
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), NotCanonical> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => Err(self.syntax()),
            count => {
                self.at += count;
                Ok(())
            }
        }
    }

    fn literal(&mut self, word: &str, value: Node<'a>) -> Result<Node<'a>, NotCanonical> {
        if self.text.as_bytes().get(self.at..self.at + word.len()) != Some(word.as_bytes()) {
            return Err(self.syntax());
        }
        self.at += word.len();
        Ok(value)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn syntax(&self) -> NotCanonical {
        NotCanonical::Syntax { offset: self.at }
    }
}

/// Puts members in canonical order, where equal names are neighbours.
fn sort(members: &mut [Child<'_>]) -> Result<(), NotCanonical> {
    if members.iter().all(|member| member.name.is_ascii()) {
        members.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    } else {
        members.sort_unstable_by(|left, right| text::compare_utf16(&left.name, &right.name));
    }
    let twice = members.windows(2).find_map(|pair| match pair {
        [left, right] if left.name == right.name => Some(left.name_at.max(right.name_at)),
        _ => None,
    });
    match twice {
        Some(offset) => Err(NotCanonical::DuplicateName {
            offset: offset as usize,
        }),
        None => Ok(()),
    }
}
