//! `onlyonce check`: what is wrong with a configuration, and what is allowed but risky.
//!
//! Errors are what `serve` would refuse, also those that show only when files are read.
//! Warnings are choices that somebody may have good reasons for; each says what can happen.

mod probes;
mod routes;

use std::fmt::Write as _;
use std::path::Path;

use crate::config::{Config, ConfigErrors, Finding, Place, Source, StoreUrl};
use crate::{admin, principal, tls};

/// Of callers who are known by the bytes of their credentials.
const REFRESHED: &str = "a refreshed token is another caller, so a retry with a new token runs \
                         again: use \"jwt:CLAIM\", or \"header:NAME\" behind a proxy that verifies";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// What `serve` refuses.
    pub(crate) errors: Vec<Finding>,
    /// What is risky.
    pub(crate) warnings: Vec<Finding>,
}

impl Report {
    /// Whether `serve` would refuse; then the exit code is 1. Warnings alone are 0.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// As text, one finding a line, with a summary at the end.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let kinds = [("error", &self.errors), ("warning", &self.warnings)];
        for (kind, findings) in kinds {
            for finding in findings {
                // Writing to a `String` cannot fail.
                let _ = writeln!(text, "{kind}: {finding}");
            }
        }
        let count = |kind: &str, count: usize| match count {
            1 => format!("1 {kind}"),
            count => format!("{count} {kind}s"),
        };
        let _ = writeln!(
            text,
            "{}, {}",
            count("error", self.errors.len()),
            count("warning", self.warnings.len())
        );
        text
    }
}

/// Looks at a configuration, and at the files that it names.
pub(crate) fn check(config: Result<&Config, &ConfigErrors>) -> Report {
    let config = match config {
        Ok(config) => config,
        Err(errors) => {
            return Report {
                errors: errors.errors.clone(),
                warnings: Vec::new(),
            };
        }
    };
    let mut checker = Checker {
        config,
        report: Report::default(),
    };
    checker.files();
    checker.listeners();
    checker.callers();
    checker.upstream();
    checker.store();
    checker.routes();
    checker.probes();
    checker.webhooks();
    let mut report = checker.report;
    report.errors.sort();
    report.warnings.sort();
    report.warnings.dedup();
    report
}

struct Checker<'a> {
    config: &'a Config,
    report: Report,
}

impl Checker<'_> {
    fn error(&mut self, key: &str, text: impl Into<String>) {
        self.report.errors.push(self.config.finding(key, text));
    }

    fn warn(&mut self, key: &str, text: impl Into<String>) {
        self.report.warnings.push(self.config.finding(key, text));
    }

    /// A file with authorities to trust.
    fn trusted(&mut self, key: &str, setting: &'static str, file: Option<&Path>) {
        let Some(file) = file else { return };
        if let Err(reason) = tls::client(setting, Some(file), false) {
            self.error(key, reason.text);
        }
    }

    fn files(&mut self) {
        let config = self.config;
        if let Err(reason) = principal::build(&config.principal) {
            self.error(reason.key, reason.text);
        }
        if let Err(reason) = config.secrets.keyring() {
            self.error("encryption.keys", reason.to_string());
        }
        if let Err(reason) = admin::operators(&config.operators) {
            let reason = reason.trim_start_matches("operators.tokens_file: ");
            self.error("operators.tokens_file", reason);
        }
        if let Err(reason) = config.secrets.hashing() {
            self.error("secret.file", reason.to_string());
        }
        if let Err(reason) = tls::server(&config.tls) {
            self.error(reason.setting, reason.text);
        }
        let ca_file = config.upstream.ca_file.as_deref();
        self.trusted("upstream.ca_file", "upstream.ca_file", ca_file);
        let secrets = &config.secrets;
        let signs = principal::has_secret(&config.principal);
        let hmac = config.principal.jwt_key_file.iter().filter(|_| signs);
        let secret_files = secrets
            .encryption_keys
            .values()
            .map(|file| ("encryption.keys", file))
            .chain(secrets.secret_file.iter().map(|file| ("secret.file", file)))
            .chain(
                secrets
                    .secret_previous_file
                    .iter()
                    .map(|file| ("secret.previous_file", file)),
            )
            .chain(
                config
                    .tls
                    .key_file
                    .iter()
                    .map(|file| ("tls.key_file", file)),
            )
            .chain(hmac.map(|file| ("principal.jwt_key_file", file)))
            .chain(
                config
                    .operators
                    .tokens_file
                    .iter()
                    .map(|file| ("operators.tokens_file", file)),
            );
        for (key, file) in secret_files {
            if readable_by_all(file) {
                let file = file.display();
                self.warn(
                    key,
                    format!("{file} can be read by everybody: `chmod 600 {file}`"),
                );
            }
        }
    }

    fn listeners(&mut self) {
        let (top, tls) = (&self.config.top, &self.config.tls);
        if !top.admin.ip().is_loopback() {
            self.warn(
                "admin",
                "operators connect in the clear: their tokens and what they see can be read on the \
                 way; listen on 127.0.0.1, or behind a proxy that has TLS",
            );
        }
        if !top.listen.ip().is_loopback() && tls.cert_file.is_none() {
            self.warn(
                "listen",
                "clients connect in the clear: credentials and responses can be read on the way; \
                 add [tls], or a proxy in front that has it",
            );
        }
    }

    fn callers(&mut self) {
        let config = self.config;
        let open = !config.top.listen.ip().is_loopback();
        if config.principal.source == Source::Header(http::header::AUTHORIZATION) {
            self.warn("principal.source", REFRESHED);
        }
        match &config.principal.source {
            Source::Authorization => {
                self.warn("principal.source", REFRESHED);
                self.warn(
                    "principal.source",
                    "callers without `Authorization` are all \"anonymous\" and share their keys and \
                     responses: if the API knows its callers by a cookie, use \"header:NAME\" behind \
                     a proxy that verifies the cookie, or \"mtls\"",
                );
            }
            Source::Header(name) if open && config.tls.client_ca_file.is_none() => self.warn(
                "principal.source",
                format!(
                    "anybody who reaches the listener can send `{name}` and get others' \
                     responses: listen on 127.0.0.1 behind the proxy that sets it, or let only that \
                     proxy in with `client_ca_file`"
                ),
            ),
            // Also on a loopback address, where a proxy may be in front.
            Source::None => self.warn(
                "principal.source",
                "everybody is the same caller: whoever guesses a key gets another's response; \
                 unless there is one client only, use \"authorization\", \"jwt:CLAIM\", or \
                 \"header:NAME\" behind a proxy that verifies",
            ),
            Source::Jwt(_) => self.tokens(),
            Source::Header(_) | Source::Mtls => {}
        }
    }

    fn tokens(&mut self) {
        let principal = &self.config.principal;
        if let Some((bytes, wanted)) = principal::short_secret(principal) {
            self.warn(
                "principal.jwt_key_file",
                format!(
                    "the secret has {bytes} bytes and should have {wanted}: a short one can be \
                     found by guessing from any token"
                ),
            );
        }
        if principal.jwt_issuer.is_none() && principal.jwt_audience.is_empty() {
            self.warn(
                "principal.source",
                "a token for any other service with the same issuer is accepted: write \
                 `jwt_audience` or `jwt_issuer`",
            );
        }
    }

    fn upstream(&mut self) {
        let upstream = &self.config.upstream;
        let key = "upstream.urls";
        if upstream.urls.is_empty() {
            self.warn(key, "there is no upstream: `serve` will need --upstream");
        }
        for url in upstream
            .urls
            .iter()
            .filter(|url| !url.https && !url.is_loopback())
        {
            self.warn(
                key,
                format!(
                    "\"{url}\" is not encrypted: credentials can be read on the way; use https"
                ),
            );
        }
        if upstream.total_timeout <= upstream.connect_timeout {
            let total = self.config.place("upstream.total_timeout") != Place::Default;
            let (key, fix) = if total {
                ("upstream.total_timeout", "longer than `connect_timeout`")
            } else {
                ("upstream.connect_timeout", "shorter than `total_timeout`")
            };
            let text = format!(
                "a connection may take all the time that a guarded request has, and nothing is \
                 left for its answer: make it {fix}"
            );
            self.warn(key, text);
        }
        if upstream.response_timeout > upstream.total_timeout
            && self.config.place("upstream.response_timeout") != Place::Default
        {
            self.warn(
                "upstream.response_timeout",
                "it has no effect on guarded requests, which end with `total_timeout` before it",
            );
        }
    }

    fn store(&mut self) {
        if self.config.top.store == StoreUrl::Memory {
            self.warn(
                "store",
                "keys are forgotten when the process ends, and a retry after that runs again: use \
                 \"embedded:FOLDER\"",
            );
        }
    }
}

fn readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A key that everybody on the machine can read encrypts for nobody.
    #[test]
    fn secret_files_that_everybody_can_read_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hash.key");
        let bytes: Vec<u8> = (0..32).collect();
        std::fs::write(&file, bytes).unwrap();
        let mut config = Config::default();
        config.secrets.secret_file = Some(file.clone());
        for (mode, warned) in [(0o644, true), (0o640, false), (0o600, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let said = check(Ok(&config)).render();
            assert_eq!(
                said.contains("can be read by everybody"),
                warned,
                "{mode:o}: {said}"
            );
        }
    }
}
