//! Every SDK under every fault: one effect, and an object for whoever called.
//!
//! The numbers are those of the SDKs' own sources: where an SDK does not retry by itself, its
//! caller calls it a second time with the same key, as its documentation says.

use crate::dialects::Dialect;
use crate::install::Runner;
use crate::provider::Fault;
use crate::stage::{Sdk, Stage, Story, Trouble};

/// What is special about one SDK.
struct Facts {
    sdk: Sdk,
    /// How often the caller must call: when an answer is lost or late, and when the gateway or
    /// the upstream answers with a 5xx.
    calls: (usize, usize),
    /// The type of its object, and the object's id.
    object: (&'static str, &'static str),
    /// The class and the code of the error for one key with two payloads; none where this
    /// provider does not compare, and the caller gets the first object.
    mismatch: Option<(&'static str, Option<&'static str>)>,
    /// The class of the error when nobody knows what an opaque upstream did.
    unknown: &'static str,
}

impl Facts {
    async fn survives(&self, trouble: Trouble) {
        let calls = match trouble {
            Trouble::Lost | Trouble::Upstream(Fault::Slow) => self.calls.0,
            Trouble::Upstream(_) => self.calls.1,
        };
        let story = Stage::new(self.sdk, trouble).calls(calls).run().await;
        assert_eq!(story.effects, 1, "{story:?}");
        assert_eq!(story.told.result, "object", "{story:?}");
        assert_eq!(story.told.kind.as_deref(), Some(self.object.0), "{story:?}");
        assert_eq!(story.told.id.as_deref(), Some(self.object.1), "{story:?}");
        assert_eq!(story.told.calls, calls, "{story:?}");
        assert!(story.attempts > 1, "{story:?}");
        let dispatches = match trouble {
            Trouble::Lost | Trouble::Upstream(Fault::Slow) => 1,
            Trouble::Upstream(_) => 2,
        };
        assert_eq!(story.dispatches, dispatches, "{story:?}");
        admitted(&story);
    }

    async fn refuses_a_mismatch(&self) {
        let fine = Trouble::Upstream(Fault::None);
        let story = Stage::new(self.sdk, fine).mismatch().run().await;
        assert_eq!((story.effects, story.dispatches), (1, 1), "{story:?}");
        let Some((class, code)) = self.mismatch else {
            assert_eq!(story.told.result, "object", "{story:?}");
            return;
        };
        assert_eq!(story.told.class.as_deref(), Some(class), "{story:?}");
        if let Some(code) = code {
            let found = story.told.code.as_ref().and_then(|code| code.as_str());
            assert_eq!(found, Some(code), "{story:?}");
        }
        admitted(&story);
    }

    async fn stays_unknown(&self) {
        let dropped = Trouble::Upstream(Fault::Drop);
        let stage = Stage::new(self.sdk, dropped).opaque();
        let story = stage.calls(self.calls.1).run().await;
        assert_eq!((story.effects, story.dispatches), (1, 1), "{story:?}");
        assert!(story.attempts > 1, "{story:?}");
        let class = story.told.class.as_deref();
        assert_eq!(class, Some(self.unknown), "{story:?}");
        admitted(&story);
    }

    async fn never_executes_twice(&self) {
        let failed = Trouble::Upstream(Fault::FailAfter);
        let stage = Stage::new(self.sdk, failed).opaque();
        let story = stage.calls(self.calls.1).run().await;
        assert_eq!((story.effects, story.dispatches), (1, 1), "{story:?}");
        assert_eq!(story.told.result, "error", "{story:?}");
        admitted(&story);
    }
}

/// Whatever was signed arrived as it was signed.
#[track_caller]
fn admitted(story: &Story) {
    assert!(story.refusals.is_empty(), "{:?}", story.refusals);
}

/// The tests of one SDK.
macro_rules! sdk {
    ($name:ident, $facts:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn a_lost_answer_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Lost).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_upstream_that_closes_after_executing_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Upstream(Fault::Drop)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_upstream_that_resets_after_executing_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Upstream(Fault::Reset)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_upstream_slower_than_the_sdk_waits_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Upstream(Fault::Slow)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_500_before_executing_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Upstream(Fault::FailBefore)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_500_after_executing_is_one_effect_and_an_object() {
                $facts.survives(Trouble::Upstream(Fault::FailAfter)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn one_key_for_two_amounts_is_one_effect_and_the_sdks_own_error() {
                $facts.refuses_a_mismatch().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_opaque_upstream_that_closes_is_an_error_and_never_two_effects() {
                $facts.stays_unknown().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn an_opaque_upstream_with_a_500_is_an_error_and_never_two_effects() {
                $facts.never_executes_twice().await;
            }
        }
    };
}

/// A 5xx tells nothing: the next attempt goes to the provider, with the same key.
const ASK_AGAIN: &str = "statuses = { \"5xx\" = \"unknown\" }";

/// An attempt that comes while the first is at work waits for its answer.
const HOLD: &str = "in_flight = \"wait\"";

pub(crate) const STRIPE_PYTHON: Sdk = Sdk {
    name: "stripe (Python)",
    runner: Runner::Python,
    program: "stripe_py.py",
    dialect: Dialect::Stripe,
    profile: "stripe",
    path: "/v1/payment_intents",
    // Stripe saves a 500. A provider that dedupes can be asked once more instead.
    lines: ASK_AGAIN,
};

pub(crate) const DYNAMODB: Sdk = Sdk {
    name: "boto3 DynamoDB",
    program: "dynamodb_boto3.py",
    dialect: Dialect::DynamoDb,
    profile: "aws-dynamodb",
    path: "/",
    lines: "",
    ..STRIPE_PYTHON
};

pub(crate) const EC2: Sdk = Sdk {
    name: "boto3 EC2",
    program: "ec2_boto3.py",
    dialect: Dialect::Ec2,
    profile: "aws-ec2",
    // boto3 does not retry a conflict.
    lines: HOLD,
    ..DYNAMODB
};

sdk!(
    stripe_python,
    Facts {
        sdk: STRIPE_PYTHON,
        calls: (1, 1),
        object: ("PaymentIntent", "pi_1"),
        mismatch: Some(("IdempotencyError", None)),
        unknown: "APIError",
    }
);

sdk!(
    stripe_node,
    Facts {
        sdk: Sdk {
            name: "stripe (Node)",
            runner: Runner::Node,
            program: "stripe_node.mjs",
            ..STRIPE_PYTHON
        },
        calls: (1, 1),
        object: ("PaymentIntent", "pi_1"),
        mismatch: Some(("StripeIdempotencyError", None)),
        unknown: "StripeAPIError",
    }
);

sdk!(
    async_stripe,
    Facts {
        sdk: Sdk {
            name: "async-stripe (Rust)",
            runner: Runner::Rust,
            program: "async-stripe",
            ..STRIPE_PYTHON
        },
        calls: (1, 1),
        object: ("PaymentIntent", "pi_1"),
        mismatch: Some(("idempotency_error", None)),
        unknown: "api_error",
    }
);

sdk!(
    square,
    Facts {
        sdk: Sdk {
            name: "squareup",
            program: "square_py.py",
            dialect: Dialect::Square,
            profile: "square",
            path: "/v2/payments",
            lines: "",
            ..STRIPE_PYTHON
        },
        calls: (2, 1),
        object: ("Payment", "sq1"),
        mismatch: Some(("ApiError", Some("IDEMPOTENCY_KEY_REUSED"))),
        unknown: "ApiError",
    }
);

sdk!(
    modern_treasury,
    Facts {
        sdk: Sdk {
            name: "modern-treasury",
            program: "modern_treasury_py.py",
            dialect: Dialect::ModernTreasury,
            profile: "modern-treasury",
            path: "/api/payment_orders",
            lines: "",
            ..STRIPE_PYTHON
        },
        calls: (1, 1),
        object: ("PaymentOrder", "po1"),
        mismatch: None,
        unknown: "ConflictError",
    }
);

sdk!(
    gocardless,
    Facts {
        sdk: Sdk {
            name: "gocardless_pro",
            program: "gocardless_py.py",
            dialect: Dialect::GoCardless,
            profile: "gocardless",
            path: "/payments",
            lines: "",
            ..STRIPE_PYTHON
        },
        calls: (1, 2),
        object: ("Payment", "PM1"),
        mismatch: Some((
            "IdempotentCreationConflictError",
            Some("idempotent_creation_conflict")
        )),
        unknown: "GoCardlessInternalError",
    }
);

sdk!(
    adyen,
    Facts {
        sdk: Sdk {
            name: "Adyen",
            program: "adyen_py.py",
            dialect: Dialect::Adyen,
            profile: "adyen",
            path: "/v72/payments",
            // Adyen saves a 500, and its SDK retries neither that nor a conflict.
            lines: "statuses = { \"5xx\" = \"unknown\" }\nin_flight = \"wait\"",
            ..STRIPE_PYTHON
        },
        calls: (2, 2),
        object: ("AdyenResult", "PSP1"),
        mismatch: Some(("AdyenAPIUnprocessableEntity", None)),
        unknown: "AdyenAPIResponseError",
    }
);

sdk!(
    dynamodb,
    Facts {
        sdk: DYNAMODB,
        calls: (1, 1),
        object: ("dict", "orders"),
        mismatch: Some((
            "IdempotentParameterMismatchException",
            Some("IdempotentParameterMismatchException"),
        )),
        unknown: "ClientError",
    }
);

sdk!(
    ec2,
    Facts {
        sdk: EC2,
        calls: (1, 1),
        object: ("dict", "i-1"),
        mismatch: Some(("ClientError", Some("IdempotentParameterMismatch"))),
        unknown: "ClientError",
    }
);

/// Stripe saves what failed once it was executed, and says that asking again is no use.
#[tokio::test(flavor = "multi_thread")]
async fn a_500_that_stripe_saves_is_given_again_and_the_sdk_stops() {
    let trouble = Trouble::Upstream(Fault::FailAfter);
    let story = Stage::new(STRIPE_PYTHON, trouble).by_profile().run().await;
    assert_eq!((story.effects, story.dispatches), (1, 1), "{story:?}");
    assert_eq!(story.attempts, 2, "{story:?}");
    assert_eq!(story.told.class.as_deref(), Some("APIError"), "{story:?}");
    assert_eq!(story.told.status, Some(500), "{story:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_on_two_paths_is_one_effect_and_stripes_own_error() {
    let fine = Trouble::Upstream(Fault::None);
    let story = Stage::new(STRIPE_PYTHON, fine).elsewhere().run().await;
    assert_eq!((story.effects, story.dispatches), (1, 1), "{story:?}");
    let class = story.told.class.as_deref();
    assert_eq!(class, Some("IdempotencyError"), "{story:?}");
}
