//! One HTTP/1.1 exchange, as little of it as a fair client needs.
//!
//! Requests are made once; only the digits of the key change. Every answer is checked, because a
//! fast error would look like a fast server.

/// Where the key's number stands in a request, in hexadecimal.
const KEY: &str = "00000000-0000-4000-8000-000000000000";
const KEY_DIGITS: usize = 12;

/// A session of the key's own: the same digits first, and as many characters as ruts asks for.
const SESSION: &str = "000000000000AAAAAAAAAA";

/// The body of a request: a small write.
const PAYLOAD: &str =
    r#"{"amount":1200,"currency":"EUR","account":"acc_29f1","reference":"2024-118"}"#;

/// The bytes of a request.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Where the digits of the key stand.
    digits_at: Vec<usize>,
}

impl Request {
    /// A write with a key, as a client would send it. Every contestant gets the same.
    pub(crate) fn post(path: &str) -> Self {
        Self::write(path, "")
    }

    /// The same in a session, for a server that keeps its answers in sessions.
    pub(crate) fn post_in_session(path: &str) -> Self {
        Self::write(path, &format!("Cookie: session={SESSION}\r\n"))
    }

    fn write(path: &str, cookie: &str) -> Self {
        let bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: api.example\r\nUser-Agent: onlyonce-bench\r\n\
             Authorization: Bearer 4f1c9be2a7d84e53\r\nIdempotency-Key: \"{KEY}\"\r\n\
             {cookie}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{PAYLOAD}",
            PAYLOAD.len()
        );
        let of_key = bytes.find(KEY).map(|at| at + KEY.len() - KEY_DIGITS);
        let of_session = bytes.find(SESSION);
        Self {
            bytes: bytes.into_bytes(),
            digits_at: of_key.into_iter().chain(of_session).collect(),
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        let bytes = format!(
            "GET {path} HTTP/1.1\r\nHost: api.example\r\nUser-Agent: onlyonce-bench\r\n\
             Authorization: Bearer 4f1c9be2a7d84e53\r\n\r\n"
        );
        Self {
            bytes: bytes.into_bytes(),
            digits_at: Vec::new(),
        }
    }

    /// The request with the key of this number.
    pub(crate) fn with_key(&mut self, number: u64) -> &[u8] {
        for at in &self.digits_at {
            let digits = self.bytes.get_mut(*at..at + KEY_DIGITS).unwrap();
            for (place, digit) in digits.iter_mut().rev().enumerate() {
                let value = (number >> (4 * place)) & 15;
                *digit = *b"0123456789abcdef".get(usize::from(value as u8)).unwrap();
            }
        }
        &self.bytes
    }
}

/// What every answer of a contestant must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body_bytes: usize,
    /// By the header of most, or by the one that Restate has in its replays alone.
    pub(crate) replayed: bool,
}

impl Answer {
    /// Reads the answer at the beginning of `bytes`, and where it ends. `None`: more must come.
    ///
    /// # Errors
    /// When it is no answer whose end is told by its length.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some((head, end)) = end.and_then(|end| Some((bytes.get(..end)?, end + 4))) else {
            return Ok(None);
        };
        let mut lines = head.split(|byte| *byte == b'\n');
        let status = lines.next().and_then(|line| number(line.get(9..12)?));
        let status = status.ok_or("no status")?;
        let (mut length, mut replayed) = (None, false);
        for line in lines {
            match line.first() {
                Some(b'c' | b'C') => {
                    length = length.or_else(|| number(value(line, b"content-length:")?));
                }
                Some(b'i' | b'I') => {
                    let marks: [&[u8]; 2] = [b"idempotency-replayed:", b"idempotency-expires:"];
                    replayed |= marks.iter().any(|mark| value(line, mark).is_some());
                }
                _ => {}
            }
        }
        let body_bytes = length.ok_or("no length")?;
        let answer = Self {
            status: u16::try_from(status).map_err(|_| "no status")?,
            body_bytes,
            replayed,
        };
        let end = end + body_bytes;
        Ok((bytes.len() >= end).then_some((answer, end)))
    }
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| rest.trim_ascii())
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
