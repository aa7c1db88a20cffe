//! The store's URL. Errors name the part that is wrong, and never show the password.

use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;

use crate::options::{PostgresOptions, SslMode};

pub(crate) fn parse(url: &str) -> Result<PostgresOptions, String> {
    let rest = url
        .strip_prefix("postgres://")
        .or_else(|| url.strip_prefix("postgresql://"))
        .ok_or("it must begin with postgres://")?;
    // Whatever is before the last @ may be part of the password, and must not be taken for a host
    // or a parameter, which are shown.
    let secret = rest.rsplit_once('@').map_or("", |(secret, _)| secret);
    for (character, code) in [('@', "%40"), ('/', "%2F"), ('?', "%3F"), ('#', "%23")] {
        if secret.contains(character) {
            return Err(format!(
                "there is a {character} before the last @: write {code} in the password, and %40 for an @ in a parameter"
            ));
        }
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    if base.contains('#') {
        return Err("there is a # in it: write %23".into());
    }
    let config = Config::from_str(base)
        // The cause may quote the URL, and with it the password.
        .map_err(|_| "expected postgres://user:password@host:port/database".to_owned())?;
    let mut options = PostgresOptions::new(config);
    complete(&mut options)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("parameter {pair:?} has no value"))?;
        let value = decoded(value).ok_or_else(|| format!("{name} is not percent-encoded text"))?;
        set(&mut options, name, &value)?;
    }
    Ok(options)
}

/// What must be there is there.
fn complete(options: &mut PostgresOptions) -> Result<(), String> {
    let config = &options.config;
    if config.get_hosts().is_empty() {
        return Err("the host is missing: postgres://user:password@host:port/database".into());
    }
    if config.get_user().is_none() {
        return Err("the user is missing: postgres://user:password@host:port/database".into());
    }
    if config.get_dbname().is_none_or(str::is_empty) {
        return Err("the database is missing: postgres://user:password@host:port/database".into());
    }
    if config.get_application_name().is_none() {
        options.config.application_name("onlyonce");
    }
    Ok(())
}

fn set(options: &mut PostgresOptions, name: &str, value: &str) -> Result<(), String> {
    match name {
        "sslmode" => options.sslmode = sslmode(value)?,
        "sslrootcert" => options.sslrootcert = Some(value.into()),
        "schema" => options.schema = value.into(),
        "pool" => options.pool = number(name, value)?,
        "connect_timeout" => {
            options.connect_timeout = Duration::from_secs(number(name, value)?);
        }
        "statement_timeout_ms" => {
            options.statement_timeout = Duration::from_millis(number(name, value)?);
        }
        "application_name" => {
            options.config.application_name(value);
        }
        "unsafe_settings" if value == "allow" => options.allow_unsafe = true,
        "shared_schema" if value == "allow" => options.allow_shared_schema = true,
        "unsafe_settings" | "shared_schema" => return Err(format!("{name} can only be allow")),
        "target_session_attrs" if value == "read-write" => {}
        "target_session_attrs" => {
            return Err(
                "target_session_attrs can only be read-write: claims need the primary".into(),
            );
        }
        other => {
            return Err(format!(
                "unknown parameter {other:?}; known are sslmode, sslrootcert, schema, pool, \
                 connect_timeout, statement_timeout_ms, application_name, unsafe_settings and \
                 shared_schema"
            ));
        }
    }
    Ok(())
}

fn sslmode(value: &str) -> Result<SslMode, String> {
    match value {
        "disable" => Ok(SslMode::Disable),
        "prefer" => Ok(SslMode::Prefer),
        "require" => Ok(SslMode::Require),
        "verify-ca" => Ok(SslMode::VerifyCa),
        "verify-full" => Ok(SslMode::VerifyFull),
        other => Err(format!(
            "sslmode {other:?} is none of disable, prefer, require, verify-ca and verify-full"
        )),
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} must be a whole number, not {value:?}"))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "hunter2";

    fn error(url: &str) -> String {
        let error = PostgresOptions::from_url(url).unwrap_err().to_string();
        assert!(!error.contains(PASSWORD), "{error}");
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn every_part_is_read() {
        let url = "postgres://me:p%40ss@db.example:6000/payments?sslmode=verify-full\
                   &sslrootcert=%2Fetc%2Fca.pem&schema=keys&pool=8&connect_timeout=3\
                   &statement_timeout_ms=700&application_name=gate&unsafe_settings=allow\
                   &target_session_attrs=read-write";
        let options = PostgresOptions::from_url(url).unwrap();
        assert_eq!(options.config.get_user(), Some("me"));
        assert_eq!(options.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(options.config.get_dbname(), Some("payments"));
        assert_eq!(options.config.get_application_name(), Some("gate"));
        assert_eq!(options.place(), "db.example:6000");
        assert_eq!(options.sslmode, SslMode::VerifyFull);
        assert_eq!(options.sslrootcert, Some("/etc/ca.pem".into()));
        assert_eq!(options.schema, "keys");
        assert_eq!(options.pool, 8);
        assert_eq!(options.connect_timeout, Duration::from_secs(3));
        assert_eq!(options.statement_timeout, Duration::from_millis(700));
        assert!(options.allow_unsafe);
    }

    #[test]
    fn several_hosts_are_several_places() {
        let url = "postgres://me@one:6000,two:6001/db";
        let options = PostgresOptions::from_url(url).unwrap();
        assert_eq!(options.place(), "one:6000,two:6001");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("mysql://me:hunter2@host/db", "postgres://"),
            ("postgres://me:hunter2@host:port/db", "expected postgres://"),
            ("postgres://me:hunter2@/db", "host"),
            ("postgres://host/db", "user"),
            ("postgres://me:hunter2@host", "database"),
            ("postgres://me:hunter2@secret@host/db", "%40"),
            ("postgres://me:x/hunter2@host/db", "%2F"),
            ("postgres://me:x/y@hunter2@host/db", "%40"),
            ("postgres://me:x/hunter2@TAIL@host", "%40"),
            ("postgres://me:x?hunter2@host/db", "%3F"),
            ("postgres://me:x@y/z?hunter2@host/db", "%40"),
            ("postgres://me:x@y/z?pool=hunter2@host/db", "%40"),
            ("postgres://me:x#hunter2@host/db", "%23"),
            ("postgres://me@host/db#hunter2", "%23"),
            ("postgres://me:hunter2@host/db?sslmode=yes", "sslmode"),
            ("postgres://me:hunter2@host/db?pool=many", "pool"),
            ("postgres://me:hunter2@host/db?pool=1", "pool"),
            ("postgres://me:hunter2@host/db?schema=", "schema"),
            ("postgres://me:hunter2@host/db?schema=a\"b", "schema"),
            ("postgres://me:hunter2@host/db?timeout=1", "timeout"),
            ("postgres://me:hunter2@host/db?pool", "pool"),
            ("postgres://me:hunter2@host/db?schema=%zz", "schema"),
            (
                "postgres://me:hunter2@host/db?target_session_attrs=any",
                "target_session_attrs",
            ),
            (
                "postgres://me:hunter2@host/db?connect_timeout=0",
                "connect_timeout",
            ),
        ] {
            let error = error(url);
            assert!(error.contains(named), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = format!("postgres://me:{PASSWORD}@host/db");
        let options = PostgresOptions::from_url(&url).unwrap();
        assert!(!format!("{options:?}").contains(PASSWORD));
    }
}
