//! The HTTP suite against the binary with its defaults.

use onlyonce_conformance::http_suite::{Target, Upstream, serve};

use crate::kit::Setup;

async fn start() -> Target {
    let upstream = Upstream::new();
    let gateway = Setup::new(serve(upstream.clone()).await).start().await;
    Target::new(gateway.address, upstream).keep(gateway)
}

onlyonce_conformance::http_suite!(start);
