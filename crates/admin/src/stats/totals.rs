//! The counts as the overview shows them.

use serde::Serialize;

/// Counts of all routes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Executions that were granted, first ones and later ones.
    pub executed: u64,
    /// Retries that got the first answer.
    pub replayed: u64,
    /// Claims while another execution was at work.
    pub in_progress: u64,
    /// Keys used for another payload, or a second time where that is not allowed.
    pub mismatch: u64,
    /// Claims that were told that nobody knows whether the first request was executed.
    pub unknown: u64,
    /// Of the executions, those after one that was proven not to have happened.
    pub released_retry: u64,
    /// Claims of a key that was executed and has no answer to give.
    pub not_replayable: u64,
    /// Writes that passed without a key.
    pub unprotected: u64,
    /// Operations of the store that failed.
    pub store_errors: u64,
    /// Keys whose executor outlived its lease or is gone.
    pub zombies: u64,
    /// Keys past their retention.
    pub pruned: u64,
    /// Outcomes that became unknown.
    pub reconcile_scheduled: u64,
    /// Unknown outcomes that were settled by the upstream's word or a person's.
    pub reconcile_resolved: u64,
    /// Unknown outcomes that became dead letters.
    pub reconcile_failed: u64,
}

/// Counts of one route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RouteTotals {
    /// Its name.
    pub route: String,
    /// Executions that were granted.
    pub executed: u64,
    /// Retries that got the first answer.
    pub replayed: u64,
    /// Claims that got anything else: in progress, misuse, not replayable, unknown.
    pub refused: u64,
    /// Outcomes that became unknown.
    pub unknown: u64,
}
