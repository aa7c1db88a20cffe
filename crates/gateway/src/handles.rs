//! File handles: as many as the limits need.
//!
//! Every client's connection takes one, every request at the upstream may take another, and so do the
//! files of a store. Shells and service managers commonly allow a process 1,024, and far more if it
//! asks.

use crate::config::Config;

/// What is kept for the store, the admin side, and everything else.
const SPARE: u64 = 1024;

/// Asks for as many as the limits need, and warns where there are fewer.
pub(crate) fn raise(config: &Config) {
    let limits = &config.limits;
    let asking = config.principal.auth_check.as_ref().map(|_| limits.passing);
    let wanted = [limits.connections, limits.executions, limits.passing]
        .into_iter()
        .chain(asking)
        .map(|limit| u64::try_from(limit).unwrap_or(u64::MAX))
        .fold(SPARE, u64::saturating_add);
    if let Some(allowed) = raised_to(wanted).filter(|allowed| *allowed < wanted) {
        tracing::warn!(
            allowed,
            wanted,
            "fewer file handles than limits.connections, executions and passing may need together: \
             raise the hard limit (ulimit -Hn, LimitNOFILE), or lower the limits"
        );
    }
}

/// How many there are after asking; none where that cannot be told or is not limited.
#[cfg(target_os = "linux")]
fn raised_to(wanted: u64) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let now = getrlimit(Resource::Nofile);
    let allowed = now.current?;
    let current = now.maximum.map_or(wanted, |most| wanted.min(most));
    if current <= allowed {
        return Some(allowed);
    }
    let asked = Rlimit {
        current: Some(current),
        maximum: now.maximum,
    };
    Some(setrlimit(Resource::Nofile, asked).map_or(allowed, |()| current))
}

#[cfg(not(target_os = "linux"))]
fn raised_to(_wanted: u64) -> Option<u64> {
    None
}
