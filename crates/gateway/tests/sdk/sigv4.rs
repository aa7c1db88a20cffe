//! Signature Version 4, on the side of whoever receives it: everything that was signed must be
//! here as it was signed, `Host` and body byte for byte.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::kit::Message;

/// What the programs sign with.
const SECRET: &str = "secret";

/// Whether a request's signature is that of this request.
pub(crate) fn verify(request: &Message) -> Result<(), String> {
    let authorization = request.header("authorization");
    let parts = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or_else(|| format!("not signed: {authorization:?}"))?;
    let part = |name: &str| {
        let mut parts = parts.split(", ").filter_map(|part| part.split_once('='));
        let found = parts.find_map(|(known, value)| (known == name).then_some(value));
        found.ok_or_else(|| format!("no {name} in {authorization:?}"))
    };
    let (credential, signed) = (part("Credential")?, part("SignedHeaders")?);
    if !signed.split(';').any(|name| name == "host") {
        return Err(format!("the host is not signed: {signed}"));
    }
    let (_, scope) = credential.split_once('/').ok_or("no scope")?;
    let canonical = canonical(request, signed);
    let time = request.header("x-amz-date");
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        hex(&Sha256::digest(canonical.as_bytes()))
    );
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for step in scope.split('/') {
        key = hmac(&key, step);
    }
    if hex(&hmac(&key, &text)) == part("Signature")? {
        return Ok(());
    }
    Err(format!(
        "another request was signed than this:\n{canonical}"
    ))
}

/// The request in the form that is signed. None here has a query or a path with escapes.
fn canonical(request: &Message, signed: &str) -> String {
    let mut line = request.start.split(' ');
    let (method, target) = (line.next().unwrap(), line.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut text = format!("{method}\n{path}\n{query}\n");
    for name in signed.split(';') {
        let words: Vec<_> = request.header(name).split_whitespace().collect();
        writeln!(text, "{name}:{}", words.join(" ")).unwrap();
    }
    write!(text, "\n{signed}\n{}", hex(&Sha256::digest(&request.body))).unwrap();
    text
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
