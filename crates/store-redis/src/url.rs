//! From a URL to options. What is wrong is said without repeating the URL: it may hold a password.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::options::{
    Address, CONNECTIONS, Credentials, EXPIRY_GRACE_MIN, Layout, RedisOptions, Tls,
};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// More connections than this gain nothing: the server has one thread.
const CONNECTIONS_MAX: u16 = 256;

/// See [`RedisOptions::connections`].
const CONNECTIONS_WITH_WAIT: u16 = 8;

/// A tag in the prefix would put every key in one slot.
const PREFIX_FORBIDDEN: [char; 2] = ['{', '}'];

type Parsed<T> = Result<T, String>;

pub(crate) fn parse(url: &str) -> Parsed<RedisOptions> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("it has no ://; write redis://HOST:PORT".to_owned());
    };
    let (layout, tls) = layout(scheme)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (read_credentials(credentials)?, hosts),
        None => (Credentials::default(), authority),
    };
    let default_port = match layout {
        Layout::Sentinel { .. } => SENTINEL_PORT,
        Layout::Single | Layout::Cluster => PORT,
    };
    let servers = hosts
        .split(',')
        .map(|host| address(host, default_port))
        .collect::<Parsed<Vec<_>>>()?;
    let Some(first) = servers.first() else {
        return Err("it names no host".to_owned());
    };
    if layout == Layout::Single && servers.len() > 1 {
        return Err(
            "it names several hosts: write redis-cluster:// or redis-sentinel://".to_owned(),
        );
    }
    let mut options = RedisOptions::new(first.clone());
    options.servers = servers;
    options.credentials = credentials;
    options.tls = tls;
    (options.layout, options.database) = read_path(&layout, path)?;
    read_query(&mut options, query)?;
    Ok(options)
}

fn layout(scheme: &str) -> Parsed<(Layout, Option<Tls>)> {
    let service = String::new();
    Ok(match scheme {
        "redis" => (Layout::Single, None),
        "rediss" => (Layout::Single, Some(Tls::default())),
        "redis-cluster" => (Layout::Cluster, None),
        "rediss-cluster" => (Layout::Cluster, Some(Tls::default())),
        "redis-sentinel" => (Layout::Sentinel { service }, None),
        "rediss-sentinel" => (Layout::Sentinel { service }, Some(Tls::default())),
        _ => {
            let known = "it must start with redis://, redis-cluster:// or redis-sentinel:// \
                         (rediss… for TLS)";
            return Err(known.to_owned());
        }
    })
}

fn read_credentials(text: &str) -> Parsed<Credentials> {
    let Some((user, password)) = text.split_once(':') else {
        return Err("before the @ it must say USER:PASSWORD, or :PASSWORD".to_owned());
    };
    let user = decoded(user, "the user")?;
    Ok(Credentials {
        user: (!user.is_empty()).then_some(user),
        password: Some(decoded(password, "the password")?),
    })
}

fn address(text: &str, default_port: u16) -> Parsed<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => return Err("an IPv6 address lacks its ]".to_owned()),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("a host is empty; write redis://HOST:PORT".to_owned());
    }
    let port = match port {
        Some(port) => number(port, "the port")?,
        None => default_port,
    };
    Ok(Address {
        host: host.to_owned(),
        port,
    })
}

fn read_path(layout: &Layout, path: &str) -> Parsed<(Layout, u16)> {
    let database = |text: &str| match text {
        "" => Ok(0),
        text => number(text, "the database number after the /"),
    };
    match layout {
        Layout::Single => Ok((Layout::Single, database(path)?)),
        Layout::Cluster if matches!(path, "" | "0") => Ok((Layout::Cluster, 0)),
        Layout::Cluster => Err("a cluster has only database 0: leave the / out".to_owned()),
        Layout::Sentinel { .. } => {
            let (service, number) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(
                    "it names no service: write redis-sentinel://HOST:PORT/SERVICE".to_owned(),
                );
            }
            let service = decoded(service, "the service")?;
            Ok((Layout::Sentinel { service }, database(number)?))
        }
    }
}

fn read_query(options: &mut RedisOptions, query: &str) -> Parsed<()> {
    let mut connections = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let value = decoded(value, name)?;
        match name {
            "connections" => connections = Some(number(&value, name)?),
            "tls_ca" | "tls_cert" | "tls_key" => read_tls(options, name, value)?,
            _ => read_option(options, name, value)?,
        }
    }
    let default = match options.wait_replicas {
        0 => CONNECTIONS,
        _ => CONNECTIONS_WITH_WAIT,
    };
    options.connections = connections.unwrap_or(default);
    check(options)
}

fn read_option(options: &mut RedisOptions, name: &str, value: String) -> Parsed<()> {
    let millis = |value: &str| number(value, name).map(Duration::from_millis);
    match name {
        "prefix" => options.prefix = value,
        "wait" => options.wait_replicas = number(&value, name)?,
        "wait_timeout_ms" => options.wait_timeout = millis(&value)?,
        "timeout_ms" => options.timeout = millis(&value)?,
        "connect_timeout_ms" => options.connect_timeout = millis(&value)?,
        "expiry_grace_s" => {
            let grace = Duration::from_secs(number::<u32>(&value, name)?.into());
            if grace < EXPIRY_GRACE_MIN {
                let least = EXPIRY_GRACE_MIN.as_secs();
                return Err(format!("{name} must be at least {least}"));
            }
            options.expiry_grace = grace;
        }
        "sentinel_user" => options.sentinel_credentials.user = Some(value),
        "sentinel_password" => options.sentinel_credentials.password = Some(value),
        "allow_unsafe_persistence" => options.allow_unsafe_persistence = truth(&value, name)?,
        "allow_eviction" => options.allow_eviction = truth(&value, name)?,
        // A password with a `?` that was not escaped would be repeated here.
        other if other.contains('@') => {
            return Err("a `?` in a password is written %3F, and an `@` %40".into());
        }
        other => return Err(format!("there is no option {other}=")),
    }
    Ok(())
}

fn read_tls(options: &mut RedisOptions, name: &str, value: String) -> Parsed<()> {
    let Some(tls) = &mut options.tls else {
        return Err(format!("{name}= is for rediss://, which speaks TLS"));
    };
    let file = PathBuf::from(value);
    let (certificate, key) = tls.identity.take().unwrap_or_default();
    match name {
        "tls_cert" => tls.identity = Some((file, key)),
        "tls_key" => tls.identity = Some((certificate, file)),
        _ => {
            tls.authority = Some(file);
            let given = certificate != PathBuf::new() || key != PathBuf::new();
            tls.identity = given.then_some((certificate, key));
        }
    }
    Ok(())
}

fn check(options: &RedisOptions) -> Parsed<()> {
    let wrong = if options.prefix.is_empty() || options.prefix.contains(PREFIX_FORBIDDEN) {
        "prefix= must not be empty, nor contain { or }"
    } else if options.connections == 0 || options.connections > CONNECTIONS_MAX {
        "connections= must be from 1 to 256"
    } else if options.timeout.is_zero() || options.connect_timeout.is_zero() {
        "timeout_ms= and connect_timeout_ms= must be at least 1"
    } else if options.wait_replicas > 0 && options.wait_timeout.is_zero() {
        // Zero would mean "for ever" to the server.
        "wait_timeout_ms= must be at least 1"
    } else if options.wait_replicas > 0 && options.wait_timeout >= options.timeout {
        "wait_timeout_ms= must be below timeout_ms="
    } else if matches!(&options.tls, Some(Tls { identity: Some((certificate, key)), .. })
        if *certificate == PathBuf::new() || *key == PathBuf::new())
    {
        "tls_cert= and tls_key= go together"
    } else {
        return Ok(());
    };
    Err(wrong.to_owned())
}

fn number<T: FromStr>(text: &str, what: &str) -> Parsed<T> {
    let wrong = |_| format!("{what} is not a number in range");
    text.parse().map_err(wrong)
}

fn truth(text: &str, name: &str) -> Parsed<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name}= must be true or false")),
    }
}

/// Undoes `%41` and the like.
fn decoded(text: &str, what: &str) -> Parsed<String> {
    let wrong = || format!("{what} has a % that does not start a code such as %40");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or_else(wrong)?;
        bytes.extend(u8::try_from(high * 16 + low));
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn a_server_with_everything() {
        let url = "rediss://app:p%40ss%3A@db.example:7000/3?prefix=pay&wait=2&tls_ca=/ca.pem\
                   &allow_eviction=true&expiry_grace_s=7200&tls_cert=/c.pem&tls_key=/k.pem";
        let options = parse(url).unwrap();
        assert_eq!(options.servers, [at("db.example", 7000)]);
        assert_eq!(options.layout, Layout::Single);
        assert_eq!(options.credentials.user.as_deref(), Some("app"));
        assert_eq!(options.credentials.password.as_deref(), Some("p@ss:"));
        assert_eq!(options.database, 3);
        assert_eq!(options.prefix, "pay");
        assert_eq!(options.wait_replicas, 2);
        assert_eq!(options.connections, CONNECTIONS_WITH_WAIT);
        assert_eq!(options.expiry_grace, Duration::from_secs(7200));
        let tls = options.tls.unwrap();
        assert_eq!(tls.authority, Some("/ca.pem".into()));
        assert_eq!(tls.identity, Some(("/c.pem".into(), "/k.pem".into())));
        assert!(options.allow_eviction && !options.allow_unsafe_persistence);
    }

    /// The grace is what the servers' clocks may differ by.
    #[test]
    fn a_grace_below_the_least_is_refused_by_name() {
        let refused = parse("redis://db?expiry_grace_s=3599").unwrap_err();
        assert_eq!(refused, "expiry_grace_s must be at least 3600");
    }

    #[test]
    fn a_bare_host_has_the_usual_port() {
        let options = parse("redis://[::1]").unwrap();
        assert_eq!(options.servers, [at("::1", 6379)]);
        assert_eq!(options.servers[0].to_string(), "[::1]:6379");
        assert_eq!(options.connections, CONNECTIONS);
    }

    #[test]
    fn clusters_and_sentinels_name_several_hosts() {
        let options = parse("redis-cluster://:secret@a:1,b,c:3").unwrap();
        assert_eq!(options.servers, [at("a", 1), at("b", 6379), at("c", 3)]);
        assert_eq!(options.layout, Layout::Cluster);
        assert_eq!(options.credentials.user, None);
        let options = parse("redis-sentinel://a,b:2/main/5").unwrap();
        assert_eq!(options.servers, [at("a", 26379), at("b", 2)]);
        let service = "main".to_owned();
        assert_eq!(options.layout, Layout::Sentinel { service });
        assert_eq!(options.database, 5);
    }

    /// Every mistake is named by what to change, and no message repeats a password.
    #[test]
    fn mistakes_are_named() {
        for (url, named) in [
            ("redis:hunter2", "://"),
            ("http://host", "redis://"),
            ("redis://", "host is empty"),
            ("redis://hunter2@host", "USER:PASSWORD"),
            ("redis://u:hunter2@host:port", "the port"),
            ("redis://u:hunter2@host/x", "database number"),
            ("redis://u:hunter2%@host", "the password"),
            ("redis://u:hunter2@a,b", "redis-cluster://"),
            ("redis-cluster://u:hunter2@a/1", "only database 0"),
            ("redis-sentinel://u:hunter2@a", "SERVICE"),
            ("redis://u:hunter2@a?colour=red", "colour="),
            ("redis://u:hunter2@a?wait=-1", "wait"),
            ("redis://u:hunter2@a?allow_eviction=yes", "true or false"),
            ("redis://u:hunter2@a?prefix={x}", "prefix="),
            ("redis://u:hunter2@a?connections=0", "connections="),
            ("redis://u:hunter2@a?timeout_ms=0", "timeout_ms="),
            (
                "redis://u:hunter2@a?wait=1&wait_timeout_ms=9000",
                "wait_timeout_ms=",
            ),
            ("redis://u:hunter2@a?tls_ca=x", "rediss://"),
            ("rediss://u:hunter2@a?tls_cert=x", "tls_key="),
            ("redis://[::1", "]"),
        ] {
            let wrong = parse(url).expect_err(url);
            assert!(wrong.contains(named), "{url}: {wrong}");
            assert!(!wrong.contains("hunter2"), "{url}: {wrong}");
            assert!(!wrong.contains('\n'), "{url}: {wrong}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let options = parse("redis://u:hunter2@host?sentinel_password=hunter2").unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
