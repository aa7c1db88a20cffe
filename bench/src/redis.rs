//! The usual recipe: Redis `SET NX`, made as durable as the others with `appendfsync always`.

use std::path::Path;
use std::process::Command;

use crate::process::{Process, free_port};

/// A throwaway Redis server on a free loopback port.
pub(crate) struct Redis {
    pub(crate) server: Process,
}

impl Redis {
    /// Starts one, or says why there is none.
    pub(crate) fn start(folder: &Path) -> Result<Self, String> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always"])
            .args(["--dir", &folder.display().to_string()]);
        let server = Process::start(&mut command, port, &folder.join("redis.log"))
            .map_err(|why| format!("{why}: install redis-server"))?;
        Ok(Self { server })
    }

    /// Claim+complete pairs per second: `SET NX` of 150 bytes, then `SET` of 1 KB.
    pub(crate) fn pairs_per_second(&self, callers: usize) -> f64 {
        let requests = if callers == 1 { 2_000 } else { 30_000 };
        let claim = self.writes_per_second(callers, requests, 150, &["NX", "PX", "15000"]);
        let complete = self.writes_per_second(callers, requests, 1024, &["PX", "86400000"]);
        1.0 / (1.0 / claim + 1.0 / complete)
    }

    fn writes_per_second(
        &self,
        callers: usize,
        requests: u64,
        bytes: usize,
        options: &[&str],
    ) -> f64 {
        let output = Command::new("redis-benchmark")
            .args([
                "-p",
                &self.server.port.to_string(),
                "-c",
                &callers.to_string(),
                "--csv",
            ])
            .args(["-n", &requests.to_string(), "-r", "1000000000"])
            .args(["set", "key:__rand_int__", &"x".repeat(bytes)])
            .args(options)
            .output()
            .expect("redis-benchmark comes with redis-tools");
        // The last line is: "the command","requests per second",…
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().last().unwrap_or_default();
        let rate = line
            .split("\",\"")
            .nth(1)
            .and_then(|rate| rate.parse().ok());
        rate.unwrap_or(f64::NAN)
    }
}
