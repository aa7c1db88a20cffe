//! The gateway of the demonstration: the real one, on free ports, with its defaults and one probe:
//! what became of an order whose answer was lost is asked of the API's own book.

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

/// Starts a gateway in front of `upstream`, with its store and its configuration under `folder`.
/// No environment: everybody sees the same demonstration.
pub(crate) async fn start(upstream: SocketAddr, folder: &Path) -> Result<RunningGateway, String> {
    let file = folder.join("onlyonce.toml");
    std::fs::write(&file, configuration(upstream))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let overrides = Overrides {
        upstream: vec![format!("http://{upstream}")],
        listen: Some(FREE_PORT.into()),
        admin: Some(FREE_PORT.into()),
        store: Some(format!("embedded:{}", folder.join("store").display())),
        ..Overrides::default()
    };
    let config = Config::load(Some(&file), std::iter::empty(), overrides);
    let gateway = Gateway::start(config.map_err(|errors| errors.to_string())?).await?;
    Ok(RunningGateway {
        address: gateway.address,
        admin: gateway.admin,
        gateway,
    })
}

/// The first question comes late enough to see an unknown outcome on the dashboard, and soon enough
/// for a client that waits.
fn configuration(upstream: SocketAddr) -> String {
    format!(
        r#"# The configuration of `onlyonce demo`.
[[route]]
name = "payments"
path = "/payments"
probe = "payments"
reconcile_delay = "2s"

# The order is in the request; the API tells whether it was charged. It must be the same order, or
# the answer is about somebody else's.
[[probe]]
name = "payments"
url = "http://{upstream}/payments/{{body:/order}}"
completed = [{{ status = "200", pointer = "/id" }}]
not_found = [{{ status = "404" }}]
about = {{ pointer = "/order", value = "{{body:/order}}" }}
response = {{ status = 201 }}
"#
    )
}
