//! The dashboard's files, in the binary: no build step, no other server.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Code;

const HTML: &str = "text/html; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, content type and bytes of each file.
macro_rules! files {
    ($($kind:ident: $name:literal),* $(,)?) => {
        &[$(($name, $kind, include_bytes!(concat!("../assets/", $name)))),*]
    };
}

/// Every file of the folder `assets`; a test holds the list to it.
const ASSETS: &[(&str, &str, &[u8])] = files![
    HTML: "index.html",
    STYLE: "base.css",
    STYLE: "parts.css",
    STYLE: "views.css",
    SCRIPT: "actions.js",
    SCRIPT: "api.js",
    SCRIPT: "app.js",
    SCRIPT: "chart.js",
    SCRIPT: "dialog.js",
    SCRIPT: "dom.js",
    SCRIPT: "format.js",
    SCRIPT: "keyboard.js",
    SCRIPT: "list.js",
    SCRIPT: "overview-parts.js",
    SCRIPT: "poll.js",
    SCRIPT: "session.js",
    SCRIPT: "shell.js",
    SCRIPT: "theme.js",
    SCRIPT: "timeline.js",
    SCRIPT: "token.js",
    SCRIPT: "ui.js",
    SCRIPT: "view-audit.js",
    SCRIPT: "view-config.js",
    SCRIPT: "view-key.js",
    SCRIPT: "view-keys.js",
    SCRIPT: "view-overview.js",
    SCRIPT: "view-queues.js",
    PICTURE: "favicon.svg",
];

/// The page itself.
pub(crate) async fn page() -> Response {
    file("index.html")
}

/// One of its files.
pub(crate) async fn asset(name: Result<Path<String>, PathRejection>) -> Response {
    file(&name.map(|Path(name)| name).unwrap_or_default())
}

fn file(name: &str) -> Response {
    let found = ASSETS.iter().find(|(other, ..)| *other == name);
    let Some((_, kind, bytes)) = found else {
        let problem = Code::NotFound.because("the dashboard has no such file");
        return problem.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        // A new version of the gateway brings new files under the same names.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, *bytes).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A file that is not in the list is a dashboard that does not load.
    #[test]
    fn every_file_of_the_dashboard_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<_> = files.collect();
        let served = ASSETS.iter().map(|(name, ..)| (*name).to_owned());
        assert_eq!(files, served.collect());
    }
}
