//! A server's own settings: what it would lose is refused, unless it was allowed by name.
//!
//! Looked at on every new connection, so that a replica which was promoted since is looked at too.
//!
//! `appendonly yes` alone proves nothing. After it was switched on, and after a replica has copied
//! everything from its primary, the file counts only once it was rewritten for the first time: a
//! crash before brings back what was there earlier. The first rewrite looks like any other, so a
//! server that rewrites is refused until it was seen at rest once.

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

/// What to do about what passes.
const WAIT: &str = "wait until";

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
    /// The life of the server in which its append-only file was seen at rest.
    pub(crate) at_rest_in: Option<Life>,
}

/// From when a server started, or changed its role, until it does again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    run: String,
    /// A server draws another one when it is promoted.
    replication: String,
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

    fn life(&self) -> Option<Life> {
        let known = |name| Some(self.info(name).to_owned()).filter(|found| !found.is_empty());
        Some(Life {
            run: known("run_id")?,
            replication: known("master_replid")?,
        })
    }

    /// Whether the server can be used, and what to know about it. `at_rest_in` is what the last
    /// judgement says.
    pub(crate) fn judge(
        &self,
        address: &Address,
        options: &RedisOptions,
        at_rest_in: Option<&Life>,
    ) -> Result<Judgement, NoServer> {
        self.check_kind(address, &options.layout)?;
        let life = self.life();
        let was_at_rest = life.is_some() && life.as_ref() == at_rest_in;
        let setting = self.persistence_fault();
        let unfinished = (!was_at_rest).then(|| self.rewrite_fault()).flatten();
        let is_at_rest = setting.is_none() && unfinished.is_none();
        let mut judgement = Judgement {
            warnings: Vec::new(),
            is_durable: true,
            at_rest_in: life.filter(|_| is_at_rest),
        };
        for (fault, allowed, option) in [
            (
                setting.or(unfinished),
                options.allow_unsafe_persistence,
                "allow_unsafe_persistence=true",
            ),
            (
                self.eviction_fault(),
                options.allow_eviction,
                "allow_eviction=true",
            ),
        ] {
            let Some(fault) = fault else {
                continue;
            };
            if !allowed {
                return Err(fault.refusal(address, option));
            }
            let found = fault.found;
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

    fn check_kind(&self, address: &Address, layout: &Layout) -> Result<(), NoServer> {
        let version = self.info("redis_version");
        if !is_new_enough(version) {
            let (major, minor) = VERSION_MIN;
            return Err(NoServer::unusable(format!(
                "{address} is Redis {version}: upgrade it to {major}.{minor} or later"
            )));
        }
        let in_cluster = self.info("cluster_enabled") == "1";
        if in_cluster != (*layout == Layout::Cluster) {
            return Err(NoServer::unusable(if in_cluster {
                format!("{address} is a node of a cluster: write redis-cluster:// in the URL")
            } else {
                explain("ERR", "cluster support disabled", address)
            }));
        }
        if self.info("role") != "master" {
            return Err(NoServer::unusable(explain("READONLY", "", address)));
        }
        if self.info("loading") == "1" {
            return Err(NoServer::not_yet(explain("LOADING", "", address)));
        }
        Ok(())
    }

    fn persistence_fault(&self) -> Option<Fault> {
        let Some(config) = &self.config else {
            return Some(Fault {
                found: "does not show its persistence settings".to_owned(),
                change: "grant +config|get".to_owned(),
                passes: false,
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
                passes: false,
            })
        })
    }

    /// What keeps the append-only file from being one that is read after a crash.
    fn rewrite_fault(&self) -> Option<Fault> {
        let retry = "see its log and run BGREWRITEAOF until";
        [
            ("aof_last_bgrewrite_status", "ok", retry),
            ("aof_enabled", "1", WAIT),
            ("aof_rewrite_in_progress", "0", WAIT),
            ("aof_rewrite_scheduled", "0", WAIT),
        ]
        .into_iter()
        .find_map(|(name, safe, change)| {
            let found = self.info(name);
            (found != safe).then(|| Fault {
                found: format!(
                    "has `{name}:{found}`: its append-only file may not count yet, and acknowledged \
                     claims could be lost in a crash"
                ),
                change: format!("{change} INFO shows `{name}:{safe}`"),
                passes: change == WAIT,
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
            passes: false,
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
    /// Whether it is expected to pass without anybody's help.
    passes: bool,
}

impl Fault {
    fn refusal(&self, address: &Address, option: &str) -> NoServer {
        let Self { found, change, .. } = self;
        NoServer {
            reason: format!("{address} {found}: {change}, or allow it with {option}"),
            answered: true,
            passes: self.passes,
        }
    }
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

    /// A server at rest, that says of itself what else is given.
    fn settings(info: &[(&str, &str)]) -> Settings {
        let at_rest = [
            ("redis_version", "7.0.15"),
            ("role", "master"),
            ("run_id", "a"),
            ("master_replid", "b"),
            ("aof_enabled", "1"),
            ("aof_rewrite_in_progress", "0"),
            ("aof_rewrite_scheduled", "0"),
            ("aof_last_bgrewrite_status", "ok"),
        ];
        let config = [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
            ("maxmemory-policy", "noeviction"),
        ];
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Settings {
            info: at_rest.iter().chain(info).map(owned).collect(),
            config: Some(config.iter().map(owned).collect()),
        }
    }

    fn judged(info: &[(&str, &str)], at_rest_in: Option<&Life>) -> Result<Judgement, NoServer> {
        let address = Address {
            host: "here".to_owned(),
            port: 1,
        };
        let options = RedisOptions::new(address.clone());
        settings(info).judge(&address, &options, at_rest_in)
    }

    const UNFINISHED: [(&str, &str); 4] = [
        ("aof_enabled", "0"),
        ("aof_rewrite_in_progress", "1"),
        ("aof_rewrite_scheduled", "1"),
        ("aof_last_bgrewrite_status", "err"),
    ];

    /// Until its first rewrite has ended, a crash brings back what was in the file before.
    #[test]
    fn a_file_that_may_not_count_yet_is_refused() {
        for line in UNFINISHED {
            let refused = judged(&[line], None).unwrap_err();
            let (name, found) = line;
            assert!(refused.reason.contains(name), "{refused:?}");
            // What nobody has to mend is waited for.
            assert_eq!(refused.passes, found != "err", "{refused:?}");
        }
    }

    /// Later rewrites are every day's business, and must not stop a store that connects again.
    #[test]
    fn a_server_that_was_seen_at_rest_may_rewrite() {
        let at_rest_in = judged(&[], None).unwrap().at_rest_in;
        assert!(at_rest_in.is_some());
        for line in UNFINISHED {
            let judgement = judged(&[line], at_rest_in.as_ref()).unwrap();
            assert!(judgement.is_durable);
            assert_eq!(judgement.at_rest_in, at_rest_in);
        }
    }

    /// It may have copied another server's rows since, into a file that does not count yet.
    #[test]
    fn a_server_that_restarted_or_was_promoted_must_be_at_rest_again() {
        let at_rest_in = judged(&[], None).unwrap().at_rest_in;
        for changed in [
            ("run_id", "c"),
            ("master_replid", "c"),
            // Nothing to know it again by.
            ("run_id", ""),
            ("master_replid", ""),
        ] {
            let rewriting = ("aof_rewrite_in_progress", "1");
            let refused = judged(&[changed, rewriting], at_rest_in.as_ref());
            assert!(refused.is_err(), "{changed:?}");
        }
    }

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
