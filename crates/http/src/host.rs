//! The host that a client asked for, where it is part of a key's scope.

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, header};

use crate::Route;

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The host in lower case and without its port; nothing where it does not count, or none is known.
pub(crate) fn counted(route: &Route, parts: &Parts) -> String {
    if !route.policy.scope().host {
        return String::new();
    }
    // What stands in the target beats the header, also for whoever answers (RFC 9112, 3.2.2).
    let asked = match parts.uri.host() {
        Some(host) => host.to_ascii_lowercase(),
        None => named(parts, &header::HOST),
    };
    // Behind a proxy that asks for a host of its own these say which one the client asked for, and
    // the service may go by either.
    let [x_forwarded, forwarded] = [named(parts, &FORWARDED_HOST), forwarded_hosts(parts)]
        .map(|told| if told == asked { String::new() } else { told });
    if x_forwarded.is_empty() && forwarded.is_empty() {
        return asked;
    }
    // No host has a line break in it, also where it cannot be read.
    [asked, x_forwarded, forwarded].join("\n")
}

/// The hosts in all lines of a header. One that cannot be read, and several, are as they are: no
/// other request's.
fn named(parts: &Parts, header: &HeaderName) -> String {
    let lines = parts.headers.get_all(header).iter();
    let hosts: Vec<_> = lines.map(|line| host(line.as_bytes())).collect();
    hosts.join(", ")
}

/// The same for `Forwarded: for=…;host=…`, of whichever proxies say so.
fn forwarded_hosts(parts: &Parts) -> String {
    let lines = parts.headers.get_all(header::FORWARDED).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| matches!(byte, b',' | b';')));
    let hosts = pairs.filter_map(|pair| {
        let (name, value) = pair.trim_ascii().split_at_checked(b"host=".len())?;
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let value = value.strip_suffix(b"\"").unwrap_or(value);
        name.eq_ignore_ascii_case(b"host=").then(|| host(value))
    });
    hosts.collect::<Vec<_>>().join(", ")
}

fn host(text: &[u8]) -> String {
    match Authority::try_from(text) {
        Ok(authority) => authority.host().to_ascii_lowercase(),
        Err(_) => text.escape_ascii().to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at once")]
mod tests {
    use http::{Method, Request};
    use onlyonce_core::{Policy, RouteName, ScopeParts};

    use super::*;
    use crate::Pattern;

    fn of(target: &str, hosts: &[&str], host: bool) -> String {
        let scope = ScopeParts {
            host,
            ..ScopeParts::default()
        };
        let anything = Pattern::parse("/{*rest}").unwrap();
        let mut route = Route::new(RouteName::default(), [Method::GET], anything);
        route.policy = Policy::builder().scope(scope).build().unwrap();
        let request = hosts.iter().fold(Request::get(target), |request, host| {
            request.header(header::HOST, *host)
        });
        counted(&route, &request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn one_host_is_one_host_however_it_is_written() {
        for (target, host) in [
            ("/", "api.example"),
            ("/", "API.Example"),
            ("/", "api.example:8443"),
            ("https://Api.example:443/", "other.example"),
        ] {
            assert_eq!(of(target, &[host], true), "api.example", "{target} {host}");
        }
        assert_eq!(of("/", &["[::1]:80"], true), "[::1]");
        assert_eq!(of("/", &[], true), "");
    }

    fn told(lines: &[(&str, &str)]) -> String {
        let scope = ScopeParts {
            host: true,
            ..ScopeParts::default()
        };
        let mut route = Route::new(RouteName::default(), [Method::GET], Pattern::any());
        route.policy = Policy::builder().scope(scope).build().unwrap();
        let request = Request::get("/").header(header::HOST, "inner.example");
        let request = lines.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        counted(&route, &request.body(()).unwrap().into_parts().0)
    }

    /// A proxy in front may ask for one host, whatever its clients asked for, and say which it was. An
    /// API that goes by that must not have one tenant's answer shown to another.
    #[test]
    fn the_host_that_a_proxy_tells_counts_too() {
        let (a, b) = ("a.example", "b.example");
        let name = "x-forwarded-host";
        assert_ne!(told(&[(name, a)]), told(&[(name, b)]));
        assert_eq!(told(&[(name, a)]), told(&[(name, "A.Example:443")]));
        let forwarded = |host: &str| told(&[("forwarded", &format!("for=192.0.2.1;Host={host}"))]);
        assert_ne!(forwarded(a), forwarded(b));
        assert_eq!(forwarded(a), forwarded("\"a.example:8443\""));
        assert_ne!(told(&[(name, a)]), told(&[]));
        assert_ne!(
            told(&[(name, a)]),
            forwarded(a),
            "an API goes by one of them"
        );
    }

    /// A host is whatever a client writes there; some of it is no host at all.
    #[test]
    fn a_host_cannot_pass_for_what_a_proxy_tells() {
        let honest = told(&[("x-forwarded-host", "b.example")]);
        for separator in [" ", "\\n", ",", "\t"] {
            let forged = honest.replace('\n', separator);
            assert_ne!(of("/", &[&forged], true), honest);
        }
    }

    /// Keys of deployments whose proxies keep the host stay what they are.
    #[test]
    fn a_proxy_that_tells_the_same_host_changes_nothing() {
        let same = [
            ("x-forwarded-host", "inner.example"),
            ("forwarded", "for=192.0.2.1;host=inner.example;proto=https"),
        ];
        assert_eq!(told(&same), "inner.example");
    }

    #[test]
    fn it_does_not_count_unless_asked_for() {
        assert_eq!(of("https://api.example/", &["api.example"], false), "");
    }

    /// A request with two hosts, or with one that is none, must not pass for another's.
    #[test]
    fn what_cannot_be_read_is_nobody_elses() {
        assert_ne!(of("/", &["a.example", "b.example"], true), "a.example");
        assert_ne!(of("/", &["a.example b"], true), "a.example");
    }
}
