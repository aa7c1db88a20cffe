//! The index of deadlines: the earliest of all shards.
//!
//! Every shard is asked at once, for a little more than its share. A shard that gave all that it
//! was asked for, and might have more that is earlier than the others' last, is asked again.
//!
//! A shard that does not answer is left out: what is due elsewhere must not wait for a server that
//! is down. Its ids stay due, and come first once it is back. That nothing is due is said only when
//! every shard did.

use futures_util::future::join_all;
use onlyonce_core::{RecordId, Timestamp};
use onlyonce_store::StoreError;

use crate::answer::Answer;
use crate::call::{Call, What};
use crate::keys::{SHARDS, Shard, hex};
use crate::scripts;
use crate::store::Inner;

/// More at once than any sweep wants; keeps one script short.
const LIMIT_MAX: usize = 100_000;

/// What a shard is asked for beyond its share, because ids are not spread evenly.
const SPARE: usize = 8;

/// How often ids whose rows are gone may be taken out of one shard in one call.
const TIDY_ROUNDS_MAX: usize = 4;

/// One id and its deadline. The score is a double, as in the server: exact until the year 287396.
#[derive(Debug, Clone, Copy)]
struct Entry {
    score: f64,
    id: RecordId,
}

/// What one shard gave.
struct Found {
    shard: Shard,
    entries: Vec<Entry>,
    /// Whether it may have more than it was asked for.
    has_more: bool,
}

pub(crate) async fn due(
    inner: &Inner,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<RecordId>, StoreError> {
    let limit = limit.min(LIMIT_MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let share = limit.div_ceil(SHARDS.into()) * 2 + SPARE;
    let asked = Shard::all().map(|shard| ask(inner, shard, now, share.min(limit)));
    let mut answers = those_that_answered(join_all(asked).await)?;
    let cut = earliest(&answers, limit).last().copied();
    for answer in &mut answers {
        if share < limit && answer.may_have_earlier(cut) {
            match ask(inner, answer.shard, now, limit).await {
                Ok(more) => *answer = more,
                Err(error) => tracing::warn!("a shard does not say what else is due: {error}"),
            }
        }
    }
    let earliest = earliest(&answers, limit);
    Ok(earliest.into_iter().map(|entry| entry.id).collect())
}

/// Fails when a shard did not answer and the others have nothing.
fn those_that_answered(asked: Vec<Result<Found, StoreError>>) -> Result<Vec<Found>, StoreError> {
    let shards = asked.len();
    let (answers, failures): (Vec<_>, Vec<_>) = asked.into_iter().partition(Result::is_ok);
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let failed = failures.len();
    if let Some(error) = failures.into_iter().find_map(Result::err) {
        if answers.iter().all(|answer| answer.entries.is_empty()) {
            return Err(error);
        }
        tracing::warn!("{failed} of {shards} shards do not say what is due: {error}");
    }
    Ok(answers)
}

impl Found {
    /// Whether what it has left could come before the last one taken.
    fn may_have_earlier(&self, cut: Option<Entry>) -> bool {
        let last = self.entries.last();
        let is_before = |last: &Entry, cut: Entry| last.score <= cut.score;
        self.has_more && last.zip(cut).is_none_or(|(last, cut)| is_before(last, cut))
    }
}

fn earliest(answers: &[Found], limit: usize) -> Vec<Entry> {
    let mut all: Vec<_> = answers
        .iter()
        .flat_map(|answer| &answer.entries)
        .copied()
        .collect();
    all.sort_unstable_by(|a, b| a.score.total_cmp(&b.score).then(a.id.cmp(&b.id)));
    all.truncate(limit);
    all
}

async fn ask(
    inner: &Inner,
    shard: Shard,
    now: Timestamp,
    limit: usize,
) -> Result<Found, StoreError> {
    for round in 1.. {
        let (entries, gone, asked) = ask_once(inner, shard, now, limit).await?;
        let has_more = asked == limit;
        tidy(inner, shard, &gone).await;
        if gone.is_empty() || !has_more || round == TIDY_ROUNDS_MAX {
            return Ok(Found {
                shard,
                entries,
                has_more,
            });
        }
    }
    Err(StoreError::unavailable("the index was not read"))
}

/// The entries with a row, the ids without, and how many there were.
async fn ask_once(
    inner: &Inner,
    shard: Shard,
    now: Timestamp,
    limit: usize,
) -> Result<(Vec<Entry>, Vec<RecordId>, usize), StoreError> {
    let (due, rows) = (inner.keys.due(shard), inner.keys.rows(shard));
    let (now, limit) = (now.as_millis().to_string(), limit.to_string());
    let call = Call {
        shard,
        what: What::Script(
            &scripts::DUE,
            &[due.as_bytes()],
            &[now.as_bytes(), limit.as_bytes(), rows.as_bytes()],
        ),
        writes: false,
        confirmed: false,
        may_ask: false,
        mark: None,
    };
    let answer = inner.caller.call(&call).await?;
    let wrong = || StoreError::unavailable(answer.unexpected());
    let parts = answer.list().ok_or_else(wrong)?;
    let (mut entries, mut gone) = (Vec::new(), Vec::new());
    for part in parts.chunks_exact(3) {
        let [id, score, there] = part else { continue };
        let (Some(id), Some(score)) = (read_id(id), read_score(score)) else {
            return Err(wrong());
        };
        if matches!(there, Answer::Number(1)) {
            entries.push(Entry { score, id });
        } else {
            gone.push(id);
        }
    }
    Ok((entries, gone, parts.len() / 3))
}

/// Takes ids out of the indexes whose rows the server dropped. What fails now is found again.
pub(crate) async fn tidy(inner: &Inner, shard: Shard, gone: &[RecordId]) {
    let (due, ids) = (inner.keys.due(shard), inner.keys.ids(shard));
    for id in gone {
        let (row, id) = (inner.keys.row(id), hex(id));
        let call = Call {
            shard,
            what: What::Script(
                &scripts::TIDY,
                &[row.as_bytes(), due.as_bytes(), ids.as_bytes()],
                &[id.as_bytes()],
            ),
            writes: true,
            confirmed: false,
            may_ask: false,
            mark: None,
        };
        if let Err(error) = inner.caller.call(&call).await {
            tracing::debug!("an index entry without a row stays for now: {error}");
            return;
        }
    }
}

pub(crate) fn read_id(answer: &Answer) -> Option<RecordId> {
    RecordId::from_hex(&answer.text()?)
}

fn read_score(answer: &Answer) -> Option<f64> {
    answer.text()?.parse().ok()
}
