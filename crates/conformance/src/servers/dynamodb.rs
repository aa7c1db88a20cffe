//! A DynamoDB-compatible server: [dynoxide](https://crates.io/crates/dynoxide-rs), in memory.
//!
//! It has conditional writes that return the old item, indexes in order, paging, the limit of
//! 400 KiB for an item, and the description of an item's end. It is always consistent, throttles
//! nobody and deletes nothing by itself: tests that need that bring it about themselves.
//!
//! `scripts/dynamodb-server` builds it once, into the target folder.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{Process, free_port};

/// Built and tested with this one.
const VERSION: &str = "3.2.0";

/// A server in memory, on a port of its own. Killed when dropped.
#[derive(Debug)]
pub struct DynamoDb {
    /// The process.
    pub process: Process,
    port: u16,
    _folder: TempDir,
}

impl DynamoDb {
    /// Starts one. Takes a few milliseconds.
    ///
    /// # Panics
    /// When it is not built, or does not answer.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let address = (Ipv4Addr::LOCALHOST, port);
        let mut command = Command::new(binary());
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let process = Process::start(
            &mut command,
            "it with scripts/dynamodb-server",
            &folder.path().join("log"),
            || TcpStream::connect(address).is_ok(),
        );
        Self {
            process,
            port,
            _folder: folder,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// Where `scripts/dynamodb-server` puts it: the target folder that this test runs from.
fn binary() -> PathBuf {
    let name = format!("servers/dynoxide-{VERSION}/bin/dynoxide");
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.ancestors().map(|folder| folder.join(&name));
    let built = built.into_iter().find(|path| path.is_file());
    built.unwrap_or_else(|| Path::new("dynoxide").to_path_buf())
}
