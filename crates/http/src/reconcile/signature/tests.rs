//! The published vectors, and everything that is not genuine.

use super::*;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn standard(secrets: &str) -> Verifier {
    Verifier::new(Scheme::Standard, secrets, FIVE_MINUTES).unwrap()
}

/// The published vectors of the Standard Webhooks libraries and of Svix.
const VECTORS: [(&str, &str, u64, &str, &str); 2] = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        "{\"test\": 2432232314}",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    (
        "whsec_plJ3nmyCDGBKInavdOK15jsl",
        "msg_loFOjxBNrRLzqYUf",
        1_731_705_121,
        "{\"event_type\":\"ping\",\"data\":{\"success\":true}}",
        "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    ),
];

fn lines(id: &str, at: u64, signature: &str) -> HeaderMap {
    headers(&[
        ("webhook-id", id),
        ("webhook-timestamp", &at.to_string()),
        ("webhook-signature", signature),
    ])
}

#[test]
fn the_published_vectors_are_genuine() {
    for (secret, id, at, body, signature) in VECTORS {
        let sent = lines(id, at, signature);
        let signed = standard(secret).verify(&sent, body.as_bytes(), at);
        assert_eq!(signed, Ok(Signed { at_seconds: at }));
        // Without its prefix it is the same secret.
        let bare = secret.strip_prefix("whsec_").unwrap();
        assert!(standard(bare).verify(&sent, body.as_bytes(), at).is_ok());
    }
}

/// Senders rotate secrets by signing with both, receivers by knowing both.
#[test]
fn one_of_several_signatures_and_one_of_several_secrets_is_enough() {
    let [(secret, id, at, body, signature), (other, ..)] = VECTORS;
    let several = format!("v1,bm9wZQ== v1a,xxxx {signature} garbage");
    let both = standard(&format!("{other}\n\n  {secret}\n"));
    let sent = lines(id, at, &several);
    assert!(both.verify(&sent, body.as_bytes(), at).is_ok());
}

#[test]
fn whatever_was_altered_is_forged() {
    let [(secret, id, at, body, signature), (other, ..)] = VECTORS;
    let verifier = standard(secret);
    let forged = Err(SignatureError::Forged);
    let body = body.as_bytes();
    let sent = lines(id, at, signature);
    assert_eq!(
        verifier.verify(&sent, b"{\"test\": 2432232315}", at),
        forged
    );
    assert_eq!(verifier.verify(&sent, b"", at), forged);
    assert_eq!(standard(other).verify(&sent, body, at), forged);
    for sent in [
        lines("msg_other", at, signature),
        lines(id, at + 1, signature),
        lines(id, at, "v1,"),
        lines(id, at, "v1,bm9wZQ=="),
        lines(id, at, signature.strip_prefix("v1,").unwrap()),
        lines(id, at, &signature.replace("v1,", "v2,")),
    ] {
        assert_eq!(verifier.verify(&sent, body, at), forged, "{sent:?}");
    }
    // The right one behind a crowd of wrong ones costs nothing to look for.
    let crowd = format!("{}{signature}", "v1,bm9wZQ== ".repeat(1000));
    assert_eq!(verifier.verify(&lines(id, at, &crowd), body, at), forged);
}

#[test]
fn a_genuine_one_is_fresh_for_the_tolerance_both_ways() {
    let [(secret, id, at, body, signature), _] = VECTORS;
    let (verifier, sent) = (standard(secret), lines(id, at, signature));
    for (now, fresh) in [
        (at + 300, true),
        (at - 300, true),
        (at + 301, false),
        (at - 301, false),
        (0, false),
    ] {
        let checked = verifier.verify(&sent, body.as_bytes(), now);
        assert_eq!(checked.is_ok(), fresh, "{now}");
        assert!(fresh || checked == Err(SignatureError::Stale));
    }
}

#[test]
fn headers_must_be_there_once_and_readable() {
    let [(secret, id, at, body, signature), _] = VECTORS;
    let whole = lines(id, at, signature);
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut without = whole.clone();
        without.remove(name);
        let refused = standard(secret).verify(&without, body.as_bytes(), at);
        assert_eq!(refused, Err(SignatureError::Header(name)));
        let mut twice = whole.clone();
        twice.append(name, whole.get(name).unwrap().clone());
        let refused = standard(secret).verify(&twice, body.as_bytes(), at);
        assert_eq!(refused, Err(SignatureError::Header(name)));
    }
    let mut odd = whole;
    odd.insert("webhook-timestamp", "+1614265330".parse().unwrap());
    let refused = standard(secret).verify(&odd, body.as_bytes(), at);
    assert_eq!(refused, Err(SignatureError::Malformed("webhook-timestamp")));
}

const STRIPE_SECRET: &str = "whsec_test_secret";

fn stripe(line: &str, body: &[u8], now: u64) -> Result<Signed, SignatureError> {
    let verifier = Verifier::new(Scheme::Stripe, STRIPE_SECRET, FIVE_MINUTES).unwrap();
    verifier.verify(&headers(&[("stripe-signature", line)]), body, now)
}

/// Computed with `printf '%s' "12345.{\"id\":\"evt_test_webhook\"}" | openssl dgst -sha256
/// -hmac whsec_test_secret`.
#[test]
fn stripes_scheme_signs_time_and_body_with_the_secret_as_shown() {
    const V1: &str = "d7f7163a0cfccca58445d80f55d8c1fb5b4613a713867fc9a3bb78e7dc24ca73";
    let body = br#"{"id":"evt_test_webhook"}"#;
    let ok = Ok(Signed { at_seconds: 12345 });
    assert_eq!(stripe(&format!("t=12345,v1={V1}"), body, 12345), ok);
    let rotated = format!("t=12345, v1={}, v1={V1},v0=6ffbb59b", "0".repeat(64));
    assert_eq!(stripe(&rotated, body, 12345), ok);
    let stale = stripe(&format!("t=12345,v1={V1}"), body, 12345 + 301);
    assert_eq!(stale, Err(SignatureError::Stale));
    for line in [
        format!("t=12346,v1={V1}"),
        format!("t=12345,v0={V1}"),
        "t=12345".to_owned(),
        "t=12345,v1=".to_owned(),
        "t=12345,v1=zz".to_owned(),
        format!("t=12345,v1={}", &V1[..62]),
    ] {
        let refused = stripe(&line, body, 12345);
        assert_eq!(refused, Err(SignatureError::Forged), "{line}");
    }
    for line in ["", "v1=00", "t=,v1=00", "t=1,t=12345,v1=00", "t=-5,v1=00"] {
        let refused = stripe(line, body, 12345);
        let malformed = SignatureError::Malformed("stripe-signature");
        assert_eq!(refused, Err(malformed), "{line}");
    }
}

#[test]
fn what_is_no_secret_is_refused_without_showing_it() {
    for (scheme, text, expected) in [
        (Scheme::Standard, "", SecretError::None),
        (Scheme::Stripe, " \n\n", SecretError::None),
        (
            Scheme::Standard,
            "whsec_not base64!",
            SecretError::NotBase64,
        ),
        (Scheme::Standard, "whsec_aGVsbG8=", SecretError::TooShort),
        (Scheme::Stripe, "hunter2", SecretError::TooShort),
    ] {
        let refused = Verifier::new(scheme, text, FIVE_MINUTES).unwrap_err();
        assert_eq!(refused, expected);
        assert!(!refused.to_string().contains("hunter2"));
    }
    let shown = format!("{:?}", standard(VECTORS[0].0));
    assert_eq!(shown, "Verifier(Standard, 1 secrets)");
}
