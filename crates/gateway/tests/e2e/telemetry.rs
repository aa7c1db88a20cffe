//! Traces and metrics as a collector gets them, and that no collector can hurt a request.

use http::Method;
use onlyonce_conformance::http_suite::Answer;
use serde_json::Value;

use crate::kit::{Call, Gateway, Message, Scripted, Seen, Setup, Wire, send_to, soon, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const OTHER_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn traceparent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CALLER}-{flags}")
}

/// Takes everything.
async fn willing(mut wire: Wire, seen: Seen) {
    while seen.request(&mut wire).await.is_some() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        if !wire.send(ok).await {
            return;
        }
    }
}

/// An API that executes, and shows what it was sent. It also tries to say what only we may.
async fn api(mut wire: Wire, seen: Seen) {
    while seen.request(&mut wire).await.is_some() {
        let created =
            "HTTP/1.1 201 Created\r\nonlyonce-trace: forged\r\ncontent-length: 2\r\n\r\nok";
        if !wire.send(created).await {
            return;
        }
    }
}

struct Scene {
    api: Scripted,
    collector: Scripted,
    gateway: Gateway,
}

impl Scene {
    async fn start(settings: &str) -> Self {
        let (api, collector) = (Scripted::start(api).await, Scripted::start(willing).await);
        let gateway = gateway(&api, &collector, settings).await;
        Self {
            api,
            collector,
            gateway,
        }
    }

    async fn send(&self, call: &Call) -> Answer {
        send_to(self.gateway.address, call).await
    }

    /// The spans of a trace, once there are so many.
    async fn spans(&self, trace: &str, count: usize) -> Vec<Value> {
        until(|| Some(spans(&self.collector, trace)).filter(|spans| spans.len() >= count)).await
    }

    /// The last request that the API got.
    fn asked(&self) -> Message {
        self.api.seen.all().last().expect("a request").clone()
    }
}

async fn gateway(api: &Scripted, collector: &Scripted, settings: &str) -> Gateway {
    let endpoint = collector.address;
    let config = format!("[telemetry]\notlp_endpoint = \"http://{endpoint}\"\n{settings}\n");
    Setup::new(api.address).config(&config).start().await
}

const OFTEN: &str = "interval = \"50ms\"\nservice_name = \"payments gateway\"";

/// What was posted to one path so far.
fn posted(collector: &Scripted, path: &str) -> Vec<Value> {
    let all = collector.seen.all();
    let posts = all
        .iter()
        .filter(|request| request.start.starts_with(&format!("POST {path} ")));
    posts
        .map(|request| {
            assert_eq!(request.header("content-type"), "application/json");
            serde_json::from_slice(&request.body).expect("JSON")
        })
        .collect()
}

fn spans(collector: &Scripted, trace: &str) -> Vec<Value> {
    let posts = posted(collector, "/v1/traces");
    let spans = posts.iter().flat_map(|post| {
        let spans = post["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
        spans.expect("spans").clone()
    });
    spans.filter(|span| span["traceId"] == trace).collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<_> = spans.iter().filter(|span| span["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:?}");
    found[0]
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {span}"))["value"]
}

/// The whole story: the caller's trace goes on to the API, the parts are in it, and a retry, in
/// another trace, says which execution's answer it got.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_continued_and_a_replay_links_to_its_original() {
    let scene = Scene::start(OFTEN).await;
    let call = Call::payment("k")
        .header("traceparent", &traceparent(TRACE, "01"))
        .header("tracestate", "vendor=1,other=2");
    let first = scene.send(&call).await;
    assert_eq!(first.status.as_u16(), 201);
    let asked = scene.asked();
    let passed_on = asked.header("traceparent").to_owned();
    let parts: Vec<_> = passed_on.split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", TRACE, "01"));
    assert_ne!(parts[2], CALLER, "our own span calls the API");
    assert_eq!(asked.header("tracestate"), "vendor=1,other=2");

    let retry = call.header("traceparent", &traceparent(OTHER_TRACE, "01"));
    let replay = scene.send(&retry).await;
    assert!(replay.is_replay());
    for header in ["traceparent", "tracestate", "onlyonce-trace"] {
        assert!(replay.headers.get(header).is_none(), "{header}: {replay:?}");
    }
    assert_eq!(scene.api.seen.count("k"), 1);

    let spans = scene.spans(TRACE, 4).await;
    let request = named(&spans, "POST default");
    assert_eq!(
        (&request["kind"], &request["parentSpanId"]),
        (&2.into(), &CALLER.into())
    );
    assert_eq!(
        attribute(request, "http.response.status_code")["intValue"],
        "201"
    );
    assert!(request.get("links").is_none(), "it is the original itself");
    for name in ["claim", "upstream", "complete"] {
        let part = named(&spans, name);
        assert_eq!(part["parentSpanId"], request["spanId"], "{name}");
        let time = |member: &str| {
            part[member]
                .as_str()
                .expect("text")
                .parse::<u64>()
                .expect("ns")
        };
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
    }
    assert_eq!(named(&spans, "upstream")["spanId"], parts[2]);
    assert_eq!(
        attribute(named(&spans, "claim"), "onlyonce.decision")["stringValue"],
        "execute"
    );

    let spans = scene.spans(OTHER_TRACE, 2).await;
    assert_eq!(
        spans.len(),
        2,
        "no upstream, nothing to complete: {spans:?}"
    );
    let request = named(&spans, "POST default");
    assert_eq!(
        attribute(request, "onlyonce.decision")["stringValue"],
        "replay"
    );
    let link = &request["links"][0];
    assert_eq!(
        (&link["traceId"], &link["spanId"]),
        (&TRACE.into(), &parts[2].into())
    );
    let resource = &posted(&scene.collector, "/v1/traces")[0]["resourceSpans"][0]["resource"];
    assert_eq!(
        attribute(resource, "service.name")["stringValue"],
        "payments gateway"
    );
}

/// An id that cannot be read is worth nothing, and neither is the state that came with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_traceparent_that_cannot_be_read_begins_a_new_trace() {
    let scene = Scene::start(OFTEN).await;
    for (number, line) in ["nonsense", "00-0-0-01", &traceparent(&"0".repeat(32), "01")]
        .into_iter()
        .enumerate()
    {
        let call = Call::payment(&number.to_string())
            .header("traceparent", line)
            .header("tracestate", "vendor=1");
        assert_eq!(scene.send(&call).await.status.as_u16(), 201);
        let asked = scene.asked();
        let trace = asked
            .header("traceparent")
            .split('-')
            .nth(1)
            .expect("a trace")
            .to_owned();
        assert_eq!(trace.len(), 32, "{asked:?}");
        assert_ne!(trace, "0".repeat(32));
        assert_eq!(asked.header("tracestate"), "");
        let spans = scene.spans(&trace, 4).await;
        assert!(named(&spans, "POST default").get("parentSpanId").is_none());
    }
}

/// Whoever began the trace decided that it is not recorded. The API must hear so, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_not_sampled_is_passed_on_and_not_recorded() {
    let scene = Scene::start(&format!("{OFTEN}\nsample_ratio = 0")).await;
    let unsampled = Call::payment("k1").header("traceparent", &traceparent(TRACE, "00"));
    scene.send(&unsampled).await;
    let passed_on = scene.asked().header("traceparent").to_owned();
    assert!(passed_on.starts_with(&format!("00-{TRACE}-")) && passed_on.ends_with("-00"));
    // None of those that begin here, either; what the caller wants recorded is.
    scene.send(&Call::payment("k2")).await;
    assert!(scene.asked().header("traceparent").ends_with("-00"));
    scene
        .send(&Call::payment("k3").header("traceparent", &traceparent(OTHER_TRACE, "01")))
        .await;
    scene.spans(OTHER_TRACE, 4).await;
    assert_eq!(spans(&scene.collector, TRACE).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_endpoint_the_trace_context_passes_untouched() {
    let api = Scripted::start(api).await;
    let gateway = Setup::new(api.address).start().await;
    let line = traceparent(TRACE, "01");
    let call = Call::payment("k")
        .header("traceparent", &line)
        .header("tracestate", "a=1");
    send_to(gateway.address, &call).await;
    let asked = api.seen.all()[0].clone();
    assert_eq!(
        (asked.header("traceparent"), asked.header("tracestate")),
        (line.as_str(), "a=1")
    );
}

/// The same numbers as in a scrape, under the same names.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_arrive_under_the_names_of_the_scrape() {
    let scene = Scene::start(OFTEN).await;
    scene.send(&Call::payment("k")).await;
    scene.send(&Call::payment("k")).await;
    let counted = |post: &Value, name: &str| {
        let metrics = post["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array();
        let metric = metrics
            .expect("metrics")
            .iter()
            .find(|metric| metric["name"] == name);
        metric.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let post = until(|| {
        let post = posted(&scene.collector, "/v1/metrics").pop()?;
        let replays = counted(&post, "api_idempotency_reserve_replay_total");
        (replays["sum"]["dataPoints"][0]["asInt"] == "1").then_some(post)
    })
    .await;
    let created = counted(&post, "api_idempotency_reserve_created_total");
    assert_eq!(created["sum"]["dataPoints"][0]["asInt"], "1");
    assert_eq!(
        (
            &created["sum"]["isMonotonic"],
            &created["sum"]["aggregationTemporality"]
        ),
        (&true.into(), &2.into())
    );
    let claims = counted(&post, "api_idempotency_claim_seconds");
    let point = &claims["histogram"]["dataPoints"][0];
    assert_eq!(point["count"], "2");
    let buckets = point["bucketCounts"].as_array().expect("buckets").len();
    assert_eq!(
        buckets,
        point["explicitBounds"].as_array().expect("bounds").len() + 1
    );
    let admin = scene.gateway.admin;
    let scrape = Call::new(Method::GET, "/metrics").header("host", &admin.to_string());
    let scrape = send_to(admin, &scrape).await;
    let scrape = String::from_utf8_lossy(&scrape.body).into_owned();
    for line in scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
    {
        counted(&post, line.split(' ').next().expect("a name"));
    }
}

/// A deploy must not cut off the last traces.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_sent_at_the_end() {
    let mut scene = Scene::start("interval = \"1h\"").await;
    let call = Call::payment("k").header("traceparent", &traceparent(TRACE, "01"));
    scene.send(&call).await;
    scene.gateway.signal("TERM").await;
    assert_eq!(scene.gateway.ended().await.code(), Some(0));
    assert_eq!(spans(&scene.collector, TRACE).len(), 4);
    assert_eq!(posted(&scene.collector, "/v1/metrics").len(), 1);
}

/// Refuses, breaks off, says nothing, or is not there: requests are served, what is lost is
/// counted, and the end of the process does not wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_fails_is_nobodys_problem() {
    let api = Scripted::start(api).await;
    let refusing = Scripted::start(|mut wire, seen| async move {
        while seen.request(&mut wire).await.is_some() {
            wire.send("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    });
    let breaking = Scripted::start(|wire, _| async move { wire.reset() });
    let silent = Scripted::start(|mut wire, seen| async move {
        seen.request(&mut wire).await;
        std::future::pending::<()>().await;
    });
    let gone = Scripted {
        address: "127.0.0.1:9".parse().expect("an address"),
        seen: Seen::default(),
    };
    for (collector, counts) in [
        (refusing.await, true),
        (breaking.await, true),
        (silent.await, false),
        (gone, true),
    ] {
        let mut gateway = gateway(&api, &collector, OFTEN).await;
        for number in 0..20 {
            let call = Call::payment(&number.to_string());
            assert_eq!(send_to(gateway.address, &call).await.status.as_u16(), 201);
        }
        let admin = gateway.admin;
        let scrape = Call::new(Method::GET, "/metrics").header("host", &admin.to_string());
        soon(async {
            loop {
                let text = send_to(admin, &scrape).await.body;
                let text = String::from_utf8_lossy(&text).into_owned();
                let mut lines = text.lines();
                let dropped = lines
                    .find_map(|line| line.strip_prefix("onlyonce_telemetry_spans_dropped_total "));
                if !counts || dropped.expect("a count") != "0" {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        gateway.signal("TERM").await;
        assert_eq!(gateway.ended().await.code(), Some(0));
    }
}
