//! Addresses: to listen on, to send to, to trust.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;
use http::uri::Authority;

use super::field::{Field, Wrong, quoted, text, wrong};
use super::raw::Value;

/// The address of an upstream: no path, no query, no user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Whether the connection is encrypted.
    pub(crate) https: bool,
    /// The host, and the port if it was written.
    pub(crate) authority: Authority,
}

impl Endpoint {
    /// The host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    /// The port, or the scheme's own.
    pub(crate) fn port(&self) -> u16 {
        let usual = if self.https { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(usual)
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let ip = self.host().parse::<IpAddr>();
        self.host().eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl Field for Endpoint {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const EXAMPLE: &str = "http://127.0.0.1:9000";
        let url = text(value, EXAMPLE)?;
        if url.contains('@') {
            return wrong(
                "an upstream URL carries no user or password: remove everything up to the \"@\"",
            );
        }
        let parts = url.parse::<Uri>().map(Uri::into_parts);
        let Ok((Some(scheme), Some(authority), path)) =
            parts.map(|parts| (parts.scheme, parts.authority, parts.path_and_query))
        else {
            return wrong(format!(
                "\"{url}\" is no URL: write one such as \"{EXAMPLE}\""
            ));
        };
        let https = match scheme.as_str() {
            "https" => true,
            "http" => false,
            other => {
                return wrong(format!(
                    "\"{other}\" cannot be spoken upstream: use http or https"
                ));
            }
        };
        if path.is_some_and(|path| path != "/") || url.contains(['#', '?']) {
            return wrong(format!(
                "\"{url}\" has a path or query: requests keep their own; write \
                 \"{scheme}://{authority}\""
            ));
        }
        let port = authority.as_str().rsplit_once(':').map(|(_, port)| port);
        let ported = port.is_some_and(|port| !port.ends_with(']'));
        if ported && authority.port_u16().is_none_or(|port| port == 0) {
            return wrong(format!("\"{url}\" has no usable port: write 1 to 65535"));
        }
        Ok(Self { https, authority })
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Field for SocketAddr {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "127.0.0.1:8080")?;
        let numbers = match written.strip_prefix("localhost:") {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
            None => written.to_owned(),
        };
        numbers.parse().or_else(|_| {
            wrong(format!(
                "\"{written}\" is no address to listen on: write an IP address and a port, such \
                 as \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \"[::]:8080\""
            ))
        })
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

/// Addresses of trusted proxies: one address, or a network such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    ip: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is in it. An IPv4 address that came as IPv6 is the same address.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        let shift = |width: u8| u32::from(width.saturating_sub(self.bits));
        match (self.ip, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let differ = u32::from(net) ^ u32::from(ip);
                differ.checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let differ = u128::from(net) ^ u128::from(ip);
                differ.checked_shr(shift(128)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl Field for Network {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "10.0.0.0/8")?;
        let (ip, bits) = written.split_once('/').unwrap_or((written, ""));
        let network = ip.parse::<IpAddr>().ok().and_then(|ip| {
            let bits_max = if ip.is_ipv4() { 32 } else { 128 };
            let bits = if bits.is_empty() && !written.contains('/') {
                bits_max
            } else {
                bits.parse().ok()?
            };
            (bits <= bits_max).then_some(Self { ip, bits })
        });
        network.ok_or_else(|| {
            vec![format!(
                "\"{written}\" is no address: write one such as \"10.0.0.7\" or \"10.0.0.0/8\""
            )]
        })
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&format!("{}/{}", self.ip, self.bits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Field>(text: &str) -> Result<T, Wrong> {
        T::read(&Value::Text(text.to_owned()))
    }

    #[test]
    fn an_upstream_is_a_scheme_and_an_authority() {
        for url in [
            "http://a",
            "https://a:8443/",
            "http://127.0.0.1:9000",
            "http://[::1]:9000",
            "http://[::1]",
        ] {
            assert!(read::<Endpoint>(url).is_ok(), "{url}");
        }
        let urls = [
            "",
            "a:80",
            "127.0.0.1:80",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a?b",
            "http://a/#b",
            "http://u:p@a",
            "http://a:0",
            "http://a:99999",
            "http://a:",
        ];
        for url in urls {
            assert!(read::<Endpoint>(url).is_err(), "{url}");
        }
    }

    /// A password in a log is a password for whoever reads logs.
    #[test]
    fn a_refused_url_with_a_password_is_not_repeated() {
        let refused = read::<Endpoint>("http://user:hunter2@a").unwrap_err();
        assert!(!refused.concat().contains("hunter2"));
    }

    #[test]
    fn an_upstream_knows_its_port_and_whether_it_is_here() {
        let endpoint = |url| read::<Endpoint>(url).unwrap();
        assert_eq!(endpoint("https://api.example").port(), 443);
        assert_eq!(endpoint("http://[::1]:9000").host(), "::1");
        assert!(endpoint("http://[::1]").is_loopback());
        assert!(endpoint("http://LOCALHOST:1").is_loopback());
        assert!(!endpoint("http://10.0.0.1").is_loopback());
    }

    #[test]
    fn networks_contain_their_addresses_only() {
        let network = |text| read::<Network>(text).unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(network("10.0.0.0/8").contains(ip("10.1.2.3")));
        assert!(network("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")));
        assert!(!network("10.0.0.0/8").contains(ip("11.0.0.1")));
        assert!(network("10.0.0.7").contains(ip("10.0.0.7")));
        assert!(!network("10.0.0.7").contains(ip("10.0.0.8")));
        assert!(network("0.0.0.0/0").contains(ip("1.2.3.4")));
        assert!(!network("0.0.0.0/0").contains(ip("::1")));
        assert!(network("::/0").contains(ip("fe80::1")));
        for text in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129"] {
            assert!(read::<Network>(text).is_err(), "{text}");
        }
    }
}
