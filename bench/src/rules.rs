//! The pure parts, per call.

use std::hint::black_box;

use bytes::Bytes;
use onlyonce_core::fingerprint::{Payload, fingerprint};
use onlyonce_core::{
    Claim, Command, Fence, FieldDigests, FingerprintPolicy, Key, KeyLimits, Policy,
    PrincipalDigest, RecordId, RouteName, Scope, ScopeParts, Secret, Timestamp, codec, step,
};

use crate::machine::{median, now};
use crate::records::{body, claimed, completed, id};

pub(crate) fn run() {
    let (secret, policy, time) = (
        Secret::new([7; 32]),
        Policy::default(),
        Timestamp::from_millis(1),
    );
    let (id, body) = (id(1), body());
    let done = completed(time, &body);
    let claim = Command::Claim(Claim {
        fingerprint: done.fingerprint,
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([9; 16]),
        route: RouteName::new("payments").unwrap(),
        principal: PrincipalDigest::default(),
        memo: bytes::Bytes::new(),
    });
    println!(
        "{:<44} {:>10} {:>12} {:>12}",
        "per call", "ns", "allocations", "bytes"
    );
    measure("step: claim of a new key", || {
        step(&policy, None, &claim, time)
    });
    measure("step: claim of a completed key (replay)", || {
        step(&policy, Some(&done), &claim, time)
    });
    let executing = claimed(time);
    measure("step: claim of a key in flight", || {
        step(&policy, Some(&executing), &claim, time)
    });
    let bytes = Bytes::from(codec::encode(&id, &done).unwrap());
    measure("codec: encode a completion of 1 KB", || {
        codec::encode(&id, &done)
    });
    measure("codec: decode it", || codec::decode(&id, &bytes));
    measure("replay: decode and step, response in hand", || {
        let record = codec::decode(&id, &bytes).unwrap();
        let decision = step(&policy, Some(&record), &claim, time);
        (record, decision)
    });
    identity(&secret);
}

fn identity(secret: &Secret) {
    let limits = KeyLimits::default();
    let text = b"\"3f0a8a5e-6d1b-4f5e-9d1c-2f4b8f6a7c11\"";
    measure("key: parse a quoted UUID", || {
        Key::from_header(text, &limits)
    });
    let key = Key::from_header(text, &limits).unwrap();
    let scope = Scope {
        principal: b"shop-7",
        method: "POST",
        route: "payments",
        path: "/payments",
        host: "",
    };
    measure("record id", || {
        RecordId::new(secret, ScopeParts::default(), &scope, &key)
    });
    let policy = FingerprintPolicy::default();
    for (name, content_type, body) in bodies() {
        let payload = Payload {
            method: "POST",
            path: "/payments",
            query: None,
            headers: &[],
            content_type: Some(content_type),
            body: &body,
        };
        measure(name, || fingerprint(secret, &policy, &payload));
    }
}

fn bodies() -> Vec<(&'static str, &'static [u8], Vec<u8>)> {
    let member = |number: usize| {
        format!(
            "\"field_{number:02}\":{{\"amount\":{}.5,\"currency\":\"EUR\"}}",
            number * 100
        )
    };
    let members: Vec<String> = (0..23).map(member).collect();
    let json = format!("{{{}}}", members.join(","));
    assert!((900..1200).contains(&json.len()), "{}", json.len());
    vec![
        (
            "fingerprint: 1 KB of JSON, 46 fields",
            b"application/json",
            json.into_bytes(),
        ),
        (
            "fingerprint: 60 bytes of JSON, 2 fields",
            b"application/json",
            b"{\"amount\":1200,\"currency\":\"EUR\"}".to_vec(),
        ),
        (
            "fingerprint: 1 KB of raw bytes",
            b"application/octet-stream",
            vec![7; 1024],
        ),
    ]
}

/// Prints the median of several timed batches, and what one call allocates.
fn measure<T>(name: &str, mut call: impl FnMut() -> T) {
    const CALLS: u32 = 20_000;
    let batches = (0..9).map(|_| {
        let started = now();
        for _ in 0..CALLS {
            black_box(call());
        }
        started.elapsed().as_nanos() as f64 / f64::from(CALLS)
    });
    let nanos = median(batches.collect());
    let allocated = allocation_counter::measure(|| {
        black_box(call());
    });
    println!(
        "{name:<44} {nanos:>10.0} {:>12} {:>12}",
        allocated.count_total, allocated.bytes_total
    );
}
