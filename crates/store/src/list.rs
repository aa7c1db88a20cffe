//! What operators look at: rows by state, route, owner and age, a page at a time.

use std::future::Future;

use onlyonce_core::{PrincipalDigest, Record, RecordId, RouteName, StateKind, Timestamp};

use crate::{Row, StoreError};

/// Which rows to list. Every condition that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<StateKind>,
    /// Not settled: being executed, of unknown outcome, or waiting for a person.
    pub unsettled: bool,
    /// Of this route.
    pub route: Option<RouteName>,
    /// Claimed by this principal.
    pub principal: Option<PrincipalDigest>,
    /// Last changed at or after this time.
    pub updated_from: Option<Timestamp>,
    /// Last changed before this time.
    pub updated_before: Option<Timestamp>,
}

impl Filter {
    /// Whether a record meets every condition.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let kind = record.state.kind();
        self.state.is_none_or(|state| kind == state)
            && !(self.unsettled && kind.is_settled())
            && self
                .route
                .as_ref()
                .is_none_or(|route| record.route == *route)
            && self
                .principal
                .is_none_or(|principal| record.principal == principal)
            && self
                .updated_from
                .is_none_or(|from| record.updated_at >= from)
            && self
                .updated_before
                .is_none_or(|before| record.updated_at < before)
    }

    /// Whether no settled row can match. There are few others, however many keys there are, and a
    /// store should find them without looking at all the settled ones.
    #[must_use]
    pub fn leaves_settled_out(&self) -> bool {
        self.unsettled || self.state.is_some_and(|state| !state.is_settled())
    }

    /// Whether a row that cannot be read belongs in the list: only in one without conditions,
    /// since it cannot meet any.
    #[must_use]
    pub fn matches_unreadable(&self) -> bool {
        *self == Self::default()
    }
}

/// Where the next page starts. Opaque: give back what a page gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor(pub RecordId);

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: RecordId,
    /// Its row, or why that cannot be read.
    pub row: Result<Row, StoreError>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The entries, in the order of their ids.
    pub entries: Vec<Listed>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<Cursor>,
}

/// A store whose rows can be listed.
pub trait ListStore: Send + Sync + 'static {
    /// At most `limit` rows that match, from `after` on, in the order of their ids. A row that is
    /// there during the whole listing is on exactly one page.
    ///
    /// # Errors
    /// When the store cannot be reached.
    fn list(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;
}
