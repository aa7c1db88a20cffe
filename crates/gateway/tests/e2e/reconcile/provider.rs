//! A payment provider that loses answers, can be asked, and signs webhooks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use onlyonce_conformance::Witness;
use onlyonce_conformance::http_suite::Answer;
use sha2::Sha256;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::kit::{Call, Gateway, Message, Scripted, Seen, Setup, Wire, send_to, soon};

/// What a question gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The truth.
    Truth,
    /// Nothing until the gate is open, then the truth.
    Held,
    /// This, whatever was asked.
    Bytes(&'static str),
    /// An answer without end.
    Huge,
}

struct State {
    /// Payments by operation: their status.
    payments: BTreeMap<String, &'static str>,
    child_key: String,
    asked: Asked,
    questions: usize,
    asking: usize,
    asking_max: usize,
}

/// The provider. Clones share everything.
#[derive(Clone)]
pub(super) struct Provider {
    pub(super) address: SocketAddr,
    witness: Arc<Witness>,
    state: Arc<Mutex<State>>,
    gate: Arc<watch::Sender<bool>>,
    _folder: Arc<TempDir>,
}

impl Provider {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let witness = Witness::open(folder.path().join("payments")).expect("a witness");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let provider = Self {
            address: listener.local_addr().expect("an address"),
            witness: Arc::new(witness),
            state: Arc::new(Mutex::new(State {
                payments: BTreeMap::new(),
                child_key: String::new(),
                asked: Asked::Truth,
                questions: 0,
                asking: 0,
                asking_max: 0,
            })),
            gate: Arc::new(watch::channel(false).0),
            _folder: Arc::new(folder),
        };
        let script = provider.clone();
        Scripted::on(listener, move |wire, seen| script.clone().play(wire, seen));
        provider
    }

    async fn play(self, mut wire: Wire, seen: Seen) {
        while let Some(request) = seen.request(&mut wire).await {
            if request.start.starts_with("GET ") {
                self.with(|state| {
                    state.questions += 1;
                    state.asking += 1;
                    state.asking_max = state.asking_max.max(state.asking);
                });
                let asked = self.with(|state| state.asked);
                self.answer(&mut wire, &request, asked).await;
                self.with(|state| state.asking -= 1);
                continue;
            }
            match request.header("x-how") {
                "never-once" if self.first(&request) => return wire.reset(),
                "never" => return wire.reset(),
                "lose" => {
                    self.pay(&request, "paid");
                    return wire.reset();
                }
                "decline" => {
                    self.pay(&request, "failed");
                    return wire.reset();
                }
                "hold" => {
                    self.pay(&request, "paid");
                    self.opened().await;
                    return wire.reset();
                }
                _ => {
                    self.pay(&request, "paid");
                    wire.send("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npaid")
                        .await;
                }
            }
        }
    }

    async fn answer(&self, wire: &mut Wire, request: &Message, asked: Asked) {
        if asked == Asked::Held {
            tokio::select! {
                () = self.opened() => {}
                // Whoever asked has given up.
                _ = wire.rest() => return,
            }
        }
        let text = match asked {
            Asked::Bytes(bytes) => bytes.to_owned(),
            Asked::Truth | Asked::Held => {
                let (_, operation) = request.start.split_once("op=").expect("a question");
                let operation = operation.split([' ', '&']).next().expect("an operation");
                let body = self.list(operation);
                let length = body.len();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
                format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}")
            }
            Asked::Huge => {
                wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                    .await;
                while wire
                    .send(format!("1000\r\n{}\r\n", "x".repeat(0x1000)))
                    .await
                {}
                return;
            }
        };
        wire.send(text).await;
    }

    fn list(&self, operation: &str) -> String {
        let status = self.with(|state| state.payments.get(operation).copied());
        let payment = status.map(|status| payment(operation, status));
        format!(r#"{{"data":[{}]}}"#, payment.unwrap_or_default())
    }

    fn first(&self, request: &Message) -> bool {
        let operation = format!("first {}", request.header("onlyonce-operation"));
        self.with(|state| state.payments.insert(operation, "").is_none())
    }

    /// Executes, as often as it is told to: a second dispatch would show.
    fn pay(&self, request: &Message, status: &'static str) {
        let name = format!(
            "{}|{}",
            request.header("authorization"),
            request.header("idempotency-key")
        );
        let operation = request.header("onlyonce-operation").to_owned();
        let child = request.header("onlyonce-child-key").to_owned();
        self.with(|state| {
            state.payments.insert(operation, status);
            state.child_key = child;
        });
        // Last: whoever sees the effect finds what came with it.
        self.witness.record(&name).expect("the witness writes");
    }

    /// The whole name of an operation, of which a client knows the id.
    pub(super) fn operation(&self, id: &str) -> String {
        let begins = |name: &&String| name.starts_with(&format!("{id}."));
        self.with(|state| state.payments.keys().find(begins).cloned())
            .expect("a payment of this operation")
    }

    /// The key for a downstream call that came with the last payment.
    pub(super) fn child_key(&self, name: &str) -> String {
        let line = self.with(|state| state.child_key.clone());
        let (named, key) = line.split_once('=').expect("a key");
        assert_eq!((named, key.len()), (name, 32));
        key.to_owned()
    }

    async fn opened(&self) {
        let mut gate = self.gate.subscribe();
        soon(gate.wait_for(|open| *open)).await.expect("a gate");
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.state.lock().unwrap())
    }

    /// What questions get from now on.
    pub(super) fn say(&self, asked: Asked) {
        self.with(|state| state.asked = asked);
    }

    /// Lets go of what is held.
    pub(super) fn open(&self) {
        self.gate.send_replace(true);
    }

    /// How often it was asked.
    pub(super) fn questions(&self) -> usize {
        self.with(|state| state.questions)
    }

    /// How many asked at the same time, at most.
    pub(super) fn asking_max(&self) -> usize {
        self.with(|state| state.asking_max)
    }

    /// How often the payment of a call was made.
    pub(super) fn effects(&self, call: &Call) -> usize {
        let text = |name: &str| call.headers[name].to_str().expect("text");
        let name = format!("{}|{}", text("authorization"), text("idempotency-key"));
        self.witness.count(&name).expect("a count")
    }

    /// Asserts that nothing happened twice.
    pub(super) fn assert_no_doubles(&self) {
        let doubles = self.witness.doubles().expect("a count");
        assert!(doubles.is_empty(), "double: {doubles:?}");
    }

    /// A gateway in front of it: `kind` of upstream, and more of the route and of the file.
    pub(super) fn setup(&self, kind: &str, route: &str, rest: &str) -> Setup {
        let address = self.address;
        Setup::new(address).config(&format!(
            r#"lease = "2s"
[engine]
sweep_every = "50ms"
[webhooks]
listen = "127.0.0.1:0"
[[route]]
name = "payments"
path = "/payments"
upstream = "{kind}"
{route}
[[probe]]
name = "p"
url = "http://{address}/ask?op={{operation}}"
timeout = "1s"
body_max = "64KiB"
completed = [{{ pointer = "/data/0/status", values = ["paid", "failed"] }}]
not_found = [{{ pointer = "/data", empty = true }}]
pending = [{{ pointer = "/data/0/status", values = ["processing"] }}]
about = {{ pointer = "/data/0/operation", value = "{{operation}}" }}
single = "/data"
response = {{ status = {{ pointer = "/data/0/status", values = {{ paid = 201, failed = 402 }} }}, body = "/data/0" }}
{rest}"#
        ))
    }
}

/// A route that asks soon and often.
pub(super) const ASKS: &str = "probe = \"p\"\nreconcile_delay = \"100ms\"\n\
                               reconcile_delay_max = \"1s\"\nreconcile_attempts = 4";

/// A payment, as the provider shows it.
pub(super) fn payment(operation: &str, status: &str) -> String {
    format!(r#"{{"operation": "{operation}", "status": "{status}", "amount": 12.00}}"#)
}

/// A payment that goes like this.
pub(super) fn pay(key: &str, how: &str) -> Call {
    Call::payment(key).header("x-how", how)
}

/// The state of a call's operation, as its caller sees it.
pub(super) async fn state(gateway: &Gateway, unknown: &Answer) -> String {
    let status = status(gateway, unknown).await;
    status["state"].as_str().expect("a state").to_owned()
}

/// What a client is told about an operation.
pub(super) async fn status(gateway: &Gateway, unknown: &Answer) -> serde_json::Value {
    let path = unknown.json()["operation"]
        .as_str()
        .expect("a link")
        .to_owned();
    let ask = Call::new(Method::GET, &path).header("authorization", "Bearer alice");
    send_to(gateway.address, &ask).await.json()
}

/// Waits until an operation is in this state.
pub(super) async fn until_state(gateway: &Gateway, unknown: &Answer, wanted: &str) {
    soon(async {
        while state(gateway, unknown).await != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(super) fn now_seconds() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    now.as_secs()
}

fn hmac(secret: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("a secret");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// A webhook signed like Standard Webhooks.
pub(super) fn standard(name: &str, body: &str, at: u64) -> Call {
    let secret = STANDARD
        .decode(SECRET.trim_start_matches("whsec_"))
        .expect("base64");
    let signature = STANDARD.encode(hmac(&secret, &format!("msg_1.{at}.{body}")));
    Call::new(Method::POST, &format!("/webhooks/{name}"))
        .header("content-type", "application/json")
        .header("webhook-id", "msg_1")
        .header("webhook-timestamp", &at.to_string())
        .header("webhook-signature", &format!("v1,{signature}"))
        .body(body.to_owned())
}

/// A webhook signed like Stripe's.
pub(super) fn stripe(name: &str, body: &str, at: u64) -> Call {
    let signature = hmac(SECRET.as_bytes(), &format!("{at}.{body}"));
    let hex: Vec<_> = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    Call::new(Method::POST, &format!("/webhooks/{name}"))
        .header("stripe-signature", &format!("t={at},v1={}", hex.concat()))
        .body(body.to_owned())
}
