//! A connection with its statements prepared.

use tokio_postgres::Statement;

use crate::OpenError;
use crate::columns::NAMES;
use crate::connector::Connector;
use crate::link::Link;

/// What `onlyonce_swap` takes: an array for each column, and the record's version.
const SWAP_ARGUMENTS: usize = 27;

/// The condition of the index `onlyonce_record_unsettled`, word for word: only what repeats it can
/// use the index.
const UNSETTLED: &str = "state IN ('executing', 'unknown', 'dead_letter')";

/// One that is ready for everything.
pub(crate) struct Session {
    pub(crate) link: Link,
    pub(crate) swap: Statement,
    pub(crate) load: Statement,
    pub(crate) due: Statement,
    pub(crate) due_far: Statement,
    pub(crate) list: Statement,
    pub(crate) window: Statement,
    /// The same where an index has all rows that they look at.
    pub(crate) list_unsettled: Statement,
    pub(crate) window_unsettled: Statement,
    pub(crate) now: Statement,
    pub(crate) secret: Statement,
}

impl Connector {
    pub(crate) async fn prepare(&self, link: Link) -> Result<Session, OpenError> {
        let present = NAMES.replace(", ", ", (present).");
        let arguments: Vec<_> = (1..=SWAP_ARGUMENTS)
            .map(|number| format!("${number}"))
            .collect();
        let swap = format!(
            "SELECT slot, won, (present).{present} FROM onlyonce_swap({})",
            arguments.join(", ")
        );
        let load = format!("SELECT {NAMES} FROM onlyonce_record WHERE id = $1");
        let unsigned = |column: &str| format!("({column} # '-9223372036854775808'::bigint)");
        let updated_at = unsigned("updated_at");
        let list_where = |condition: &str| {
            format!(
                "SELECT {NAMES} FROM onlyonce_record \
                 WHERE {condition} AND id > $1 AND ($2::bytea IS NULL OR id <= $2) \
                 AND ($3::text IS NULL OR state = $3) AND ($4::text IS NULL OR route = $4) \
                 AND ($5::bytea IS NULL OR principal = $5) \
                 AND ($6::bigint IS NULL OR {updated_at} >= $6) \
                 AND ($7::bigint IS NULL OR {updated_at} < $7) ORDER BY id LIMIT $8"
            )
        };
        let (list, list_unsettled) = (list_where("true"), list_where(UNSETTLED));
        let window_where = |condition: &str| {
            format!(
                "SELECT id FROM onlyonce_record WHERE {condition} AND id > $1 \
                 ORDER BY id OFFSET $2 LIMIT 1"
            )
        };
        let (window, window_unsettled) = (window_where("true"), window_where(UNSETTLED));
        let client = &link.client;
        let prepared = tokio::try_join!(
            client.prepare(&swap),
            client.prepare(&load),
            client.prepare(
                "SELECT id FROM onlyonce_record WHERE deadline BETWEEN 0 AND $1 \
                 ORDER BY deadline LIMIT $2"
            ),
            client.prepare(
                "SELECT id FROM onlyonce_record WHERE deadline BETWEEN \
                 '-9223372036854775808'::bigint AND least($1::bigint, -2::bigint) ORDER BY deadline LIMIT $2"
            ),
            client.prepare(&list),
            client.prepare(&list_unsettled),
            client.prepare(&window),
            client.prepare(&window_unsettled),
            client.prepare("SELECT onlyonce_now()"),
            client.prepare("SELECT onlyonce_keep_secret($1)"),
        );
        let prepared = prepared.map_err(|error| self.server_error("preparing statements", &error));
        let (swap, load, due, due_far, list, list_unsettled, window, window_unsettled, now, secret) =
            prepared?;
        Ok(Session {
            link,
            swap,
            load,
            due,
            due_far,
            list,
            window,
            list_unsettled,
            window_unsettled,
            now,
            secret,
        })
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_core::StateKind;

    use super::*;
    use crate::migrate::MIGRATIONS;

    /// A state that the index leaves out would be in no list of what waits.
    #[test]
    fn the_index_has_all_states_that_are_not_settled() {
        let unsettled = StateKind::ALL.into_iter().filter(|kind| !kind.is_settled());
        let names: Vec<_> = unsettled
            .map(|kind| format!("'{}'", kind.as_str()))
            .collect();
        assert_eq!(UNSETTLED, format!("state IN ({})", names.join(", ")));
        let step = MIGRATIONS.iter().find(|step| step.version == 7);
        assert!(step.is_some_and(|step| step.sql.contains(UNSETTLED)));
    }
}
