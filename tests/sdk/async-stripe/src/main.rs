//! Stripe for Rust: the client makes the key and retries by itself.

use std::time::Duration;

use stripe::{ClientBuilder, IdempotencyKey, RequestStrategy, StripeError, StripeRequest};
use stripe_core::PaymentIntent;
use stripe_core::payment_intent::CreatePaymentIntent;
use stripe_types::Currency;

/// As pinned in the manifest.
const VERSION: &str = "1.0.0-rc.10";

/// As many attempts as Stripe's own SDKs make with two retries.
const ATTEMPTS: u32 = 3;

struct Program {
    client: stripe::Client,
    strategy: RequestStrategy,
}

impl Program {
    async fn create(&self, amount: i64) -> Result<PaymentIntent, StripeError> {
        let request = CreatePaymentIntent::new(amount, Currency::EUR);
        let request = request.customize().request_strategy(self.strategy.clone());
        let intent = request.send(&self.client).await?;
        assert_eq!(intent.amount, amount);
        Ok(intent)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, scenario, timeout, _calls] = &arguments[..] else {
        panic!("URL SCENARIO TIMEOUT CALLS");
    };
    let timeout = Duration::from_secs_f64(timeout.parse().expect("seconds"));
    let client = ClientBuilder::new("sk_test_1").url(url).timeout(timeout);
    let mismatch = scenario == "mismatch";
    let program = Program {
        client: client.build().expect("a client"),
        strategy: if mismatch {
            RequestStrategy::Idempotent(IdempotencyKey::new_uuid_v4())
        } else {
            RequestStrategy::ExponentialBackoff(ATTEMPTS)
        },
    };
    let mut outcome = program.create(1200).await;
    if mismatch {
        outcome.expect("the first use of a key");
        outcome = program.create(1300).await;
    }
    println!("{}", told(outcome));
}

/// The line that every program prints. No text in it needs an escape but an error's.
fn told(outcome: Result<PaymentIntent, StripeError>) -> String {
    let about = match outcome {
        Ok(intent) => format!(
            r#""result":"object","type":"PaymentIntent","id":"{}""#,
            intent.id
        ),
        Err(StripeError::Stripe(error, status)) => format!(
            r#""result":"error","class":"{}","code":"{}","status":{status},"message":{:?}"#,
            error.type_,
            error.code.map(|code| code.to_string()).unwrap_or_default(),
            error.message.unwrap_or_default(),
        ),
        Err(error) => format!(
            r#""result":"error","class":"StripeError","code":null,"message":{:?}"#,
            error.to_string(),
        ),
    };
    format!(r#"{{"sdk":"async-stripe","version":"{VERSION}","calls":1,"raised":[],{about}}}"#)
}
