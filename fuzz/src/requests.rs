//! Where requests begin and end, compared with the parser that the server uses.

use httparse::{Error, Request, Status};

use crate::framing::{Framing, Phase, SPOILT};

/// As many as hyper reads.
const HEADERS_MAX: usize = 100;

/// What the server gets of these bytes, cut into pieces of `piece` bytes.
fn passed(input: &[u8], piece: usize) -> (Vec<u8>, Framing) {
    let (mut framing, mut passed) = (Framing::new(), Vec::new());
    for bytes in input.chunks(piece) {
        let mut bytes = bytes.to_vec();
        if let Some(at) = framing.look(&bytes) {
            bytes[at] = SPOILT;
            bytes.truncate(at + 1);
            passed.extend(bytes);
            passed.extend(framing.refusal().unwrap());
            break;
        }
        passed.extend(bytes);
    }
    (passed, framing)
}

/// What the server makes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// It refuses what comes next, and closes.
    Refused,
    /// It waits between two requests, in a head, in a body.
    Waits(Phase),
}

/// Wherever the bytes are cut, the server gets the same; every request that it accepts has one
/// reading; and it is where the framing believes it to be.
pub fn requests(input: &[u8]) {
    let (whole, framing) = passed(input, input.len().max(1));
    for piece in [1, 2, 3, 7, 24] {
        assert_eq!(passed(input, piece).0, whole, "in pieces of {piece}");
    }
    if input.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
        assert_eq!(whole, input);
        return;
    }
    let read = serve(&whole);
    match framing.phase() {
        Phase::Over => assert_eq!(read, Read::Refused, "refused here, accepted there"),
        phase @ (Phase::Between | Phase::Head | Phase::Body) => assert!(
            read == Read::Refused || read == Read::Waits(phase),
            "{phase:?}, {read:?}"
        ),
    }
}

/// Reads requests as the server does, until it refuses one or has no more.
fn serve(mut bytes: &[u8]) -> Read {
    loop {
        bytes = without_empty_lines(bytes);
        if bytes.is_empty() {
            return Read::Waits(Phase::Between);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        let head = match request.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Read::Waits(Phase::Head),
            Err(Error::TooManyHeaders | _) => return Read::Refused,
        };
        assert!(!contains_bare_line_feed(&bytes[..head]), "a bare line feed");
        let Some(body) = body_of(&request) else {
            return Read::Refused;
        };
        bytes = match read_body(&body, &bytes[head..]) {
            Ok(rest) => rest,
            Err(read) => return read,
        };
    }
}

fn without_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    // Half an empty line is the beginning of something.
    bytes
}

fn contains_bare_line_feed(head: &[u8]) -> bool {
    let bare = |pair: &[u8]| pair[1] == b'\n' && pair[0] != b'\r';
    head.starts_with(b"\n") || head.windows(2).any(bare)
}

enum Body {
    Sized(usize),
    Chunked,
}

/// How the body of an accepted request ends; `None` if the server refuses it. There is one way to
/// tell.
fn body_of(request: &Request<'_, '_>) -> Option<Body> {
    let named = |name: &str| {
        let lines = request.headers.iter();
        let lines = lines.filter(|line| line.name.eq_ignore_ascii_case(name));
        lines.map(|line| line.value).collect::<Vec<_>>()
    };
    let (lengths, encodings) = (named("content-length"), named("transfer-encoding"));
    if request.version == Some(0) && !encodings.is_empty() {
        return None;
    }
    assert!(lengths.len() + encodings.len() <= 1, "two framings");
    if let [encoding] = encodings[..] {
        assert!(encoding.eq_ignore_ascii_case(b"chunked"), "{encoding:?}");
        return Some(Body::Chunked);
    }
    let length = lengths.first().map_or(&b"0"[..], |value| value);
    let length = std::str::from_utf8(length).unwrap().trim();
    assert!(
        length.bytes().all(|byte| byte.is_ascii_digit()),
        "{length:?}"
    );
    length.parse().ok().map(Body::Sized)
}

fn read_body<'a>(body: &Body, bytes: &'a [u8]) -> Result<&'a [u8], Read> {
    match body {
        Body::Sized(length) => bytes.get(*length..).ok_or(Read::Waits(Phase::Body)),
        Body::Chunked => read_chunks(bytes),
    }
}

/// The chunks as RFC 9112 has them.
fn read_chunks(mut bytes: &[u8]) -> Result<&[u8], Read> {
    loop {
        let line = take_line(&mut bytes)?;
        let size = line.split(|byte| *byte == b';').next().unwrap();
        let digits = size.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let digits = digits.count();
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        if digits == 0 || !size[digits..].iter().all(is_blank) {
            return Err(Read::Refused);
        }
        let digits = std::str::from_utf8(&size[..digits]).unwrap();
        let Ok(size) = u64::from_str_radix(digits, 16) else {
            return Err(Read::Refused);
        };
        if size == 0 {
            while !take_line(&mut bytes)?.is_empty() {}
            return Ok(bytes);
        }
        let size = usize::try_from(size).unwrap();
        let Some(rest) = bytes.get(size..) else {
            return Err(Read::Waits(Phase::Body));
        };
        bytes = match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Err(Read::Waits(Phase::Body)),
            _ => return Err(Read::Refused),
        };
    }
}

/// The next line of the framing. Nothing that a line must not hold is in it.
fn take_line<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Read> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n");
    let line = &bytes[..end.unwrap_or(bytes.len())];
    let is_bad = |byte: &u8| matches!(byte, b'\n' | b'\r' | &SPOILT);
    let may_end = usize::from(end.is_none() && line.ends_with(b"\r"));
    if line[..line.len() - may_end].iter().any(is_bad) {
        return Err(Read::Refused);
    }
    match end {
        Some(end) => {
            *bytes = &bytes[end + 2..];
            Ok(line)
        }
        None => Err(Read::Waits(Phase::Body)),
    }
}
