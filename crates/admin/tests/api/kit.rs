//! An engine with keys in every state, its admin API, and a store that fails when told to.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request};
use onlyonce_admin::{
    Admin, AdminOptions, Counting, Finder, KeyQuery, Operators, Stats, Watch, feed,
};
use onlyonce_core::{
    HeaderBlock, Keyring, Record, RecordId, Response, State, StoredResponse, Timestamp,
    UnknownReason,
};
use onlyonce_engine::{Engine, EngineConfig, Finished, Reply};
use onlyonce_store::{
    Cursor, Filter, ListStore, MemoryStore, Page, Row, Store, StoreError, StoreProfile, Swap,
    Version,
};
use serde_json::Value;
use tower::ServiceExt as _;

pub(crate) const READER: &str = "reader-token-0123456789";
pub(crate) const CHANGER: &str = "changer-token-0123456789";
pub(crate) const SEER: &str = "seer-token-0123456789";
pub(crate) const WRONG: &str = "wrong-token-0123456789";
pub(crate) const TOKENS: &str = "rita read reader-token-0123456789\n\
                                 alice read,change changer-token-0123456789\n\
                                 sam read,bodies seer-token-0123456789\n";
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to fail.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Every call.
    pub(crate) all: AtomicBool,
    /// The first write of every note.
    pub(crate) notes: AtomicBool,
    /// Every later write of a note.
    pub(crate) amends: AtomicBool,
    /// Every write of a key, without a word about whether it happened.
    pub(crate) keys: AtomicBool,
    /// Every look at a row, once a key was written.
    pub(crate) looks_after: AtomicBool,
    /// Every look at a row.
    looks: AtomicBool,
    /// Every list with a condition: it never ends.
    pub(crate) filters: AtomicBool,
    /// A row that cannot be read.
    pub(crate) damaged: Mutex<Option<RecordId>>,
}

/// The memory store, with faults.
#[derive(Debug, Clone)]
pub(crate) struct Shaky {
    pub(crate) rows: MemoryStore,
    pub(crate) faults: Arc<Faults>,
    /// The most bytes of stored bodies that one list gave.
    pub(crate) listed_bytes_max: Arc<AtomicUsize>,
}

impl Shaky {
    fn check(&self, fault: &AtomicBool) -> Result<(), StoreError> {
        if fault.load(Ordering::SeqCst) || self.faults.all.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("told to fail"));
        }
        Ok(())
    }
}

impl Store for Shaky {
    fn profile(&self) -> StoreProfile {
        self.rows.profile()
    }

    async fn load(&self, id: &RecordId) -> Result<Option<Row>, StoreError> {
        self.check(&self.faults.looks)?;
        let row = self.rows.load(id).await?;
        match &row {
            Some(row) if *self.faults.damaged.lock().unwrap() == Some(*id) => {
                Err(StoreError::Corrupt {
                    version: row.version,
                    reason: "flipped".into(),
                })
            }
            _ => Ok(row),
        }
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<Version>,
        next: Option<&Record>,
    ) -> Result<Swap, StoreError> {
        let note = next.is_some_and(|record| record.route.is_reserved());
        let fault = match (note, expected) {
            (true, None) => &self.faults.notes,
            (true, Some(_)) => &self.faults.amends,
            (false, _) => &self.faults.keys,
        };
        self.check(fault)?;
        let swap = self.rows.swap(id, expected, next).await;
        if !note && self.faults.looks_after.load(Ordering::SeqCst) {
            self.faults.looks.store(true, Ordering::SeqCst);
        }
        swap
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RecordId>, StoreError> {
        self.rows.due(now, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.check(&self.faults.all)?;
        self.rows.now().await
    }

    async fn secret(&self, candidate: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.rows.secret(candidate).await
    }
}

impl ListStore for Shaky {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.check(&self.faults.all)?;
        if *filter != Filter::default() && self.faults.filters.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let page = self.rows.list(filter, after, limit).await?;
        let rows = page
            .entries
            .iter()
            .filter_map(|entry| entry.row.as_ref().ok());
        let bodies = rows.filter_map(|row| {
            let State::Completed { response, .. } = &row.record.state else {
                return None;
            };
            let Response::Plain(stored) = response else {
                return None;
            };
            Some(stored.body.len())
        });
        self.listed_bytes_max
            .fetch_max(bodies.sum(), Ordering::SeqCst);
        Ok(page)
    }
}

/// Finds the keys of `engine.guard`.
struct Guards(Engine<Shaky>);

impl Finder for Guards {
    fn find(&self, query: &KeyQuery) -> Result<Vec<RecordId>, String> {
        if query.caller.is_none() {
            return Err("who?".into());
        }
        let route = onlyonce_core::RouteName::new(&query.path).ok_or("a route")?;
        let key = onlyonce_core::Key::opaque(&query.key, &onlyonce_core::KeyLimits::default());
        let scope = onlyonce_core::Scope {
            principal: query.caller.as_deref().unwrap_or_default().as_bytes(),
            method: "",
            route: &query.path,
            path: &query.path,
            host: "",
        };
        let payload = onlyonce_core::fingerprint::Payload {
            method: "",
            path: "",
            query: None,
            headers: &[],
            content_type: None,
            body: b"",
        };
        let key = key.map_err(|error| error.to_string())?;
        let request = self.0.request(&route, &key, &scope, &payload);
        Ok(vec![request.identity.id])
    }
}

pub(crate) struct Stage {
    pub(crate) engine: Engine<Shaky>,
    pub(crate) store: Shaky,
    pub(crate) operators: Operators,
    pub(crate) draining: Arc<AtomicBool>,
    /// What was told about counting, in order.
    pub(crate) counting: Arc<Mutex<Vec<Counting>>>,
    pub(crate) admin: Admin,
}

impl Stage {
    /// With tokens.
    pub(crate) async fn start() -> Self {
        Self::with(Operators::from_tokens(TOKENS).unwrap(), None).await
    }

    /// For whoever is on this machine.
    pub(crate) async fn local() -> Self {
        Self::with(Operators::local(), None).await
    }

    pub(crate) async fn with(operators: Operators, ring: Option<Keyring>) -> Self {
        let store = Shaky {
            rows: MemoryStore::new(),
            faults: Arc::default(),
            listed_bytes_max: Arc::default(),
        };
        Self::over(store, operators, ring).await
    }

    /// Over a store that may have something in it.
    pub(crate) async fn over(store: Shaky, operators: Operators, ring: Option<Keyring>) -> Self {
        let (feed, events) = feed();
        let stats = Stats::new("memory");
        let mut builder = Engine::builder(store.clone())
            .config(EngineConfig {
                store_timeout: Duration::from_millis(500),
                ..EngineConfig::default()
            })
            .observer(Watch::new((), Arc::clone(&stats), feed))
            .without_background();
        if let Some(ring) = ring {
            builder = builder.keyring(ring);
        }
        let engine = builder.open().await.unwrap();
        let mut options = AdminOptions::new(operators.clone(), stats);
        options.events = Some(events);
        options.config_toml = "listen = \"127.0.0.1:8080\"\n".into();
        options.store_warnings = vec!["it forgets".into()];
        options.finder = Some(Box::new(Guards(engine.clone())));
        let counting = Arc::<Mutex<Vec<Counting>>>::default();
        let told = Arc::clone(&counting);
        options.counting = Box::new(move |now| told.lock().unwrap().push(now.clone()));
        let draining = Arc::clone(&options.draining);
        Self {
            admin: Admin::new(&engine, options),
            engine,
            store,
            operators,
            draining,
            counting,
        }
    }

    pub(crate) fn router(&self) -> Router {
        self.admin.router()
    }

    /// Runs a key of the route "payments" to its end.
    pub(crate) async fn run<F, Fut>(&self, key: &str, work: F) -> RecordId
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Finished<()>> + Send + 'static,
    {
        let guard = self.engine.guard("payments", b"shop", key);
        let ran = guard.run(b"12", |_| work()).await.unwrap();
        assert!(matches!(ran, Reply::Executed { .. } | Reply::Replayed(_)));
        self.id(key)
    }

    pub(crate) fn id(&self, key: &str) -> RecordId {
        let query = KeyQuery {
            key: key.into(),
            method: "POST".into(),
            path: "payments".into(),
            caller: Some("shop".into()),
        };
        Guards(self.engine.clone()).find(&query).unwrap()[0]
    }

    /// A key whose outcome is unknown.
    pub(crate) async fn unknown(&self, key: &str) -> RecordId {
        self.run(key, || async { Finished::unknown(()) }).await
    }

    /// A key with an answer.
    pub(crate) async fn completed(&self, key: &str) -> RecordId {
        let answer = || async { Finished::completed(answer(), ()) };
        self.run(key, answer).await
    }

    /// A key that waits for a person.
    pub(crate) async fn dead_letter(&self, key: &str) -> RecordId {
        let id = self.unknown(key).await;
        self.put(&id, |record| {
            record.state = State::DeadLetter {
                reason: UnknownReason::NoCompleteAnswer,
                since: record.created_at,
                attempts: 3,
            };
        })
        .await;
        id
    }

    /// Writes over a row.
    pub(crate) async fn put(&self, id: &RecordId, change: impl FnOnce(&mut Record)) {
        let row = self.store.rows.load(id).await.unwrap().unwrap();
        let mut record = row.record;
        change(&mut record);
        let swap = self.store.rows.swap(id, Some(row.version), Some(&record));
        assert!(matches!(swap.await.unwrap(), Swap::Won(_)));
    }

    pub(crate) async fn record(&self, id: &RecordId) -> Option<Record> {
        let row = self.store.rows.load(id).await.unwrap();
        row.map(|row| *row.record)
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let asked = tokio::time::timeout(PATIENCE, self.router().oneshot(request));
        Answer::read(asked.await.expect("an answer").unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.ask(request("GET", path, Some(token), None)).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        let body = Some(body.to_string());
        self.ask(request("POST", path, Some(token), body)).await
    }

    /// Decides about a key, as it is.
    pub(crate) async fn resolve(&self, id: &RecordId, body: Value) -> Answer {
        let fence = self.record(id).await.map(|record| record.fence.to_string());
        let mut body = body;
        if body.get("execution").is_none() {
            body["execution"] = fence.unwrap_or_default().into();
        }
        let path = format!("/api/v1/keys/{id}/resolve");
        self.post(&path, CHANGER, &body).await
    }

    /// The entries about a key, once there are so many.
    pub(crate) async fn entries(&self, id: &RecordId, count: usize) -> Vec<Value> {
        let looking = async {
            loop {
                let path = format!("/api/v1/audit?key={id}");
                let page = self.get(&path, READER).await.json();
                let entries = page["entries"].as_array().unwrap().clone();
                if entries.len() >= count {
                    return entries;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.expect("entries in the journal")
    }
}

pub(crate) fn answer() -> StoredResponse {
    let lines: [(&[u8], &[u8]); 2] = [
        (b"content-type", b"application/json"),
        (b"x-receipt", b"secret-receipt"),
    ];
    StoredResponse {
        status: 201,
        headers: HeaderBlock::from_lines(lines).unwrap(),
        body: Bytes::from_static(b"{\"card\":\"secret-card\"}"),
        trailers: HeaderBlock::default(),
    }
}

/// A request from this machine.
pub(crate) fn request(
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<String>,
) -> Request<Body> {
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:8081");
    if let Some(token) = token {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    if body.is_some() {
        builder = builder.header("content-type", "application/json");
    }
    builder.body(body.unwrap_or_default().into()).unwrap()
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    async fn read(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: to_bytes(body, usize::MAX).await.unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        for field in ["type", "title", "detail"] {
            assert!(problem[field].is_string(), "{problem}");
        }
    }
}
