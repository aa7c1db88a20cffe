//! The HTTP suite against the binary with its defaults.

use onlyonce_conformance::http_suite::{Target, Upstream};

use crate::kit::{Named, Setup};

async fn start() -> Target {
    let upstream = Upstream::new();
    let gateway = Setup::new(Named::serve(&upstream).await).start().await;
    Target::new(gateway.address, upstream).keep(gateway)
}

onlyonce_conformance::http_suite!(start);
