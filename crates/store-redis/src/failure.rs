//! What a failed attempt proves: that nothing was done, or nothing at all.

use redis::ServerError;

use crate::options::{Address, Layout};
use crate::replicas::Away;

/// Why there is no connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoServer {
    pub(crate) reason: String,
    /// Whether it answered, and what it said was the reason.
    pub(crate) answered: bool,
    /// Whether it is expected to pass without anybody's help.
    pub(crate) passes: bool,
}

impl NoServer {
    /// It could not be reached.
    pub(crate) fn silent(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            answered: false,
            passes: false,
        }
    }

    /// It, or its settings, cannot be used.
    pub(crate) fn unusable(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            answered: true,
            passes: false,
        }
    }

    /// It cannot be used yet.
    pub(crate) fn not_yet(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            answered: true,
            passes: true,
        }
    }

    /// It answered with an error.
    pub(crate) fn of_answer(error: &ServerError, from: &Address) -> Self {
        Self::unusable(explain(
            error.code(),
            error.details().unwrap_or_default(),
            from,
        ))
    }
}

/// Why an attempt has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing was executed.
    NotDone { reason: String, then: Then },
    /// It was sent, and what became of it is not known.
    MayBeDone { reason: String },
}

/// What may help after an attempt that did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// The server does not know the script: send its text.
    SendScript,
    /// Another server has the slot.
    Redirect(Address),
    /// Another server is about to have it.
    Ask(Address),
    /// Wait a little, look again who is the primary.
    LookAgain,
    /// Nothing that the store can do.
    GiveUp,
}

impl Failure {
    pub(crate) fn not_done(reason: impl Into<String>, then: Then) -> Self {
        Self::NotDone {
            reason: reason.into(),
            then,
        }
    }

    pub(crate) fn may_be_done(reason: impl Into<String>) -> Self {
        Self::MayBeDone {
            reason: reason.into(),
        }
    }

    /// Sorts an error that a server answered with. Only codes that the server gives before it
    /// executes anything prove that nothing was done; a script runs its first write or none
    /// after them.
    pub(crate) fn of_answer(error: &ServerError, from: &Address, layout: &Layout) -> Self {
        let detail = error.details().unwrap_or_default();
        let reason = explain(error.code(), detail, from);
        let then = match error.code() {
            "NOSCRIPT" => Then::SendScript,
            "MOVED" | "ASK" => return redirected(error.code(), detail, from, layout),
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => Then::LookAgain,
            "READONLY" => match layout {
                Layout::Single => Then::GiveUp,
                Layout::Sentinel { .. } | Layout::Cluster => Then::LookAgain,
            },
            "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH" | "WRONGPASS" => Then::GiveUp,
            _ => return Self::may_be_done(reason),
        };
        Self::not_done(reason, then)
    }
}

impl From<Away> for Failure {
    fn from(away: Away) -> Self {
        Self::not_done(away.reason, Then::GiveUp)
    }
}

fn redirected(code: &str, detail: &str, from: &Address, layout: &Layout) -> Failure {
    if *layout != Layout::Cluster {
        let reason = format!("{from} is a node of a cluster: write redis-cluster:// in the URL");
        return Failure::not_done(reason, Then::GiveUp);
    }
    let target = detail.split_whitespace().nth(1);
    let target = target.and_then(|target| target.rsplit_once(':'));
    let target = target.and_then(|(host, port)| {
        // A node that does not know its own name sends its callers back to the same host.
        let host = if host.is_empty() { &from.host } else { host };
        Some(Address {
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    });
    let reason = format!("{from} answered {code} {detail}");
    let then = match target {
        Some(target) if code == "ASK" => Then::Ask(target),
        Some(target) => Then::Redirect(target),
        None => Then::LookAgain,
    };
    Failure::not_done(reason, then)
}

/// What a server's error means for whoever runs it: one line that names what to change.
pub(crate) fn explain(code: &str, detail: &str, from: &Address) -> String {
    let detail = detail.lines().next().unwrap_or_default();
    match code {
        "NOAUTH" => format!(
            "{from} wants a password: write USER:PASSWORD@ before the host in the store's URL"
        ),
        "WRONGPASS" => {
            format!("{from} refuses the user or the password: correct USER:PASSWORD@ in the URL")
        }
        "NOPERM" => format!(
            "the ACL user at {from} lacks a permission ({detail}): grant it with ACL SETUSER"
        ),
        "OOM" => format!("the memory of {from} is full: raise its maxmemory"),
        "MISCONF" => format!("{from} refuses writes because it cannot save to disk: {detail}"),
        "NOREPLICAS" => format!(
            "{from} has too few replicas in step: mend them, or lower min-replicas-to-write"
        ),
        "READONLY" => format!(
            "{from} is a read-only replica: name the primary in the URL, or use redis-sentinel://"
        ),
        "LOADING" => format!("{from} is still loading its data"),
        "CLUSTERDOWN" => format!("the cluster of {from} is down: {detail}"),
        "TRYAGAIN" => format!("a slot is being moved away from or to {from}"),
        // How Redis and Valkey tell a script that one of its commands or keys is not permitted.
        "ERR"
            if detail.contains("The user executing the script")
                || detail.contains("ACL failure in script") =>
        {
            explain("NOPERM", detail, from)
        }
        "ERR" if detail.contains("DB index") => {
            format!(
                "{from} does not have this database: lower the number after the / in the URL, or raise `databases`"
            )
        }
        "ERR" if detail.contains("without any password configured") => {
            format!("{from} has no password: leave USER:PASSWORD@ out of the URL")
        }
        "ERR" if detail.contains("cluster support disabled") => {
            format!("{from} is not a cluster: write redis:// instead of redis-cluster://")
        }
        _ => format!("{from} answered {code} {detail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Address {
        Address {
            host: "here".to_owned(),
            port: 1,
        }
    }

    #[test]
    fn a_redirection_names_its_target() {
        let to = |host: &str| Address {
            host: host.to_owned(),
            port: 7,
        };
        for (detail, expected) in [
            ("12 there:7", Then::Redirect(to("there"))),
            ("12 :7", Then::Redirect(to("here"))),
            ("12 ::1:7", Then::Redirect(to("::1"))),
            ("12", Then::LookAgain),
        ] {
            let failure = redirected("MOVED", detail, &here(), &Layout::Cluster);
            let Failure::NotDone { then, .. } = failure else {
                panic!("{failure:?}");
            };
            assert_eq!(then, expected, "{detail}");
        }
    }

    /// A single server that redirects is one of a cluster, and the URL must say so.
    #[test]
    fn a_cluster_behind_the_wrong_url_is_named() {
        let failure = redirected("MOVED", "12 there:7", &here(), &Layout::Single);
        let Failure::NotDone { reason, then } = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(then, Then::GiveUp);
        assert!(reason.contains("redis-cluster://"), "{reason}");
    }
}
