//! What is known about each API, line by line. `ANY` stands for what nobody published: the preset
//! may choose, and promises nothing.

use std::time::Duration;

use onlyonce_http::{InFlight, Profile};

/// What an answer must be: its status, and a part of its body.
pub type Told = (u16, &'static str);

/// Nobody published it.
pub const ANY: Told = (0, "");

pub struct Fact {
    pub name: &'static str,
    /// As in the configuration.
    pub key: &'static str,
    pub chars_max: Option<usize>,
    /// None: not published.
    pub scope: Option<&'static [&'static str]>,
    /// At least.
    pub retention: Option<Duration>,
    pub mismatch: Told,
    pub in_flight: Told,
    pub waits: bool,
    pub missing: Told,
    /// Statuses after which a retry gets the first answer, and after which it runs again.
    pub saved: &'static [u16],
    pub again: &'static [u16],
    /// Headers of a replay; a value of `*` may be anything.
    pub replay: &'static [(&'static str, &'static str)],
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

const DEFAULT: Fact = Fact {
    name: "",
    key: "header:idempotency-key",
    chars_max: None,
    scope: None,
    retention: None,
    mismatch: ANY,
    in_flight: ANY,
    waits: false,
    missing: ANY,
    saved: &[201],
    again: &[],
    replay: &[],
};

const SUCCESS_ONLY: Fact = Fact {
    saved: &[200, 201],
    again: &[400, 402, 404, 422, 503],
    ..DEFAULT
};

pub const FACTS: [Fact; 16] = [
    Fact {
        name: "ietf",
        chars_max: Some(255),
        scope: Some(&["principal", "method", "path"]),
        retention: Some(hours(24)),
        mismatch: (422, "idempotency_key_reused_with_different_payload"),
        in_flight: (409, "idempotency_key_in_progress"),
        missing: (400, "idempotency_key_required"),
        saved: &[201, 402, 500],
        replay: &[("idempotency-replayed", "true")],
        ..DEFAULT
    },
    Fact {
        name: "stripe",
        chars_max: Some(255),
        scope: Some(&["principal"]),
        retention: Some(hours(24)),
        mismatch: (400, r#"{"error":{"type":"idempotency_error","message":""#),
        in_flight: (409, r#""code":"idempotency_key_in_use""#),
        waits: true,
        // Everything once execution began; not 401, 429, validation, the concurrent conflict.
        saved: &[200, 201, 402, 500],
        again: &[400, 401, 409, 429],
        replay: &[
            ("idempotent-replayed", "true"),
            ("idempotency-key", "*"),
            ("request-id", "*"),
            ("original-request", "*"),
            ("stripe-should-retry", "false"),
        ],
        ..DEFAULT
    },
    Fact {
        name: "stripe-v2",
        retention: Some(hours(30 * 24)),
        mismatch: (400, "idempotency_error"),
        waits: true,
        saved: &[200, 201],
        again: &[400, 402, 500],
        ..DEFAULT
    },
    Fact {
        name: "acp",
        chars_max: Some(255),
        scope: Some(&["principal", "path"]),
        retention: Some(hours(24)),
        mismatch: (
            422,
            r#"{"type":"invalid_request","code":"idempotency_conflict","#,
        ),
        in_flight: (409, "idempotency_in_flight"),
        missing: (400, "idempotency_key_required"),
        saved: &[201, 402],
        again: &[500, 503],
        replay: &[("idempotent-replayed", "true"), ("idempotency-key", "*")],
        ..DEFAULT
    },
    Fact {
        name: "paypal",
        key: "header:paypal-request-id",
        chars_max: Some(108),
        in_flight: (409, "PREVIOUS_REQUEST_IN_PROGRESS"),
        missing: (400, "PAYPAL_REQUEST_ID_REQUIRED"),
        ..DEFAULT
    },
    Fact {
        name: "square",
        key: "json:/idempotency_key",
        scope: Some(&["principal", "method", "path"]),
        mismatch: (
            400,
            r#"{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED","#,
        ),
        ..SUCCESS_ONLY
    },
    Fact {
        name: "adyen",
        chars_max: Some(64),
        scope: Some(&["principal"]),
        retention: Some(hours(7 * 24)),
        in_flight: (
            422,
            r#"{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}"#,
        ),
        replay: &[("idempotency-key", "*")],
        ..DEFAULT
    },
    Fact {
        name: "checkout",
        key: "header:cko-idempotency-key",
        retention: Some(hours(24)),
        in_flight: (409, ""),
        ..SUCCESS_ONLY
    },
    Fact {
        name: "gocardless",
        // Any reuse.
        mismatch: (409, "idempotent_creation_conflict"),
        in_flight: (409, "invalid_state"),
        waits: true,
        saved: &[],
        ..DEFAULT
    },
    Fact {
        name: "modern-treasury",
        scope: Some(&["principal"]),
        retention: Some(hours(24)),
        // Not checked: the first answer.
        mismatch: (201, "run 1"),
        in_flight: (409, ""),
        ..SUCCESS_ONLY
    },
    Fact {
        name: "telnyx",
        chars_max: Some(255),
        scope: Some(&["principal", "method", "path"]),
        retention: Some(hours(24)),
        mismatch: (422, ""),
        ..SUCCESS_ONLY
    },
    Fact {
        name: "aws-dynamodb",
        key: "json:/ClientRequestToken",
        chars_max: Some(36),
        retention: Some(Duration::from_secs(600)),
        mismatch: (400, "IdempotentParameterMismatchException"),
        in_flight: (400, "TransactionInProgressException"),
        // Most operations have no token.
        missing: (201, "run"),
        ..SUCCESS_ONLY
    },
    Fact {
        name: "aws-ec2",
        key: "form:ClientToken",
        chars_max: Some(64),
        mismatch: (400, "<Code>IdempotentParameterMismatch</Code>"),
        missing: (201, "run"),
        waits: true,
        ..SUCCESS_ONLY
    },
    Fact {
        name: "azure",
        key: "header:repeatability-request-id",
        retention: Some(Duration::from_secs(300)),
        mismatch: (400, ""),
        in_flight: (409, ""),
        saved: &[200, 201, 400, 404, 409, 422],
        again: &[500, 503],
        replay: &[("repeatability-result", "accepted")],
        ..DEFAULT
    },
    Fact {
        name: "single-use",
        scope: Some(&["principal"]),
        mismatch: (409, "idempotency_key_already_used"),
        in_flight: (409, ""),
        saved: &[],
        ..DEFAULT
    },
    Fact {
        name: "success-only",
        chars_max: Some(255),
        scope: Some(&["principal", "route"]),
        retention: Some(hours(24)),
        mismatch: (422, ""),
        in_flight: (409, ""),
        replay: &[("idempotency-replayed", "true")],
        again: &[400, 402, 404, 422, 500, 503],
        ..SUCCESS_ONLY
    },
];

#[test]
fn every_preset_has_its_facts() {
    let names: Vec<_> = FACTS.iter().map(|fact| fact.name).collect();
    assert_eq!(names, Profile::presets().collect::<Vec<_>>());
}

#[test]
fn what_can_be_read_from_a_preset_is_what_is_known() {
    for fact in &FACTS {
        let name = fact.name;
        let profile = Profile::preset(name).unwrap();
        let sources = profile.sources.as_deref().unwrap();
        assert_eq!(sources.len(), 1, "{name}");
        assert_eq!(sources[0].place.written(), fact.key, "{name}");
        if let Some(chars_max) = fact.chars_max {
            assert_eq!(sources[0].chars_max, chars_max, "{name}");
        }
        if let Some(parts) = fact.scope {
            let scope = profile.scope.unwrap();
            let has = |part| parts.contains(&part);
            assert_eq!(scope.principal, has("principal"), "{name}");
            assert_eq!(scope.method, has("method"), "{name}");
            assert_eq!(scope.path, has("path"), "{name}");
            assert_eq!(scope.route, has("route"), "{name}");
        }
        if let Some(least) = fact.retention {
            assert!(profile.retention.unwrap() >= least, "{name}");
        }
        let waits = matches!(profile.in_flight, Some(InFlight::Wait(_)));
        assert_eq!(waits, fact.waits, "{name}");
        assert!(
            !profile.about.is_empty() && !profile.follows.is_empty(),
            "{name}"
        );
    }
}

/// 6 hours for orders v2, 45 days for payments v2, 72 hours for subscriptions, 30 days for payouts.
#[test]
fn paypal_keeps_keys_by_api() {
    let routes = onlyonce_http::Routes::of(&Profile::preset("paypal").unwrap()).unwrap();
    for (path, hours) in [
        ("/v2/checkout/orders", 6),
        ("/v2/checkout/orders/1/capture", 6),
        ("/v2/payments/captures/1/refund", 45 * 24),
        ("/v1/billing/subscriptions", 72),
        ("/v1/payments/payouts", 30 * 24),
        ("/v9/anything", 45 * 24),
    ] {
        let route = routes.find(&http::Method::POST, path).unwrap();
        let kept = route.policy.retention();
        assert_eq!(kept, Duration::from_secs(hours * 3_600), "{path}");
    }
}
