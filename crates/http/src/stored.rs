//! What is stored of a response, and how it is given again.

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use onlyonce_core::{HeaderBlock, StoredResponse, TombstoneReason};

/// Marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Names the trace of the execution in a stored response.
const TRACE: &str = "onlyonce-trace";

/// The trace in which a response was made, as in `traceparent`.
///
/// An inner service puts it into the extensions of its response; it is kept with the response, and
/// a replay has it in its extensions again. It is never among the headers that a client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionTrace(pub HeaderValue);

/// What is stored of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePolicy {
    /// The largest body that is stored. A larger one reaches its caller and leaves a tombstone.
    /// Default: 1 MiB.
    pub body_bytes_max: usize,
    /// If not empty, only these headers are stored, and `Content-Encoding`.
    pub allow: Vec<HeaderName>,
    /// Headers that are never stored.
    pub deny: Vec<HeaderName>,
    /// Whether cookies are stored and replayed. Default: no; a cookie belongs to the moment it
    /// was set in.
    pub cookies: bool,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            allow: Vec::new(),
            deny: Vec::new(),
            cookies: false,
        }
    }
}

/// Fields of one connection, not of the response; and fields that are made anew on each reply.
const NEVER_STORED: [HeaderName; 14] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::DATE,
    header::CONTENT_LENGTH,
    header::RETRY_AFTER,
    REPLAYED,
    HeaderName::from_static(TRACE),
];

/// Kept also where only others are named: without it nobody can read the body.
const NEEDED: HeaderName = header::CONTENT_ENCODING;

impl ResponsePolicy {
    /// The response as it is stored; `None` when its header lines are too large for that.
    pub(crate) fn store(
        &self,
        head: &Parts,
        body: Bytes,
        trailers: Option<&HeaderMap>,
    ) -> Option<StoredResponse> {
        let named = named_by_connection(&head.headers);
        let kept = |(name, _): &(&HeaderName, &HeaderValue)| {
            self.keeps(name)
                && !named
                    .iter()
                    .any(|other| other.eq_ignore_ascii_case(name.as_str()))
        };
        let trace = head.extensions.get::<ExecutionTrace>();
        let trace = trace.map(|trace| (TRACE.as_bytes(), trace.0.as_bytes()));
        let headers = head.headers.iter().filter(kept).map(line).chain(trace);
        let trailers = trailers.into_iter().flatten().filter(kept);
        Some(StoredResponse {
            status: head.status.as_u16(),
            headers: HeaderBlock::from_lines(headers)?,
            body,
            trailers: HeaderBlock::from_lines(trailers.map(line))?,
        })
    }

    /// Stored header lines as a map. What was stored was valid once; a line that is not any more is
    /// left out rather than failing the replay.
    ///
    /// An application that settles its key in the store itself may have written lines that are
    /// not stored here: cookies, secrets, or a wrong length, which would break the framing of the
    /// answers that follow. They are left out as well.
    pub(crate) fn give_again(&self, block: &HeaderBlock) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in block.iter() {
            let line = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
            if let (Ok(name), Ok(value)) = line
                && self.keeps(&name)
            {
                map.append(name, value);
            }
        }
        map
    }

    fn keeps(&self, name: &HeaderName) -> bool {
        !NEVER_STORED.contains(name)
            && (self.cookies || name != header::SET_COOKIE)
            && (self.allow.is_empty() || self.allow.contains(name) || *name == NEEDED)
            && !self.deny.contains(name)
    }
}

/// Why a response cannot be stored, from its head alone.
pub(crate) fn tombstone(head: &Parts) -> Option<TombstoneReason> {
    let unstorable = head.status.is_informational()
        || head.status == StatusCode::PARTIAL_CONTENT
        || head.status == StatusCode::NOT_MODIFIED
        || head.status == StatusCode::TOO_EARLY;
    if unstorable {
        return Some(TombstoneReason::NotStorable);
    }
    is_event_stream(&head.headers).then_some(TombstoneReason::Stream)
}

/// Whether an answer has a body, whatever length its head announces (RFC 9112, 6.3).
pub(crate) fn has_body(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD && status != StatusCode::NO_CONTENT
}

/// Whether an answer is a stream of events, by its media type without the parameters. Such an
/// answer is settled by its head, and may then go on for as long as it likes.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let media_type = content_type.and_then(|value| value.as_bytes().split(|b| *b == b';').next());
    media_type.is_some_and(|media_type| {
        let media_type = media_type.trim_ascii();
        media_type.eq_ignore_ascii_case(b"text/event-stream")
    })
}

fn line<'a>((name, value): (&'a HeaderName, &'a HeaderValue)) -> (&'a [u8], &'a [u8]) {
    (name.as_ref(), value.as_bytes())
}

/// The fields that `Connection` declares to be of the connection too.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .collect()
}

/// The trace that was kept with a response.
pub(crate) fn trace(block: &HeaderBlock) -> Option<ExecutionTrace> {
    let mut lines = block.iter();
    let (_, value) = lines.find(|(name, _)| *name == TRACE.as_bytes())?;
    HeaderValue::from_bytes(value).ok().map(ExecutionTrace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &'static str)]) -> Parts {
        let mut response = http::Response::new(());
        for (name, value) in lines {
            response
                .headers_mut()
                .append(*name, HeaderValue::from_static(value));
        }
        response.into_parts().0
    }

    fn stored(policy: &ResponsePolicy, lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let stored = policy.store(&head(lines), Bytes::new(), None).unwrap();
        let as_stored = ResponsePolicy {
            cookies: true,
            ..ResponsePolicy::default()
        };
        as_stored
            .give_again(&stored.headers)
            .keys()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_belongs_to_the_connection_or_the_moment_is_not_stored() {
        let lines = [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("date", "today"),
            ("content-length", "3"),
            ("retry-after", "9"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=1"),
            ("content-type", "text/plain"),
            ("x-request-id", "r1"),
        ];
        assert_eq!(
            stored(&ResponsePolicy::default(), &lines),
            ["content-type", "x-request-id"]
        );
    }

    /// A trace is the operator's business. It is kept even where only named headers are, and what
    /// the service itself sends under that name is not.
    #[test]
    fn the_trace_of_an_execution_is_kept_and_never_shown() {
        let policy = ResponsePolicy {
            allow: vec![HeaderName::from_static("x-a")],
            ..ResponsePolicy::default()
        };
        let mut own = head(&[("x-a", "1"), ("onlyonce-trace", "forged")]);
        let stored = policy.store(&own, Bytes::new(), None).unwrap();
        assert_eq!(trace(&stored.headers), None);
        let kept = ExecutionTrace(HeaderValue::from_static("00-1-2-01"));
        own.extensions.insert(kept.clone());
        let stored = policy.store(&own, Bytes::new(), None).unwrap();
        assert_eq!(trace(&stored.headers), Some(kept));
        let shown = policy.give_again(&stored.headers);
        assert_eq!(
            shown.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-a"]
        );
    }

    /// An application that settles its key by SQL may have counted characters instead of bytes.
    #[test]
    fn a_stored_line_about_the_connection_is_not_given_again() {
        let lines: [(&[u8], &[u8]); 2] = [(b"content-length", b"10"), (b"x-a", b"1")];
        let block = HeaderBlock::from_lines(lines).unwrap();
        let map = ResponsePolicy::default().give_again(&block);
        assert_eq!(map.len(), 1);
        assert!(map.contains_key("x-a"));
    }

    /// It may also have stored what the route does not: the route's word counts for both.
    #[test]
    fn a_stored_line_that_the_route_does_not_store_is_not_given_again() {
        let lines: [(&[u8], &[u8]); 3] = [(b"set-cookie", b"s=1"), (b"x-a", b"1"), (b"x-b", b"2")];
        let block = HeaderBlock::from_lines(lines).unwrap();
        let given = |policy: &ResponsePolicy| {
            let map = policy.give_again(&block);
            map.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut policy = ResponsePolicy::default();
        assert_eq!(given(&policy), ["x-a", "x-b"]);
        policy.cookies = true;
        assert_eq!(given(&policy), ["set-cookie", "x-a", "x-b"]);
        policy.deny = vec![HeaderName::from_static("x-a")];
        assert_eq!(given(&policy), ["set-cookie", "x-b"]);
        policy.allow = vec![HeaderName::from_static("x-b")];
        assert_eq!(given(&policy), ["x-b"]);
    }

    #[test]
    fn cookies_and_lists_are_policy() {
        let lines = [("set-cookie", "a=1"), ("x-a", "1"), ("x-b", "2")];
        let cookies = ResponsePolicy {
            cookies: true,
            ..ResponsePolicy::default()
        };
        assert_eq!(stored(&cookies, &lines), ["set-cookie", "x-a", "x-b"]);
        let a = HeaderName::from_static("x-a");
        let allow = ResponsePolicy {
            allow: vec![a.clone()],
            ..ResponsePolicy::default()
        };
        assert_eq!(stored(&allow, &lines), ["x-a"]);
        let deny = ResponsePolicy {
            deny: vec![a],
            ..ResponsePolicy::default()
        };
        assert_eq!(stored(&deny, &lines), ["x-b"]);
    }

    /// An answer that only looks like a stream would not be kept, and the upstream's time to give
    /// it would have no end; a stream that is not seen as one would be read to its end.
    #[test]
    fn streams_and_partial_answers_leave_tombstones() {
        for stream in [
            "text/event-stream",
            "Text/Event-Stream; charset=utf-8",
            "text/event-stream;charset=utf-8",
            "text/event-stream ; charset=utf-8",
        ] {
            let stream = head(&[("content-type", stream)]);
            assert_eq!(tombstone(&stream), Some(TombstoneReason::Stream));
        }
        for other in [
            "application/json",
            "text/event-streaming",
            "text/event-stream+json",
            "text/event-strea",
            "application/json; was=text/event-stream",
            "",
        ] {
            assert_eq!(
                tombstone(&head(&[("content-type", other)])),
                None,
                "{other}"
            );
        }
        assert_eq!(tombstone(&head(&[])), None);
        let mut partial = head(&[]);
        partial.status = StatusCode::PARTIAL_CONTENT;
        assert_eq!(tombstone(&partial), Some(TombstoneReason::NotStorable));
    }
}
