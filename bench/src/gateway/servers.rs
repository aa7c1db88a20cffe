//! How each server is started: plainly, with logs off and connections kept alive.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, free_port};
use crate::redis::Redis;

/// Answers of the static file and of the handlers: 1 KB.
pub(crate) const ANSWER_BYTES: usize = 1024;

/// A folder for one server.
pub(crate) fn folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The handler that everything stands in front of: this program, in a process of its own.
pub(crate) fn upstream(parent: &Path) -> Process {
    let port = free_port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["serve-handler", "--port", &port.to_string()]);
    Process::start(&mut command, port, &parent.join("handler.log")).unwrap()
}

/// The usual recipe, written by hand: the same handler behind `SET NX` in a durable Redis.
pub(crate) fn redis_peer(parent: &Path) -> Result<(Process, Redis), String> {
    let redis = Redis::start(&folder(parent, "redis"))?;
    let port = free_port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["serve-redis-peer", "--port", &port.to_string()])
        .args(["--redis", &redis.server.port.to_string()]);
    let peer = Process::start(&mut command, port, &parent.join("redis-peer.log"))?;
    Ok((peer, redis))
}

/// Routes of a gateway: `/open` merely passes, `/payments` is guarded.
const ROUTES: &str = r#"
[[route]]
path = "/open"
mode = "off"

[[route]]
path = "/payments"
"#;

/// Routes of a gateway that guards nothing.
pub(crate) const ALL_PASSES: &str = r#"
[[route]]
path = "/{*rest}"
mode = "off"
"#;

/// A gateway that is to be started.
pub(crate) struct Gateway<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) upstream: String,
    pub(crate) store: String,
    pub(crate) routes: &'static str,
    /// More of its configuration.
    pub(crate) settings: String,
}

impl<'a> Gateway<'a> {
    /// With its defaults: durable, `fdatasync` before every answer.
    pub(crate) fn new(binary: &'a Path, upstream: &Process, store: &Path) -> Self {
        Self {
            binary,
            upstream: format!("http://127.0.0.1:{}", upstream.port),
            store: format!("embedded:{}", store.display()),
            routes: ROUTES,
            settings: String::new(),
        }
    }

    /// Starts it, with its files in this folder.
    ///
    /// # Errors
    /// With the reason why it does not.
    pub(crate) fn start(&self, parent: &Path) -> Result<Process, String> {
        let (port, admin) = (free_port(), free_port());
        let config = parent.join(format!("onlyonce-{port}.toml"));
        std::fs::write(&config, format!("{}{}", self.settings, self.routes)).unwrap();
        let mut command = Command::new(self.binary);
        command
            .args(["serve", "--config", &config.display().to_string()])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--admin", &format!("127.0.0.1:{admin}")])
            .args(["--upstream", &self.upstream])
            .args(["--store", &self.store, "--migrate"]);
        let log = parent.join(format!("onlyonce-{port}.log"));
        Process::start(&mut command, port, &log)
            .map_err(|why| format!("{why}: cargo build --release first"))
    }
}

/// nginx: a plain proxy, and a file of 1 KB at `/static`. A worker per processor.
pub(crate) fn nginx(upstream: &Process, parent: &Path) -> Result<Process, String> {
    let (port, folder) = (free_port(), folder(parent, "nginx"));
    let root = folder.display();
    std::fs::write(folder.join("static"), "x".repeat(ANSWER_BYTES)).unwrap();
    // Only a root's workers need to be told to stay root, who owns the folder.
    let config = format!(
        "user root;
daemon off;
worker_processes auto;
pid {root}/nginx.pid;
error_log {root}/error.log error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {root}/body;
  proxy_temp_path {root}/proxy;
  fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi;
  scgi_temp_path {root}/scgi;
  upstream handler {{
    server 127.0.0.1:{};
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location = /static {{ root {root}; open_file_cache max=16; }}
    location / {{
      proxy_pass http://handler;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
    }}
  }}
}}
",
        upstream.port
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", &root.to_string(), "-c", &path.display().to_string()]);
    Process::start(&mut command, port, &folder.join("nginx.log"))
        .map_err(|why| format!("{why}: install nginx"))
}

/// haproxy: a plain proxy. A thread per processor.
pub(crate) fn haproxy(upstream: &Process, parent: &Path) -> Result<Process, String> {
    let (port, folder) = (free_port(), folder(parent, "haproxy"));
    let config = format!(
        "global
  maxconn 4000
defaults
  mode http
  timeout client 60s
  timeout connect 3s
  timeout server 60s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  default_backend handler
backend handler
  server one 127.0.0.1:{} pool-max-conn -1
",
        upstream.port
    );
    let path = folder.join("haproxy.cfg");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f", &path.display().to_string()]);
    Process::start(&mut command, port, &folder.join("haproxy.log"))
        .map_err(|why| format!("{why}: install haproxy"))
}
