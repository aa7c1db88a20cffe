//! The tower layer instead of the gateway: a service in Rust that speaks Stripe's dialect.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use onlyonce_conformance::Witness;
use onlyonce_engine::Engine;
use onlyonce_http::{Config, IdempotencyLayer, Profile, Routes};
use onlyonce_store::MemoryStore;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cases::STRIPE_PYTHON;
use crate::front;
use crate::provider::Fault;
use crate::stage::{Sdk, Stage, Story, Trouble};

/// Charges, and answers as Stripe does.
async fn charge(State(witness): State<Arc<Witness>>, form: String) -> Json<Value> {
    let amount = form
        .split('&')
        .find_map(|pair| pair.strip_prefix("amount="));
    let amount: i64 = amount.expect("an amount").parse().expect("a number");
    let number = witness.total().expect("a count") + 1;
    witness
        .record(&format!("charge {number}"))
        .expect("a record");
    let id = format!("pi_{number}");
    Json(json!({"id": id, "object": "payment_intent", "amount": amount, "currency": "eur"}))
}

/// The service, with every write guarded as Stripe does.
async fn service(witness: Arc<Witness>) -> Router {
    let stripe = Profile::preset("stripe").expect("a preset");
    let config = Config {
        routes: Routes::of(&stripe).expect("routes"),
        ..Config::default()
    };
    let engine = Engine::builder(MemoryStore::new())
        .policies(config.routes.policies())
        .open()
        .await
        .expect("an engine");
    Router::new()
        .route("/v1/payment_intents", post(charge))
        .with_state(witness)
        .layer(IdempotencyLayer::new(engine, config))
}

/// The SDK, as it is called in the table.
const SDK: Sdk = Sdk {
    name: "stripe, tower layer",
    ..STRIPE_PYTHON
};

/// Starts the service, runs the SDK, and counts.
async fn run(stage: &Stage, loses_first: bool) -> Story {
    let folder = tempfile::tempdir().expect("a folder");
    let witness = Witness::open(folder.path().join("effects")).expect("a witness");
    let witness = Arc::new(witness);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = service(Arc::clone(&witness)).await;
    tokio::spawn(async move { axum::serve(listener, service).await });
    let attempts = watch::Sender::new(0);
    let front = front::start(address, attempts.clone(), loses_first).await;
    let told = stage.program(&format!("http://{front}")).await;
    let effects = witness.total().expect("a count");
    let story = Story {
        told,
        attempts: *attempts.borrow(),
        // Every run of the handler is an effect.
        dispatches: effects,
        effects,
        refusals: Vec::new(),
        log: String::new(),
    };
    stage.print(&story);
    story
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_of_a_guarded_service_is_one_effect_and_an_object() {
    let story = run(&Stage::new(SDK, Trouble::Lost), true).await;
    assert_eq!((story.attempts, story.effects), (2, 1), "{story:?}");
    assert_eq!(story.told.id.as_deref(), Some("pi_1"), "{story:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_for_two_amounts_is_one_effect_and_stripes_own_error() {
    let stage = Stage::new(SDK, Trouble::Upstream(Fault::None)).mismatch();
    let story = run(&stage, false).await;
    assert_eq!((story.attempts, story.effects), (2, 1), "{story:?}");
    let class = story.told.class.as_deref();
    assert_eq!(class, Some("IdempotencyError"), "{story:?}");
}
