//! The gateway of the demonstration: the real one, with its defaults, on free ports.

use std::net::SocketAddr;
use std::path::Path;

use crate::config::{Config, Overrides};
use crate::serve::Gateway;

/// Any free port of this machine.
const FREE_PORT: &str = "127.0.0.1:0";

/// A gateway that accepts connections.
pub(crate) struct RunningGateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    gateway: Gateway,
}

impl RunningGateway {
    /// Lets what runs finish, then closes the store.
    pub(crate) async fn stop(self) {
        self.gateway.stop().await;
    }
}

/// Starts a gateway in front of `upstream`, with its store under `folder`. No file and no
/// environment: everybody sees the same demonstration.
pub(crate) async fn start(upstream: SocketAddr, folder: &Path) -> Result<RunningGateway, String> {
    let overrides = Overrides {
        upstream: vec![format!("http://{upstream}")],
        listen: Some(FREE_PORT.into()),
        admin: Some(FREE_PORT.into()),
        store: Some(format!("embedded:{}", folder.join("store").display())),
        ..Overrides::default()
    };
    let config = Config::load(None, std::iter::empty(), overrides);
    let gateway = Gateway::start(config.map_err(|errors| errors.to_string())?).await?;
    Ok(RunningGateway {
        address: gateway.address,
        admin: gateway.admin,
        gateway,
    })
}
