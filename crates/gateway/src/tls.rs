//! Certificates: the gateway's own, the clients', the upstream's.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

use crate::config::Tls;

/// Why TLS cannot be used as configured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{setting}: {text}")]
pub(crate) struct TlsError {
    /// The key of the configuration, or the flag, that is to blame.
    pub(crate) setting: &'static str,
    /// Why, and what to do.
    pub(crate) text: String,
}

/// What clients meet; `None` when TLS is not configured.
///
/// # Errors
/// When a file cannot be read or does not hold what it should.
pub(crate) fn server(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (Some(cert_file), Some(key_file)) = (&tls.cert_file, &tls.key_file) else {
        return Ok(None);
    };
    let chain = certificates("tls.cert_file", cert_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file);
    let key = key.map_err(of_file("tls.key_file", key_file))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(of_file("tls.cert_file", cert_file))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let setting = "tls.client_ca_file";
            let roots = Arc::new(roots(setting, certificates(setting, file)?)?);
            let provider = Arc::new(default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(of_file(setting, file))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(of_file("tls.cert_file", cert_file))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// How the gateway meets an upstream over TLS. `setting` is the one that asks for it.
///
/// # Errors
/// When there is no certificate to trust.
pub(crate) fn client(
    setting: &'static str,
    ca_file: Option<&Path>,
    http2: bool,
) -> Result<Arc<ClientConfig>, TlsError> {
    let native = rustls_native_certs::load_native_certs().certs;
    let extra = ca_file
        .map(|file| certificates(setting, file))
        .transpose()?;
    let trusted = native.into_iter().chain(extra.unwrap_or_default());
    let roots = roots(setting, trusted.collect())?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError {
            setting,
            text: error.to_string(),
        })?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let protocol: &[u8] = if http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(
    setting: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(file).map_err(of_file(setting, file))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(of_file(setting, file))?;
    if found.is_empty() {
        return Err(of_file(setting, file)(
            "holds no certificate; give a PEM file",
        ));
    }
    Ok(found)
}

fn roots(
    setting: &'static str,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        let text = "there is no certificate authority to trust: install those of the system \
                    (ca-certificates), or give a PEM file with one where there is a setting for it";
        return Err(TlsError {
            setting,
            text: text.into(),
        });
    }
    Ok(roots)
}

/// An error about a file, under the setting that names it.
fn of_file<E: fmt::Display>(setting: &'static str, file: &Path) -> impl Fn(E) -> TlsError {
    move |error| TlsError {
        setting,
        text: format!("{}: {error}", file.display()),
    }
}
