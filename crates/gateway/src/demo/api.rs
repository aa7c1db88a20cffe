//! The bundled payments API: it charges whatever it is asked to charge.
//!
//! Like most real ones it knows nothing of keys, and it finishes what it has begun when the
//! client has long gone away. Now and then it charges and breaks off before it says so.
//! `POST /payments` charges, `GET /payments` gives totals, `GET /payments/ORDER` one charge.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::faults::{api_breaks_off, api_delay, api_loses, mix};
use super::ledger::{Charge, Effects, Ledger};

/// A payment is a line of JSON; anything longer is a mistake.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// A payments API that accepts connections until it is dropped.
pub(crate) struct PaymentsApi {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    ledger: Ledger,
    charges: AtomicU64,
    broke_off: AtomicU64,
    at_work: watch::Sender<u64>,
}

#[derive(Deserialize)]
struct Payment {
    order: String,
    amount_cents: u64,
    currency: String,
}

impl PaymentsApi {
    /// Starts on a free port of this machine.
    pub(crate) async fn start(ledger: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            ledger: Ledger::open(ledger)?,
            charges: AtomicU64::new(0),
            broke_off: AtomicU64::new(0),
            at_work: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// What it has done so far.
    pub(crate) fn effects(&self) -> Effects {
        self.shared.ledger.effects()
    }

    /// How often it broke off without an answer.
    pub(crate) fn broke_off(&self) -> u64 {
        self.shared.broke_off.load(Ordering::Relaxed)
    }

    /// Waits until nothing is being charged.
    pub(crate) async fn idle(&self) {
        // The sender lives as long as this API.
        let _ = self
            .shared
            .at_work
            .subscribe()
            .wait_for(|at_work| *at_work == 0)
            .await;
    }
}

impl Drop for PaymentsApi {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file handles, say: some will come back.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| Arc::clone(&shared).serve(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        // A client that breaks off is what this demonstration is about.
        tokio::spawn(async { connection.await.ok() });
    }
}

impl Shared {
    async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, BrokeOff> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let order = path.strip_prefix("/payments/");
        match (method, path.as_str(), order) {
            (Method::POST, "/payments", _) => self.pay(request.into_body()).await,
            (Method::GET, "/payments", _) => Ok(answer(StatusCode::OK, &self.totals())),
            (Method::GET, _, Some(order)) => Ok(match self.ledger.find(order) {
                Some(charge) => answer(StatusCode::OK, &json!(charge)),
                None => failed(StatusCode::NOT_FOUND, "no charge of that order"),
            }),
            (_, _, _) => Ok(failed(
                StatusCode::NOT_FOUND,
                "POST /payments, GET /payments or GET /payments/ORDER",
            )),
        }
    }

    async fn pay(self: Arc<Self>, body: Incoming) -> Result<Response<Full<Bytes>>, BrokeOff> {
        let at_work = AtWork::begin(Arc::clone(&self));
        let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
            let error = "the body is too long or broke off";
            return Ok(failed(StatusCode::BAD_REQUEST, error));
        };
        let payment: Payment = match serde_json::from_slice(&body.to_bytes()) {
            Ok(payment) => payment,
            Err(error) => return Ok(failed(StatusCode::BAD_REQUEST, &error.to_string())),
        };
        if api_loses(&payment.order) {
            return Err(BrokeOff);
        }
        let is_first = self.ledger.find(&payment.order).is_none();
        let breaks_off = is_first && api_breaks_off(&payment.order);
        // A task of its own: hyper drops this future when the client goes away, and a server
        // with a thread per request would not stop either.
        let charging = tokio::spawn({
            let shared = Arc::clone(&self);
            async move {
                let _at_work = at_work;
                shared.charge(payment).await
            }
        });
        let charged = charging.await.map_err(io::Error::other).flatten();
        if breaks_off {
            self.broke_off.fetch_add(1, Ordering::Relaxed);
            return Err(BrokeOff);
        }
        Ok(match charged {
            Ok(charge) => answer(StatusCode::CREATED, &json!(charge)),
            Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        })
    }

    async fn charge(self: Arc<Self>, payment: Payment) -> io::Result<Charge> {
        tokio::time::sleep(api_delay(&payment.order)).await;
        let number = self.charges.fetch_add(1, Ordering::Relaxed);
        let charge = Charge {
            id: format!("pay_{:016x}", mix(number.wrapping_add(1))),
            order: payment.order,
            amount_cents: payment.amount_cents,
            currency: payment.currency,
        };
        let write = move || self.ledger.append(&charge).map(|()| charge);
        tokio::task::spawn_blocking(write)
            .await
            .map_err(io::Error::other)?
    }

    fn totals(&self) -> Value {
        let effects = self.ledger.effects();
        json!({
            "payments": effects.executed + effects.by_hand,
            "amount_cents": effects.total_cents,
            "charged_twice": effects.duplicates,
            "charged_twice_cents": effects.twice_cents,
        })
    }
}

/// No answer: the connection is closed instead.
#[derive(Debug, thiserror::Error)]
#[error("the API broke off")]
struct BrokeOff;

/// Counts a payment as being at work for as long as it lives.
struct AtWork(Arc<Shared>);

impl AtWork {
    fn begin(shared: Arc<Shared>) -> Self {
        shared.at_work.send_modify(|at_work| *at_work += 1);
        Self(shared)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.send_modify(|at_work| *at_work -= 1);
    }
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{body}\n").into()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn failed(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    answer(status, &json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use super::super::faults::Order;
    use super::super::{ledger, wire};
    use super::*;

    #[tokio::test]
    async fn it_charges_every_time_it_is_asked_because_it_knows_nothing_of_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let api = PaymentsApi::start(&path).await.unwrap();
        let order = Order::plan(1, 1);
        for _ in 0..2 {
            let answer = wire::ask(api.address, &order).await.unwrap();
            assert_eq!(
                (answer.status, answer.replayed),
                (StatusCode::CREATED, false)
            );
        }
        let effects = ledger::audit(&path).unwrap();
        assert_eq!((effects.executed, effects.duplicates), (2, 1));
        assert_eq!(effects, api.effects());
    }

    /// Without this a lost answer would never be a duplicate, and the demonstration would flatter
    /// the unprotected API.
    #[tokio::test]
    async fn a_client_that_goes_away_does_not_stop_the_charge() {
        let folder = tempfile::tempdir().unwrap();
        let api = PaymentsApi::start(&folder.path().join("ledger.jsonl"))
            .await
            .unwrap();
        let order = Order::plan(1, 1);
        let early = std::time::Duration::from_millis(3);
        let asked = tokio::time::timeout(early, wire::ask(api.address, &order)).await;
        assert!(asked.is_err(), "it went away first");
        wire::lose_answer(api.address, &order).await.unwrap();
        api.idle().await;
        assert_eq!(api.effects().executed, 2);
    }

    #[tokio::test]
    async fn half_a_request_charges_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let api = PaymentsApi::start(&folder.path().join("ledger.jsonl"))
            .await
            .unwrap();
        wire::cut_off(api.address, &Order::plan(1, 1))
            .await
            .unwrap();
        let mut nonsense = Order::plan(1, 2);
        nonsense.body = Bytes::from_static(b"{\"order\":1}");
        let answer = wire::ask(api.address, &nonsense).await.unwrap();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        api.idle().await;
        assert_eq!(api.effects(), Effects::default());
    }
}
