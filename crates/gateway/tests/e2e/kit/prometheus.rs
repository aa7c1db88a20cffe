//! A real Prometheus, from Debian's package, that reads one gateway.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use onlyonce_conformance::servers::{Process, free_port};
use serde_json::Value;
use tempfile::TempDir;

use super::{Call, send_to};

/// A file of `ops/`.
pub(crate) fn ops(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("ops").join(name).canonicalize().expect("a file")
}

/// It listens before it can answer.
fn is_ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(b"GET /-/ready HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(answer.starts_with(b"HTTP/1.0 200"))
}

/// A server with the shipped rules. Killed when dropped.
pub(crate) struct Prometheus {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that looks every second.
    pub(crate) fn start(gateway: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [ \"{}\" ]\n\
             scrape_configs: [ {{ job_name: onlyonce, static_configs: [ {{ targets: [ \"{}\" ] }} ] }} ]\n",
            ops("prometheus/rules.yml").display(),
            gateway,
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("a file");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        let log = folder.path().join("log");
        let ready = || is_ready(address).unwrap_or(false);
        let process = Process::start(&mut command, "prometheus", &log, ready);
        Self {
            address,
            _process: process,
            _folder: folder,
        }
    }

    /// What its HTTP API says; an error is a failed test.
    pub(crate) async fn ask(&self, path: &str) -> Value {
        let answer = send_to(self.address, &Call::new(Method::GET, path)).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let answer: Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// What an expression is now.
    pub(crate) async fn query(&self, expression: &str) -> Vec<Value> {
        let encoded = expression.bytes().fold(String::new(), |mut text, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
            text
        });
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).await;
        data["result"].as_array().expect("a vector").clone()
    }
}
