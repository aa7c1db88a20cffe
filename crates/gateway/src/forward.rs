//! The head of a request on its way to the upstream, and of an answer on its way back.

use std::net::IpAddr;

use http::header::{self, Entry};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};

use crate::config::{Forwarded, HostRule, Network};

/// Fields of one connection, which end at the gateway. `Trailer` is none of them: without it the
/// trailers themselves would be left out on the next connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Who asked, how, and for which host, as proxies tell each other.
const X_FORWARDED: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
];

/// What the names of fields begin with that only the gateway may send.
const OWN: &str = "onlyonce-";

const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const TE: HeaderValue = HeaderValue::from_static("te");

/// Where a request came from, and how that is said. Made once for each connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// As in `X-Forwarded-For`.
    node: HeaderValue,
    /// As in `X-Forwarded-Proto`.
    proto: HeaderValue,
    /// As in `Forwarded`.
    forwarded: HeaderValue,
}

impl Peer {
    /// The peer at this address; `None` for an address that no header can hold, and there is none.
    pub(crate) fn new(address: IpAddr, tls: bool) -> Option<Self> {
        let proto = if tls { "https" } else { "http" };
        let node = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("\"[{address}]\""),
        };
        Some(Self {
            address,
            node: HeaderValue::from_str(&address.to_string()).ok()?,
            proto: HeaderValue::from_static(proto),
            forwarded: HeaderValue::from_str(&format!("for={node};proto={proto}")).ok()?,
        })
    }
}

/// How heads are rewritten.
#[derive(Debug, Clone)]
pub(crate) struct Rewriting {
    pub(crate) forwarded: Forwarded,
    pub(crate) host: HostRule,
    /// The upstream's own authority.
    pub(crate) authority: Authority,
    /// Proxies whose word about the client is passed on; all of them when empty.
    pub(crate) trusted: Vec<Network>,
    pub(crate) http2: bool,
    /// Whether the upstream is met over TLS, which an HTTP/2 request says.
    pub(crate) https: bool,
}

impl Rewriting {
    /// Rewrites the head of a request. `upgrade` keeps what a protocol switch needs.
    pub(crate) fn request<B>(&self, request: &mut Request<B>, peer: &Peer, upgrade: bool) {
        let host = host_of(request);
        let headers = request.headers_mut();
        let protocol = upgrade
            .then(|| headers.get(header::UPGRADE).cloned())
            .flatten();
        let trailers = wants_trailers(headers);
        strip_hop_by_hop(headers);
        strip_own(headers);
        if !self.http2 {
            join_cookies(headers);
        }
        if let Some(protocol) = protocol {
            append(headers, header::CONNECTION, &UPGRADE);
            headers.insert(header::UPGRADE, protocol);
        }
        if trailers {
            let te = HeaderValue::from_static("trailers");
            headers.insert(header::TE, te);
            if !self.http2 {
                append(headers, header::CONNECTION, &TE);
            }
        }
        self.tell_about(headers, peer, host.as_ref());
        self.address(request, host);
    }

    /// Removes what the peer says about its client, if that is not passed on. To be called before anybody
    /// decides by it.
    pub(crate) fn forget_hearsay<B>(&self, request: &mut Request<B>) {
        if self.trusted.is_empty() && self.forwarded != Forwarded::Replace {
            return;
        }
        if let Some(peer) = request.extensions().get::<Peer>().cloned() {
            self.drop_hearsay(request.headers_mut(), &peer);
        }
    }

    fn drop_hearsay(&self, headers: &mut HeaderMap, peer: &Peer) {
        let trusted =
            self.trusted.is_empty() || self.trusted.iter().any(|net| net.contains(peer.address));
        let passes =
            self.forwarded == Forwarded::Off || (self.forwarded != Forwarded::Replace && trusted);
        if !passes {
            for name in X_FORWARDED.iter().chain([&header::FORWARDED]) {
                headers.remove(name);
            }
        }
    }

    fn tell_about(&self, headers: &mut HeaderMap, peer: &Peer, host: Option<&HeaderValue>) {
        let [for_whom, proto, asked] = &X_FORWARDED;
        if self.forwarded == Forwarded::Off {
            return;
        }
        self.drop_hearsay(headers, peer);
        append(headers, for_whom.clone(), &peer.node);
        append(headers, header::FORWARDED, &peer.forwarded);
        // The first proxy knows best what the client asked for.
        if let Entry::Vacant(entry) = headers.entry(proto) {
            entry.insert(peer.proto.clone());
        }
        if let (Entry::Vacant(entry), Some(host)) = (headers.entry(asked), host) {
            entry.insert(host.clone());
        }
    }

    /// Sets `Host` and the request's target in the form that the upstream's protocol wants.
    fn address<B>(&self, request: &mut Request<B>, host: Option<HeaderValue>) {
        let own = || HeaderValue::from_str(self.authority.as_str()).ok();
        let host = match self.host {
            HostRule::Preserve => host.or_else(own),
            HostRule::Rewrite => own(),
        };
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.http2 {
            let authority = host
                .as_ref()
                .and_then(|host| Authority::try_from(host.as_bytes()).ok());
            let authority = authority.unwrap_or_else(|| self.authority.clone());
            let uri = Uri::builder()
                .scheme(if self.https { "https" } else { "http" })
                .authority(authority)
                .path_and_query(path);
            *request.uri_mut() = uri.build().unwrap_or_default();
            request.headers_mut().remove(header::HOST);
            *request.version_mut() = Version::HTTP_2;
            return;
        }
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = Version::HTTP_11;
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host);
        }
    }
}

/// Asks for this host instead of the one that a request was rewritten to.
pub(crate) fn rename<B>(request: &mut Request<B>, host: &Authority) {
    if request.uri().authority().is_none() {
        if let Ok(host) = HeaderValue::from_str(host.as_str()) {
            request.headers_mut().insert(header::HOST, host);
        }
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.authority = Some(host.clone());
    // Of parts that were a target before, with another host.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// Makes one line of several `Cookie` lines, which HTTP/2 clients send and HTTP/1 does not know.
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
    if lines.len() < 2 {
        return;
    }
    let bytes: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&bytes.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// The name that the client asked for: `Host`, or the authority of an HTTP/2 request, without the
/// user that it may name.
fn host_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    let authority = request.uri().authority().map(Authority::as_str);
    let authority = authority.and_then(|authority| authority.rsplit('@').next());
    authority
        .and_then(|authority| HeaderValue::from_str(authority).ok())
        .or_else(|| request.headers().get(header::HOST).cloned())
}

/// Whether trailers are welcome. The gateway passes them on, so it may say so for the client.
fn wants_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Adds to what is there, as one line.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let earlier = headers.get_all(&name).iter();
    let mut line: Vec<u8> = Vec::new();
    for earlier in earlier.filter(|value| value.to_str().is_ok()) {
        line.extend_from_slice(earlier.as_bytes());
        line.extend_from_slice(b", ");
    }
    if line.is_empty() {
        headers.insert(name, value.clone());
        return;
    }
    line.extend_from_slice(value.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&line) {
        headers.insert(name, value);
    }
}

/// Removes the fields of one connection, also those that `Connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most heads have none, and a look at each name is cheaper than nine searches.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    for name in named(headers).iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes the fields that `Connection` names, but for those that the proxy itself has use for, and
/// `Connection`.
///
/// To be called before anybody decides by a field that the upstream will not see, and before the
/// gateway adds one of its own: a client could send a key, or say who it is, to the gateway alone,
/// or keep the key that is forwarded from the upstream.
pub(crate) fn strip_named(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONNECTION) {
        headers.remove(header::UPGRADE);
        return;
    }
    let names = named(headers);
    // Without that it is a word that somebody passed on, and no wish of this client's.
    if !names.contains(&header::UPGRADE) {
        headers.remove(header::UPGRADE);
    }
    for name in names {
        if !HOP_BY_HOP.contains(&name) {
            headers.remove(name);
        }
    }
    headers.remove(header::CONNECTION);
}

/// The fields that `Connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

/// Whether the upstream may see another value in this field than the client sent, or none: no place
/// for a key.
pub(crate) fn is_rewritten(name: &HeaderName) -> bool {
    const REWRITTEN: [HeaderName; 6] = [
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::FORWARDED,
        header::HOST,
        HeaderName::from_static("traceparent"),
        HeaderName::from_static("tracestate"),
    ];
    is_stripped(name)
        || HOP_BY_HOP.contains(name)
        || REWRITTEN.contains(name)
        || X_FORWARDED.contains(name)
}

/// Whether two names are one to CGI and its kin, to which `_` is `-`.
pub(crate) fn are_twins(one: &HeaderName, other: &HeaderName) -> bool {
    let meant = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let [one, other] = [one, other].map(|name| name.as_str().bytes().map(meant));
    one.eq(other)
}

/// Whether a client's field ends at the gateway: one that only the gateway may send, or one that some
/// servers take for that, or for a proxy's word about its client. Proxies write `X-Forwarded-…` with `-`,
/// also such as the gateway lets pass (`X-Forwarded-Port`); with `_` only clients do.
fn is_stripped(name: &HeaderName) -> bool {
    let name = name.as_str();
    if !name.contains('_') {
        return name.starts_with(OWN);
    }
    let meant = name.replace('_', "-");
    meant.starts_with(OWN) || meant.starts_with("x-forwarded-")
}

/// Removes what a client may not say to the upstream.
pub(crate) fn strip_own(headers: &mut HeaderMap) {
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_stripped(name))
        .cloned()
        .collect();
    for name in own {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To a server that reads names as CGI does these are the gateway's own words.
    #[test]
    fn names_that_some_servers_take_for_the_gateways_own_are_removed() {
        let mut headers = HeaderMap::new();
        for name in [
            "onlyonce-operation",
            "onlyonce_operation",
            "only_once",
            "forwarded",
            "x_forwarded_for",
            "x-forwarded_host",
            "x_forwarded_port",
            "x-forwarded-port",
            "api_key",
        ] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        strip_own(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        let kept = ["api_key", "forwarded", "only_once", "x-forwarded-port"];
        assert_eq!(left, kept);
    }

    /// A key in a header that is removed never reaches the API, which then runs every retry of it.
    #[test]
    fn whatever_is_removed_is_no_place_for_a_key() {
        let names = [
            "onlyonce-key",
            "onlyonce_key",
            "x_forwarded_key",
            "x-forwarded_key",
            "connection",
            "x-forwarded-key",
            "x_key",
        ];
        for name in names.map(HeaderName::from_static) {
            let mut headers = HeaderMap::new();
            headers.insert(&name, HeaderValue::from_static("k"));
            strip_own(&mut headers);
            strip_hop_by_hop(&mut headers);
            assert_eq!(headers.is_empty(), is_rewritten(&name), "{name}");
        }
    }

    #[test]
    fn a_request_is_renamed_in_the_way_of_its_protocol() {
        let own = Authority::from_static("two.example:9000");
        let http1 = Request::get("/pay?a=1").header(header::HOST, "one.example");
        let mut http1 = http1.body(()).unwrap_or_default();
        rename(&mut http1, &own);
        assert_eq!(http1.uri(), "/pay?a=1");
        assert_eq!(http1.headers()[header::HOST], "two.example:9000");
        let http2 = Request::get("https://one.example/pay?a=1");
        let mut http2 = http2.body(()).unwrap_or_default();
        rename(&mut http2, &own);
        assert_eq!(http2.uri(), "https://two.example:9000/pay?a=1");
        assert!(http2.headers().is_empty());
    }
}
