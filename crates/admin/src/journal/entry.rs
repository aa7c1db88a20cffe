//! One entry, as it is written.

use onlyonce_core::{RecordId, RouteName};
use serde::{Deserialize, Serialize};

use super::route;

/// Who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A person's change: the audit trail.
    Operator,
    /// Something that happened by itself.
    Machine,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Machine => "machine",
        }
    }

    /// As operators type it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Operator, Self::Machine]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }

    /// Whose the notes of a name are.
    pub(crate) fn of(route: &RouteName) -> Self {
        if *route == Self::Machine.route() {
            Self::Machine
        } else {
            Self::Operator
        }
    }

    /// The name of its notes.
    pub(crate) fn route(self) -> RouteName {
        route(match self {
            Self::Operator => "onlyonce.audit",
            Self::Machine => "onlyonce.journal",
        })
    }
}

/// What stands for everything that an entry would tell, if it could be read.
pub(crate) const UNREADABLE: &str = "unreadable";

/// What came of a change that is not yet known to have happened.
pub(crate) const PENDING: &str = "pending";

/// What somebody did to a key, or what happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The key's id.
    pub(crate) key: String,
    /// The key's route.
    pub(crate) route: String,
    /// When, by the store's clock.
    pub(crate) at_ms: u64,
    /// Who: `operator:alice`, `gateway`, `reconciler`, `webhook`.
    pub(crate) who: String,
    /// What, as in a timeline.
    pub(crate) what: String,
    /// What was wanted: `completed`, `released`, `forget`, `ask_again`; or what happened.
    pub(crate) action: String,
    /// Why.
    pub(crate) reason: String,
    /// What came of it.
    pub(crate) outcome: String,
    /// Who wrote it.
    pub(crate) source: Kind,
    /// The execution that it was about, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) execution: Option<String>,
}

impl Entry {
    /// Something that happened by itself.
    pub(crate) fn machine(key: &RecordId, route: &RouteName, who: &str, what: &str) -> Self {
        Self {
            key: key.to_string(),
            route: route.to_string(),
            at_ms: 0,
            who: who.to_owned(),
            what: what.to_owned(),
            action: what.to_owned(),
            reason: String::new(),
            outcome: what.to_owned(),
            source: Kind::Machine,
            execution: None,
        }
    }

    /// In the place of one that cannot be read: that there is one, since when, and why not.
    pub(crate) fn unreadable(source: Kind, at_ms: u64, why: &str) -> Self {
        Self {
            key: String::new(),
            route: String::new(),
            at_ms,
            who: source.as_str().into(),
            what: UNREADABLE.into(),
            action: UNREADABLE.into(),
            reason: why.to_owned(),
            outcome: UNREADABLE.into(),
            source,
            execution: None,
        }
    }

    /// Reads one, if its form is known.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
