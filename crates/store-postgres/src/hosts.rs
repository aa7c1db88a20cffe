//! The servers that the URL names, and which of them is tried first.
//!
//! Each is tried by itself and with a limit of its own, so that one that is silent does not stand
//! before the others. The one that worked last is the first to be tried.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode as Mode};

use crate::options::{PostgresOptions, SslMode};

/// When the system asks whether the other side of a quiet connection is still there. The default
/// of two hours is longer than a firewall remembers it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// All of them.
pub(crate) struct Hosts {
    hosts: Vec<Server>,
    /// The next attempt begins with this one.
    first: AtomicUsize,
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) index: usize,
    host: Host,
    port: u16,
    /// Everything but the host.
    config: Config,
}

impl Hosts {
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        let common = without_host(options);
        let config = &options.config;
        let ports = config.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let hosts = config.get_hosts().iter().enumerate();
        let hosts = hosts.map(|(index, host)| Server {
            index,
            host: host.clone(),
            port: port(index),
            config: common.clone(),
        });
        Self {
            hosts: hosts.collect(),
            first: AtomicUsize::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Each once, beginning with the one that worked last.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = &Server> {
        let first = self.first.load(Ordering::Relaxed) % self.len().max(1);
        let (later, sooner) = self.hosts.split_at(first.min(self.len()));
        sooner.iter().chain(later)
    }

    pub(crate) fn worked(&self, index: usize) {
        self.first.store(index, Ordering::Relaxed);
    }

    /// Another one is first, unless that was decided already. A caller that goes away in the
    /// middle of an attempt then does not make the next one begin with the same silence.
    pub(crate) fn failed(&self, index: usize) {
        let next = (index + 1) % self.len().max(1);
        let relaxed = Ordering::Relaxed;
        let _ = self.first.compare_exchange(index, next, relaxed, relaxed);
    }
}

impl Server {
    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        match &self.host {
            Host::Tcp(name) => format!("{name}:{}", self.port),
            Host::Unix(path) => path.display().to_string(),
        }
    }

    /// One for each of its addresses.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<Config>> {
        let name = match &self.host {
            Host::Tcp(name) => name,
            Host::Unix(path) => {
                let mut config = self.config.clone();
                config.host_path(path).port(self.port);
                return Ok(vec![config]);
            }
        };
        let mut addresses: Vec<IpAddr> = Vec::new();
        for found in tokio::net::lookup_host((name.as_str(), self.port)).await? {
            if !addresses.contains(&found.ip()) {
                addresses.push(found.ip());
            }
        }
        let at = |address| {
            let mut config = self.config.clone();
            // The name is what its certificate is for.
            config.host(name).hostaddr(address).port(self.port);
            config
        };
        Ok(addresses.into_iter().map(at).collect())
    }
}

/// What the URL and the options say about every host.
fn without_host(options: &PostgresOptions) -> Config {
    let config = &options.config;
    let mut common = Config::new();
    if let Some(user) = config.get_user() {
        common.user(user);
    }
    if let Some(password) = config.get_password() {
        common.password(password);
    }
    if let Some(database) = config.get_dbname() {
        common.dbname(database);
    }
    if let Some(name) = config.get_application_name() {
        common.application_name(name);
    }
    common.ssl_mode(match options.sslmode {
        SslMode::Disable => Mode::Disable,
        SslMode::Prefer => Mode::Prefer,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Mode::Require,
    });
    // The system ends a connection whose other side is silent, also one that waits for nothing.
    common.tcp_user_timeout(options.patience());
    common.keepalives_idle(KEEPALIVE_IDLE);
    common.keepalives_interval(KEEPALIVE_INTERVAL);
    common.keepalives_retries(KEEPALIVE_RETRIES);
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(hosts: &Hosts) -> Vec<usize> {
        hosts.in_turn().map(|server| server.index).collect()
    }

    #[test]
    fn the_one_that_worked_last_is_first_until_it_fails() {
        let options = PostgresOptions::from_url("postgres://me@a,b,c/db").unwrap();
        let hosts = Hosts::new(&options);
        assert_eq!(order(&hosts), [0, 1, 2]);
        hosts.worked(1);
        assert_eq!(order(&hosts), [1, 2, 0]);
        // Somebody else was still trying an earlier one.
        hosts.failed(0);
        assert_eq!(order(&hosts), [1, 2, 0]);
        hosts.failed(1);
        hosts.failed(2);
        assert_eq!(order(&hosts), [0, 1, 2]);
    }
}
