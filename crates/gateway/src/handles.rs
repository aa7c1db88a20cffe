//! File handles: as many as the limits need.
//!
//! Every client's connection takes one, a connection to the upstream for it another, and so do the
//! files of a store. Shells and service managers commonly allow a process 1,024, and far more if it
//! asks.

use crate::config::Config;

/// What is kept for the store, the admin side, and everything else.
const SPARE: u64 = 1024;

/// Asks for as many as the limits need, and warns where there are fewer.
pub(crate) fn raise(config: &Config) {
    let connections = u64::try_from(config.limits.connections).unwrap_or(u64::MAX);
    let wanted = connections.saturating_mul(2).saturating_add(SPARE);
    if let Some(allowed) = raised_to(wanted).filter(|allowed| *allowed < wanted) {
        tracing::warn!(
            allowed,
            wanted,
            "fewer file handles than limits.connections may need: raise the hard limit (ulimit -Hn, \
             LimitNOFILE), or lower limits.connections"
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
