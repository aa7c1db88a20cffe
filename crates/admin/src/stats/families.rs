//! The metrics by name: what `/metrics` writes as text and OTLP sends as JSON.
//!
//! The names are a contract with dashboards and alerts; `docs/operations.md` says what each means.

use std::borrow::Cow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::histogram::{Histogram, HistogramValue};
use super::process;
use super::routes::{Count, Counted, RouteStats};
use super::{OPERATIONS, Stats};
use crate::QueueCounts;

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations by size, in seconds.
    Histogram,
}

/// All samples of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// What kind of number.
    pub kind: Kind,
    /// One for each combination of labels.
    pub samples: Vec<Sample>,
}

/// One number, or one histogram, with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
    /// Latencies.
    Histogram(HistogramValue),
}

/// The counters of every route: name, meaning, and how they are counted.
const COUNTERS: [(&str, &str, Count); 14] = [
    (
        "api_idempotency_reserve_created_total",
        "Claims that were the first of their key and were executed.",
        Count::Created,
    ),
    (
        "api_idempotency_reserve_replay_total",
        "Retries that were answered with the first answer.",
        Count::Replay,
    ),
    (
        "api_idempotency_reserve_in_progress_total",
        "Claims that found their key being executed.",
        Count::InProgress,
    ),
    (
        "api_idempotency_reserve_key_misuse_total",
        "Claims of a key that belongs to another payload, or that was good for one use only.",
        Count::KeyMisuse,
    ),
    (
        "api_idempotency_reserve_failed_retry_total",
        "Claims that were executed after an earlier execution of their key had failed.",
        Count::FailedRetry,
    ),
    (
        "api_idempotency_reserve_unknown_total",
        "Claims that were refused because nobody knows whether their key was executed.",
        Count::Unknown,
    ),
    (
        "api_idempotency_reserve_not_replayable_total",
        "Claims of a key that was executed and has no answer to give.",
        Count::NotReplayable,
    ),
    (
        "api_idempotency_zombie_key_total",
        "Keys whose executor outlived its lease or is gone, each once.",
        Count::Zombie,
    ),
    (
        "api_idempotency_ttl_pruned_total",
        "Keys that were expired or removed after their retention.",
        Count::Pruned,
    ),
    (
        "api_idempotency_reconcile_scheduled_total",
        "Outcomes that became unknown, to be reconciled.",
        Count::Scheduled,
    ),
    (
        "api_idempotency_reconcile_resolved_total",
        "Outcomes that were settled by the word of the upstream or of a person.",
        Count::Resolved,
    ),
    (
        "api_idempotency_reconcile_failed_total",
        "Unknown outcomes that became dead letters, which wait for a person.",
        Count::Failed,
    ),
    (
        "api_idempotency_not_recorded_total",
        "Outcomes that the store did not take in time.",
        Count::NotRecorded,
    ),
    (
        "api_idempotency_unprotected_total",
        "Writes that passed without a key.",
        Count::Unprotected,
    ),
];

/// What enforcing would have done, for the label `would`.
const OBSERVED: [(&str, Count); 4] = [
    ("execute", Count::WouldExecute),
    ("replay", Count::WouldReplay),
    ("refuse", Count::WouldRefuse),
    ("unknown", Count::WouldBeUnknown),
];

/// The latencies of every route.
type Latency = (&'static str, &'static str, fn(&Counted) -> &Histogram);
const LATENCIES: [Latency; 3] = [
    (
        "api_idempotency_claim_seconds",
        "How long claims took, with the store's part and the waiting of retries that wait.",
        |counted| &counted.claim,
    ),
    (
        "api_idempotency_complete_seconds",
        "How long it took to record an outcome.",
        |counted| &counted.complete,
    ),
    (
        "api_idempotency_upstream_seconds",
        "How long executions took, from the claim to the end of the upstream's answer.",
        |counted| &counted.upstream,
    ),
];

impl Stats {
    /// Every metric with every sample, in the order of the documentation.
    #[must_use]
    pub fn families(&self, queues: &QueueCounts) -> Vec<Family> {
        let routes = self.routes.all();
        let mut families: Vec<_> = COUNTERS
            .iter()
            .map(|(name, help, count)| Family {
                name,
                help,
                kind: Kind::Counter,
                samples: routes
                    .iter()
                    .map(|route| self.sample(route, Value::Whole(route.get(*count))))
                    .collect(),
            })
            .collect();
        families.push(self.observed(&routes));
        families.push(self.store_error_family());
        families.extend(LATENCIES.iter().map(|(name, help, of)| {
            Family {
                name,
                help,
                kind: Kind::Histogram,
                samples: routes
                    .iter()
                    .map(|route| self.sample(route, Value::Histogram(route.latency(*of))))
                    .collect(),
            }
        }));
        families.extend(self.queue_families(queues));
        families.extend(self.own_families());
        families
    }

    fn sample(&self, route: &RouteStats, value: Value) -> Sample {
        let name = route.name.as_str().to_owned();
        Sample {
            labels: vec![("route", name.into()), ("store", self.store.into())],
            value,
        }
    }

    fn observed(&self, routes: &[&RouteStats]) -> Family {
        let samples = routes.iter().flat_map(|route| {
            OBSERVED.iter().map(|(would, count)| {
                let mut sample = self.sample(route, Value::Whole(route.get(*count)));
                sample.labels.push(("would", (*would).into()));
                sample
            })
        });
        Family {
            name: "api_idempotency_observed_total",
            help: "Requests that were only observed, by what enforcing would have done.",
            kind: Kind::Counter,
            samples: samples.collect(),
        }
    }

    fn store_error_family(&self) -> Family {
        let counts = self.store_errors.iter().zip(OPERATIONS);
        let samples = counts.map(|(count, (_, operation))| Sample {
            labels: vec![
                ("operation", operation.into()),
                ("store", self.store.into()),
            ],
            value: Value::Whole(count.load(Ordering::Relaxed)),
        });
        Family {
            name: "api_idempotency_store_error_total",
            help: "Operations of the store that failed or did not end in time.",
            kind: Kind::Counter,
            samples: samples.collect(),
        }
    }

    fn queue_families(&self, queues: &QueueCounts) -> [Family; 5] {
        let states = [
            ("executing", queues.executing),
            ("unknown", queues.unknown),
            ("dead_letter", queues.dead_letter),
        ];
        let keys = states.map(|(state, count)| Sample {
            labels: vec![("state", state.into()), ("store", self.store.into())],
            value: Value::Whole(count),
        });
        let oldest = queues.oldest_unknown_ms;
        let oldest_ms = oldest.map_or(0, |since| queues.counted_at_ms.saturating_sub(since));
        [
            Family {
                name: "api_idempotency_keys",
                help: "Keys in the store, by the states that somebody should look at.",
                kind: Kind::Gauge,
                samples: keys.into(),
            },
            self.gauge(
                "api_idempotency_oldest_unknown_seconds",
                "How long the oldest unknown outcome has been unknown; 0 without one.",
                Value::Real(seconds(oldest_ms)),
            ),
            self.gauge(
                "api_idempotency_keys_truncated",
                "1 if there are more keys than were counted.",
                Value::Whole(u64::from(queues.more)),
            ),
            self.gauge(
                "api_idempotency_keys_age_seconds",
                "How long ago the keys were counted.",
                Value::Real(seconds(self.queues_age_ms(queues))),
            ),
            self.gauge(
                "api_idempotency_store_unreadable_seconds",
                "For how long the store could not be read; 0 while it can.",
                Value::Real(seconds(queues.unreadable_ms)),
            ),
        ]
    }

    fn gauge(&self, name: &'static str, help: &'static str, value: Value) -> Family {
        let labels = vec![("store", self.store.into())];
        Family {
            name,
            help,
            kind: Kind::Gauge,
            samples: vec![Sample { labels, value }],
        }
    }

    /// How long ago the counts changed. The time in them is the store's, which may differ from
    /// ours by any amount, so only its change says something.
    fn queues_age_ms(&self, queues: &QueueCounts) -> u64 {
        let now_ms = self.clock.elapsed_ms();
        let seen = self.queues_seen.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        if seen.counted_at_ms != queues.counted_at_ms {
            seen.counted_at_ms = queues.counted_at_ms;
            seen.elapsed_ms = now_ms;
        }
        now_ms.saturating_sub(seen.elapsed_ms)
    }

    fn own_families(&self) -> Vec<Family> {
        let lost =
            |count: &std::sync::atomic::AtomicU64| Value::Whole(count.load(Ordering::Relaxed));
        let used = process::used();
        let build = vec![("version", Cow::Borrowed(env!("CARGO_PKG_VERSION")))];
        let mut families = vec![
            Family {
                name: "onlyonce_build_info",
                help: "Always 1; the version is in the label.",
                kind: Kind::Gauge,
                samples: vec![Sample {
                    labels: build,
                    value: Value::Whole(1),
                }],
            },
            plain(
                "onlyonce_uptime_seconds",
                "How long this process has been counting.",
                Kind::Gauge,
                Value::Real(seconds(self.clock.elapsed_ms())),
            ),
            plain(
                "onlyonce_journal_dropped_total",
                "Entries of the journal that could not be kept.",
                Kind::Counter,
                lost(&self.journal_dropped),
            ),
            plain(
                "onlyonce_telemetry_spans_dropped_total",
                "Spans that did not reach the collector.",
                Kind::Counter,
                lost(&self.spans_dropped),
            ),
            plain(
                "process_start_time_seconds",
                "When this process started, since the Unix epoch.",
                Kind::Gauge,
                Value::Real(seconds(self.clock.started_ms())),
            ),
        ];
        let measured = [
            (
                "process_resident_memory_bytes",
                "Memory of this process.",
                Kind::Gauge,
                used.resident_bytes.map(Value::Whole),
            ),
            (
                "process_open_fds",
                "Files and sockets that this process has open.",
                Kind::Gauge,
                used.open_files.map(Value::Whole),
            ),
            (
                "process_cpu_seconds_total",
                "Processor time that this process has used.",
                Kind::Counter,
                used.cpu_seconds.map(Value::Real),
            ),
        ];
        let measured = measured.into_iter();
        families.extend(
            measured.filter_map(|(name, help, kind, value)| Some(plain(name, help, kind, value?))),
        );
        families
    }
}

/// A metric without labels.
fn plain(name: &'static str, help: &'static str, kind: Kind, value: Value) -> Family {
    Family {
        name,
        help,
        kind,
        samples: vec![Sample {
            labels: Vec::new(),
            value,
        }],
    }
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}
