//! Good tokens, and the ways in which tokens are forged: what the tests share.

mod keys;
mod tokens;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use onlyonce_http::{Principal, PrincipalError, Principals};
use serde_json::{Value, json};

use super::jwt::Jwt;
use super::*;

const NOW: u64 = 1_700_000_000;
const RSA_PRIVATE: &str = include_str!("../../../tests/fixtures/principal/rsa-private.pem");
const RSA_PUBLIC: &str = include_str!("../../../tests/fixtures/principal/rsa-public.pem");
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

struct Setup {
    folder: tempfile::TempDir,
    principal: config::Principal,
}

impl Setup {
    fn key(bytes: impl AsRef<[u8]>, algorithms: &[Algorithm]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, bytes).unwrap();
        let principal = config::Principal {
            source: config::Source::Jwt("sub".into()),
            jwt_key_file: Some(file),
            jwt_algorithms: algorithms.to_vec(),
            ..config::Principal::default()
        };
        Self { folder, principal }
    }

    fn set(keys: &Value, algorithms: &[Algorithm]) -> Self {
        let mut setup = Self::key(json!({ "keys": keys }).to_string(), algorithms);
        setup.principal.jwks_file = setup.principal.jwt_key_file.take();
        setup
    }

    fn jwt(&self) -> Result<Jwt, SetupError> {
        assert!(self.folder.path().exists());
        Jwt::new("sub", &self.principal).map(|jwt| jwt.at(|| NOW))
    }

    fn refusal(&self) -> String {
        let Err(refused) = self.jwt() else {
            panic!("the key was accepted");
        };
        refused.to_string()
    }
}

fn claims() -> Value {
    json!({ "sub": "alice", "iss": "issuer", "aud": "payments", "exp": NOW + 60 })
}

fn signed(algorithm: Algorithm, kid: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(Into::into);
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn hmac(claims: &Value) -> String {
    signed(
        Algorithm::HS256,
        None,
        &EncodingKey::from_secret(SECRET),
        claims,
    )
}

fn rsa(algorithm: Algorithm, kid: Option<&str>) -> String {
    let key = EncodingKey::from_rsa_pem(RSA_PRIVATE.as_bytes()).unwrap();
    signed(algorithm, kid, &key, &claims())
}

fn request(values: &[&str]) -> Parts {
    let mut parts = http::Request::new(()).into_parts().0;
    for value in values {
        parts
            .headers
            .append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
    }
    parts
}

fn ask(jwt: &Jwt, token: &str) -> Result<Principal, PrincipalError> {
    jwt.principal(&request(&[&format!("Bearer {token}")]))
}

fn refused(jwt: &Jwt, token: &str) -> String {
    ask(jwt, token).unwrap_err().detail.into()
}

fn with_hmac() -> Jwt {
    Setup::key(SECRET, &[Algorithm::HS256]).jwt().unwrap()
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
