//! What is wrong with a planted store's index and lists.

use onlyonce_conformance::suite::samples::{at, executing, id as sample_id};
use onlyonce_core::{Record, RecordId, Timestamp};
use onlyonce_store::{Cursor, Filter, Listed, Page, Row, Version};

use super::Bug;
use super::table::Table;

pub(super) fn due(table: &mut Table, bug: Bug, now: Timestamp, limit: usize) -> Vec<RecordId> {
    let now = now.as_millis();
    let mut due: Vec<_> = table
        .deadlines
        .iter()
        .map(|(deadline, id)| (deadline.as_millis(), *id))
        .filter(|(deadline, _)| match bug {
            Bug::DueIsExclusive => *deadline < now,
            Bug::DueIsEarly => *deadline <= now.saturating_add(1),
            Bug::DeadlinesAreSigned => deadline.cast_signed() <= now.cast_signed(),
            Bug::EndOfTimePasses => *deadline <= now,
            _ => at(*deadline).has_passed(at(now)),
        })
        .collect();
    match bug {
        Bug::DueHasNoOrder => due.reverse(),
        Bug::DueIsInOrderOfDigits => due.sort_unstable_by_key(|(at, _)| at.to_string()),
        Bug::DueInventsRows => due.push((0, sample_id(0))),
        _ => {}
    }
    let limit = match bug {
        Bug::DueIgnoresTheLimit => usize::MAX,
        Bug::DueLimitOfZeroIsNone if limit == 0 => usize::MAX,
        _ => limit,
    };
    due.truncate(limit);
    table.calls += u64::try_from(due.len()).unwrap();
    if bug == Bug::DueStopsAt1000 && table.calls > 1_000 {
        due.clear();
    }
    if bug == Bug::DueTakesRowsAway {
        for (deadline, id) in &due {
            table.deadlines.remove(&(at(*deadline), *id));
        }
    }
    due.into_iter().map(|(_, id)| id).collect()
}

pub(super) fn list(
    table: &mut Table,
    bug: Bug,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Page {
    let rows = rows(table, bug);
    let start = start(table, bug, &rows, after);
    let mut rest = rows.into_iter().skip(start).peekable();
    let limit = match bug {
        Bug::ListIgnoresTheLimit => usize::MAX,
        Bug::PagesEndAt50Rows => limit.min(50),
        _ => limit,
    };
    let mut entries = Vec::new();
    let mut looked_at = 0;
    while entries.len() < limit {
        let Some((id, row)) = rest.next() else { break };
        looked_at += 1;
        if matches(table, bug, filter, &id, &row.record) {
            entries.push(Listed { id, row: Ok(row) });
        }
        if bug == Bug::ListEndsAtAnEmptyPage && looked_at == limit {
            break;
        }
    }
    if bug == Bug::ListOfNothingIsEverything && entries.is_empty() && after.is_none() {
        let all = super::read::rows(table, bug);
        entries.extend(
            all.into_iter()
                .take(limit)
                .map(|(id, row)| Listed { id, row: Ok(row) }),
        );
    }
    let more = match bug {
        Bug::ListNeverEnds => true,
        Bug::ListEndsAfterOnePage | Bug::PagesEndAt50Rows => false,
        Bug::ListEndsAtAnEmptyPage => rest.peek().is_some(),
        _ => rest.any(|(id, row)| matches(table, bug, filter, &id, &row.record)),
    };
    let next = entries.last().filter(|_| more).map(|last| Cursor(last.id));
    if let Some(Cursor(id)) = next {
        table.offsets.insert(id, start + looked_at);
    }
    Page { entries, next }
}

/// The rows in the order of the list.
fn rows(table: &Table, bug: Bug) -> Vec<(RecordId, Row)> {
    let mut rows: Vec<_> = table
        .rows
        .iter()
        .map(|(id, row)| (*id, row.clone()))
        .collect();
    match bug {
        Bug::ListInventsRows => rows.push((
            sample_id(99),
            Row {
                record: Box::new(executing(0, at(0))),
                version: Version(0),
            },
        )),
        Bug::ListShowsAnotherVersion => {
            for (_, row) in &mut rows {
                row.version.0 += 1;
            }
        }
        Bug::ListHasNoOrder => rows.reverse(),
        Bug::ListIsInOrderOfVersions => rows.sort_by_key(|(_, row)| row.version),
        Bug::ListKeepsRemovedRows => {
            rows.extend(table.removed.iter().map(|(id, row)| (*id, row.clone())));
        }
        Bug::GreatestIdIsNotListed => rows.retain(|(id, _)| *id.as_bytes() != [0xff; 32]),
        _ => {}
    }
    rows
}

/// How many rows are before the page.
fn start(table: &Table, bug: Bug, rows: &[(RecordId, Row)], after: Option<Cursor>) -> usize {
    let Some(Cursor(after)) = after else { return 0 };
    let position = rows.iter().position(|(id, _)| *id == after);
    match bug {
        Bug::CursorIsAnOffset => table.offsets.get(&after).copied().unwrap_or(0),
        Bug::CursorNeedsItsRow => position.map_or(rows.len(), |position| position + 1),
        Bug::CursorIsInclusive => position.unwrap_or(0),
        Bug::ListHasNoOrder | Bug::ListIsInOrderOfVersions | Bug::ListKeepsRemovedRows => {
            position.map_or(0, |position| position + 1)
        }
        _ => rows.iter().filter(|(id, _)| *id <= after).count(),
    }
}

fn matches(table: &Table, bug: Bug, filter: &Filter, id: &RecordId, record: &Record) -> bool {
    let mut filter = filter.clone();
    match bug {
        Bug::ListIgnoresTheState => filter.state = None,
        Bug::ListIgnoresTheRoute => filter.route = None,
        Bug::ListIgnoresThePrincipal => filter.principal = None,
        Bug::ListMatchesRoutePrefixes => {
            let prefix = filter.route.take();
            let prefix = prefix.as_ref().map_or("", |route| route.as_str());
            return record.route.as_str().starts_with(prefix) && filter.matches(record);
        }
        Bug::ListFromIsExclusive => {
            let from = filter.updated_from.map_or(0, Timestamp::as_millis);
            return record.updated_at.as_millis() > from && filter.matches(record);
        }
        Bug::ListBeforeIsInclusive => {
            let before = filter.updated_before.map(Timestamp::as_millis);
            filter.updated_before = before.map(|millis| at(millis + 1));
        }
        Bug::ListConditionsAreAlternatives if filter.state.is_some() => {
            let state = filter.state.take();
            let others = filter != Filter::default() && filter.matches(record);
            return state == Some(record.state.kind()) || others;
        }
        Bug::ListIsByFirstState => {
            let first = table.first_states.get(id).copied();
            return filter.state.is_none_or(|state| first == Some(state));
        }
        _ => {}
    }
    filter.matches(record)
}
