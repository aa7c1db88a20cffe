//! Rows of other versions of onlyonce, as a rolling restart leaves them: those of the one before
//! are served, and one of the future fails closed.

use http::StatusCode;
use onlyonce_conformance::http_suite::{Upstream, serve};
use onlyonce_conformance::servers::postgres::Postgres;
use onlyonce_conformance::servers::redis::RedisServer;
use onlyonce_core::{Record, RecordId, State, Timestamp, codec};

use crate::kit::{Call, IN_PROGRESS, STORE_UNAVAILABLE, Setup, Stage, UNKNOWN};
use crate::shared::{Server, query, ready};

/// The format that the previous version wrote: records without a memo.
const PREVIOUS: u8 = 1;

/// One that this build does not know.
const FUTURE: u8 = 9;

/// The row of the only key, not the engine's own.
const KEY: &str = "WHERE route NOT LIKE 'onlyonce.%'";

/// A store whose only key's row can be read and written in its raw form.
trait Raw: Server {
    /// Makes the row what the previous version would have left: completed as it is, or at work
    /// with a lease that has ended, its gateway gone.
    fn as_before(&self, is_done: bool);

    /// Makes it a row that only a later version can read.
    fn as_of_the_future(&self);
}

impl Raw for Postgres {
    fn as_before(&self, is_done: bool) {
        let version = format!("SELECT record_version FROM onlyonce_record {KEY}");
        let version = query(self, &version);
        assert_eq!(version, "1", "the columns mean what they meant before");
        let as_before = if is_done {
            "memo = ''"
        } else {
            "memo = '', state = 'executing', deadline = 1, response_kind = NULL, \
             response_status = NULL, response_headers = NULL, response_trailers = NULL, \
             response_body = NULL"
        };
        // As it was counted then.
        for statement in [
            "ALTER TABLE onlyonce_record DISABLE TRIGGER onlyonce_draw_version",
            &format!("UPDATE onlyonce_record SET version = 7, {as_before} {KEY}"),
            "ALTER TABLE onlyonce_record ENABLE TRIGGER onlyonce_draw_version",
        ] {
            let _ = query(self, statement);
        }
    }

    fn as_of_the_future(&self) {
        let update = format!("UPDATE onlyonce_record SET record_version = {FUTURE} {KEY}");
        let _ = query(self, &update);
    }
}

impl Raw for RedisServer {
    fn as_before(&self, is_done: bool) {
        let (key, id, bytes) = raw_row(self);
        let (version, row) = bytes.split_at(8);
        let mut record = codec::decode(&id, &row.to_vec().into()).expect("a row");
        if !is_done {
            let lease_until = Timestamp::from_millis(1);
            record = Record {
                state: State::Executing {
                    lease_until,
                    doubt: None,
                },
                memo: bytes::Bytes::new(),
                ..record
            };
            let due = key.replace(&format!("r:{id}"), "due");
            let _ = self.cli(&["ZADD", &due, "1", &id.to_string()]);
        }
        let row = codec::encode(&id, &record).expect("a row");
        assert_eq!(row[0], PREVIOUS);
        write_raw(self, &key, &[version, &row].concat());
    }

    fn as_of_the_future(&self) {
        let (key, id, mut bytes) = raw_row(self);
        bytes[8] = FUTURE;
        // It is no damage: the checksum is right.
        let content = bytes.len() - 4;
        let checksum = crc32(&[id.as_bytes(), &bytes[8..content]].concat());
        bytes[content..].copy_from_slice(&checksum.to_be_bytes());
        write_raw(self, &key, &bytes);
    }
}

/// The key, id and bytes of the only row that is not the engine's own.
fn raw_row(server: &RedisServer) -> (String, RecordId, Vec<u8>) {
    let keys = server.cli(&["KEYS", "onlyonce:*:r:*"]);
    let mut rows = keys.lines().filter_map(|key| {
        let (_, id) = key.rsplit_once(':').expect("a key");
        let id = RecordId::from_hex(id).expect("an id");
        let bytes = raw_bytes(server, key);
        let record = codec::decode(&id, &bytes[8..].to_vec().into()).expect("a row");
        (!record.route.is_reserved()).then(|| (key.to_owned(), id, bytes))
    });
    rows.next().expect("a row")
}

fn raw_bytes(server: &RedisServer, key: &str) -> Vec<u8> {
    let script = "return (redis.call('GET', KEYS[1]):gsub('.', function(c) \
                  return string.format('%02x', string.byte(c)) end))";
    let hex = server.cli(&["--raw", "EVAL", script, "1", key]);
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16);
    digits.map(|pair| byte(pair).expect("hex")).collect()
}

fn write_raw(server: &RedisServer, key: &str, bytes: &[u8]) {
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "return redis.call('SET', KEYS[1], (ARGV[1]:gsub('..', function(h) \
                  return string.char(tonumber(h, 16)) end)))";
    let set = server.cli(&["EVAL", script, "1", key, &hex.concat()]);
    assert_eq!(set, "OK");
}

/// CRC-32 as zip has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    });
    !crc
}

async fn stage<S: Server>(server: &S) -> Stage {
    let upstream = Upstream::new();
    let setup = Setup::new(serve(upstream.clone()).await).store(&server.url());
    Stage::of(upstream, setup).await
}

async fn a_completed_row_of_the_version_before_is_replayed<S: Raw>() {
    let server = ready::<S>().await;
    let mut stage = stage(&server).await;
    let call = Call::payment("done-before");
    let first = stage.send(&call).await;
    assert_eq!(first.status, StatusCode::CREATED);
    server.as_before(true);
    stage.assert_replays(&call, &first).await;
    stage.restart().await;
    stage.assert_replays(&call, &first).await;
    assert_eq!(stage.effects(&call), 1);
    stage.finish();
}

async fn unfinished_work_of_the_version_before_is_unknown<S: Raw>() {
    let server = ready::<S>().await;
    let stage = stage(&server).await;
    let call = Call::payment("cut-before");
    assert_eq!(stage.send(&call).await.status, StatusCode::CREATED);
    server.as_before(false);
    let answer = stage.settled(&call).await;
    assert_eq!(answer.code(), UNKNOWN, "{answer:?}");
    assert_eq!(stage.effects(&call), 1);
    stage.finish();
}

async fn a_row_of_the_future_fails_closed<S: Raw>() {
    let server = ready::<S>().await;
    let mut stage = stage(&server).await;
    let call = Call::payment("of-the-future");
    assert_eq!(stage.send(&call).await.status, StatusCode::CREATED);
    server.as_of_the_future();
    for _ in 0..2 {
        for _ in 0..3 {
            let answer = stage.send(&call).await;
            let closed = [UNKNOWN, STORE_UNAVAILABLE, IN_PROGRESS];
            assert!(closed.contains(&answer.code().as_str()), "{answer:?}");
            assert_eq!(stage.effects(&call), 1, "it was executed again");
        }
        // Other keys are served beside it.
        let other = stage.send(&Call::payment("another")).await;
        assert_eq!(other.status, StatusCode::CREATED);
        stage.restart().await;
    }
    stage.finish();
}

macro_rules! on {
    ($module:ident, $server:ty) => {
        mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn a_completed_row_of_the_version_before_is_replayed() {
                super::a_completed_row_of_the_version_before_is_replayed::<$server>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn unfinished_work_of_the_version_before_is_unknown() {
                super::unfinished_work_of_the_version_before_is_unknown::<$server>().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_row_of_the_future_fails_closed() {
                super::a_row_of_the_future_fails_closed::<$server>().await;
            }
        }
    };
}

on!(postgres, Postgres);
on!(redis, RedisServer);
