//! The start: every primary is connected to, looked at and tried out before anything relies on it.

use std::time::Duration;

use onlyonce_store::{StoreError, Version};
use tokio::time::{Instant, sleep};

use crate::OpenError;
use crate::answer::Answer;
use crate::call::{Call, What};
use crate::failure::NoServer;
use crate::keys::{FORMAT, Shard};
use crate::row;
use crate::scripts::{self, Script};
use crate::store::{Ends, Inner};
use crate::topology::Topology;

/// How long the start waits for servers that are not ready yet: that load, or rewrite their
/// append-only file. Below the time that supervisors give to a start.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks whether they are.
const READY_PAUSE: Duration = Duration::from_millis(100);

/// When the server drops what a start could not remove, in milliseconds.
const PROBE_DROP_IN_MS: &str = "60000";

/// Does everything once that the store will do, on every primary, with keys of its own.
pub(crate) async fn try_out(inner: &Inner) -> Result<(), OpenError> {
    let topology = &inner.caller.topology;
    let shards = topology.shard_of_each().await;
    let shards = shards.map_err(no_server)?;
    let deadline = Instant::now() + READY_PATIENCE;
    for shard in &shards {
        reach(topology, *shard, deadline).await.map_err(no_server)?;
    }
    for shard in shards {
        probe(inner, shard).await.map_err(refused)?;
    }
    inner.now().await.map_err(refused)?;
    check_format(inner).await
}

/// Connects to a primary, once it is ready.
async fn reach(topology: &Topology, shard: Shard, deadline: Instant) -> Result<(), NoServer> {
    let mut is_told = false;
    loop {
        let node = topology.primary(shard).await?;
        let Err(why) = topology.link(&node).await else {
            return Ok(());
        };
        if !why.passes || Instant::now() + READY_PAUSE >= deadline {
            return Err(why);
        }
        if !is_told {
            tracing::warn!("not ready yet: {}", why.reason);
            is_told = true;
        }
        sleep(READY_PAUSE).await;
    }
}

async fn probe(inner: &Inner, shard: Shard) -> Result<(), StoreError> {
    let version = row::new_version()?;
    // Several may start at once: each has a row of its own.
    let name = format!("{:016x}", version.0);
    let keys = [&name, "due", "ids"].map(|name| inner.keys.probe(shard, name));
    let probe = Probe {
        inner,
        shard,
        version,
        name,
        keys,
    };
    let used = probe.use_it().await;
    // Also after a failure, or every start that fails would leave something behind.
    let (removed, tidied) = (probe.remove().await, probe.tidy().await);
    used.and(removed).and(tidied)
}

/// A row that is there for a moment.
struct Probe<'a> {
    inner: &'a Inner,
    shard: Shard,
    version: Version,
    name: String,
    /// Of the row and its indexes.
    keys: [String; 3],
}

impl Probe<'_> {
    async fn use_it(&self) -> Result<(), StoreError> {
        let Self { inner, shard, .. } = *self;
        let [row, due, ids] = &self.keys;
        let value = row::version_bytes(self.version);
        let ends = Ends {
            deadline: String::new(),
            drop_in_ms: PROBE_DROP_IN_MS.to_owned(),
        };
        inner
            .swap_row(shard, &self.keys, None, &value, &self.name, &ends)
            .await?;
        let rows = inner.keys.probe(shard, "");
        look(inner, shard, &scripts::DUE, due, &["inf", "1", &rows]).await?;
        look(
            inner,
            shard,
            &scripts::LIST,
            ids,
            &["-", "1", &rows, "1", "", "1"],
        )
        .await?;
        let load = Call {
            shard,
            what: What::Command("GETEX", row.as_bytes()),
            writes: false,
            confirmed: false,
            may_ask: true,
            mark: None,
        };
        inner.caller.call(&load).await.map(drop)
    }

    async fn remove(&self) -> Result<(), StoreError> {
        let (expected, ends) = (Some(self.version), Ends::default());
        self.inner
            .swap_row(self.shard, &self.keys, expected, &[], &self.name, &ends)
            .await
            .map(drop)
    }

    /// Takes it out of the indexes, if it is there without its row.
    async fn tidy(&self) -> Result<(), StoreError> {
        let keys = self.keys.each_ref().map(String::as_bytes);
        let tidy = Call {
            shard: self.shard,
            what: What::Script(&scripts::TIDY, &keys, &[self.name.as_bytes()]),
            writes: true,
            confirmed: false,
            may_ask: true,
            mark: None,
        };
        self.inner.caller.call(&tidy).await.map(drop)
    }
}

async fn look(
    inner: &Inner,
    shard: Shard,
    script: &'static Script,
    key: &str,
    arguments: &[&str],
) -> Result<Answer, StoreError> {
    let arguments: Vec<_> = arguments.iter().map(|text| text.as_bytes()).collect();
    let call = Call {
        shard,
        what: What::Script(script, &[key.as_bytes()], &arguments),
        writes: false,
        confirmed: false,
        may_ask: true,
        mark: None,
    };
    inner.caller.call(&call).await
}

async fn check_format(inner: &Inner) -> Result<(), OpenError> {
    let kept = inner.keep(&inner.keys.format(), FORMAT.as_bytes()).await;
    let kept = kept.map_err(refused)?;
    if kept == FORMAT.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&kept).into_owned();
    Err(OpenError::Refused(format!(
        "the rows have the format {found:?}, this onlyonce reads {FORMAT}: upgrade onlyonce, or choose another prefix="
    )))
}

fn refused(error: StoreError) -> OpenError {
    if let StoreError::Unavailable { reason } | StoreError::Ambiguous { reason } = error {
        OpenError::Refused(reason.into())
    } else {
        OpenError::Refused(error.to_string())
    }
}

fn no_server(why: NoServer) -> OpenError {
    if why.answered {
        OpenError::Refused(why.reason)
    } else {
        OpenError::Unreachable(why.reason)
    }
}
