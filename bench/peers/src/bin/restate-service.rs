//! The benchmark's handler as a service of Restate, which calls it once for each key.
#![expect(clippy::unused_async, reason = "Restate's handlers are asynchronous")]

use std::convert::Infallible;

use axum::body::Bytes;
use onlyonce_bench_peers::{ANSWER, serve};
use restate_sdk::prelude::*;

struct Payments;

#[service]
impl Payments {
    #[handler]
    async fn pay(&self, _: Context<'_>, _: Bytes) -> Result<Bytes, Infallible> {
        Ok(Bytes::from_static(&ANSWER))
    }
}

fn main() {
    let endpoint = Endpoint::builder().bind(Payments).build();
    serve(|address| HttpServer::new(endpoint).listen_and_serve(address));
}
