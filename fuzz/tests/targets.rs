//! Every target with random inputs, and with valid inputs that were damaged at random; a failure
//! prints the input that caused it.

use bolero::check;
use onlyonce_fuzz::near;

const KEYS: [&[u8]; 3] = [
    b"\"3f0a8a5e-6d1b-4f5e-9d1c-2f4b8f6a7c11\"",
    b"\"a\\\"b\\\\c\";p=1;q=?1;r=:YWJj:;s=%\"f\"",
    b"3f0a8a5e-6d1b-4f5e-9d1c-2f4b8f6a7c11",
];

const DOCUMENTS: [&[u8]; 3] = [
    br#"{"amount":1200.50,"currency":"EUR","lines":[{"id":1},{"id":2e3}],"note":"\u20ac \"x\""}"#,
    br#"[0.1,1e21,-0,9007199254740993,null,true,{"a":1,"a":2},"\ud83d\ude00","\ud800"]"#,
    b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--b--\r\n",
];

/// Runs a target on random bytes and on damaged seeds.
fn attack(target: fn(&[u8]), seeds: &[&[u8]]) {
    check!().for_each(|input: &[u8]| {
        target(input);
        for seed in seeds {
            target(&near(seed, input));
        }
    });
}

#[test]
fn keys() {
    attack(onlyonce_fuzz::key, &KEYS);
}

#[test]
fn json() {
    attack(onlyonce_fuzz::json, &DOCUMENTS);
}

#[test]
fn payloads() {
    attack(onlyonce_fuzz::payload, &DOCUMENTS);
}

/// Requests whose framing is one edit away from ambiguous.
const REQUESTS: [&[u8]; 4] = [
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabcGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nt: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encodinG: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"\r\nPRI * HTTP/1.1\r\ncontent-length:0\r\nx:\ty \r\n\r\nPUT / HTTP/1.0\r\nContent-Length: 1\r\n\r\nzPRI",
];

#[test]
fn requests() {
    attack(onlyonce_fuzz::requests, &REQUESTS);
}

#[test]
fn records() {
    attack(onlyonce_fuzz::record, &[]);
}

/// What follows the version byte of stored records, without their checksum.
#[test]
fn records_behind_their_checksum() {
    const COMPLETED: &[u8] =
        include_bytes!("../../crates/core/tests/fixtures/v1/completed-plain.bin");
    const UNKNOWN: &[u8] = include_bytes!("../../crates/core/tests/fixtures/v1/executing.bin");
    let inside = |record: &'static [u8]| record.get(1..record.len() - 4).unwrap_or_default();
    attack(
        onlyonce_fuzz::record_behind_its_checksum,
        &[inside(COMPLETED), inside(UNKNOWN)],
    );
}
