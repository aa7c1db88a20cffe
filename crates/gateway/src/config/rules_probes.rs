//! Probes and webhooks: what of them contradicts itself, the routes, or the rest.

use http::{HeaderName, header};
use onlyonce_http::reconcile::{Notes, Rule, Template, Variable};

use super::probes::Probe;
use super::route::Route;
use super::rules::Rules;
use super::types::Source;

/// Headers that name somebody. `--print-config` shows what stands in the file.
const CREDENTIALS: [&str; 5] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
];

/// Headers of the connection, which are the gateway's own to write.
const FRAMING: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::ACCEPT_ENCODING,
];

impl Rules<'_> {
    pub(super) fn probes(&mut self) {
        let config = self.config;
        let names = config.probes.iter().map(|probe| probe.name.as_ref());
        self.named("probe", &names.collect::<Vec<_>>());
        for (index, probe) in config.probes.iter().enumerate() {
            let key = |name: &str| format!("probe[{index}].{name}");
            if probe.url.is_none() && !self.is_set(&key("url")) {
                self.wrong(
                    &key("url"),
                    "the URL is missing: write one such as \"https://api.example/payments/{key}\"",
                );
            }
            self.answers("probe", index, &probe.completed, &probe.not_found);
            self.headers(index, probe);
            self.names_callers(index, probe);
        }
    }

    pub(super) fn webhooks(&mut self) {
        let config = self.config;
        let names = config.webhooks.iter().map(|webhook| webhook.name.as_ref());
        self.named("webhook", &names.collect::<Vec<_>>());
        for (index, webhook) in config.webhooks.iter().enumerate() {
            let key = |name: &str| format!("webhook[{index}].{name}");
            if webhook.secret_file.is_none() && !self.is_set(&key("secret_file")) {
                let text = "the secret is missing: write it into a file, and its name here";
                self.wrong(&key("secret_file"), text);
            }
            if webhook.find.is_none() && !self.is_set(&key("match")) {
                self.wrong(
                    &key("match"),
                    "which operation is it about? write { pointer = \"/data/operation\", by = \
                     \"operation\" }",
                );
            }
            self.answers("webhook", index, &webhook.completed, &webhook.not_found);
            let lists = [
                ("completed", &webhook.completed),
                ("not_found", &webhook.not_found),
                ("pending", &webhook.pending),
            ];
            for (list, rules) in lists {
                if rules.iter().any(|rule| !rule.statuses.is_empty()) {
                    let text = "a webhook has no status: remove `status`, write `pointer`";
                    self.wrong(&key(list), text);
                }
            }
            if webhook.tolerance.as_secs() == 0 {
                let text = "times are signed in whole seconds: write at least \"1s\"";
                self.wrong(&key("tolerance"), text);
            }
        }
        self.webhook_listener();
    }

    fn webhook_listener(&mut self) {
        let config = self.config;
        let (listen, top) = (config.webhook_listener.listen, &config.top);
        if let Some(listen) = listen
            && [top.listen, top.admin].contains(&listen)
            && listen.port() != 0
        {
            let text = format!("{listen} is taken by `listen` or `admin`: write another port");
            self.wrong("webhooks.listen", text);
        }
        if config.webhook_listener.connections == 0 {
            self.wrong(
                "webhooks.connections",
                "0 refuses everything: write at least 1",
            );
        }
    }

    /// Names are there, are one word, and there is only one of each.
    fn named(&mut self, list: &str, names: &[Option<&String>]) {
        for (index, name) in names.iter().enumerate() {
            let key = format!("{list}[{index}].name");
            let Some(name) = name else {
                if !self.is_set(&key) {
                    self.wrong(&key, "the name is missing: routes refer to it");
                }
                continue;
            };
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.len() > 64 || !name.bytes().all(plain) {
                let text = "a name has 1 to 64 letters, digits, \"-\", \"_\" or \".\"";
                self.wrong(&key, text);
            }
            if names.iter().take(index).any(|other| *other == Some(name)) {
                self.wrong(&key, format!("another {list} is named \"{name}\" too"));
            }
        }
    }

    fn answers(&mut self, list: &str, index: usize, completed: &[Rule], not_found: &[Rule]) {
        let key = |name: &str| format!("{list}[{index}].{name}");
        if completed.is_empty() && !self.is_set(&key("completed")) {
            let text = "nothing would ever be completed: write what a success looks like";
            self.wrong(&key("completed"), text);
        }
        for status in completed.iter().flat_map(|rule| &rule.statuses) {
            if *status.start() < 400 && *status.end() >= 300 {
                let text = "a redirect is not followed, and proves nothing: leave 3xx out";
                self.wrong(&key("completed"), text);
            }
        }
        for rule in not_found {
            let absent = |status: u16| [404, 410].contains(&status);
            let empty = |status: u16| status == 204 || (status < 300 && rule.at.is_some());
            let proof = |status| absent(status) || empty(status);
            if !rule.statuses.iter().all(|range| range.clone().all(proof)) {
                self.wrong(
                    &key("not_found"),
                    "an error is no proof that nothing happened: write \"404\", \"410\" or \
                     \"204\", or a 2xx with a `pointer`",
                );
            }
        }
    }

    fn headers(&mut self, index: usize, probe: &Probe) {
        let key = |name: &str| format!("probe[{index}].{name}");
        for (name, _) in &probe.headers.0 {
            if CREDENTIALS.contains(&name.as_str()) {
                self.wrong(
                    &key("headers"),
                    format!(
                        "`{name}` is a credential, and --print-config shows this file: write it \
                         into a file of its own, and that one's name into `headers_file`"
                    ),
                );
            }
            if probe.headers_file.0.iter().any(|(other, _)| other == name) {
                let text = format!("`{name}` is in `headers_file` too: remove one");
                self.wrong(&key("headers"), text);
            }
        }
        let plain = probe.headers.0.iter().map(|(name, _)| ("headers", name));
        let files = probe.headers_file.0.iter();
        for (list, name) in plain.chain(files.map(|(name, _)| ("headers_file", name))) {
            if FRAMING.contains(name) {
                let text = format!("`{name}` is the connection's own: remove it");
                self.wrong(&key(list), text);
            }
        }
    }

    /// A caller's name may be noted only where it is one, and no credential.
    fn names_callers(&mut self, index: usize, probe: &Probe) {
        let named = probe
            .templates()
            .any(|template| template.variables().any(|it| *it == Variable::Principal));
        let principal = &self.config.principal;
        let fits = match &principal.source {
            Source::Header(_) => true,
            Source::Jwt(_) => principal.jwt_issuer.is_some(),
            Source::Authorization | Source::Mtls | Source::None => false,
        };
        if named && !fits {
            self.wrong(
                &format!("probe[{index}].url"),
                "{principal} would be stored, and here it is a credential or no name: it needs \
                 `source = \"header:NAME\"`, or \"jwt:CLAIM\" with `jwt_issuer`, in [principal]",
            );
        }
    }

    /// What a route notes for its probe. Says what of that it cannot have.
    pub(super) fn notes(&mut self, route: &Route, key: &dyn Fn(&str) -> String) -> Notes {
        let config = self.config;
        if let Some(name) = &route.webhook
            && !config
                .webhooks
                .iter()
                .any(|webhook| webhook.name.as_ref() == Some(name))
        {
            let text = format!("there is no [[webhook]] named \"{name}\"");
            self.wrong(&key("webhook"), text);
        }
        let Some(name) = &route.probe else {
            return Notes::default();
        };
        let Some(probe) = config
            .probes
            .iter()
            .find(|probe| probe.name.as_ref() == Some(name))
        else {
            let text = format!("there is no [[probe]] named \"{name}\"");
            self.wrong(&key("probe"), text);
            return Notes::default();
        };
        for variable in probe.templates().flat_map(Template::variables) {
            if let (Variable::Path(parameter), Some(path)) = (variable, &route.path)
                && !path.has_parameter(parameter)
            {
                let text = format!(
                    "the probe \"{name}\" asks with {{path:{parameter}}}, and `path` has no \
                     {{{parameter}}}"
                );
                self.wrong(&key("probe"), text);
            }
        }
        Notes::of(probe.templates())
    }
}
