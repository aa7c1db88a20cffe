//! Where one HTTP/1 request ends and the next begins, and whether there are two ways to read that.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding` before anybody can see it, and reads
//! lines that end with a bare LF. Another reader on the way may have seen another request there. So
//! the bytes are followed here before hyper gets them: [`Framing::look`] names the byte at which an
//! ambiguous request is to be spoilt, which hyper then refuses with 400, closing the connection.
//!
//! It keeps a few bytes of one line and no more, and looks at the names of lines that begin with
//! `c` or `t` only. What is merely malformed is left to hyper. This file depends on nothing of the
//! gateway, so that it can be fuzzed by itself, against the parser that hyper uses.

use memchr::memchr;

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much of a line that arrives in pieces is kept. A length has at most 20 digits, so a longer
/// line about the framing is one that nobody needs.
const LINE_KEPT_MAX: usize = 64;

/// What a spoilt byte becomes: no part of a head or of a chunk's length may hold it.
pub(crate) const SPOILT: u8 = 0;

/// What must follow a spoilt head: hyper does not read one to which it sees no end. After a spoilt
/// chunk it might end the body, and must not follow.
const SPOILT_END: &[u8] = b"\r\n\r\n";

const LENGTH: &[u8] = b"content-length:";
const ENCODING: &[u8] = b"transfer-encoding:";

/// Which part of the conversation the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing of the next request has come.
    Between,
    /// A head has begun.
    Head,
    /// A body is on its way.
    Body,
    /// Nothing more is looked at: HTTP/2, another protocol, or refused.
    Over,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    head: Head,
    line: Line,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes were the beginning of the preface.
    Preface(usize),
    Head,
    Sized(u64),
    Chunked(Chunk),
    /// Another protocol.
    Other,
    Refused {
        in_head: bool,
    },
}

/// The states of a chunked body, as hyper's decoder has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Start,
    Size(u64),
    /// Space after the size.
    Blank(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// The beginning of a line after the last chunk.
    EndCr,
    EndLf,
    Trailer,
    TrailerLf,
}

/// What a head has said so far.
#[derive(Debug, Default)]
struct Head {
    has_first_line: bool,
    length: Option<u64>,
    is_chunked: bool,
}

/// The beginning of a line whose end has not come.
#[derive(Debug)]
struct Line {
    kept: [u8; LINE_KEPT_MAX],
    bytes: usize,
    last: u8,
}

impl Framing {
    /// A connection on which nothing has come.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Preface(0),
            head: Head::default(),
            line: Line::new(),
        }
    }

    /// A connection of another protocol.
    pub(crate) fn other() -> Self {
        Self {
            state: State::Other,
            ..Self::new()
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.state {
            State::Preface(0) => Phase::Between,
            State::Head if !self.head.has_first_line && self.line.bytes == 0 => Phase::Between,
            State::Preface(_) | State::Head => Phase::Head,
            State::Sized(_) | State::Chunked(_) => Phase::Body,
            State::Other | State::Refused { .. } => Phase::Over,
        }
    }

    /// If the last request was refused: what is to follow its spoilt byte, and then nothing.
    pub(crate) fn refusal(&self) -> Option<&'static [u8]> {
        match self.state {
            State::Refused { in_head: true } => Some(SPOILT_END),
            State::Refused { in_head: false } => Some(b""),
            State::Preface(_)
            | State::Head
            | State::Sized(_)
            | State::Chunked(_)
            | State::Other => None,
        }
    }

    /// Looks at the bytes that came next. `Some(at)` when they are ambiguous: the byte there must
    /// be made [`SPOILT`], and those behind it be dropped, with all that follow.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match self.state {
                State::Preface(seen) => self.preface(seen, rest),
                State::Head => self.head(rest),
                State::Sized(left) => Ok(self.sized(left, rest)),
                State::Chunked(Chunk::Data(left)) => Ok(self.data(left, rest)),
                State::Chunked(chunk) => self.chunk(chunk, rest),
                State::Other => return None,
                State::Refused { .. } => Err(0),
            };
            let before = bytes.len() - rest.len();
            match used {
                Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                Err(at) => {
                    let in_head = self.phase() == Phase::Head || self.phase() == Phase::Between;
                    self.state = State::Refused { in_head };
                    return Some(before + at);
                }
            }
        }
        None
    }

    /// The first bytes of a connection tell whether it is HTTP/2.
    fn preface(&mut self, seen: usize, bytes: &[u8]) -> Result<usize, usize> {
        let expected = PREFACE.get(seen..).unwrap_or_default();
        let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b);
        let same = same.count();
        if same == expected.len() {
            self.state = State::Other;
        } else if same == bytes.len() {
            self.state = State::Preface(seen + same);
        } else {
            // It is not, so these bytes were the beginning of a head.
            self.state = State::Head;
            for byte in PREFACE.get(..seen).unwrap_or_default() {
                self.head(std::slice::from_ref(byte)).map_err(|_| 0_usize)?;
            }
            return Ok(0);
        }
        Ok(same)
    }

    /// Lines up to the end of the head, or of the bytes.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, usize> {
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            let Some(end) = memchr(b'\n', rest) else {
                self.line.keep(rest);
                break;
            };
            let line = rest.get(..end).unwrap_or_default();
            let whole = if self.line.bytes == 0 {
                self.head.take(line)
            } else {
                self.line.keep(line);
                let whole = self.line.text().and_then(|line| self.head.take(line));
                self.line.bytes = 0;
                whole
            };
            // The line feed is the byte to spoil.
            let is_over = whole.ok_or(used + end)?;
            used += end + 1;
            if is_over {
                self.begin_body();
                return Ok(used);
            }
        }
        Ok(bytes.len())
    }

    fn begin_body(&mut self) {
        let head = std::mem::take(&mut self.head);
        self.state = match head.length {
            _ if head.is_chunked => State::Chunked(Chunk::Start),
            Some(length) if length > 0 => State::Sized(length),
            Some(_) | None => State::Head,
        };
    }

    fn sized(&mut self, left: u64, bytes: &[u8]) -> usize {
        let (used, left) = skip(left, bytes);
        self.state = if left == 0 {
            State::Head
        } else {
            State::Sized(left)
        };
        used
    }

    fn data(&mut self, left: u64, bytes: &[u8]) -> usize {
        let (used, left) = skip(left, bytes);
        self.state = State::Chunked(if left == 0 {
            Chunk::DataCr
        } else {
            Chunk::Data(left)
        });
        used
    }

    /// The next byte of the framing around chunks.
    fn chunk(&mut self, chunk: Chunk, bytes: &[u8]) -> Result<usize, usize> {
        let Some(byte) = bytes.first().copied() else {
            return Ok(0);
        };
        self.state = match chunk.step(byte).ok_or(0_usize)? {
            Some(next) => State::Chunked(next),
            None => State::Head,
        };
        Ok(1)
    }
}

/// How many of these bytes are skipped, and how many are left to skip.
fn skip(left: u64, bytes: &[u8]) -> (usize, u64) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (used, left - used as u64)
}

impl Chunk {
    /// What follows after this byte: `None` when it cannot be here, `Some(None)` at the end of the
    /// body.
    #[expect(
        clippy::option_option,
        reason = "an error and the end of a body are different ends"
    )]
    fn step(self, byte: u8) -> Option<Option<Self>> {
        let next = match (self, byte) {
            (Self::Start, _) => Self::Size(u64::from(hex(byte)?)),
            (Self::Size(size) | Self::Blank(size), b' ' | b'\t') => Self::Blank(size),
            (Self::Size(size) | Self::Blank(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Blank(size) | Self::Extension(size), b'\r') => {
                Self::SizeLf(size)
            }
            (Self::Size(size), _) => {
                Self::Size(size.checked_mul(16)?.checked_add(u64::from(hex(byte)?))?)
            }
            (Self::Extension(size), _) if byte != b'\n' => Self::Extension(size),
            (Self::SizeLf(0) | Self::TrailerLf, b'\n') => Self::EndCr,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::EndCr, b'\r') => Self::EndLf,
            (Self::EndLf, b'\n') => return Some(None),
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::EndCr | Self::Trailer, _) if byte != b'\n' => Self::Trailer,
            _ => return None,
        };
        Some(Some(next))
    }
}

fn hex(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

impl Head {
    /// Takes a line, without its line feed. `Some(true)` at the end of the head, `None` when the
    /// line makes the head ambiguous.
    fn take(&mut self, line: &[u8]) -> Option<bool> {
        let line = line.strip_suffix(b"\r")?;
        match line.first() {
            // Empty lines before a request are skipped, as hyper does.
            None => return Some(self.has_first_line),
            Some(_) if !self.has_first_line => self.has_first_line = true,
            Some(b'c' | b'C' | b't' | b'T') if line.len() >= LINE_KEPT_MAX && is_framing(line) => {
                return None;
            }
            Some(b'c' | b'C') => {
                if let Some(value) = value_of(LENGTH, line) {
                    self.take_length(value)?;
                }
            }
            Some(b't' | b'T') => {
                if let Some(value) = value_of(ENCODING, line) {
                    self.take_encoding(value)?;
                }
            }
            Some(_) => {}
        }
        Some(false)
    }

    fn take_length(&mut self, value: &[u8]) -> Option<()> {
        let said_already = self.is_chunked || self.length.is_some();
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        if said_already || !digits {
            return None;
        }
        self.length = Some(std::str::from_utf8(value).ok()?.parse().ok()?);
        Some(())
    }

    /// `chunked` alone: any other coding would be passed on as if it were none.
    fn take_encoding(&mut self, value: &[u8]) -> Option<()> {
        let said_already = self.is_chunked || self.length.is_some();
        self.is_chunked = !said_already && value.eq_ignore_ascii_case(b"chunked");
        self.is_chunked.then_some(())
    }
}

fn is_framing(line: &[u8]) -> bool {
    [LENGTH, ENCODING]
        .iter()
        .any(|name| value_of(name, line).is_some())
}

/// The value of a line with this name.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

impl Line {
    fn new() -> Self {
        Self {
            kept: [0; LINE_KEPT_MAX],
            bytes: 0,
            last: 0,
        }
    }

    fn keep(&mut self, more: &[u8]) {
        let room = self.kept.get_mut(self.bytes..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(more) {
            *place = *byte;
        }
        self.bytes = self.bytes.saturating_add(more.len());
        self.last = more.last().copied().unwrap_or(self.last);
    }

    /// The line as far as it matters: one that was cut short keeps its end, so that a carriage
    /// return there is seen. `None` if it is about the framing and was cut short.
    fn text(&mut self) -> Option<&[u8]> {
        if self.bytes <= LINE_KEPT_MAX {
            return self.kept.get(..self.bytes);
        }
        if is_framing(&self.kept) {
            return None;
        }
        if let Some(last) = self.kept.last_mut() {
            *last = self.last;
        }
        Some(&self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\n";

    /// What hyper gets of these bytes, in pieces cut at `cuts`, and the phase after them.
    fn passed(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Phase) {
        let (mut framing, mut passed, mut from) = (Framing::new(), Vec::new(), 0);
        for to in cuts.iter().copied().chain([bytes.len()]) {
            let mut piece = bytes[from..to].to_vec();
            from = to;
            if let Some(at) = framing.look(&piece) {
                piece[at] = SPOILT;
                piece.truncate(at + 1);
                passed.extend(piece);
                passed.extend(framing.refusal().unwrap());
                break;
            }
            passed.extend(piece);
        }
        (passed, framing.phase())
    }

    /// The same result wherever the bytes are cut, at one place or at two.
    fn passed_anyhow(bytes: &[u8]) -> (Vec<u8>, Phase) {
        let whole = passed(bytes, &[]);
        for first in 0..bytes.len() {
            assert_eq!(passed(bytes, &[first]), whole, "cut at {first}");
            let second = (first + 3).min(bytes.len());
            assert_eq!(
                passed(bytes, &[first, second]),
                whole,
                "cut at {first}, {second}"
            );
        }
        let everywhere: Vec<_> = (0..bytes.len()).collect();
        assert_eq!(passed(bytes, &everywhere), whole, "byte by byte");
        whole
    }

    #[test]
    fn unambiguous_requests_pass_untouched() {
        let long = "x".repeat(300);
        for (bytes, phase) in [
            (String::new(), Phase::Between),
            ("\r\n".into(), Phase::Between),
            ("P".into(), Phase::Head),
            ("PRI * HTT".into(), Phase::Head),
            ("PRIVATE / HTTP/1.1\r\n\r\n".into(), Phase::Between),
            ("GET / HTTP/1.1\r\n".into(), Phase::Head),
            (format!("{POST}\r\n"), Phase::Between),
            (
                format!("\r\n{POST}content-length: 0\r\n\r\n"),
                Phase::Between,
            ),
            (format!("{POST}Content-Length:  5 \r\n\r\n12"), Phase::Body),
            (
                format!("{POST}content-length: 5\r\n\r\n1\n\r\n5"),
                Phase::Between,
            ),
            (
                format!("{POST}content-length: 5\r\n\r\n12345G"),
                Phase::Head,
            ),
            (format!("{POST}content-lengthy: x\r\n\r\n"), Phase::Between),
            (
                format!("{POST}x-{long}: {long}\r\nt: {long}\r\n\r\n"),
                Phase::Between,
            ),
            (
                format!("{POST}Transfer-Encoding: Chunked\r\n\r\n5\r\n12345\r\n"),
                Phase::Body,
            ),
            (
                format!(
                    "{POST}transfer-encoding: chunked\r\n\r\nA ;x=\"y\"\r\n0123\n56789\r\n0\r\n\r\n"
                ),
                Phase::Between,
            ),
            (
                format!("{POST}transfer-encoding: chunked\r\n\r\n0\r\nx-sum: 1\r\ny: 2\r\n\r\nP"),
                Phase::Head,
            ),
            (
                format!(
                    "{POST}content-length: 2\r\n\r\n{{}}{POST}transfer-encoding: chunked\r\n\r\n0\r\n\r\n{POST}\r\n"
                ),
                Phase::Between,
            ),
            (
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\0anything\n".into(),
                Phase::Over,
            ),
        ] {
            assert_eq!(
                passed_anyhow(bytes.as_bytes()),
                (bytes.clone().into_bytes(), phase),
                "{bytes:?}"
            );
        }
    }

    /// Each of them ends at a byte that hyper refuses, and nothing of what follows is passed.
    #[test]
    fn ambiguous_requests_are_spoilt_and_nothing_follows() {
        let pad = " ".repeat(100);
        for lines in [
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
            "content-length: 5\r\ncontent-length: 5\r\n",
            "Content-Length: 5\r\nx: y\r\nCONTENT-LENGTH: 6\r\n",
            "content-length: 5, 5\r\n",
            "content-length: +5\r\n",
            "content-length:\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked, identity\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: identity\r\n",
            "transfer-encoding:\x0bchunked\r\n",
            "x: y\ncontent-length: 5\r\n",
            "x: y\n",
            &format!("content-length:{pad}5\r\n"),
            &format!("transfer-encoding:{pad}chunked\r\n"),
        ] {
            let bytes = format!("{POST}{lines}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n");
            let (passed, phase) = passed_anyhow(bytes.as_bytes());
            assert_eq!(phase, Phase::Over, "{lines:?}");
            let spoilt = passed.strip_suffix(SPOILT_END).unwrap();
            assert_eq!(spoilt.last(), Some(&SPOILT), "{lines:?}");
            assert!(spoilt.len() <= POST.len() + lines.len(), "{lines:?}");
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let read = httparse::Request::new(&mut headers).parse(&passed);
            assert!(read.is_err(), "{lines:?}: {read:?}");
        }
    }

    #[test]
    fn ambiguous_chunks_are_spoilt() {
        for body in [
            "5\n12345\r\n0\r\n\r\n",
            "5;x\ny\r\n12345\r\n0\r\n\r\n",
            "5\r12345\r\n0\r\n\r\n",
            "5\r\n123456\r\n0\r\n\r\n",
            "-5\r\n12345\r\n0\r\n\r\n",
            "0x5\r\n12345\r\n0\r\n\r\n",
            "\r\n0\r\n\r\n",
            "10000000000000000\r\n12345",
            "0\r\nx: y\n\r\n",
            "0\r\n\n",
        ] {
            let bytes = format!("{POST}transfer-encoding: chunked\r\n\r\n{body}");
            let (passed, phase) = passed_anyhow(bytes.as_bytes());
            assert_eq!(
                (passed.last(), phase),
                (Some(&SPOILT), Phase::Over),
                "{body:?}"
            );
        }
    }

    #[test]
    fn another_protocol_is_left_alone() {
        let mut framing = Framing::other();
        assert_eq!(framing.look(b"GET /\n\n\ncontent-length"), None);
        assert_eq!(framing.phase(), Phase::Over);
    }
}
