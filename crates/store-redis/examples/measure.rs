//! scratch
use onlyonce_conformance::suite::samples::{at, completed, executing, id};
use onlyonce_store::{Store, Swap};
use onlyonce_store_redis::*;
use std::sync::Arc;
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let pairs: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let base: u64 = std::process::id() as u64 * 1_000_000;
    let store = Arc::new(
        RedisStore::open(&RedisOptions::from_url(&url).unwrap())
            .await
            .unwrap(),
    );
    let t = std::time::Instant::now();
    let mut js = vec![];
    for c in 0..64u64 {
        let s = store.clone();
        js.push(tokio::spawn(async move {
            let mut v = vec![];
            for n in 0..pairs / 64 {
                let i = id(base + c * 1_000_000_000 + n);
                let Swap::Won(x) = s
                    .swap(&i, None, Some(&executing(1, at(5000))))
                    .await
                    .unwrap()
                else {
                    panic!()
                };
                v.push((i, x));
            }
            v
        }));
    }
    let mut all = vec![];
    for j in js {
        all.push(j.await.unwrap());
    }
    let d = t.elapsed();
    println!("claims/s {:.0}", pairs as f64 / d.as_secs_f64());
    let t = std::time::Instant::now();
    let mut js = vec![];
    for v in all {
        let s = store.clone();
        js.push(tokio::spawn(async move {
            for (i, x) in &v {
                let Swap::Won(_) = s
                    .swap(i, Some(*x), Some(&completed(1, vec![1u8; 1024])))
                    .await
                    .unwrap()
                else {
                    panic!()
                };
            }
            v
        }));
    }
    let mut all = vec![];
    for j in js {
        all.push(j.await.unwrap());
    }
    println!(
        "completions/s {:.0}",
        pairs as f64 / t.elapsed().as_secs_f64()
    );
    let t = std::time::Instant::now();
    let mut js = vec![];
    for v in all {
        let s = store.clone();
        js.push(tokio::spawn(async move {
            for (i, _) in &v {
                let Swap::Lost(Some(_)) = s
                    .swap(i, None, Some(&executing(1, at(5000))))
                    .await
                    .unwrap()
                else {
                    panic!()
                };
            }
        }));
    }
    for j in js {
        j.await.unwrap();
    }
    println!("replays/s {:.0}", pairs as f64 / t.elapsed().as_secs_f64());
}
