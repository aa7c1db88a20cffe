//! Values with a form of their own: stores, headers, paths, principals.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use http::uri::PathAndQuery;
use http::{HeaderName, Method};
use onlyonce_core::ScopeParts;
use onlyonce_core::json::Pointer;
use onlyonce_http::{ForwardKey, KeyPlace, Pattern};
use onlyonce_store_dynamodb::DynamoOptions;
use onlyonce_store_postgres::PostgresOptions;
use onlyonce_store_redis::{Layout, RedisOptions};

pub(crate) use super::address::{Endpoint, Network};
pub(crate) use super::choices::{
    Forwarded, HostRule, InFlightKind, KeyNeed, LogFormat, LogLevel, UpstreamKind,
};
use super::field::{Field, Wrong, no_such_choice, quoted, text, wrong};
use super::raw::Value;

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// A folder of this machine.
    Embedded(PathBuf),
    /// Nowhere: gone when the process ends.
    Memory,
    /// PostgreSQL.
    Postgres(ServerUrl),
    /// Redis: one server, Sentinel or a cluster.
    Redis(ServerUrl),
    /// DynamoDB.
    Dynamo(ServerUrl),
}

/// The URL of a server. It may hold a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl(String);

impl ServerUrl {
    /// The whole of it, for the store alone.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rest, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let (scheme, place) = rest.split_once("://").unwrap_or(("", rest));
        // A password may contain an `@` that was not escaped: the last one ends it.
        match place.rsplit_once('@') {
            Some((who, place)) if who.contains(':') => {
                let user = who.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}:***@{place}")?;
            }
            Some(_) | None => write!(f, "{scheme}://{place}")?,
        }
        for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            f.write_str(if index == 0 { "?" } else { "&" })?;
            match pair.split_once('=') {
                Some((name, _)) if name.contains("password") => write!(f, "{name}=***")?,
                Some(_) | None => f.write_str(pair)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Field for StoreUrl {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let url = text(value, "embedded:./onlyonce-data")?;
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        match (scheme, rest) {
            ("embedded", "") => wrong("which folder? write \"embedded:./onlyonce-data\""),
            ("embedded", folder) => Ok(Self::Embedded(folder.into())),
            ("memory", "") => Ok(Self::Memory),
            ("postgres" | "postgresql", _) => {
                let read = PostgresOptions::from_url(url);
                server(url, read.map(drop)).map(Self::Postgres)
            }
            ("dynamodb", _) => {
                let read = DynamoOptions::from_url(url);
                server(url, read.map(drop)).map(Self::Dynamo)
            }
            (scheme, _) if scheme.starts_with("redis") => {
                let read = RedisOptions::from_url(url);
                server(url, read.map(drop)).map(Self::Redis)
            }
            // The rest may hold a password: it is not repeated.
            _ => wrong(
                "there is no such store: write \"embedded:FOLDER\", \"postgres://…\", \
                 \"redis://…\", \"redis-cluster://…\", \"redis-sentinel://…\" (rediss… for TLS), \
                 \"dynamodb://TABLE\" or \"memory:\"",
            ),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

/// A Redis server that is a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheUrl(pub(crate) ServerUrl);

impl Field for CacheUrl {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let url = text(value, "redis://127.0.0.1:6379")?;
        match RedisOptions::from_url(url) {
            Ok(options) if options.layout == Layout::Single => Ok(Self(ServerUrl(url.to_owned()))),
            Ok(_) => wrong("a cache is one server: write \"redis://…\" or \"rediss://…\""),
            Err(error) => wrong(error.to_string()),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.0.to_string()))
    }
}

/// A URL that its store can read. The store's own words about one that it cannot read name the
/// part to change, and never the password.
fn server<E: fmt::Display>(url: &str, read: Result<(), E>) -> Result<ServerUrl, Wrong> {
    match read {
        Ok(()) => Ok(ServerUrl(url.to_owned())),
        Err(error) => wrong(error.to_string()),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(folder) => write!(f, "embedded:{}", folder.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Postgres(url) | Self::Redis(url) | Self::Dynamo(url) => url.fmt(f),
        }
    }
}

impl Field for Method {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "POST")?;
        if written.is_empty() || written.bytes().any(|byte| !byte.is_ascii_uppercase()) {
            let upper = written.to_uppercase();
            return wrong(format!(
                "\"{written}\" is no method: write it as in \"{upper}\""
            ));
        }
        Self::from_bytes(written.as_bytes()).map_err(|_| {
            vec![format!(
                "\"{written}\" is no method: write one such as \"POST\""
            )]
        })
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

impl Field for HeaderName {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "idempotency-key")?;
        written.parse().map_err(|_| {
            vec![format!(
                "\"{written}\" is no header name: use letters, digits and \"-\""
            )]
        })
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

/// A path on the upstream, such as `/auth`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamPath(PathAndQuery);

impl UpstreamPath {
    /// As a request names it.
    pub(crate) fn path_and_query(&self) -> PathAndQuery {
        self.0.clone()
    }
}

impl Field for UpstreamPath {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "/auth")?;
        match written.parse::<PathAndQuery>() {
            Ok(path) if written.starts_with('/') => Ok(Self(path)),
            Ok(_) | Err(_) => wrong(format!(
                "\"{written}\" is no path: write one such as \"/auth\""
            )),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self.0.as_str()))
    }
}

/// Where a caller's name comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The bytes of `Authorization`.
    Authorization,
    /// A header that somebody trusted sets.
    Header(HeaderName),
    /// A claim of a verified token.
    Jwt(String),
    /// The verified client certificate.
    Mtls,
    /// Everybody is the same caller.
    None,
}

impl Field for Source {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "authorization")?;
        match written.split_once(':').unwrap_or((written, "")) {
            ("authorization", "") => Ok(Self::Authorization),
            ("mtls", "") => Ok(Self::Mtls),
            ("none", "") => Ok(Self::None),
            ("header", "") => wrong("which header? write \"header:NAME\""),
            ("header", name) => HeaderName::read(&Value::Text(name.to_owned())).map(Self::Header),
            ("jwt", "") => wrong("which claim? write \"jwt:sub\", for example"),
            ("jwt", claim) => Ok(Self::Jwt(claim.to_owned())),
            _ => no_such_choice(
                written,
                &["authorization", "header:NAME", "jwt:CLAIM", "mtls", "none"],
            ),
        }
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&match self {
            Self::Authorization => "authorization".to_owned(),
            Self::Header(name) => format!("header:{name}"),
            Self::Jwt(claim) => format!("jwt:{claim}"),
            Self::Mtls => "mtls".to_owned(),
            Self::None => "none".to_owned(),
        }))
    }
}

impl Field for Pattern {
    fn read(value: &Value) -> Result<Self, Wrong> {
        Self::parse(text(value, "/payments/{id}")?).map_err(|reason| vec![reason.to_string()])
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Field for Pointer {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "/amount")?;
        Self::parse(written).map_err(|reason| vec![format!("\"{written}\": {reason}")])
    }

    fn write(&self) -> Option<String> {
        Some(quoted(self.as_str()))
    }
}

/// `"json:/idempotency_key"`
impl Field for KeyPlace {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let written = text(value, "header:idempotency-key")?;
        written.parse().map_err(|reason: String| vec![reason])
    }

    fn write(&self) -> Option<String> {
        Some(quoted(&self.written()))
    }
}

/// `{ header = "Stripe-Idempotency", value = "{key}" }`
impl Field for ForwardKey {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let example = "write { header = \"idempotency-key\", value = \"{child:payment}\" }";
        let Value::Table(table) = value else {
            return wrong(format!("this is {}: {example}", value.kind()));
        };
        let (mut header, mut form) = (None, None);
        for entry in table.iter() {
            match entry.key.as_str() {
                "header" => header = Some(HeaderName::read(&entry.value)?),
                "value" => form = Some(text(&entry.value, "{key}")?),
                other => return wrong(format!("unknown key \"{other}\": {example}")),
            }
        }
        match header {
            Some(header) => Self::new(header, form.unwrap_or("{key}"))
                .map_err(|reason| vec![reason.to_string()]),
            None => wrong(format!("in which header? {example}")),
        }
    }

    fn write(&self) -> Option<String> {
        let (header, value) = (quoted(self.header().as_str()), quoted(&self.value()));
        Some(format!("{{ header = {header}, value = {value} }}"))
    }
}

impl Field for ScopeParts {
    fn read(value: &Value) -> Result<Self, Wrong> {
        const NAMES: [&str; 5] = ["principal", "method", "path", "route", "host"];
        let names = Vec::<String>::read(value)?;
        if let Some(name) = names.iter().find(|name| !NAMES.contains(&name.as_str())) {
            return no_such_choice(name, &NAMES);
        }
        let [principal, method, path, route, host] =
            NAMES.map(|part| names.iter().any(|name| name == part));
        Ok(Self {
            principal,
            method,
            route,
            path,
            host,
        })
    }

    fn write(&self) -> Option<String> {
        let parts = [
            (self.principal, "principal"),
            (self.method, "method"),
            (self.path, "path"),
            (self.route, "route"),
            (self.host, "host"),
        ];
        let counted = parts.into_iter().filter(|(counts, _)| *counts);
        let names: Vec<_> = counted.map(|(_, name)| name.to_owned()).collect();
        names.write()
    }
}

/// The files of a key ring, by key id.
impl Field for BTreeMap<u32, PathBuf> {
    fn read(value: &Value) -> Result<Self, Wrong> {
        let Value::Table(table) = value else {
            return wrong(format!(
                "this is {}: write a table of key ids and files, such as {{ \"1\" = \"1.key\" }}",
                value.kind()
            ));
        };
        let (mut keys, mut reasons) = (Self::new(), Wrong::new());
        for entry in table.iter() {
            let id = entry.key.parse::<u32>().map_err(|_| {
                vec![format!(
                    "\"{}\" is no key id: write a whole number",
                    entry.key
                )]
            });
            match id.and_then(|id| Ok((id, PathBuf::read(&entry.value)?))) {
                Ok((id, file)) => {
                    if keys.insert(id, file).is_some() {
                        reasons.push(format!("the key id {id} is there twice: remove one"));
                    }
                }
                Err(wrong) => reasons.extend(wrong),
            }
        }
        if reasons.is_empty() {
            Ok(keys)
        } else {
            Err(reasons)
        }
    }

    fn write(&self) -> Option<String> {
        let keys: Vec<_> = self
            .iter()
            .filter_map(|(id, file)| Some(format!("\"{id}\" = {}", file.write()?)))
            .collect();
        (!keys.is_empty()).then(|| format!("{{ {} }}", keys.join(", ")))
    }
}
