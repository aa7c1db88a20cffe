//! The host that a client asked for, where it is part of a key's scope.

use http::header;
use http::request::Parts;
use http::uri::Authority;

use crate::Route;

/// The host in lower case and without its port; nothing where it does not count, or none is known.
pub(crate) fn counted(route: &Route, parts: &Parts) -> String {
    if !route.policy.scope().host {
        return String::new();
    }
    // What stands in the target beats the header, also for whoever answers (RFC 9112, 3.2.2).
    if let Some(host) = parts.uri.host() {
        return host.to_ascii_lowercase();
    }
    let lines = parts.headers.get_all(header::HOST).iter();
    // A host that cannot be read, and two of them, are as they are: no other request's.
    let text: Vec<_> = lines
        .map(|line| match Authority::try_from(line.as_bytes()) {
            Ok(authority) => authority.host().to_ascii_lowercase(),
            Err(_) => line.as_bytes().escape_ascii().to_string(),
        })
        .collect();
    text.join(", ")
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
