//! TLS, an ACL user with only the permissions that are documented, and a database number.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use common::{Server, claim, open, try_open};
use onlyonce_conformance::servers::free_port;
use onlyonce_conformance::servers::redis::{RedisServer, TlsFiles};
use onlyonce_conformance::suite::{self, Outcome};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A server, the folder with its certificates, and its port for TLS.
struct Secure {
    server: RedisServer,
    files: TlsFiles,
    port: u16,
    _folder: TempDir,
}

impl Secure {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let files = certificates(&folder);
        let port = free_port();
        let settings = files.settings(port);
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let server = RedisServer::with(&settings);
        let mut order = vec!["ACL", "SETUSER", "app", "reset", "on", ">p@ss", "~case*:*"];
        order.extend(common::PERMISSIONS);
        server.order(&order);
        Self {
            server,
            files,
            port,
            _folder: folder,
        }
    }

    fn url(&self, options: &str) -> String {
        format!(
            "rediss://app:p%40ss@127.0.0.1:{}/3?{options}tls_ca={}&prefix=case",
            self.port,
            self.files.authority.display()
        )
    }
}

fn certificates(folder: &TempDir) -> TlsFiles {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority
        .self_signed(&authority_key)
        .expect("a certificate");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let server = server.signed_by(&key, &issuer).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    TlsFiles {
        authority: write("ca.pem", certificate.pem()),
        certificate: write("server.pem", server.pem()),
        key: write("server.key", key.serialize_pem()),
    }
}

/// The groups that touch every script.
#[test]
fn the_suite_holds_over_tls_with_the_documented_permissions() {
    let secure = Secure::start();
    let url = secure.url("");
    let harness = Server::new(secure, url);
    let groups = [
        "claim",
        "versions",
        "deadlines",
        "listing",
        "clock",
        "secret",
        "sharing",
    ];
    let mut held = 0;
    for case in suite::all::<Server<Secure>>() {
        if groups.contains(&case.group) {
            let outcome = case.check(harness.clone());
            assert_eq!(outcome, Outcome::Held, "{case:?}");
            held += 1;
        }
    }
    assert!(held > 50, "{held} cases");
}

#[tokio::test]
async fn rows_are_in_the_database_that_the_url_names() {
    let secure = Secure::start();
    let store = open(&secure.url("")).await;
    claim(&store, 1).await.expect("a claim");
    let keys = |database: &str| secure.server.cli(&["-n", database, "KEYS", "case:*:r:*"]);
    assert!(!keys("3").is_empty());
    assert!(keys("0").is_empty());
}

/// A server that nobody vouches for gets no password.
#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (secure, other) = (Secure::start(), tempfile::tempdir().expect("a folder"));
    let stranger = certificates(&other);
    let url = secure.url("").replace(
        &secure.files.authority.display().to_string(),
        &stranger.authority.display().to_string(),
    );
    let error = try_open(&url)
        .await
        .expect_err("an unknown authority")
        .to_string();
    assert!(error.contains("tls_ca="), "{error}");
    assert!(
        !error.contains("p@ss") && !error.contains("p%40ss"),
        "{error}"
    );
    let plain = url.replace(&secure.port.to_string(), &secure.server.port().to_string());
    let error = try_open(&plain)
        .await
        .expect_err("no TLS there")
        .to_string();
    assert!(error.contains("rediss://"), "{error}");
}
