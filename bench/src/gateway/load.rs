//! The load: a fixed number of connections, each with one request at a time, from one thread.
//!
//! A closed loop never asks for more than a server can give, so rates are what the server takes
//! and latencies are those at full load. The share of a processor that the generator itself uses
//! is reported: near 1 it is the generator that is measured.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::gateway::wire::{Answer, Request};
use crate::machine::{now, processor_time};
use crate::process::Process;

/// Before the measurement begins: connections are opened, pools and caches filled.
const WARM_UP: Duration = Duration::from_millis(400);

/// How long a server may take for one answer while it is prepared.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which keys are sent.
#[derive(Clone)]
pub(crate) struct Keys {
    next: Rc<Cell<u64>>,
    /// How many there are before they begin anew; none means that no key comes twice.
    cycle: Option<u64>,
}

impl Keys {
    /// Keys that nobody has used.
    pub(crate) fn new_ones(next: &Rc<Cell<u64>>) -> Self {
        Self {
            next: Rc::clone(next),
            cycle: None,
        }
    }

    /// The first `count` keys, again and again.
    pub(crate) fn the_first(count: u64) -> Self {
        Self {
            next: Rc::default(),
            cycle: Some(count),
        }
    }

    fn next(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.cycle.map_or(number, |cycle| number % cycle)
    }
}

/// What is asked of a server, and what it must answer.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) port: u16,
    pub(crate) request: Request,
    pub(crate) keys: Keys,
    pub(crate) expected: Answer,
}

/// What one round came to.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) rate: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the server per request.
    pub(crate) cpu_us: f64,
    /// The same with what is behind the server.
    pub(crate) cpu_all_us: f64,
    pub(crate) resident_bytes: u64,
    /// Failed, or answered with anything else than expected; warm-up included.
    pub(crate) errors: u64,
    /// The share of one processor that the generator used.
    pub(crate) generator: f64,
}

#[derive(Default)]
struct Tally {
    measuring: Cell<bool>,
    over: Cell<bool>,
    latencies_us: RefCell<Vec<u32>>,
    errors: Cell<u64>,
}

/// Loads a server for a while. `behind` is what the server itself relies on.
pub(crate) fn measure(
    exchange: &Exchange,
    connections: usize,
    length: Duration,
    servers: &[&Process],
    behind: &[&Process],
) -> Measured {
    let tally = Rc::new(Tally::default());
    let time = |processes: &[&Process]| -> Duration {
        processes.iter().map(|one| one.processor_time()).sum()
    };
    let (elapsed, cpu, cpu_behind, own) = on_one_thread(async {
        let tasks: Vec<_> = (0..connections)
            .map(|_| tokio::task::spawn_local(converse(exchange.clone(), Rc::clone(&tally))))
            .collect();
        tokio::time::sleep(WARM_UP).await;
        let before = (time(servers), time(behind), processor_time());
        let started = now();
        tally.measuring.set(true);
        tokio::time::sleep(length).await;
        tally.measuring.set(false);
        let elapsed = started.elapsed();
        let after = (time(servers), time(behind), processor_time());
        tally.over.set(true);
        for task in tasks {
            task.await.unwrap();
        }
        (
            elapsed,
            after.0.saturating_sub(before.0),
            after.1.saturating_sub(before.1),
            after.2.saturating_sub(before.2),
        )
    });
    let mut latencies = tally.latencies_us.take();
    latencies.sort_unstable();
    let count = latencies.len().max(1) as f64;
    let at = |share: usize| latencies.get(latencies.len() * share / 100).copied();
    let micros = |time: Duration| time.as_micros() as f64;
    Measured {
        rate: latencies.len() as f64 / elapsed.as_secs_f64(),
        p50_us: at(50).map_or(f64::NAN, f64::from),
        p99_us: at(99).map_or(f64::NAN, f64::from),
        cpu_us: micros(cpu) / count,
        cpu_all_us: micros(cpu + cpu_behind) / count,
        resident_bytes: servers.iter().map(|server| server.resident_bytes()).sum(),
        errors: tally.errors.get(),
        generator: own.as_secs_f64() / elapsed.as_secs_f64(),
    }
}

/// Sends the exchange `count` times, to bring a server into a state.
///
/// # Errors
/// With what it answered, if that is not what is expected.
pub(crate) fn prepare(exchange: &Exchange, count: u64) -> Result<(), String> {
    on_one_thread(async {
        let left = Rc::new(Cell::new(count));
        let tasks: Vec<_> = (0..64)
            .map(|_| tokio::task::spawn_local(send(exchange.clone(), Rc::clone(&left))))
            .collect();
        for task in tasks {
            task.await.unwrap()?;
        }
        Ok(())
    })
}

/// One connection, until nothing is left to send.
async fn send(mut exchange: Exchange, left: Rc<Cell<u64>>) -> Result<(), String> {
    let stream = connect(exchange.port).await;
    let mut stream = stream.map_err(|error| format!("no connection ({error})"))?;
    let mut buffer = Vec::with_capacity(4096);
    while left.get() > 0 {
        left.set(left.get() - 1);
        let answer = once(&mut exchange, &mut stream, &mut buffer);
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let answer = answer.unwrap_or(Err("nothing, for too long"));
        if answer != Ok(exchange.expected) {
            return Err(format!("{answer:?} instead of {:?}", exchange.expected));
        }
    }
    Ok(())
}

/// Connections that have had one answer and ask for nothing more.
pub(crate) fn idle(exchange: &Exchange, count: usize) -> Vec<std::net::TcpStream> {
    on_one_thread(async {
        let mut open = Vec::with_capacity(count);
        let (mut exchange, mut buffer) = (exchange.clone(), Vec::new());
        for _ in 0..count {
            let mut stream = connect(exchange.port).await.unwrap();
            let answer = once(&mut exchange, &mut stream, &mut buffer).await;
            assert_eq!(answer.unwrap(), exchange.expected);
            open.push(stream.into_std().unwrap());
        }
        open
    })
}

fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, future)
}

/// One connection, until the time is over; another one after an error.
async fn converse(mut exchange: Exchange, tally: Rc<Tally>) {
    let mut buffer = Vec::with_capacity(4096);
    while !tally.over.get() {
        let Ok(mut stream) = connect(exchange.port).await else {
            tally.errors.set(tally.errors.get() + 1);
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        while !tally.over.get() {
            let started = now();
            let answer = once(&mut exchange, &mut stream, &mut buffer).await;
            if answer != Ok(exchange.expected) {
                tally.errors.set(tally.errors.get() + 1);
                break;
            }
            if tally.measuring.get() {
                let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
                tally.latencies_us.borrow_mut().push(micros);
            }
        }
    }
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn once(
    exchange: &mut Exchange,
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> Result<Answer, &'static str> {
    let number = exchange.keys.next();
    let request = exchange.request.with_key(number);
    stream.write_all(request).await.map_err(|_| "write")?;
    buffer.clear();
    loop {
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return Err("the connection ended"),
            Ok(_) => {}
        }
        match Answer::read(buffer)? {
            Some((answer, end)) if end == buffer.len() => return Ok(answer),
            Some(_) => return Err("more than one answer"),
            None => {}
        }
    }
}
