//! Which keys may sign, and with which algorithms.

use std::path::PathBuf;

use jsonwebtoken::{Algorithm, EncodingKey};
use onlyonce_http::Principal;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::*;

#[test]
fn every_kind_of_public_key_verifies_its_own_tokens() {
    let jwt = Setup::key(RSA_PUBLIC, &[]).jwt().unwrap();
    for algorithm in [
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
    ] {
        assert!(
            ask(&jwt, &rsa(algorithm, Some("whatever"))).is_ok(),
            "{algorithm:?}"
        );
    }
    let kinds = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384),
        (&rcgen::PKCS_ED25519, Algorithm::EdDSA),
    ];
    for (kind, algorithm) in kinds {
        let pair = KeyPair::generate_for(kind).unwrap();
        let key = if algorithm == Algorithm::EdDSA {
            EncodingKey::from_ed_der(&pair.serialize_der())
        } else {
            EncodingKey::from_ec_der(&pair.serialize_der())
        };
        let token = signed(algorithm, None, &key, &claims());
        let jwt = Setup::key(pair.public_key_pem(), &[]).jwt().unwrap();
        assert!(ask(&jwt, &token).is_ok(), "{algorithm:?}");
        let other = KeyPair::generate_for(kind).unwrap();
        let jwt = Setup::key(other.public_key_pem(), &[]).jwt().unwrap();
        assert_eq!(refused(&jwt, &token), "the token's signature is not good");
    }
}

/// The public key is public: if it could be the secret of an HMAC, anybody could sign.
#[test]
fn a_token_signed_with_the_public_key_as_a_secret_is_refused() {
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let forger = EncodingKey::from_secret(RSA_PUBLIC.as_bytes());
        let token = signed(algorithm, None, &forger, &claims());
        let jwt = Setup::key(RSA_PUBLIC, &[]).jwt().unwrap();
        let reason = "the token is signed with an algorithm that is not allowed here";
        assert_eq!(refused(&jwt, &token), reason);
    }
    assert!(
        Setup::key(RSA_PUBLIC, &[Algorithm::HS256])
            .refusal()
            .contains("cannot verify")
    );
    let mixed = [Algorithm::RS256, Algorithm::HS256];
    assert!(
        Setup::key(RSA_PUBLIC, &mixed)
            .refusal()
            .contains("cannot verify")
    );
}

#[test]
fn only_the_algorithms_that_are_named_may_sign() {
    let jwt = Setup::key(RSA_PUBLIC, &[Algorithm::PS256]).jwt().unwrap();
    assert!(ask(&jwt, &rsa(Algorithm::PS256, None)).is_ok());
    assert!(ask(&jwt, &rsa(Algorithm::RS256, None)).is_err());
}

#[test]
fn a_key_file_that_cannot_be_meant_is_refused() {
    assert!(
        Setup::key(SECRET, &[])
            .refusal()
            .contains("if it is the secret of an HMAC")
    );
    assert!(
        Setup::key(SECRET, &[Algorithm::RS256])
            .refusal()
            .contains("no PEM public key")
    );
    assert!(
        Setup::key("\n", &[Algorithm::HS256])
            .refusal()
            .contains("empty")
    );
    assert!(
        Setup::key(RSA_PRIVATE, &[])
            .refusal()
            .contains("private key")
    );
    let garbage = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(Setup::key(garbage, &[]).refusal().contains("no public key"));
    let mut missing = Setup::key(SECRET, &[Algorithm::HS256]);
    missing.principal.jwt_key_file = Some(PathBuf::from("no-such-file"));
    assert!(missing.refusal().contains("cannot be read"));
}

/// `echo secret > file` ends the file with a line end that the issuer's secret does not have.
#[test]
fn a_line_end_is_no_part_of_a_secret() {
    let jwt = Setup::key([SECRET, b"\r\n"].concat(), &[Algorithm::HS256])
        .jwt()
        .unwrap();
    assert!(ask(&jwt, &hmac(&claims())).is_ok());
}

fn ec_key(kid: &str) -> (EncodingKey, Value) {
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let point = pair.public_key_raw();
    let jwk = json!({
        "kty": "EC", "crv": "P-256", "kid": kid,
        "x": base64(&point[1..33]), "y": base64(&point[33..]),
    });
    (EncodingKey::from_ec_der(&pair.serialize_der()), jwk)
}

#[test]
fn the_key_id_chooses_from_a_set() {
    let ((first, first_jwk), (second, second_jwk)) = (ec_key("1"), ec_key("2"));
    let encryption = json!({ "kty": "RSA", "use": "enc", "alg": "RSA-OAEP", "kid": "3", "n": "AQAB", "e": "AQAB" });
    let invented = json!({ "kty": "quantum", "kid": "4" });
    let jwt = Setup::set(&json!([first_jwk, second_jwk, encryption, invented]), &[])
        .jwt()
        .unwrap();
    let token = |kid, key| signed(Algorithm::ES256, kid, key, &claims());
    assert!(ask(&jwt, &token(Some("1"), &first)).is_ok());
    assert!(ask(&jwt, &token(Some("2"), &second)).is_ok());
    assert!(ask(&jwt, &token(Some("2"), &first)).is_err());
    assert!(ask(&jwt, &token(Some("3"), &first)).is_err());
    assert!(ask(&jwt, &token(Some("9"), &first)).is_err());
    assert!(ask(&jwt, &token(None, &first)).is_err());
    let only = Setup::set(&json!([first_jwk]), &[]).jwt().unwrap();
    assert!(ask(&only, &token(None, &first)).is_ok());
    assert!(ask(&only, &token(Some("9"), &first)).is_err());
}

/// A secret in a set counts only where an HMAC was named; and never for another algorithm.
#[test]
fn a_secret_in_a_set_must_be_meant() {
    let oct = json!({ "kty": "oct", "kid": "s", "k": base64(SECRET) });
    assert!(
        Setup::set(&json!([oct]), &[])
            .refusal()
            .contains("none of its keys")
    );
    let jwt = Setup::set(&json!([oct]), &[Algorithm::HS256])
        .jwt()
        .unwrap();
    let key = EncodingKey::from_secret(SECRET);
    assert!(ask(&jwt, &signed(Algorithm::HS256, Some("s"), &key, &claims())).is_ok());
    assert!(ask(&jwt, &signed(Algorithm::HS512, Some("s"), &key, &claims())).is_err());
}

#[test]
fn a_set_that_is_empty_ambiguous_or_none_is_refused() {
    let (_, jwk) = ec_key("1");
    assert!(
        Setup::set(&json!([]), &[])
            .refusal()
            .contains("none of its keys")
    );
    assert!(
        Setup::set(&json!([jwk, jwk]), &[])
            .refusal()
            .contains("same `kid`")
    );
    assert!(
        Setup::set(&json!("keys"), &[])
            .refusal()
            .contains("no JSON Web Key Set")
    );
    assert!(
        Setup::set(&json!([jwk]), &[Algorithm::RS256])
            .refusal()
            .contains("none of its keys")
    );
}

#[test]
fn a_short_secret_is_noticed() {
    let short = Setup::key(b"secret\n", &[Algorithm::HS256]);
    assert_eq!(short_secret(&short.principal), Some((6, 32)));
    assert_eq!(
        short_secret(&Setup::key(SECRET, &[Algorithm::HS256]).principal),
        None
    );
    assert_eq!(short_secret(&Setup::key(RSA_PUBLIC, &[]).principal), None);
}

#[test]
fn the_other_sources_are_built_too() {
    let built = |source| {
        let principal = config::Principal {
            source,
            ..config::Principal::default()
        };
        build(&principal)
            .unwrap()
            .principal(&request(&["Bearer x"]))
    };
    let anonymous = Principal::anonymous();
    assert_ne!(built(config::Source::Authorization).unwrap(), anonymous);
    assert_eq!(built(config::Source::None).unwrap(), anonymous);
    assert!(built(config::Source::Header(http::header::FROM)).is_err());
    assert!(built(config::Source::Mtls).is_err());
}
