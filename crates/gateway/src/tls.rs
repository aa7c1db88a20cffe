//! Certificates: the gateway's own, the clients', the upstream's.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::Tls;

/// What clients meet; `None` when TLS is not configured.
///
/// # Errors
/// When a file cannot be read or does not hold what it should.
pub(crate) fn server(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, String> {
    let (Some(cert_file), Some(key_file)) = (&tls.cert_file, &tls.key_file) else {
        return Ok(None);
    };
    let chain = certificates(cert_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file);
    let key = key.map_err(|error| format!("tls.key_file {}: {error}", key_file.display()))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(roots(certificates(file)?)?);
            let provider = Arc::new(default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config =
        config.map_err(|error| format!("tls.cert_file {}: {error}", cert_file.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// How the gateway meets an upstream over TLS.
///
/// # Errors
/// When there is no certificate to trust.
pub(crate) fn client(ca_file: Option<&Path>, http2: bool) -> Result<Arc<ClientConfig>, String> {
    let native = rustls_native_certs::load_native_certs().certs;
    let extra = ca_file.map(certificates).transpose()?.unwrap_or_default();
    let roots = roots(native.into_iter().chain(extra).collect())?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() {
        return Err(wrong(&"holds no certificate; give a PEM file"));
    }
    Ok(found)
}

fn roots(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err("there is no certificate authority to trust; set upstream.ca_file".into());
    }
    Ok(roots)
}
