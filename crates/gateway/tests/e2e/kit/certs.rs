//! Certificates of an authority that exists for one test.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A new certificate for this host or person.
    pub(crate) fn issue(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A client that trusts this authority, and shows who it is if it is somebody.
    pub(crate) fn client(&self, identity: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(own).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.certificates(), identity.private_key())
                .expect("an identity"),
        }
    }
}

impl Identity {
    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let found = CertificateDer::pem_slice_iter(self.chain.as_bytes());
        found.map(|der| der.expect("PEM")).collect()
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("PEM")
    }

    /// A server that is this.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth();
        let config = builder.with_single_cert(self.certificates(), self.private_key());
        Arc::new(config.expect("an identity"))
    }
}
