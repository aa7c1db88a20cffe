//! `onlyonce copy`: every record of one store, written to another.
//!
//! Records are read in the order of their ids, and ids are spread evenly, so the id reached tells
//! how far the copy has come. A record that the other store has already is written only if it
//! changed since; what is newer there stays. So a copy can be repeated, and the second one after
//! the gateways have stopped brings only what the first one missed.
//!
//! A row that ends in the first store during the copy (a request that was rejected, say) would
//! stay behind in the second as if it were still at work. The rows of unfinished requests are
//! therefore looked at once more at the end, and removed if they are gone and untouched.

use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use futures_util::{StreamExt, stream};
use onlyonce_core::fingerprint::Algorithm;
use onlyonce_core::{
    Fence, FieldDigests, Fingerprint, PrincipalDigest, Record, RecordId, RouteName, State,
    Timestamp,
};
use onlyonce_engine::{Marks, has_keys};
use onlyonce_store::{
    BoxStore, Cursor, Filter, ListStore, Listed, Row, Store, StoreError, Swap, Version,
};
use onlyonce_store_embedded::EmbeddedOptions;

use crate::cli::CopyArgs;
use crate::config::{Cache, StoreUrl, store_url};
use crate::store;

/// How many records are read at once.
const PAGE: usize = 256;

/// How many of them are written at the same time, so that they share a commit.
const WRITES: usize = 64;

/// How often a record is compared and written again because somebody else wrote it meanwhile.
const ROUNDS_MAX: usize = 8;

const SAME_STORE: &str = "--from and --to are the same store: nothing was copied";

const OTHER_SECRET: &str = "--to: the keys of this store were, or will be, made with another \
    hashing secret, under which no copied key would be found: copy into an empty store";

const UNUSED: &str = "--from: no gateway has ever used this store: nothing was copied; look for a \
    mistake in its URL";

const UNMARKED: &str = "--from: this store does not tell which hashing secret its keys were made \
    with: start a gateway on it once, with its own settings, then copy";

/// How long the mark of a copy that was killed may stay. It is no key's, so it harms nobody.
const MARK_STAYS: Duration = Duration::from_secs(600);

/// What a copy did.
#[derive(Debug, Default)]
struct Tally {
    /// Records read.
    read: u64,
    /// Written, because they were missing or older.
    written: u64,
    /// There already, or newer there.
    kept: u64,
    /// Removed again, because their request ended without a trace during the copy.
    removed: u64,
    /// Not readable in the first store. They stay behind, and the copy fails at the end.
    unreadable: u64,
}

/// A row of an unfinished request, as it was written to the second store.
struct Unfinished {
    id: RecordId,
    version: Version,
}

/// A copy that went to its end.
pub(crate) struct Copied {
    /// What was done, as text or JSON.
    pub(crate) summary: String,
    /// What must be mended before the second store is used.
    pub(crate) complaint: Option<String>,
}

/// Copies, and gives a summary.
///
/// # Errors
/// With the reason, and how to go on.
pub(crate) async fn run(args: CopyArgs) -> Result<Copied, String> {
    let from = url("--from", &args.from)?;
    let to = url("--to", &args.to)?;
    if from == to {
        return Err(SAME_STORE.into());
    }
    let after = args.after.as_deref().map(cursor).transpose()?;
    // To open a folder is to make it.
    if let StoreUrl::Embedded(folder) = &from
        && !folder.is_dir()
    {
        return Err(UNUSED.into());
    }
    let copy = Copy {
        from: open("--from", &from).await?,
        to: open("--to", &to).await?,
        shows: !args.json && std::io::stderr().is_terminal(),
    };
    copy.is_used().await?;
    copy.same_secret().await?;
    copy.are_two().await?;
    copy.carry_marks().await?;
    let mut tally = Tally::default();
    copy.all(after, &mut tally).await?;
    let complaint = (tally.unreadable > 0).then(|| {
        format!(
            "{} records could not be read and are not copied: their keys must not be used again \
             before they are mended",
            tally.unreadable
        )
    });
    Ok(Copied {
        summary: summary(&tally, args.json),
        complaint,
    })
}

fn url(flag: &str, text: &str) -> Result<StoreUrl, String> {
    store_url(text).map_err(|error| format!("{flag}: {error}"))
}

fn cursor(text: &str) -> Result<Cursor, String> {
    let id = RecordId::from_hex(text);
    let id = id.ok_or("--after: give the id that the interrupted copy printed")?;
    Ok(Cursor(id))
}

async fn open(flag: &str, url: &StoreUrl) -> Result<BoxStore, String> {
    let folder = match url {
        StoreUrl::Embedded(folder) => folder.as_path(),
        StoreUrl::Memory | StoreUrl::Postgres(_) | StoreUrl::Redis(_) | StoreUrl::Dynamo(_) => {
            Path::new("")
        }
    };
    let opened = store::open(url, &EmbeddedOptions::new(folder), &Cache::default()).await;
    Ok(opened.map_err(|error| format!("{flag}: {error}"))?.store)
}

struct Copy {
    from: BoxStore,
    to: BoxStore,
    shows: bool,
}

impl Copy {
    /// One store can be written in two ways: by another name of its host, say. Only the store knows.
    /// So a mark is written to one, and looked for in the other.
    async fn are_two(&self) -> Result<(), String> {
        let id = RecordId::from_bytes(store::random_bytes());
        let now = self.to.now().await.map_err(writing)?;
        let mark = mark(now).ok_or("a mark cannot be made")?;
        let swapped = self.to.swap(&id, None, Some(&mark)).await;
        let Swap::Won(version) = swapped.map_err(writing)? else {
            return Err("--to: a random id is taken".into());
        };
        let seen = self.from.load(&id).await;
        let removed = self.to.swap(&id, Some(version), None).await;
        let is_same = seen.map_err(reading)?.is_some();
        // Whoever swept it away meanwhile was welcome to.
        let _ = removed.map_err(writing)?;
        if is_same {
            return Err(SAME_STORE.into());
        }
        Ok(())
    }

    /// A store that nobody has used is another one than was meant. Its secret would be a new one, and
    /// gateways that start on the copy would know no key.
    async fn is_used(&self) -> Result<(), String> {
        let marks = Marks::load(&self.from).await.map_err(reading)?;
        if marks.is_some() || has_keys(&self.from).await.map_err(reading)? {
            return Ok(());
        }
        Err(UNUSED.into())
    }

    /// Ids are made with the store's secret, so both must have the same one.
    async fn same_secret(&self) -> Result<(), String> {
        let secret = self
            .from
            .secret(store::random_bytes())
            .await
            .map_err(reading)?;
        let theirs = self.to.secret(secret).await.map_err(writing)?;
        if theirs == secret {
            return Ok(());
        }
        Err(OTHER_SECRET.into())
    }

    /// Which secret the keys were made with is told before the first of them is there, so that
    /// nobody opens the copy with another one, however far it has come.
    async fn carry_marks(&self) -> Result<(), String> {
        let from = Marks::load(&self.from).await.map_err(reading)?;
        let to = Marks::load(&self.to).await.map_err(writing)?;
        let marks = match (from, to) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(UNMARKED.into()),
            (Some(_), None) if has_keys(&self.to).await.map_err(writing)? => {
                return Err(OTHER_SECRET.into());
            }
            (Some((from, _)), None) => from,
            (Some((from, _)), Some((to, _))) => to.joined(from).ok_or(OTHER_SECRET)?,
        };
        let now = self.to.now().await.map_err(writing)?;
        if marks.write(&self.to, to, now).await.map_err(writing)? {
            return Ok(());
        }
        Err("--to: somebody else opened this store just now: copy again".into())
    }

    async fn all(&self, mut after: Option<Cursor>, tally: &mut Tally) -> Result<(), String> {
        let mut unfinished = Vec::new();
        loop {
            let page = self.from.list(&Filter::default(), after, PAGE).await;
            let page = page.map_err(|error| go_on(&reading(error), after))?;
            let copied = self.page(page.entries, tally, &mut unfinished).await;
            copied.map_err(|error| go_on(&error, after))?;
            after = page.next;
            match after {
                Some(reached) => self.show(reached, tally),
                None => break,
            }
        }
        for row in unfinished {
            tally.removed += u64::from(self.ended(&row).await?);
        }
        Ok(())
    }

    async fn page(
        &self,
        entries: Vec<Listed>,
        tally: &mut Tally,
        unfinished: &mut Vec<Unfinished>,
    ) -> Result<(), String> {
        let keys = entries.into_iter().filter(|one| !Marks::are_at(&one.id));
        let writes = keys.map(|Listed { id, row }| async move {
            match row {
                Ok(row) => {
                    let is_settled = row.record.state.kind().is_settled();
                    let written = self.put(&id, &row).await?;
                    Ok((id, is_settled, Some(written)))
                }
                Err(StoreError::Corrupt { .. }) => Ok((id, true, None)),
                Err(error) => Err(reading(error)),
            }
        });
        let mut writes = stream::iter(writes).buffer_unordered(WRITES);
        while let Some(written) = writes.next().await {
            let (id, is_settled, written) = written?;
            tally.read += 1;
            match written {
                Some(Some(version)) => {
                    tally.written += 1;
                    if !is_settled {
                        unfinished.push(Unfinished { id, version });
                    }
                }
                Some(None) => tally.kept += 1,
                None => tally.unreadable += 1,
            }
        }
        Ok(())
    }

    /// Writes a row unless it is there already, or newer. Gives the version if it was written.
    async fn put(&self, id: &RecordId, row: &Row) -> Result<Option<Version>, String> {
        let mut expected = None;
        for _ in 0..ROUNDS_MAX {
            let swapped = self.to.swap(id, expected, Some(&row.record)).await;
            match swapped {
                Ok(Swap::Won(version)) => return Ok(Some(version)),
                Ok(Swap::Lost(Some(there))) if is_current(&there.record, &row.record) => {
                    return Ok(None);
                }
                Ok(Swap::Lost(there)) => expected = there.map(|there| there.version),
                Err(error) if error.may_have_written() => {
                    let there = self.to.load(id).await.map_err(writing)?;
                    if there
                        .as_ref()
                        .is_some_and(|there| is_current(&there.record, &row.record))
                    {
                        return Ok(None);
                    }
                    expected = there.map(|there| there.version);
                }
                Err(error) => return Err(writing(error)),
            }
        }
        Err(format!(
            "the record {id} is written by somebody else all the time"
        ))
    }

    /// Removes an unfinished row whose request left the first store without a trace, if nobody
    /// has touched it since it was copied.
    async fn ended(&self, row: &Unfinished) -> Result<bool, String> {
        if self.from.load(&row.id).await.map_err(reading)?.is_some() {
            return Ok(false);
        }
        let removed = self.to.swap(&row.id, Some(row.version), None).await;
        Ok(matches!(removed.map_err(writing)?, Swap::Won(_)))
    }

    fn show(&self, reached: Cursor, tally: &Tally) {
        const WIDTH: usize = 30;
        if !self.shows {
            return;
        }
        let share = share(&reached.0);
        let done = WIDTH * usize::from(share) / 100;
        let bar = format!("{}{}", "█".repeat(done), "░".repeat(WIDTH - done));
        let mut terminal = std::io::stderr().lock();
        // A terminal that has gone away is no reason to stop copying.
        let _ = write!(
            terminal,
            "\r{bar} {share:>3} %  {} read, {} written ",
            tally.read, tally.written
        );
        let _ = terminal.flush();
    }
}

/// Reserved: what a killed copy leaves behind is nobody's key.
const MARK_ROUTE: &str = "onlyonce.copy";

/// A row that means nothing and goes by itself.
fn mark(now: Timestamp) -> Option<Record> {
    Some(Record {
        fingerprint: Fingerprint {
            algorithm: Algorithm::Raw,
            digest: [0; 32],
        },
        fields: FieldDigests::default(),
        fence: Fence::from_bytes([0; 16]),
        attempt: 1,
        state: State::Released {
            expires_at: now.after(MARK_STAYS),
        },
        created_at: now,
        updated_at: now,
        route: RouteName::new(MARK_ROUTE)?,
        principal: PrincipalDigest::from_bytes([0; 8]),
        response_schema: 1,
        memo: Bytes::new(),
    })
}

/// Whether what is there needs no writing: the same, or newer.
fn is_current(there: &Record, copied: &Record) -> bool {
    there == copied || there.updated_at > copied.updated_at
}

/// How far an id is along all ids, in percent.
fn share(id: &RecordId) -> u8 {
    let first = id.as_bytes().first().copied().unwrap_or(0);
    u8::try_from(u16::from(first) * 100 / 256).unwrap_or(100)
}

fn summary(tally: &Tally, json: bool) -> String {
    let Tally {
        read,
        written,
        kept,
        removed,
        unreadable,
    } = tally;
    if json {
        return serde_json::json!({
            "read": read,
            "written": written,
            "kept": kept,
            "removed": removed,
            "unreadable": unreadable,
        })
        .to_string();
    }
    format!(
        "{read} records read: {written} written, {kept} there already, {removed} ended meanwhile"
    )
}

fn reading(error: impl std::fmt::Display) -> String {
    format!("--from: {error}")
}

fn writing(error: impl std::fmt::Display) -> String {
    format!("--to: {error}")
}

fn go_on(error: &str, after: Option<Cursor>) -> String {
    match after {
        Some(Cursor(id)) => format!("{error}\ngo on with: --after {id}"),
        None => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_core::Secret;
    use onlyonce_engine::Engine;
    use onlyonce_store::MemoryStore;

    use super::*;

    /// As a gateway with these secrets leaves it.
    async fn opened(secret: u8, previous: Option<u8>) -> BoxStore {
        let store = BoxStore::new(MemoryStore::new());
        open(&store, secret, previous).await.unwrap();
        store
    }

    async fn open(store: &BoxStore, secret: u8, previous: Option<u8>) -> Result<(), String> {
        let builder = Engine::builder(store.clone()).secret(Secret::new([secret; 32]));
        let builder = match previous {
            Some(previous) => builder.previous_secret(Secret::new([previous; 32])),
            None => builder,
        };
        let engine = builder.open().await.map_err(|error| error.to_string())?;
        engine.drain(Duration::ZERO).await;
        Ok(())
    }

    async fn carried(from: &BoxStore, to: &BoxStore) -> Result<(), String> {
        let copy = Copy {
            from: from.clone(),
            to: to.clone(),
            shows: false,
        };
        copy.carry_marks().await
    }

    async fn with_a_key(store: BoxStore) -> BoxStore {
        let (id, now) = (RecordId::from_bytes([7; 32]), store.now().await.unwrap());
        let swap = store.swap(&id, None, mark(now).as_ref()).await.unwrap();
        assert!(matches!(swap, Swap::Won(_)));
        store
    }

    /// A gateway with another secret would find none of the copied keys, and run each again.
    #[tokio::test]
    async fn keys_under_another_secret_are_not_copied() {
        let (from, to) = (opened(1, None).await, opened(2, None).await);
        assert_eq!(carried(&from, &to).await, Err(OTHER_SECRET.to_owned()));
        let unmarked = with_a_key(BoxStore::new(MemoryStore::new())).await;
        assert_eq!(
            carried(&from, &unmarked).await,
            Err(OTHER_SECRET.to_owned())
        );
        assert_eq!(carried(&unmarked, &to).await, Err(UNMARKED.to_owned()));
    }

    #[tokio::test]
    async fn a_copy_opens_with_the_secrets_of_its_source_and_no_others() {
        let from = opened(1, Some(2)).await;
        for to in [BoxStore::new(MemoryStore::new()), opened(1, None).await] {
            carried(&from, &to).await.unwrap();
            carried(&from, &to).await.unwrap();
            assert!(
                open(&to, 1, None).await.is_err(),
                "keys under the one before"
            );
            assert!(open(&to, 3, None).await.is_err());
            open(&to, 1, Some(2)).await.unwrap();
        }
    }
}
