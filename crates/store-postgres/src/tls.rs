//! TLS to the server, by rustls with ring, in the modes that libpq knows.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring::default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// What of the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing: the line is encrypted, to whomever it leads.
    Nothing,
    /// That an authority that is trusted has signed it.
    Authority,
    /// That, and that it is for this host.
    Full,
}

/// A way to meet the server.
///
/// # Errors
/// When there is no certificate to trust.
pub(crate) fn config(check: Check, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = match check {
        Check::Full => builder
            .with_root_certificates(roots(ca_file)?)
            .with_no_client_auth(),
        Check::Nothing | Check::Authority => {
            let verifier = Lenient::new(check, ca_file, provider)?;
            let dangerous = builder.dangerous();
            dangerous
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let certificates = match ca_file {
        Some(file) => certificates(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err("there is no certificate authority to trust: set sslrootcert".into());
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn fmt::Display| format!("sslrootcert {}: {error}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let found: Result<Vec<_>, _> = found.collect();
    found.map_err(|error| wrong(&error))
}

/// Checks less than it could, because it was told to.
#[derive(Debug)]
struct Lenient {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    fn new(
        check: Check,
        ca_file: Option<&Path>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let authority = match check {
            Check::Nothing => None,
            Check::Authority | Check::Full => {
                let roots = Arc::new(roots(ca_file)?);
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        Ok(Self {
            authority,
            provider,
        })
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Makes the client's connections TLS connections.
#[derive(Clone)]
pub(crate) struct Tls(pub(crate) Arc<ClientConfig>);

/// The same, to one host.
pub(crate) struct TlsTo {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = TlsTo;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<TlsTo, Self::Error> {
        Ok(TlsTo {
            config: Arc::clone(&self.0),
            host: ServerName::try_from(domain.to_owned())?,
        })
    }
}

impl<S> TlsConnect<S> for TlsTo
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = TlsConnector::from(self.config).connect(self.host, stream);
        Box::pin(async move { connecting.await.map(Box::new).map(Stream) })
    }
}

/// A TLS connection.
pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
