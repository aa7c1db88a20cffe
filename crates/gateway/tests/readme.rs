//! The README keeps its word: its commands are run, and its code is the code that is tested.
//!
//! In the `sh` block behind the comment that names this file, comments below a command are lines
//! that it prints; `…` stands for what was left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test speaks"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

const README: &str = include_str!("../../../README.md");
const LAYER: &str = include_str!("../../http/src/lib.rs");
const GUARD: &str = include_str!("../../engine/src/guard.rs");

/// The fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let rest = text.split(&fence).skip(1);
    rest.filter_map(|rest| rest.split("```").next()).collect()
}

/// The README's API: every POST is a payment.
fn start_api() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (payment, stream) in (1..).zip(listener.incoming()) {
            answer(&stream.unwrap(), payment);
        }
    });
    address
}

fn answer(stream: &TcpStream, payment: usize) {
    let mut reader = BufReader::new(stream);
    let mut body_bytes = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; body_bytes]).unwrap();
    let body = format!("{{\"payment\":{payment}}}\n");
    let head = "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length:";
    let mut writer = stream;
    write!(writer, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
}

/// The gateway as the README starts it, but on free ports and in a folder that goes away.
struct Gateway {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Gateway {
    fn start(api: SocketAddr) -> Self {
        let (_, arguments) = README.split_once("\ncargo run --release -- serve").unwrap();
        let arguments = arguments.lines().next().unwrap();
        let arguments = arguments.replace("127.0.0.1:9000", &api.to_string());
        let folder = tempfile::tempdir().unwrap();
        let store = format!("embedded:{}", folder.path().join("data").display());
        let free = "127.0.0.1:0";
        let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .arg("serve")
            .args(arguments.split_whitespace())
            .args(["--listen", free, "--admin", free, "--store", &store])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut announced = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut announced).unwrap();
        let address = announced.split("http://").nth(1).expect(&announced);
        let address = address.split(' ').next().unwrap().to_owned();
        Self {
            process,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Whether some line of the output has the parts of `line` around `…`, in order.
fn prints(output: &str, line: &str) -> bool {
    let has_all = |printed| {
        let mut parts = line.split('…');
        parts.try_fold(printed, |rest: &str, part| Some(rest.split_once(part)?.1))
    };
    output.lines().any(|printed| has_all(printed).is_some())
}

#[test]
fn the_commands_print_what_the_readme_says() {
    let (_, marked) = README.split_once("tests/readme.rs runs this").unwrap();
    let gateway = Gateway::start(start_api());
    let block = blocks(marked, "sh").remove(0);
    let block = block.replace("127.0.0.1:8080", &gateway.address);
    let (function, commands) = block.split_once("\n\n").unwrap();
    let (mut output, mut ran, mut compared) = (String::new(), 0, 0);
    for line in commands.lines() {
        if let Some(expected) = line.strip_prefix("# ") {
            assert!(prints(&output, expected), "{expected}\nis not in\n{output}");
            compared += 1;
            continue;
        }
        let shell = Command::new("sh")
            .args(["-c", &format!("{function}\n{line}")])
            .env("no_proxy", "*")
            .output()
            .expect("a shell");
        assert!(shell.status.success(), "{line}: {shell:?}");
        output = String::from_utf8(shell.stdout).unwrap();
        ran += 1;
    }
    assert_eq!((ran, compared), (4, 9));
}

/// Examples are copied from the README more often than from anywhere else.
#[test]
fn the_code_is_that_of_the_documentation_which_is_tested() {
    let shown = |source: &str| -> String {
        let lines = source.lines().filter_map(|line| line.strip_prefix("//!"));
        let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let shown = lines.filter(|line| !line.starts_with("# "));
        shown.flat_map(|line| [line, "\n"]).collect()
    };
    let code = blocks(README, "rust");
    assert_eq!(code.len(), 2);
    for (code, source) in code.iter().zip([LAYER, GUARD]) {
        assert!(shown(source).contains(code), "not in the docs:\n{code}");
    }
}
