//! The caller by its client certificate, which the listener verified.
//!
//! A certificate is renewed, and often with a new key, so neither the certificate nor its key
//! can be the caller's name: a retry across a renewal would be another caller. The name is what
//! an authority vouches for and keeps: issuer, subject and alternative names together. The
//! issuer counts because two authorities may give one subject to two callers; the alternative
//! names count because many authorities write the same subject into every certificate and tell
//! them apart only there. A certificate with neither subject nor alternative names is known by
//! its public key.

use http::request::Parts;
use onlyonce_http::{Principal, PrincipalError, Principals};

use super::{joined, refuse};

/// The verified certificate of a connection's client, in DER. The listener puts it into the
/// extensions of every request of that connection, and nobody else may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate(pub(crate) Vec<u8>);

/// Tells callers apart by their certificates.
pub(super) struct Mtls;

impl Principals for Mtls {
    fn principal(&self, request: &Parts) -> Result<Principal, PrincipalError> {
        let Some(ClientCertificate(der)) = request.extensions.get() else {
            return refuse("a client certificate is required");
        };
        let Some(names) = Names::read(der) else {
            return refuse("the client certificate cannot be read");
        };
        Ok(
            if names.subject.is_empty() && names.alternatives.is_empty() {
                Principal::new("mtls-key", names.public_key)
            } else {
                let parts = [names.issuer, names.subject, names.alternatives];
                Principal::new("mtls", &joined(&parts))
            },
        )
    }
}

/// The parts of a certificate that tell its holder from others, as DER contents.
struct Names<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    public_key: &'a [u8],
    alternatives: &'a [u8],
}

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
/// 2.5.29.17
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1D, 0x11];

impl<'a> Names<'a> {
    /// RFC 5280, section 4.1: version, serial number, signature, issuer, validity, subject,
    /// public key, extensions.
    fn read(certificate: &'a [u8]) -> Option<Self> {
        let mut outer = Der(certificate);
        let mut signed = Der(Der(outer.expect(SEQUENCE)?).expect(SEQUENCE)?);
        signed.skip_if(VERSION)?;
        signed.expect(INTEGER)?;
        signed.expect(SEQUENCE)?;
        let issuer = signed.expect(SEQUENCE)?;
        signed.expect(SEQUENCE)?;
        let subject = signed.expect(SEQUENCE)?;
        let public_key = signed.expect(SEQUENCE)?;
        let mut alternatives: &[u8] = &[];
        while let Some((tag, contents)) = signed.next()? {
            if tag == EXTENSIONS {
                alternatives = alternative_names(contents)?;
            }
        }
        Some(Self {
            issuer,
            subject,
            public_key,
            alternatives,
        })
    }
}

fn alternative_names(extensions: &[u8]) -> Option<&[u8]> {
    let mut list = Der(Der(extensions).expect(SEQUENCE)?);
    let mut found: &[u8] = &[];
    while let Some((SEQUENCE, extension)) = list.next()? {
        let mut extension = Der(extension);
        if extension.expect(OBJECT_ID)? == ALTERNATIVE_NAMES {
            while let Some((tag, contents)) = extension.next()? {
                if tag == OCTET_STRING {
                    found = contents;
                }
            }
        }
    }
    Some(found)
}

/// A walk over DER elements. `None` is what is no DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element's tag and contents; `Some(None)` at the end.
    #[expect(clippy::option_option, reason = "the end and what is no DER differ")]
    fn next(&mut self) -> Option<Option<(u8, &'a [u8])>> {
        let [tag, first, rest @ ..] = self.0 else {
            return self.0.is_empty().then_some(None);
        };
        let (length, rest) = match first {
            0..=0x7F => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                let fold = |length: usize, digit: &u8| length << 8 | usize::from(*digit);
                (digits.iter().fold(0, fold), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Some((*tag, contents)))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, contents) = self.next()??;
        (tag == wanted).then_some(contents)
    }

    fn skip_if(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) {
            self.next()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    fn issuer(name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Issuer::new(params, KeyPair::generate().unwrap())
    }

    /// A certificate with a new key and serial number, as at every renewal.
    fn certificate(ca: &str, subject: Option<&str>, names: &[&str]) -> Vec<u8> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(subject) = subject {
            params.distinguished_name.push(DnType::CommonName, subject);
        }
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &issuer(ca)).unwrap().der().to_vec()
    }

    fn principal(der: Option<Vec<u8>>) -> Result<Principal, PrincipalError> {
        let mut request = http::Request::new(()).into_parts().0;
        if let Some(der) = der {
            request.extensions.insert(ClientCertificate(der));
        }
        Mtls.principal(&request)
    }

    fn known(ca: &str, subject: Option<&str>, names: &[&str]) -> Principal {
        principal(Some(certificate(ca, subject, names))).unwrap()
    }

    /// A retry after the renewal must find the first answer, not charge again.
    #[test]
    fn a_renewed_certificate_is_the_same_caller() {
        let alice = || known("ca", Some("alice"), &["alice.example"]);
        assert_eq!(alice(), alice());
    }

    #[test]
    fn another_subject_issuer_or_alternative_name_is_another_caller() {
        let alice = known("ca", Some("alice"), &["alice.example"]);
        assert_ne!(alice, known("ca", Some("bob"), &["alice.example"]));
        assert_ne!(alice, known("other", Some("alice"), &["alice.example"]));
        assert_ne!(alice, known("ca", Some("alice"), &["bob.example"]));
        assert_ne!(
            known("ca", None, &["a.example"]),
            known("ca", None, &["b.example"])
        );
    }

    #[test]
    fn a_certificate_without_names_is_known_by_its_key() {
        assert_ne!(known("ca", None, &[]), known("ca", None, &[]));
        let der = certificate("ca", None, &[]);
        assert_eq!(principal(Some(der.clone())), principal(Some(der)));
    }

    #[test]
    fn no_certificate_and_no_der_are_refused() {
        assert!(principal(None).is_err());
        let der = certificate("ca", Some("alice"), &[]);
        assert!(principal(Some(Vec::new())).is_err());
        assert!(principal(Some(b"garbage".to_vec())).is_err());
        for length in 0..der.len() {
            let cut = der.get(..length).unwrap().to_vec();
            assert!(principal(Some(cut)).is_err(), "{length}");
        }
    }
}
