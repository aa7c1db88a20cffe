//! A server's own settings: what it would lose is refused, unless it was allowed by name.
//!
//! Looked at on every new connection, so that a replica which was promoted since is looked at too.

use std::collections::HashMap;

use redis::Pipeline;

use crate::answer::Answer;
use crate::dial::Link;
use crate::failure::{NoServer, explain};
use crate::options::{Address, Layout, RedisOptions};

/// The oldest server that gives an error from inside a script under its own code. Before, a
/// replica's `READONLY` could not be told from an error after a write.
const VERSION_MIN: (u16, u16) = (7, 0);

/// What is asked with `CONFIG GET`, one by one, as servers before 7.0 want it.
const ASKED: [&str; 4] = [
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory-policy",
];

/// What a server says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The lines of `INFO`.
    info: HashMap<String, String>,
    /// The answers to `CONFIG GET`; `None` when it is not permitted.
    config: Option<HashMap<String, String>>,
}

/// What was found and allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What an operator should know.
    pub(crate) warnings: Vec<String>,
    /// Whether an acknowledged write survives a crash of the server.
    pub(crate) is_durable: bool,
}

impl Settings {
    pub(crate) async fn ask(link: &Link, address: &Address) -> Result<Self, NoServer> {
        let mut asked = Pipeline::new();
        asked.cmd("INFO");
        for name in ASKED {
            asked.cmd("CONFIG").arg("GET").arg(name);
        }
        let answers = link.send_all(&asked).await;
        let answers = answers.map_err(|error| NoServer::silent(format!("{address}: {error}")))?;
        let mut answers = answers.into_iter();
        let info = match answers.next() {
            Some(Answer::Error(error)) => return Err(NoServer::of_answer(&error, address)),
            info => lines(&info.and_then(|info| info.text()).unwrap_or_default()),
        };
        let config = answers.map(|answer| pair(&answer)).collect::<Option<_>>();
        Ok(Self { info, config })
    }

    fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// Whether the server can be used, and what to know about it.
    pub(crate) fn judge(
        &self,
        address: &Address,
        options: &RedisOptions,
    ) -> Result<Judgement, String> {
        self.check_kind(address, &options.layout)?;
        let mut judgement = Judgement {
            warnings: Vec::new(),
            is_durable: true,
        };
        let persistence = self.persistence_fault();
        let eviction = self.eviction_fault();
        for (fault, allowed, option) in [
            (
                persistence,
                options.allow_unsafe_persistence,
                "allow_unsafe_persistence=true",
            ),
            (eviction, options.allow_eviction, "allow_eviction=true"),
        ] {
            let Some(Fault { found, change }) = fault else {
                continue;
            };
            if !allowed {
                return Err(format!(
                    "{address} {found}: {change}, or allow it with {option}"
                ));
            }
            judgement
                .warnings
                .push(format!("{address} {found} (allowed by {option})"));
            judgement.is_durable = false;
        }
        judgement
            .warnings
            .extend(self.failover_warning(address, options));
        Ok(judgement)
    }

    fn check_kind(&self, address: &Address, layout: &Layout) -> Result<(), String> {
        let version = self.info("redis_version");
        if !is_new_enough(version) {
            let (major, minor) = VERSION_MIN;
            return Err(format!(
                "{address} is Redis {version}: upgrade it to {major}.{minor} or later"
            ));
        }
        let in_cluster = self.info("cluster_enabled") == "1";
        if in_cluster != (*layout == Layout::Cluster) {
            return Err(if in_cluster {
                format!("{address} is a node of a cluster: write redis-cluster:// in the URL")
            } else {
                explain("ERR", "cluster support disabled", address)
            });
        }
        if self.info("role") != "master" {
            return Err(explain("READONLY", "", address));
        }
        if self.info("loading") == "1" {
            return Err(explain("LOADING", "", address));
        }
        Ok(())
    }

    fn persistence_fault(&self) -> Option<Fault> {
        let Some(config) = &self.config else {
            return Some(Fault {
                found: "does not show its persistence settings".to_owned(),
                change: "grant +config|get".to_owned(),
            });
        };
        [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
        ]
        .into_iter()
        .find_map(|(name, safe)| {
            let found = config.get(name).map_or("", String::as_str);
            (found != safe).then(|| Fault {
                found: format!("has `{name} {found}` and can lose acknowledged claims in a crash"),
                change: format!("set `{name} {safe}`"),
            })
        })
    }

    fn eviction_fault(&self) -> Option<Fault> {
        let asked = self.config.as_ref();
        let asked = asked.and_then(|config| config.get("maxmemory-policy"));
        // `INFO` says it too, where `CONFIG` is not permitted.
        let found = asked.map_or_else(|| self.info("maxmemory_policy"), String::as_str);
        (found != "noeviction").then(|| Fault {
            found: format!(
                "has `maxmemory-policy {found}` and can drop claims when memory is full"
            ),
            change: "set `maxmemory-policy noeviction`".to_owned(),
        })
    }

    fn failover_warning(&self, address: &Address, options: &RedisOptions) -> Option<String> {
        let replicas = self.info("connected_slaves");
        (options.wait_replicas == 0 && !matches!(replicas, "" | "0")).then(|| {
            format!(
                "{address} has replicas ({replicas}) and wait= is not set: a failover can lose \
                 acknowledged claims"
            )
        })
    }
}

/// Something that would lose acknowledged writes.
struct Fault {
    found: String,
    change: String,
}

fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u16>().ok());
    let found = (parts.next().flatten(), parts.next().flatten());
    matches!(found, (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN)
}

fn lines(text: &str) -> HashMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// The name and value of one setting; `None` when the server refused to tell.
fn pair(answer: &Answer) -> Option<(String, String)> {
    match answer.list()? {
        [name, value] => Some((name.text()?, value.text()?)),
        // A setting that this server does not have.
        _ => Some((String::new(), String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for version in ["7.0.0", "7.0.15", "7.10", "10.0.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["6.2.14", "5.9", "", "x"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
