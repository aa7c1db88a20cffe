//! What a token must be and say.

use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::*;

/// The point of a verified claim: a retry with the new token finds the first answer.
#[test]
fn a_refreshed_token_is_the_same_caller() {
    let jwt = with_hmac();
    let first = ask(&jwt, &hmac(&claims())).unwrap();
    let mut refreshed = claims();
    refreshed["exp"] = json!(NOW + 3600);
    refreshed["jti"] = json!("another");
    assert_eq!(ask(&jwt, &hmac(&refreshed)), Ok(first));
}

#[test]
fn another_claim_issuer_or_type_is_another_caller() {
    let jwt = with_hmac();
    let mut seen = vec![ask(&jwt, &hmac(&claims())).unwrap()];
    let others = [
        json!({ "sub": "bob", "iss": "issuer", "exp": NOW + 60 }),
        json!({ "sub": "alice", "iss": "other", "exp": NOW + 60 }),
        json!({ "sub": "alice", "exp": NOW + 60 }),
        json!({ "sub": "7", "iss": "issuer", "exp": NOW + 60 }),
        json!({ "sub": 7, "iss": "issuer", "exp": NOW + 60 }),
    ];
    for claims in others {
        let principal = ask(&jwt, &hmac(&claims)).unwrap();
        assert!(!seen.contains(&principal), "{claims}");
        seen.push(principal);
    }
}

/// The oldest forgery: nothing signed it, and the header says that this is fine.
#[test]
fn a_token_that_is_not_signed_is_refused() {
    let payload = base64(claims().to_string().as_bytes());
    for alg in ["none", "None", "NONE", ""] {
        let header = base64(json!({ "alg": alg, "typ": "JWT" }).to_string().as_bytes());
        for jwt in [with_hmac(), Setup::key(RSA_PUBLIC, &[]).jwt().unwrap()] {
            assert!(ask(&jwt, &format!("{header}.{payload}.")).is_err(), "{alg}");
            assert!(ask(&jwt, &format!("{header}.{payload}")).is_err(), "{alg}");
        }
    }
}

#[test]
fn times_are_checked_with_a_leeway() {
    let jwt = with_hmac();
    let at = |exp: Value, nbf: Value| {
        let mut claims = claims();
        claims["exp"] = exp;
        claims["nbf"] = nbf;
        ask(&jwt, &hmac(&claims))
    };
    assert!(at(json!(NOW - 29), json!(NOW + 30)).is_ok());
    assert!(at(json!(NOW - 30), json!(NOW)).is_err());
    assert!(at(json!(NOW + 60), json!(NOW + 31)).is_err());
    assert!(at(json!(1_700_000_060.5), json!(NOW)).is_ok());
    for time in [
        json!("1700000060"),
        json!(null),
        json!(-5),
        json!(1e300),
        json!([]),
    ] {
        assert!(at(time.clone(), json!(NOW)).is_err(), "exp {time}");
        assert!(at(json!(NOW + 60), time.clone()).is_err(), "nbf {time}");
    }
    let forever = json!({ "sub": "alice" });
    assert_eq!(
        refused(&jwt, &hmac(&forever)),
        "the token has no expiry (`exp`)"
    );
}

#[test]
fn issuer_and_audience_must_be_the_configured_ones() {
    let mut setup = Setup::key(SECRET, &[Algorithm::HS256]);
    setup.principal.jwt_issuer = Some("issuer".into());
    setup.principal.jwt_audience = vec!["payments".into(), "refunds".into()];
    let jwt = setup.jwt().unwrap();
    let changed = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        ask(&jwt, &hmac(&claims))
    };
    assert!(changed("aud", json!(["other", "refunds"])).is_ok());
    for wrong in [
        json!("other"),
        json!(null),
        json!(7),
        json!([]),
        json!(["other"]),
    ] {
        assert!(changed("aud", wrong.clone()).is_err(), "aud {wrong}");
        assert!(changed("iss", wrong.clone()).is_err(), "iss {wrong}");
    }
    for missing in ["iss", "aud"] {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(missing);
        assert!(ask(&jwt, &hmac(&claims)).is_err(), "{missing}");
    }
}

#[test]
fn the_claim_must_name_somebody() {
    let jwt = with_hmac();
    for wrong in [
        json!(""),
        json!(null),
        json!(true),
        json!(["alice"]),
        json!({ "a": 1 }),
    ] {
        let mut claims = claims();
        claims["sub"] = wrong.clone();
        assert!(ask(&jwt, &hmac(&claims)).is_err(), "{wrong}");
    }
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove("sub");
    assert!(refused(&jwt, &hmac(&claims)).contains("no claim `sub`"));
}

/// Two headers could name two callers, and which one the API believes is anybody's guess.
#[test]
fn there_is_exactly_one_authorization_with_a_bearer_token() {
    let jwt = with_hmac();
    let good = format!("Bearer {}", hmac(&claims()));
    assert!(jwt.principal(&request(&[&good])).is_ok());
    assert!(
        jwt.principal(&request(&[&good.replace("Bearer", "bearer")]))
            .is_ok()
    );
    let wrong: [&[&str]; 7] = [
        &[],
        &[&good, &good],
        &[&good, "Basic YTpi"],
        &["Basic YTpi"],
        &["Bearer"],
        &["Bearer "],
        &[""],
    ];
    for values in wrong {
        assert!(jwt.principal(&request(values)).is_err(), "{values:?}");
    }
}

#[test]
fn garbage_is_refused() {
    let jwt = with_hmac();
    let good = hmac(&claims());
    for token in [
        "a",
        "a.b",
        "a.b.c",
        "....",
        "e30.e30.e30",
        &good[1..],
        &good[..good.len() - 4],
    ] {
        assert!(ask(&jwt, token).is_err(), "{token}");
    }
    let (head, signature) = good.rsplit_once('.').unwrap();
    let header = head.split_once('.').unwrap().0;
    let mallory = base64(
        json!({ "sub": "mallory", "exp": NOW + 60 })
            .to_string()
            .as_bytes(),
    );
    assert!(ask(&jwt, &format!("{header}.{mallory}.{signature}")).is_err());
    assert!(refused(&jwt, &"a".repeat(20_000)).contains("longer than"));
}

/// An extension that must be understood and is not may change what the token means.
#[test]
fn a_critical_extension_is_refused() {
    let header = base64(br#"{"alg":"HS256","crit":["b64"],"b64":false}"#);
    let message = format!("{header}.{}", base64(claims().to_string().as_bytes()));
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    assert_eq!(
        refused(&with_hmac(), &format!("{message}.{signature}")),
        "the token is no signed JWT"
    );
}
