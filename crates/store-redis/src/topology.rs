//! Which server is the primary of a shard, by what the sentinels or the cluster say.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::Cmd;

use crate::answer::Answer;
use crate::dial::{Dialer, Link};
use crate::failure::NoServer;
use crate::keys::{SHARDS, Shard};
use crate::node::{Node, lock};
use crate::options::{Address, Layout, RedisOptions};

/// How long one sentinel or node may take to say who is the primary. Others are asked meanwhile.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Topology {
    options: Arc<RedisOptions>,
    dialer: Dialer,
    known: Mutex<Known>,
    /// Held while asking, so that only one caller does.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// The primary of each shard.
    primaries: HashMap<usize, Address>,
    nodes: HashMap<Address, Arc<Node>>,
    /// How often `primaries` was asked for.
    round: u64,
}

impl Topology {
    pub(crate) fn new(options: Arc<RedisOptions>, dialer: Dialer) -> Self {
        Self {
            options,
            dialer,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// The server that is believed to be the primary of a shard.
    pub(crate) async fn primary(&self, shard: Shard) -> Result<Arc<Node>, NoServer> {
        if let Some(node) = self.known_primary(shard) {
            return Ok(node);
        }
        self.look_again(self.round()).await?;
        let found = self.known_primary(shard);
        found.ok_or_else(|| {
            let slot = shard.slot();
            let reason = format!("no node of the cluster has slot {slot}: give every slot to one");
            NoServer::unusable(reason)
        })
    }

    /// One shard of each primary.
    pub(crate) async fn shard_of_each(&self) -> Result<Vec<Shard>, NoServer> {
        let mut seen = Vec::new();
        let mut shards = Vec::new();
        for shard in Shard::all() {
            let node = self.primary(shard).await?;
            if !seen.contains(node.address()) {
                seen.push(node.address().clone());
                shards.push(shard);
            }
        }
        Ok(shards)
    }

    /// How often the primaries were asked for; see [`look_again`](Self::look_again).
    pub(crate) fn round(&self) -> u64 {
        lock(&self.known).round
    }

    /// Asks who the primaries are, unless somebody did since `round`.
    pub(crate) async fn look_again(&self, round: u64) -> Result<(), NoServer> {
        let _asking = self.asking.lock().await;
        if self.round() != round {
            return Ok(());
        }
        let primaries = match &self.options.layout {
            Layout::Single => every_shard(self.options.servers.first()),
            Layout::Sentinel { service } => self.ask_sentinels(service).await?,
            Layout::Cluster => self.ask_cluster().await?,
        };
        let mut known = lock(&self.known);
        let Known {
            primaries: kept,
            nodes,
            round,
        } = &mut *known;
        *kept = primaries;
        *round += 1;
        // Whoever still talks to a server that lost its shards holds it until then.
        nodes.retain(|address, _| kept.values().any(|kept| kept == address));
        Ok(())
    }

    /// Notes what a server said by redirecting a call.
    pub(crate) fn moved(&self, shard: Shard, to: &Address) {
        lock(&self.known)
            .primaries
            .insert(shard.index(), to.clone());
    }

    pub(crate) fn node(&self, address: &Address) -> Arc<Node> {
        let mut known = lock(&self.known);
        self.node_of(&mut known, address)
    }

    fn known_primary(&self, shard: Shard) -> Option<Arc<Node>> {
        let mut known = lock(&self.known);
        let address = known.primaries.get(&shard.index())?.clone();
        Some(self.node_of(&mut known, &address))
    }

    fn node_of(&self, known: &mut Known, address: &Address) -> Arc<Node> {
        if let Some(node) = known.nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(Node::new(address.clone(), &self.options));
        known.nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// A connection to a server.
    pub(crate) async fn link(&self, node: &Node) -> Result<Arc<Link>, NoServer> {
        node.link(&self.dialer, &self.options).await
    }

    /// Whether an acknowledged write survives a crash of whichever server took it.
    pub(crate) fn is_durable(&self) -> bool {
        let known = lock(&self.known);
        known.nodes.values().all(|node| node.is_durable())
    }

    /// What an operator should know about the servers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let known = lock(&self.known);
        let mut warnings: Vec<_> = known.nodes.values().flat_map(|n| n.warnings()).collect();
        warnings.sort_unstable();
        warnings
    }

    async fn ask_sentinels(&self, service: &str) -> Result<HashMap<usize, Address>, NoServer> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(service);
        let asked = self.options.servers.clone();
        self.ask_any(asked, &question, |answer, asked| {
            let [host, port] = answer.list()? else {
                return None;
            };
            let address = address(host, port, asked)?;
            Some(every_shard(Some(&address)))
        })
        .await
        .map_err(|why| {
            why.unwrap_or_else(|| {
                let reason = format!("no sentinel knows the service {service}: correct the URL");
                NoServer::unusable(reason)
            })
        })
    }

    async fn ask_cluster(&self) -> Result<HashMap<usize, Address>, NoServer> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut asked: Vec<_> = lock(&self.known).nodes.keys().cloned().collect();
        asked.extend(self.options.servers.iter().cloned());
        asked.sort_unstable();
        asked.dedup();
        self.ask_any(asked, &question, primaries)
            .await
            .map_err(|why| {
                why.unwrap_or_else(|| {
                    NoServer::unusable("no node named in the URL is in a cluster")
                })
            })
    }

    /// The first answer that makes sense, from any of several servers, asked at once. Fails with
    /// the first reason, or with none if all answered and no answer made sense.
    async fn ask_any<T>(
        &self,
        servers: Vec<Address>,
        question: &Cmd,
        read: impl Fn(&Answer, &Address) -> Option<T>,
    ) -> Result<T, Option<NoServer>> {
        let mut answers: FuturesUnordered<_> = servers
            .into_iter()
            .map(|server| self.ask(server, question))
            .collect();
        let mut first = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((answer, server)) => {
                    if let Some(read) = read(&answer, &server) {
                        return Ok(read);
                    }
                }
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(first)
    }

    async fn ask(&self, server: Address, question: &Cmd) -> Result<(Answer, Address), NoServer> {
        let asking = async {
            let link = match self.options.layout {
                Layout::Sentinel { .. } => self.dialer.dial_sentinel(&server).await?,
                Layout::Single | Layout::Cluster => self.dialer.dial(&server).await?,
            };
            let answer = link.send(question).await;
            let answer = answer.map_err(|error| NoServer::silent(format!("{server}: {error}")))?;
            if let Answer::Error(error) = &answer {
                return Err(NoServer::of_answer(error, &server));
            }
            Ok(answer)
        };
        let answer = tokio::time::timeout(ASK_TIMEOUT, asking).await;
        let answer = answer.unwrap_or_else(|_| {
            let reason = format!("{server} does not answer within {ASK_TIMEOUT:?}");
            Err(NoServer::silent(reason))
        })?;
        Ok((answer, server))
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology").finish_non_exhaustive()
    }
}

fn every_shard(server: Option<&Address>) -> HashMap<usize, Address> {
    let shards = 0..usize::from(SHARDS);
    let primary = |shard| Some((shard, server?.clone()));
    shards.filter_map(primary).collect()
}

/// Reads `CLUSTER SLOTS`: ranges of slots, each with its primary first.
fn primaries(answer: &Answer, asked: &Address) -> Option<HashMap<usize, Address>> {
    let mut found = HashMap::new();
    for range in answer.list()? {
        let [Answer::Number(first), Answer::Number(last), primary, ..] = range.list()? else {
            return None;
        };
        let [host, port, ..] = primary.list()? else {
            return None;
        };
        let primary = address(host, port, asked)?;
        let has = |shard: &Shard| (*first..=*last).contains(&i64::from(shard.slot()));
        found.extend(
            Shard::all()
                .filter(has)
                .map(|shard| (shard.index(), primary.clone())),
        );
    }
    // An empty map comes from a node that was not asked to join yet, or left.
    (!found.is_empty()).then_some(found)
}

fn address(host: &Answer, port: &Answer, asked: &Address) -> Option<Address> {
    let host = host.text().filter(|host| !host.is_empty() && host != "?");
    Some(Address {
        // A node that does not know its own name is where it was asked.
        host: host.unwrap_or_else(|| asked.host.clone()),
        port: port.text()?.parse().ok()?,
    })
}
