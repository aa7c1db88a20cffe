//! Which server the store's keys are on, and on which of its timelines.
//!
//! A standby that is promoted begins a new timeline. The primary that it replaced may come back as
//! it was: it takes writes, and knows nothing of the keys that were settled since. So the highest
//! timeline that was seen counts, for as long as the process runs: a server on a lower one is
//! refused, and connections to one are cut when a higher one is found. With several hosts it is
//! looked for.

use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;
use tokio_postgres::SimpleQueryRow;

use crate::OpenError;

/// Asks for a server's history, in two columns.
pub(crate) const ASK: &str = "SELECT system_identifier, pg_catalog.substr(\
     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) \
     FROM pg_catalog.pg_control_system()";

/// A server's identity, which its copies share, and its timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    system: String,
    timeline: u32,
}

impl History {
    /// Reads the answer to [`ASK`].
    pub(crate) fn read(row: &SimpleQueryRow) -> Option<Self> {
        Some(Self {
            system: row.get(0)?.to_owned(),
            timeline: u32::from_str_radix(row.get(1)?, 16).ok()?,
        })
    }
}

/// The history that counts.
#[derive(Default)]
pub(crate) struct Latest(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    history: Option<History>,
    /// What ends each of the connections, with its timeline.
    connections: Vec<(u32, AbortHandle)>,
}

impl Latest {
    /// Whether a connection to a server of this history may be used. On a new timeline the
    /// connections to the earlier ones are cut.
    ///
    /// # Errors
    /// When it is another server, or an earlier timeline; or when this server does not say, and
    /// others did.
    pub(crate) fn admit(
        &self,
        place: &str,
        found: Option<History>,
        driver: &AbortHandle,
    ) -> Result<(), OpenError> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = || place.to_owned();
        let Some(found) = found else {
            return match seen.history {
                None => Ok(()),
                Some(_) => Err(OpenError::OtherServer { place: place() }),
            };
        };
        if let Some(known) = &seen.history {
            if known.system != found.system {
                return Err(OpenError::OtherServer { place: place() });
            }
            if found.timeline < known.timeline {
                return Err(OpenError::OldTimeline {
                    place: place(),
                    found: found.timeline,
                    known: known.timeline,
                });
            }
        }
        let connections = &mut seen.connections;
        connections.retain(|(timeline, driver)| {
            if *timeline < found.timeline {
                driver.abort();
            }
            *timeline >= found.timeline && !driver.is_finished()
        });
        connections.push((found.timeline, driver.clone()));
        seen.history = Some(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(system: &str, timeline: u32) -> History {
        let system = system.to_owned();
        History { system, timeline }
    }

    fn connection() -> tokio::task::JoinHandle<()> {
        tokio::spawn(std::future::pending())
    }

    /// Two primaries at once: what is on the earlier timeline is lost when somebody mends that.
    #[tokio::test]
    async fn a_new_timeline_ends_the_connections_to_the_earlier_one() {
        let latest = Latest::default();
        let (one, two, three) = (connection(), connection(), connection());
        let admit = |found, driver: &tokio::task::JoinHandle<()>| {
            latest.admit("host", found, &driver.abort_handle())
        };
        admit(Some(history("a", 1)), &one).unwrap();
        admit(Some(history("a", 2)), &two).unwrap();
        assert!(one.await.unwrap_err().is_cancelled());
        assert!(!two.is_finished());
        let refused = admit(Some(history("a", 1)), &three).unwrap_err();
        assert!(
            matches!(
                refused,
                OpenError::OldTimeline {
                    found: 1,
                    known: 2,
                    ..
                }
            ),
            "{refused}"
        );
        admit(Some(history("a", 2)), &three).unwrap();
        assert!(!two.is_finished() && !three.is_finished());
    }

    #[tokio::test]
    async fn another_server_is_refused_and_one_that_does_not_say() {
        let latest = Latest::default();
        let driver = connection().abort_handle();
        latest.admit("host", None, &driver).unwrap();
        latest
            .admit("host", Some(history("a", 1)), &driver)
            .unwrap();
        for other in [Some(history("b", 7)), None] {
            let refused = latest.admit("host", other, &driver).unwrap_err();
            assert!(
                matches!(refused, OpenError::OtherServer { .. }),
                "{refused}"
            );
        }
    }
}
