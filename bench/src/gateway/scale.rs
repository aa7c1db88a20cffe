//! What a new request costs when many keys are stored, and when many connections are open.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use onlyonce_store::Store;
use onlyonce_store_embedded::{EmbeddedOptions, EmbeddedStore};

use crate::gateway::load::{Exchange, idle, measure};
use crate::gateway::servers::Gateway;
use crate::gateway::table::Contestant;
use crate::gateway::{Effort, fresh};
use crate::machine::{folder_bytes, now, open_files_max};
use crate::process::Process;
use crate::records::{completed, id};

/// The small store that the large one is compared with.
const FEW_KEYS: u64 = 10_000;

/// Stored answers: small, so that millions of keys fit on a disk.
const BODY_BYTES: usize = 100;

/// Connections that are open and ask for nothing.
const IDLE: [(&str, usize); 2] = [
    ("10 idle connections", 10),
    ("2,000 idle connections", 2_000),
];

pub(crate) fn run(
    binary: &Path,
    upstream: &Process,
    path: &Path,
    effort: Effort,
    keys: u64,
    next: &Rc<Cell<u64>>,
) {
    println!("\nthe cost of a new request, {FEW_KEYS} and {keys} keys stored before");
    let start = |keys| {
        let store = fill(path, keys);
        let gateway = Gateway::new(binary, upstream, &store).start(path).unwrap();
        println!(
            "  {keys:>9} keys: {:>6.0} MB on disk, {:>6.1} MB in memory after the start",
            folder_bytes(&store) as f64 / 1e6,
            gateway.resident_bytes() as f64 / 1e6
        );
        gateway
    };
    let (few, many) = (start(FEW_KEYS), start(keys));
    let exchange = |gateway: &Process| fresh(gateway.port, "/payments", next);
    let mut both = [
        Contestant::new("few keys", exchange(&few), &few).before(upstream),
        Contestant::new("many keys", exchange(&many), &many).before(upstream),
    ];
    for _ in 0..effort.rounds {
        for one in &mut both {
            one.round(|one| load(one, effort));
        }
    }
    print(&both, Some("≤ 1.20"));
    drop(both);
    drop(many);
    idle_connections(upstream, &few, &exchange(&few), effort);
}

fn idle_connections(upstream: &Process, gateway: &Process, exchange: &Exchange, effort: Effort) {
    println!("\nthe cost of a new request while other connections are open");
    let needed = IDLE
        .iter()
        .map(|(_, count)| count + effort.connections + 100);
    if needed.max() > Some(open_files_max()) {
        println!("not measured here: too few open files allowed; try: ulimit -n 8192");
        return;
    }
    let mut all =
        IDLE.map(|(name, _)| Contestant::new(name, exchange.clone(), gateway).before(upstream));
    for _ in 0..effort.rounds {
        for (one, (_, count)) in all.iter_mut().zip(IDLE) {
            let open = idle(&one.exchange, count);
            one.round(|one| load(one, effort));
            drop(open);
        }
    }
    print(&all, None);
}

fn load(one: &Contestant<'_>, effort: Effort) -> crate::gateway::load::Measured {
    let (servers, behind) = (&one.servers, &one.behind);
    measure(
        &one.exchange,
        effort.connections,
        effort.length,
        servers,
        behind,
    )
}

fn print(both: &[Contestant<'_>; 2], target: Option<&str>) {
    println!(
        "{:<28} {:>10} {:>8} {:>8} {:>8} {:>10} {:>7}",
        "", "requests/s", "p50 ms", "p99 ms", "CPU µs", "memory MB", "errors"
    );
    for one in both {
        println!(
            "{:<28} {:>10.0} {:>8.2} {:>8.2} {:>8.1} {:>10.1} {:>7}",
            one.name,
            one.middle(|round| round.rate),
            one.middle(|round| round.p50_us) / 1e3,
            one.middle(|round| round.p99_us) / 1e3,
            one.middle(|round| round.cpu_us),
            one.resident_bytes() / 1e6,
            one.errors()
        );
    }
    let [less, more] = both;
    println!(
        "{:<28} {:>10.2} {:>8} {:>8} {:>8.2} {:>10.2}   {}",
        "ratio",
        more.ratio(less, |round| round.rate),
        "",
        "",
        more.ratio(less, |round| round.cpu_us),
        more.resident_bytes() / less.resident_bytes(),
        target.map_or(String::new(), |target| format!("target for CPU {target}"))
    );
}

/// A store with this many completed keys, written through the store itself.
fn fill(path: &Path, keys: u64) -> PathBuf {
    let folder = path.join(format!("store-{keys}"));
    let store = EmbeddedStore::open(&EmbeddedOptions::new(&folder)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (next, started) = (Arc::new(AtomicU64::new(0)), now());
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    runtime.block_on(async {
        // A folder with keys and without the secret that they were hashed with is refused.
        store.secret([7; 32]).await.unwrap();
        let tasks: Vec<_> = (0..1024)
            .map(|_| {
                let (store, next, body) = (store.clone(), Arc::clone(&next), body.clone());
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= keys {
                            return;
                        }
                        let record = completed(store.now().await.unwrap(), &body);
                        let _ = store.swap(&id(number), None, Some(&record)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    println!(
        "  {keys:>9} keys filled in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    folder
}
