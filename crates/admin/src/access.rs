//! Who operators are, and what they may.
//!
//! With a file of tokens everybody must show one. Without, only those may ask who reach the
//! loopback interface, and then the request itself must prove that no web page is behind it: its
//! `Host` must name this machine (a page whose name was pointed here shows its own), and neither
//! its `Origin` nor its `Sec-Fetch-Site` may be another's. This is so for reading, too: a page that
//! cannot see the answer could still make this process work for it.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;

use crate::problem::{Code, Problem};

/// Where a browser says whose page made it ask: `none` if a person did.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Shorter tokens could be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// Longer ones are a mistake.
const TOKEN_CHARS_MAX: usize = 512;

/// The longest name of an operator.
const NAME_CHARS_MAX: usize = 64;

/// Something that an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// See keys, counts, metrics and the configuration.
    Read,
    /// Decide about keys.
    Change,
    /// See stored bodies and header values.
    Bodies,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Change, Self::Bodies];

    /// As in the file of tokens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Change => "change",
            Self::Bodies => "bodies",
        }
    }
}

/// What an operator may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights(Vec<Right>);

impl Rights {
    /// Those that are in the list.
    #[must_use]
    pub fn has(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let rights = Right::ALL.into_iter().filter(|right| self.has(*right));
        rights.map(Right::as_str).collect()
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// As in the audit trail.
    pub name: String,
    /// What they may do.
    pub rights: Rights,
}

impl Operator {
    /// Refuses whoever lacks a right.
    pub(crate) fn must(&self, right: Right) -> Result<(), Problem> {
        if self.rights.has(right) {
            return Ok(());
        }
        let (name, right) = (&self.name, right.as_str());
        Err(Code::Forbidden.because(format!("\"{name}\" does not have the right \"{right}\"")))
    }
}

/// Why a file of tokens cannot be used. Never shows a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TokensError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it, and what to write instead.
    pub reason: String,
}

/// Everybody who may ask. Clones share the list, which can be replaced while requests come in.
#[derive(Clone)]
pub struct Operators(Arc<RwLock<Arc<List>>>);

enum List {
    /// Whoever reaches this machine's loopback interface.
    Local,
    /// Whoever shows one of these.
    Tokens(Vec<Token>),
}

struct Token {
    digest: [u8; 32],
    operator: Operator,
}

impl Operators {
    /// Whoever reaches the loopback interface may read and change, and never see bodies. For a
    /// listener that is bound to it alone.
    #[must_use]
    pub fn local() -> Self {
        Self(Arc::new(RwLock::new(Arc::new(List::Local))))
    }

    /// Whoever shows one of these tokens: lines of `NAME RIGHTS TOKEN`.
    ///
    /// # Errors
    /// At the first line that is wrong, or when there is no token.
    pub fn from_tokens(text: &str) -> Result<Self, TokensError> {
        let list = List::Tokens(tokens(text)?);
        Ok(Self(Arc::new(RwLock::new(Arc::new(list)))))
    }

    /// Takes these tokens instead of those so far.
    ///
    /// # Errors
    /// As [`from_tokens`](Self::from_tokens); then those so far stay in force.
    pub fn replace(&self, text: &str) -> Result<(), TokensError> {
        let list = Arc::new(List::Tokens(tokens(text)?));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(())
    }

    /// Who sent a request.
    pub(crate) fn who(&self, request: &Parts) -> Result<Operator, Problem> {
        let list = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        match &*list {
            List::Tokens(tokens) => by_token(tokens, &request.headers),
            List::Local => by_place(request),
        }
    }
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &**self.0.read().unwrap_or_else(PoisonError::into_inner) {
            List::Local => f.write_str("Operators(local)"),
            List::Tokens(tokens) => write!(f, "Operators({} tokens)", tokens.len()),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, TokensError> {
    let mut tokens: Vec<Token> = Vec::new();
    for (line, written) in (1..).zip(text.lines()) {
        let written = written.trim();
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        let wrong = |reason: String| TokensError { line, reason };
        let token = token(written).map_err(wrong)?;
        if tokens.iter().any(|other| other.digest == token.digest) {
            let reason = "another line has the same token: give each operator their own";
            return Err(wrong(reason.into()));
        }
        tokens.push(token);
    }
    if tokens.is_empty() {
        let reason = "there is no token: write a line such as \"alice read,change TOKEN\"";
        return Err(TokensError {
            line: 1,
            reason: reason.into(),
        });
    }
    Ok(tokens)
}

fn token(line: &str) -> Result<Token, String> {
    let parts: Vec<_> = line.split_whitespace().collect();
    let [name, rights, token] = *parts else {
        return Err("write a name, rights and a token: \"alice read,change TOKEN\"".into());
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.len() > NAME_CHARS_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "the name may have letters, digits and \"._@-\", {NAME_CHARS_MAX} at most"
        ));
    }
    let chars = token.len();
    if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&chars) || !token.is_ascii() {
        return Err(format!(
            "a token has {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters: make one with \
             `openssl rand -hex 32`"
        ));
    }
    let mut had = Vec::new();
    for right in rights.split(',') {
        let known = Right::ALL.into_iter().find(|known| known.as_str() == right);
        had.push(known.ok_or("the rights are \"read\", \"change\" and \"bodies\"")?);
    }
    if !had.contains(&Right::Read) {
        return Err("whoever may change or see bodies must also \"read\"".into());
    }
    Ok(Token {
        digest: Sha256::digest(token).into(),
        operator: Operator {
            name: name.to_owned(),
            rights: Rights(had),
        },
    })
}

/// Compares with every token, whichever is the right one, and digests instead of bytes, so that the
/// time it takes tells nothing about any of them.
fn by_token(tokens: &[Token], headers: &HeaderMap) -> Result<Operator, Problem> {
    let shown = bearer(headers).ok_or_else(|| {
        Code::Unauthorized.because("send one header `Authorization: Bearer TOKEN`")
    })?;
    let digest: [u8; 32] = Sha256::digest(shown).into();
    let mut who = None;
    for token in tokens {
        if bool::from(token.digest.ct_eq(&digest)) {
            who = Some(&token.operator);
        }
    }
    let who = who.cloned();
    who.ok_or_else(|| Code::Unauthorized.because("the token is not one of an operator"))
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = only(headers, &header::AUTHORIZATION)?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().as_bytes())
}

fn by_place(request: &Parts) -> Result<Operator, Problem> {
    let host = host(request).filter(|host| is_this_machine(host));
    let Some(host) = host else {
        return Err(Code::Forbidden.because(
            "without operators' tokens only this machine may ask, under the name `localhost` or a \
             loopback address",
        ));
    };
    if is_foreign(&request.headers, host) {
        return Err(Code::Forbidden.because("the request comes from another site's page"));
    }
    Ok(Operator {
        name: "local".into(),
        rights: Rights(vec![Right::Read, Right::Change]),
    })
}

/// The only value of a header. Of two, nobody knows which counts.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    value.to_str().ok()
}

/// The host and port that a request was sent to, as its sender sees it.
fn host(request: &Parts) -> Option<&str> {
    if request.headers.contains_key(header::HOST) {
        return only(&request.headers, &header::HOST);
    }
    request
        .uri
        .authority()
        .map(axum::http::uri::Authority::as_str)
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| {
        let (address, port) = host.split_once(']')?;
        (port.is_empty() || is_port(port)).then_some(address)
    });
    let bare = bare.unwrap_or_else(|| match host.rsplit_once(':') {
        Some((name, port)) if is_port(&format!(":{port}")) => name,
        Some(_) | None => host,
    });
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Whether a page of another origin sent it. Programs say nothing of either kind; browsers leave
/// out the `Origin` of a plain GET.
fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    let site = only(headers, &SEC_FETCH_SITE);
    let is_own = matches!(site, Some("same-origin" | "none"));
    if headers.contains_key(&SEC_FETCH_SITE) && !is_own {
        return true;
    }
    if !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let origin = only(headers, &header::ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# operators\n\nalice read,change 0123456789abcdef\n\
                        bob  read  fedcba9876543210\n";

    #[test]
    fn a_file_of_tokens_is_read() {
        let operators = Operators::from_tokens(GOOD).unwrap();
        assert_eq!(format!("{operators:?}"), "Operators(2 tokens)");
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            "bearer fedcba9876543210".parse().unwrap(),
        );
        let tokens = tokens(GOOD).unwrap();
        let bob = by_token(&tokens, &headers).unwrap();
        assert_eq!(
            (bob.name.as_str(), bob.rights.names()),
            ("bob", vec!["read"])
        );
        headers.append(header::AUTHORIZATION, "Bearer x".parse().unwrap());
        assert!(by_token(&tokens, &headers).is_err(), "two headers");
    }

    #[test]
    fn a_wrong_line_is_named_and_its_token_is_not_shown() {
        for (text, line) in [
            ("", 1),
            ("# nobody", 1),
            ("\nalice read", 2),
            ("alice read 0123456789abcdef more", 1),
            ("al:ce read 0123456789abcdef", 1),
            ("alice rule 0123456789abcdef", 1),
            ("alice change 0123456789abcdef", 1),
            ("alice read hunter2", 1),
            ("alice read 0123456789abcdef\nbob read 0123456789abcdef", 2),
        ] {
            let error = Operators::from_tokens(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            let said = error.to_string();
            assert!(
                !said.contains("hunter2") && !said.contains("0123"),
                "{said}"
            );
        }
    }

    #[test]
    fn only_names_of_this_machine_are_this_machine() {
        for host in [
            "localhost",
            "LocalHost:8081",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:8081",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:8081",
            "10.0.0.1",
            "[::1",
            "[::1]evil",
            "localhost:http",
            "0.0.0.0",
            "localhost@evil.example",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
