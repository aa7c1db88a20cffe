//! What a build with a profile learns from: the work that gateways mostly do.
//!
//! `scripts/ship` has a gateway that counts its branches go through this, and builds the one that
//! ships with the counts. What does not occur here is taken for rare and built to be small, so
//! everything occurs that a request may meet on its common ways: new keys, retries and requests
//! that merely pass; the embedded store, Redis and `PostgreSQL`; in
//! the clear with HTTP/1.1, and with TLS and HTTP/2 on both sides of a gateway. `DynamoDB` does
//! not: its requests wait for a network most of the time.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use onlyonce_conformance::servers::postgres::{Postgres, PostgresOptions};
use onlyonce_conformance::servers::redis::RedisServer;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::gateway::load::prepare;
use crate::gateway::servers::{self, ALL_PASSES, Gateway};
use crate::gateway::{REPLAYED_KEYS, fresh, replay};
use crate::process::{end_with_signals, remove_at_signal};

/// How many new keys. Most with the embedded store in the clear: what is counted elsewhere, too,
/// must not make the most common way look like one among four.
const NEW_KEYS: u64 = 200_000;
const NEW_KEYS_OF_OTHERS: u64 = 5_000;

/// How many new keys there are for a retry, and for a request that merely passes.
const OTHERS: u64 = 3;

pub(crate) fn run(binary: &Path) {
    end_with_signals();
    let folder = tempfile::tempdir_in(".").unwrap();
    let path = std::path::absolute(folder.path()).unwrap();
    remove_at_signal(&path);
    let upstream = servers::upstream(&path);
    let embedded = |name: &str| Gateway::new(binary, &upstream, &path.join(name));

    let with_store = |store| Gateway {
        store,
        ..embedded("unused")
    };
    let redis = RedisServer::start();
    let postgres = Postgres::with(&PostgresOptions {
        fsync: true,
        ..PostgresOptions::default()
    });

    work(&embedded("plain"), &path, NEW_KEYS);
    encrypted(embedded("encrypted"), &path);
    work(&with_store(redis.url()), &path, NEW_KEYS_OF_OTHERS);
    work(&with_store(postgres.url()), &path, NEW_KEYS_OF_OTHERS);
}

/// One gateway, from its start to its end.
fn work(gateway: &Gateway<'_>, path: &Path, new_keys: u64) {
    let gateway = gateway.start(path).unwrap();
    requests(gateway.port, new_keys);
    gateway.end().unwrap();
}

/// Two gateways, one behind the other, which speak HTTP/2 over TLS to each other. The first merely
/// passes everything on.
fn encrypted(guarding: Gateway<'_>, path: &Path) {
    let [authority, certificate, key] = certificates(path);
    let guarding = Gateway {
        settings: format!("[tls]\ncert_file = '{certificate}'\nkey_file = '{key}'\n"),
        ..guarding
    };
    let binary = guarding.binary;
    let guarding = guarding.start(path).unwrap();
    let passing = Gateway {
        binary,
        upstream: format!("https://localhost:{}", guarding.port),
        store: "memory:".to_owned(),
        settings: format!("[upstream]\nhttp2 = true\nca_file = '{authority}'\n"),
        routes: ALL_PASSES,
    };
    let passing = passing.start(path).unwrap();
    requests(passing.port, NEW_KEYS_OF_OTHERS);
    passing.end().unwrap();
    guarding.end().unwrap();
}

/// All kinds of requests.
fn requests(port: u16, new_keys: u64) {
    let next = Rc::new(Cell::new(1 << 32));
    prepare(&replay(port, false), REPLAYED_KEYS).unwrap();
    prepare(&fresh(port, "/payments", &next), new_keys).unwrap();
    prepare(&replay(port, true), new_keys / OTHERS).unwrap();
    prepare(&fresh(port, "/open", &next), new_keys / OTHERS).unwrap();
}

/// The files of the certificate of an authority, one that it issued for localhost, and its key.
fn certificates(path: &Path) -> [String; 3] {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    [
        ("authority.pem", authority),
        ("certificate.pem", certificate),
        ("key.pem", key.serialize_pem()),
    ]
    .map(|(name, text)| {
        let file = path.join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    })
}
