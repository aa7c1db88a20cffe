//! A service behind the layer, under one preset, and requests in that preset's form.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{Method, Request, StatusCode};
use onlyonce_core::RouteName;
use onlyonce_engine::EngineConfig;
use onlyonce_http::{Config, InFlight, KeyPlace, Pattern, Profile, Route, Routes};
use onlyonce_store::MemoryStore;
use tokio::sync::Semaphore;

use super::common::*;

/// A key that every preset takes.
pub const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

pub struct Stage {
    pub router: Router,
    pub runs: Runs,
    pub profile: Profile,
    gate: Option<Arc<Semaphore>>,
}

impl Stage {
    /// A service that answers every request with this status.
    pub async fn new(name: &str, status: u16) -> Self {
        Self::with(Profile::preset(name).unwrap(), status, |_| {}).await
    }

    pub async fn with(profile: Profile, status: u16, change: impl FnOnce(&mut Route)) -> Self {
        let runs = Runs::default();
        let router = runs.router(move |run| answer(status, run));
        let router = guarded(router, &profile, change).await;
        Self {
            router,
            runs,
            profile,
            gate: None,
        }
    }

    /// A service that answers only when it is let go. Waiting retries wait briefly.
    pub async fn held(name: &str) -> Self {
        let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
        let (counted, waited) = (runs.clone(), Arc::clone(&gate));
        let router = Router::new().fallback(move || {
            let (runs, gate) = (counted.clone(), Arc::clone(&waited));
            async move {
                let run = runs.next();
                gate.acquire().await.unwrap().forget();
                answer(201, run)
            }
        });
        let profile = Profile::preset(name).unwrap();
        let brief = |route: &mut Route| {
            if let InFlight::Wait(wait) = &mut route.in_flight {
                *wait = Duration::from_millis(30);
            }
        };
        let router = guarded(router, &profile, brief).await;
        Self {
            router,
            runs,
            profile,
            gate: Some(gate),
        }
    }

    pub fn let_go(&self) {
        self.gate.as_ref().unwrap().add_permits(1);
    }

    /// A request with this key and payload, in the form of the preset.
    pub fn request(&self, key: Option<&str>, payload: u32) -> Request<Body> {
        request(&self.profile, key, payload)
    }

    pub async fn ask(&self, key: Option<&str>, payload: u32) -> Answer {
        ask(&self.router, self.request(key, payload)).await
    }
}

fn answer(status: u16, run: usize) -> axum::response::Response {
    let body = format!(r#"{{"payments":{{"id":"PM{run}","text":"run {run}"}}}}"#);
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

async fn guarded(router: Router, profile: &Profile, change: impl FnOnce(&mut Route)) -> Router {
    let name = RouteName::new("writes").unwrap();
    let route = Route::new(name, [Method::POST, Method::PATCH], Pattern::any());
    let mut route = route.profile(profile).unwrap();
    change(&mut route);
    let config = Config {
        routes: Routes::new(vec![route]),
        ..Config::default()
    };
    guard_with(MemoryStore::new(), EngineConfig::default(), router, config).await
}

pub fn request(profile: &Profile, key: Option<&str>, payload: u32) -> Request<Body> {
    let mut builder = Request::post("/payments").header("authorization", "Bearer a");
    let (mut json, mut form) = (format!(r#"{{"amount":{payload}"#), format!("n={payload}"));
    let mut content_type = "application/json";
    match (&profile.sources.as_deref().unwrap()[0].place, key) {
        (KeyPlace::Header { name, .. }, Some(key)) => builder = builder.header(name, key),
        (KeyPlace::Json { pointer }, Some(key)) => {
            let member = pointer.as_str().trim_start_matches('/');
            json.extend([",\"", member, "\":\"", key, "\""]);
        }
        (KeyPlace::Form { field }, key) => {
            content_type = "application/x-www-form-urlencoded";
            form += &key.map(|key| format!("&{field}={key}")).unwrap_or_default();
        }
        (_, _) => {}
    }
    json.push('}');
    if let Some(rule) = &profile.first_sent {
        builder = builder.header(&rule.header, imf(0));
    }
    let is_form = content_type != "application/json";
    let body = if is_form { form } else { json };
    let builder = builder.header("content-type", content_type);
    builder.body(Body::from(body)).unwrap()
}

/// The date so many seconds ago, as HTTP writes it.
pub fn imf(seconds_ago: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let at = now - seconds_ago;
    let (mut days, time) = (at / 86_400, at % 86_400);
    let weekday =
        ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(days % 7).unwrap()];
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [
        ("Jan", 31),
        ("Feb", 28 + u64::from(leap(year))),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    let mut months = months.into_iter();
    let month = loop {
        let (name, length) = months.next().unwrap();
        if days < length {
            break name;
        }
        days -= length;
    };
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!(
        "{weekday}, {:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT",
        days + 1
    )
}
